"""Numbers that others write as text: what is read, and that no text is an error of ours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.app.conftest import Running
from tutti_server.app.numbers import MAX_CHARS, read_integer, read_number

MANY_DIGITS = "9" * 5000
"""More than Python makes a number of."""


@given(st.text(max_size=MAX_CHARS) | st.from_regex(r"[-+_0-9.eE ]{0,20}") | st.just(MANY_DIGITS))
def test_any_text_is_a_number_or_none(text: str) -> None:
    """What is read is what Python reads, but without its liberties."""
    integer, number = read_integer(text), read_number(text, -1e6, 1e6)
    assert integer is None or (text.isdecimal() and integer == int(text))
    assert number is None or (not set(text) & set("_ \n") and number == float(text))


@given(st.integers(0, 10**9), st.integers(0, 50), st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_number_within_its_limits_is_read(number: int, n_zeros: int, low: int, high: int) -> None:
    """Also with zeros before it."""
    expected = number if low <= number <= high else None
    text = "0" * n_zeros + str(number)
    assert read_integer(text, low, high) == read_number(text, low, high) == expected


@pytest.mark.parametrize("text", ["", "-1", "+1", " 1", "1\n", "1_0", "١", "²", "1.0", "0x1", MANY_DIGITS])
def test_other_text_is_no_integer(text: str) -> None:
    assert read_integer(text) is None


@pytest.mark.parametrize("text", ["", "nan", "inf", " 1", "1_0", "١", ".", "1e", "0" * 100, MANY_DIGITS])
def test_other_text_is_no_number(text: str) -> None:
    assert read_number(text, 0, 10) is None


async def test_numbers_of_paths_and_queries_are_answered(server: Running) -> None:
    """Without a key, too, where none is needed."""
    many, text, query = f"{MANY_DIGITS}.vtt", "x.vtt", f"1.vtt?mpegts={MANY_DIGITS}"
    statuses = [(await server.get(f"/captions/abc/{path}")).status_code for path in (many, text, query)]
    assert statuses == [404, 404, 400]
