"""Sequences of digits that somebody reads out."""

import pytest

from tutti_server.app.text_rules.digit_runs import digit_runs


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("4111 1111 1111 1111", "4111111111111111"),
        ("4111-1111, 1111. 1111", "4111111111111111"),
        ("(415) 555-1234", "4155551234"),
        ("four one double one, uh, triple five", "4111555"),
        ("oh seven nine o two", "07902"),
        ("four for one to two", "44122"),
        ("forty one eleven", "4111"),
        ("twenty-three oh five", "2305"),
        ("sixty hundred", "6000"),
        ("A12345678", "12345678"),
        ("４１１１ ١٢٣ ②³", "411112323"),
        ("4111? Yes, 1111! Sorry: '1111'", "411111111111"),
        ("quadruple one treble two", "1111222"),
        ("4111s 1111th", "41111111"),
    ],
)
def test_a_number_that_is_read_out_is_one_sequence(text: str, digits: str) -> None:
    runs = list(digit_runs(text))
    assert [run.digits for run in runs] == [digits]
    assert (runs[0].start, runs[0].end) == (0, len(text.rstrip("'")))


def test_a_number_is_found_where_no_spaces_stand_between_words() -> None:
    for text in ("我的卡号是4111，1111好的吗", "номер4111-1111конец", "제번호는4111 1111입니다"):
        run, *others = digit_runs(text)
        assert (text[run.start : run.end], others) == (text[text.index("4") : text.rindex("1") + 1], [])


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("I have one dog and two cats", ["1", "2"]),
        ("$5, then €6", ["5", "6"]),
        ("1st of May at 3pm", []),
        ("oh for goodness' sake, two", ["2"]),
        ("one uh um er hmm two", ["1", "2"]),
        ("5% 6", ["5", "6"]),
        ("the 1990s, and 2080s", []),
        ("", []),
    ],
)
def test_words_and_signs_end_a_sequence(text: str, digits: list[str]) -> None:
    assert [run.digits for run in digit_runs(text)] == digits


@pytest.mark.parametrize(
    ("text", "goes_on"),
    [("four one", True), ("four one, uh", True), ("four for", True), ("four you", False), ("so double", True)],
)
def test_a_sequence_at_the_end_may_go_on(text: str, goes_on: bool) -> None:
    assert [run.goes_on for run in digit_runs(text)] == [goes_on]
