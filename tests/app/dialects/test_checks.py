"""Values that clients spell in another type."""

import pytest

from tutti_server.app.dialects.checks import Check, integer_from, is_boolean, is_text, number_from, understood


@pytest.mark.parametrize(
    ("value", "is_valid", "expected"),
    [
        ("5", integer_from(0, 9), 5),
        (" 5.0", integer_from(0, 9), 5),
        (5.0, integer_from(0, 9), 5),
        ("0.5", number_from(0, 1), 0.5),
        ("1e-1", number_from(0, 1), 0.1),
        ("1", is_boolean, True),
        (0, is_boolean, False),
        ("Yes", is_boolean, True),
        ("off", is_boolean, False),
        ("5", is_text, "5"),
    ],
)
def test_a_text_may_spell_a_value(value: object, is_valid: Check, expected: object) -> None:
    """Only where the text itself is not valid."""
    assert understood(value, is_valid) == expected
    assert type(understood(value, is_valid)) is type(expected)


@pytest.mark.parametrize(
    ("value", "is_valid"),
    [
        ("5.5", integer_from(0, 9)),
        (5.5, integer_from(0, 9)),
        (10.0, integer_from(0, 9)),
        (1.0, is_boolean),
        ("10", integer_from(0, 9)),
        ("nan", number_from(0, 1)),
        ("inf", number_from(0, float("inf"))),
        ("9" * 5000, number_from(0, float("inf"))),
        (True, integer_from(0, 9)),
        (2, is_boolean),
        ("perhaps", is_boolean),
        ("", is_boolean),
        (None, is_boolean),
        (["1"], integer_from(0, 9)),
    ],
)
def test_other_values_stay_wrong(value: object, is_valid: Check) -> None:
    assert understood(value, is_valid) is value
    assert not is_valid(value)
