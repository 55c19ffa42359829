"""JSON objects as text, however large they are."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutti_server.app.dialects import json_text
from tutti_server.app.dialects.json_text import ITEMS_PER_PIECE, MAX_DEPTH, read_object, write_large, write_object
from tutti_server.app.errors import BadMessage

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda each: st.lists(each, max_size=8) | st.dictionaries(st.text(), each, max_size=4),
    max_leaves=30,
)


@given(st.dictionaries(st.text(), VALUES))
def test_a_large_object_is_written_like_any_other(value: dict[str, Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_text, "ITEMS_PER_PIECE", 3)
        assert write_large(value) == write_object(value)


def test_a_large_object_is_written_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So other threads run in between."""
    sizes: list[int] = []

    def note_size(value: object) -> str:
        sizes.append(len(value) if isinstance(value, list) else 1)
        return json.dumps(value)

    monkeypatch.setattr(json_text, "_text", note_size)
    words = [{"word": "a", "start": at} for at in range(1000)]
    assert json.loads(write_large({"channels": [{"alternatives": [{"words": words}]}]}))["channels"]
    assert sum(sizes) >= len(words) and max(sizes) == ITEMS_PER_PIECE


def test_a_value_that_is_not_json_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON"):
        write_large({"a": [{"b": float("nan")}]})


@pytest.mark.parametrize("number", ["1e999", "-1e999", "Infinity", "NaN"])
def test_a_number_that_no_answer_can_repeat_is_refused(number: str) -> None:
    with pytest.raises(BadMessage, match="expected a JSON object"):
        read_object(f'{{"a":[{number}]}}')


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
@pytest.mark.parametrize("value", ["1", '"\\u00e4"'])
def test_an_object_that_is_nested_too_deeply_is_refused(opening: str, closing: str, value: str) -> None:
    def nested(depth: int) -> str:
        n_inner = depth - 1
        return f'{{"b":[], "a":{opening * n_inner}{value}{closing * n_inner}}}'

    assert write_object(read_object(nested(MAX_DEPTH)))
    for depth in (MAX_DEPTH + 1, *range(980, 1000), 100_000):
        with pytest.raises(BadMessage, match=f"at most {MAX_DEPTH} levels") as error:
            read_object(nested(depth))
        assert error.value.code == "bad_json"


def test_brackets_in_texts_and_side_by_side_are_not_depth() -> None:
    message = {"a": "[" * 1000, "b": [[{}] for _ in range(1000)]}
    assert read_object(json.dumps(message)) == message
