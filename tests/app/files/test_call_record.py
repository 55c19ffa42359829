"""The record of a call: turns, shares, silence, overlap and interruptions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutti_server.app.files.call_record import CallRecord, Interruption, Stretch, make_record
from tutti_server.app.session.messages.events import Word


def stretch(speaker: str, start_s: float, end_s: float, text: str = "a b") -> Stretch:
    return Stretch(speaker=speaker, start_s=start_s, end_s=end_s, text=text)


def spoken(record: CallRecord) -> list[tuple[str, float, float]]:
    return [(turn.speaker, turn.start_s, turn.end_s) for turn in record.turns]


def test_a_turn_lasts_until_another_speaks_or_a_long_pause() -> None:
    stretches = [stretch("A", 0, 2), stretch("A", 4, 5), stretch("B", 6, 7), stretch("A", 8, 9), stretch("A", 13, 14)]
    record = make_record(reversed(stretches), 20)
    assert spoken(record) == [("A", 0, 5), ("B", 6, 7), ("A", 8, 9), ("A", 13, 14)]
    assert [each.text for each in record.turns[0].stretches] == ["a b", "a b"]


def test_shares_count_speech_and_not_pauses() -> None:
    """Short pauses between words are speech."""
    words = (Word("a", 0.0, 0.5, 0.9), Word("b", 0.9, 1.5, 0.9), Word("c", 5.0, 6.0, 0.9))
    record = make_record([Stretch(speaker="A", start_s=0, end_s=6, text="a b c", words=words), stretch("B", 7, 9)], 10)
    first, second = record.speakers
    assert (first.name, first.talk_s, first.n_words, first.n_turns, first.longest_turn_s) == ("A", 2.5, 3, 1, 6)
    assert (second.name, second.talk_s, second.n_words) == ("B", 2, 2)
    assert record.silence_s == 10 - 4.5
    assert record.overlap_s == 0


@pytest.mark.parametrize(
    ("by", "found"),
    [
        (stretch("B", 2, 6), [Interruption(2, "B", "A")]),
        # It begins with the other speech, or when that is nearly over.
        (stretch("B", 0.1, 6), []),
        (stretch("B", 3.8, 6), []),
        # It is an answer such as "mhm", or the other speech goes on.
        (stretch("B", 3.5, 4.2), []),
        (stretch("B", 2, 3.5), []),
    ],
)
def test_an_interruption_cuts_in_and_the_other_side_stops(by: Stretch, found: list[Interruption]) -> None:
    record = make_record([stretch("A", 0, 4), by], 10)
    assert list(record.interruptions) == found
    assert record.overlap_s == pytest.approx(min(4, by.end_s) - by.start_s)


STRETCHES = st.lists(
    st.builds(
        lambda speaker, start, length: stretch(speaker, start, start + length),
        st.sampled_from("ABC"),
        st.floats(0, 60),
        st.floats(0.1, 10),
    )
)


@given(STRETCHES)
def test_nothing_is_lost_and_times_add_up(stretches: list[Stretch]) -> None:
    record = make_record(stretches, 100)
    kept = [each for turn in record.turns for each in turn.stretches]
    assert sorted(map(id, kept)) == sorted(map(id, stretches))
    talk_s = sum(each.talk_s for each in record.speakers)
    assert sum(each.n_turns for each in record.speakers) == len(record.turns)
    # Time when three speak counts three times as talk, and once as overlap.
    assert 100 - record.silence_s + record.overlap_s <= talk_s + 1e-6
    assert talk_s <= 100 - record.silence_s + 2 * record.overlap_s + 1e-6
    assert all(each.by != each.of for each in record.interruptions)
