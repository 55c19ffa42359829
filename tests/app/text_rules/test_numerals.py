"""Spoken numbers are written in digits."""

import pytest

from tutti_server.app.text_rules.edits import apply
from tutti_server.app.text_rules.numerals import Numerals


def written(text: str) -> str:
    return apply(text, Numerals().find(text).edits)


@pytest.mark.parametrize(
    ("spoken", "expected"),
    [
        ("Your code is eight one zero three three seven.", "Your code is 810337."),
        ("call four one five double five five", "call 415555"),
        ("It has thirty five seats.", "It has 35 seats."),
        ("one thousand two hundred and fifty", "1250"),
        ("eight million two hundred thousand people", "8,200,000 people"),
        ("four hundred and twenty-five thousand", "425,000"),
        ("nineteen hundred", "1900"),
        ("in nineteen eighty eight", "in 1988"),
        ("in nineteen oh five", "in 1905"),
        ("in two thousand and eight", "in 2008"),
        ("seventy-five point two percent", "75.2%"),
        ("twenty per cent", "20%"),
        ("twenty three dollars and fifty cents", "$23.50"),
        ("one euro or nine cents", "€1 or 9 cents"),
        ("March fourteenth, nineteen eighty eight", "March 14, 1988"),
        ("the thirty first of December", "the 31st of December"),
        ("the twenty second time", "the 22nd time"),
        ("at eleven fifty five p m", "at 11:55 p m"),
        ("at ten oh five am", "at 10:05 am"),
        ("at a quarter to one", "at 12:45"),
        ("at half past eight", "at 8:30"),
        ("twenty three, forty", "23, 40"),
        ("a hundred and fifty people gave a thousand dollars", "150 people gave $1000"),
        ("two point five million dollars", "$2.5 million"),
        ("in the nineteen nineties", "in the 1990s"),
        ("the one hundred and first time", "the 101st time"),
        ("at ten thirty, not at two thirty p.m.", "at 10:30, not at 2:30 p.m."),
        ("ten past five", "5:10"),
        ("five to ten of them, between five and twenty", "5 to 10 of them, between 5 and 20"),
        ("twenty four seven, or fifty fifty", "24/7, or 50/50"),
        ("oh seven nine o two", "07902"),
        ("double oh seven", "007"),
        ("a sixty second break", "a 60 second break"),
        ("on May first", "on May 1"),
        ("I was ten oh well", "I was 10 oh well"),
    ],
)
def test_numbers_dates_amounts_and_times_are_written_in_digits(spoken: str, expected: str) -> None:
    assert written(spoken) == expected
    assert written(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("one of the three", "the second account", "it is 25 percent", "a point of view", "half of it", "ten4", ""),
        *("no one", "one moment, wait a second", "it is one am I right", "you may first ask", "two or three", "oh no"),
        *(
            "one by one",
            "a hundred",
            "double trouble",
            "in the nineties",
            "one and a half",
            "nine to five",
            "two thirds",
        ),
    ],
)
def test_what_counts_nothing_stays_words(text: str) -> None:
    assert written(text) == text
