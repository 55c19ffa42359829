"""Words of stable text keep the times with which they became stable."""

from dataclasses import replace

import numpy as np
import pytest

from tests.app.session.text.test_stabilizer import pieces
from tests.bench import START, Bench, check_promises
from tests.fakes import said, segment, silence, speech
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.text.stabilizer import Agreement, Stabilizer
from tutti_server.app.session.text.stable_word_times import Words, grow, with_stable_times
from tutti_server.engine import api
from tutti_server.engine.api import SAMPLE_RATE

WITH_WORDS = replace(START, words=True, interim_words=True)


def timed(text: str, first_s: float = 0.0, step_s: float = 0.5, probability: float = 0.5) -> Words:
    """The words of a text, one after the other, all equally long."""
    starts_s = [first_s + step_s * index for index in range(len(text.split()))]
    return tuple(
        api.Word(f" {word}", start_s, start_s + step_s, probability)
        for word, start_s in zip(text.split(), starts_s, strict=True)
    )


def of_words(words: Words, start_s: float, end_s: float) -> api.Segment:
    return segment("".join(word.text for word in words), start_s, end_s, words=words)


def test_words_keep_the_times_of_the_hypothesis_that_made_them_stable() -> None:
    """A newer hypothesis times them otherwise; only its new words count."""
    stable = grow((), timed("it is easy"), len(" it is"), 9.0)
    assert stable == timed("it is")
    stable = grow(stable, timed("it is easy to", first_s=0.25, probability=0.9), len(" it is easy"), 9.0)
    assert stable == (*timed("it is"), api.Word(" easy", 1.25, 1.75, 0.9))


def test_punctuation_that_joins_a_stable_word_changes_its_text_alone() -> None:
    stable = grow(timed("how are"), timed("how are, you all", first_s=0.25), len(" how are,"), 9.0)
    assert [word.text for word in stable] == [" how", " are,"]
    assert [word.start_s for word in stable] == [word.start_s for word in timed("how are")]


def test_the_stabilizer_divides_words_as_it_divides_the_text() -> None:
    """Also where the hypothesis goes on after a time that was made up: those words are not shown."""
    stabilizer = Stabilizer(Agreement())
    text = "<0.0> it is easy to <9.9> tell"
    for end in (16_000, 32_000):
        stabilizer.update(pieces(text), end, end / SAMPLE_RATE, timed("it is easy to tell", step_s=0.25))
    assert (stabilizer.stable, stabilizer.tail) == (" it is easy", " to")
    assert "".join(word.text for word in stabilizer.words) == " it is easy"
    assert [word.text for word in stabilizer.tail_words] == [" to"]


def test_words_that_stay_shown_keep_their_times() -> None:
    """They do not begin before the words ahead of them end, which have the times of the newest hypothesis."""
    stabilizer = Stabilizer(Agreement())
    stabilizer.update(pieces("it is easy to"), 16_000, 1.0, timed("it is easy to", step_s=0.2))
    doubted = replace(*pieces("it"), logprob=-0.9)
    stabilizer.update((*pieces("it is"), doubted), 32_000, 2.0, timed("it is it", step_s=0.3))
    assert stabilizer.stable + stabilizer.tail == " it is easy to"
    assert "".join(word.text for word in (*stabilizer.words, *stabilizer.tail_words)) == " it is easy to"
    times = [time for word in stabilizer.tail_words for time in (word.start_s, word.end_s)]
    assert times == pytest.approx([0.6, 0.6, 0.6, 0.8])


def test_a_final_segment_has_the_times_that_were_shown() -> None:
    """Its own are used after them. It begins and ends where they allow it."""
    shown = timed("it is", first_s=0.2)
    final, shown_until_s = with_stable_times(of_words(timed("it is, easy", first_s=0.6), 0.5, 0.9), shown, 0)
    assert final.words == (shown[0], replace(shown[1], text=" is,"), api.Word(" easy", 1.6, 2.1, 0.5))
    assert (final.start_s, final.end_s, shown_until_s) == (0.2, 1.2, 1.2)


def test_a_final_segment_ends_before_the_stable_words_after_it() -> None:
    shown = timed("it is")
    final, _ = with_stable_times(of_words(timed("it"), 0.0, 0.8), shown, 0)
    assert final.end_s == shown[1].start_s
    last, _ = with_stable_times(of_words(timed("is easy", first_s=0.8), 0.8, 1.8), shown, len(" it"))
    assert last.words and last.words[0] == shown[1] and last.start_s == 0.5


def test_interims_have_words_if_the_client_asks() -> None:
    """They add up to the stable text and the tail, and the final has them with the same times."""
    bench = Bench(WITH_WORDS)
    bench.feed(np.concatenate((silence(1.0), speech(range(12)), silence(1.0))))
    bench.stop()
    check_promises(bench)
    interims = bench.of(events.Interim)
    for event in interims:
        assert " ".join(word.text for word in event.stable_words) == event.stable
        assert " ".join(word.text for word in event.tail_words) == event.tail.strip()
    assert max(len(event.stable_words) for event in interims) >= 5
    assert bench.text() == said(range(12))


def test_stable_text_without_a_final_has_its_words() -> None:
    """The client discards the audio: the utterance ends with its stable text."""
    bench = Bench(WITH_WORDS)
    bench.feed(np.concatenate((silence(1.0), speech(range(12)))))
    shown = bench.of(events.Interim)[-1].stable_words
    bench.give(commands.Discard())
    bench.stop()
    check_promises(bench)
    (final,) = bench.of(events.Segment)
    assert shown and final.words == shown
