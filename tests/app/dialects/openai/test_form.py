"""The fields of forms."""

import pytest

from tutti_server.app.dialects.openai.form import Form, text_fields
from tutti_server.app.errors import RequestError


def test_fields_that_remain_had_no_effect() -> None:
    form = Form([("a", "1"), ("b", "2"), ("c[]", "3")])
    assert form.text("a") == "1"
    form.ignore("a[x]")
    assert form.ignored == ("a[x]", "b", "c")


@pytest.mark.parametrize("names", [("list", "list"), ("list[]", "list[]"), ("list[0]", "list[1]")])
def test_lists_have_brackets_or_not(names: tuple[str, str]) -> None:
    form = Form(zip(names, "12", strict=True))
    assert form.texts("list") == ("1", "2")
    assert form.texts("list") == ()


@pytest.mark.parametrize(
    "fields",
    [
        [("o[type]", "x"), ("o[n]", "5"), ("o[m]", "")],
        [("o", '{"type": "x", "n": 5, "m": null}')],
        [("o", '{"type": "x", "n": "5", "m": ""}')],
    ],
)
def test_objects_are_fields_or_json(fields: list[tuple[str, str]]) -> None:
    form = Form([*fields, ("other", "x"), ("empty", "")])
    nested = form.nested("o")
    assert isinstance(nested, Form)
    assert nested.choice("o[type]", ("x", "y"), "y") == "x"
    assert nested.number("o[n]", 0, 1, 9) == 5
    assert (nested.ignored, form.ignored) == ((), ("other",))


def test_an_error_says_what_was_expected_and_what_came() -> None:
    with pytest.raises(RequestError) as raised:
        Form([("n", "12")]).number("n", 1, 1, 10)
    assert raised.value.message == "n: expected a whole number from 1 to 10, got '12'"
    assert (raised.value.status, raised.value.param) == (400, "n")
    with pytest.raises(RequestError, match="n: expected one value, got 2"):
        Form([("n", "1"), ("n", "2")]).text("n")


def test_a_file_in_place_of_text_is_refused() -> None:
    """Its value is not read, so what it asks for would not be done."""
    assert text_fields([("file", b"audio"), ("language", "en"), ("file", "more")]) == [("language", "en")]
    with pytest.raises(RequestError, match="text_rules: expected text, got a file"):
        text_fields([("text_rules", b"{}")])


@pytest.mark.parametrize("value", ['{"type": "\\ud800"}', '{"\\ud800": 1}', "{", '{"n": NaN}'])
def test_an_object_in_json_has_whole_characters(value: str) -> None:
    """Half a surrogate pair could not be repeated in an answer."""
    with pytest.raises(RequestError, match="o: expected a JSON object"):
        Form([("o", value)]).nested("o")
