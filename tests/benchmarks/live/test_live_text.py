"""What a reader sees of a live session."""

import math

import pytest

from benchmarks.live.captions import SpokenWord
from benchmarks.live.live_text import LiveText, UtteranceText, measure, measure_utterance, n_lost
from tests.app.dialects.made_events import segment, utterance
from tutti_server.app.errors import SessionError
from tutti_server.app.session.messages import events


def interim(utterance: int, stable: str, tail: str) -> events.Interim:
    return events.Interim(utterance=utterance, channel=0, start_s=0.0, end_s=1.0, stable=stable, tail=tail)


def test_text_grows_with_the_events() -> None:
    """A segment does not hide what an interim showed behind it; utterances stand in their order."""
    live = LiveText()
    live.on_event(1.0, interim(0, "one", " two three"))
    live.on_event(2.0, segment("one two", 0.0, 1.0))
    live.on_event(3.0, interim(1, "", "four"))
    live.on_event(4.0, utterance("one two five", 0.0, 1.0))
    shown = [(each.arrived_at, each.stable.strip(), each.shown.strip()) for each in live.captions]
    assert shown == [
        (1.0, "one", "one two three"),
        (2.0, "one two", "one two three"),
        (3.0, "one two", "one two three four"),
        (4.0, "one two five", "one two five four"),
    ]
    assert live.text == "one two five"
    assert live.utterances[0].interims == [(1.0, "one two three")]


def test_an_interim_has_the_segments_before_it() -> None:
    """So text that became final is not taken for text that was lost."""
    live = LiveText()
    live.on_event(1.0, interim(0, "one two", " three"))
    live.on_event(2.0, segment("one two", 0.0, 1.0))
    live.on_event(3.0, interim(0, " three", " four"))
    live.on_event(4.0, utterance("one two three four", 0.0, 1.0))
    assert measure(live, ()).n_changed == 0


def test_each_spoken_word_is_timed() -> None:
    """From its end until it stays and until it is stable; a word that never came has no time."""
    live = LiveText()
    live.on_event(1.0, interim(0, "", "one two"))
    live.on_event(2.0, interim(0, "one", " too"))
    live.on_event(3.0, utterance("one two", 0.0, 1.0))
    spoken = [SpokenWord("one", 0.0, 0.5), SpokenWord("two", 0.5, 1.0), SpokenWord("three", 1.0, 1.5)]
    found = measure(live, spoken)
    assert found.shown_s == [0.5, 2.0, math.inf]
    assert found.stable_s == [1.5, 2.0, math.inf]


def ended(*interims: tuple[float, str], final: str) -> UtteranceText:
    return UtteranceText(interims=list(interims), final=(9.0, final), start_s=1.0)


@pytest.mark.parametrize(
    ("text", "changed", "first_right_s"),
    [
        (ended((2.0, "red"), (3.0, "red green"), final="Red green."), 0, [1.0]),
        (ended((2.0, "read"), (3.0, "red grey"), final="red green"), 2, [2.0]),
        (ended((2.0, "red"), (3.0, ""), (4.0, "red"), final="red"), 1, [3.0]),
        (ended((2.0, "read"), final="red"), 1, [8.0]),
        (ended((2.0, "and red"), final="red"), 1, [8.0]),
        (ended((2.0, "red"), final=""), 1, []),
        (UtteranceText(interims=[(2.0, "red")]), 0, []),
    ],
)
def test_changes_and_the_first_right_word(text: UtteranceText, changed: int, first_right_s: list[float]) -> None:
    found = measure_utterance(text)
    assert (found.n_changed, found.first_right_s) == (changed, first_right_s)


@pytest.mark.parametrize(
    ("text", "flashed"),
    [
        (ended((2.0, "Thank you."), (3.0, "red"), final="red"), 1),
        (ended((2.0, "Thank you."), (3.0, "Bye."), final=""), 1),
        (ended((2.0, "Thank you."), final="Thank you, Ann."), 0),
        (ended((2.0, "Thank you red"), final="red"), 0),
    ],
)
def test_a_stock_phrase_that_does_not_stay_has_flashed(text: UtteranceText, flashed: int) -> None:
    """It counts once for each utterance."""
    assert measure_utterance(text).n_flashed == flashed


def test_words_that_move_are_not_lost() -> None:
    assert n_lost(["a", "b", "c"], ["x", "a", "b", "c"]) == 0
    assert n_lost(["a", "b", "c"], ["a", "c", "b"]) == 1


def test_a_failure_ends_the_measurement() -> None:
    with pytest.raises(SessionError, match="too slow"):
        LiveText().on_event(1.0, events.Failure("engine_overloaded", "too slow", False))
