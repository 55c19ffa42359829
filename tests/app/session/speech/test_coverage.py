"""Speech that a decoding attempt misses: what is decoded again, where its text goes, and what is reported."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench import CONFIG, START, Bench, check_promises
from tests.fakes import GAP_SAMPLES, MODEL, WORD_SAMPLES, decode, said, segment, silence, speech
from tutti_server.app.session.core.windows import MAX_REDECODES
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.speech.coverage import (
    LETTER_SAMPLES,
    plausible_end,
    repeats_neighbour,
    uncovered,
)
from tutti_server.engine import api
from tutti_server.engine.api import SAMPLE_RATE
from tutti_server.engine.errors import EngineOverloaded

WITHOUT_INTERIMS = replace(START, interim=False)
WORD_S = (WORD_SAMPLES + GAP_SAMPLES) / SAMPLE_RATE


def session_with(n_words: int, start: commands.Start = WITHOUT_INTERIMS) -> Bench:
    """A session with an utterance of `n_words` words, whose window waits for its answer."""
    bench = Bench(start)
    bench.feed(np.concatenate((silence(0.5), speech(range(n_words)), silence(0.6))), answer=False)
    return bench


def said_at(start_s: float, end_s: float, text: str, logprob: float = -0.2, no_speech_prob: float = 0.0) -> api.Segment:
    return segment(text, start_s, end_s, logprob=logprob, text_logprob=logprob, no_speech_prob=no_speech_prob)


def segments(bench: Bench) -> list[str]:
    return [event.text.strip() for event in bench.of(events.Segment)]


def test_missed_speech_in_the_middle_is_decoded_before_the_text_after_it_is_sent() -> None:
    """The gap is decoded alone, and its text takes its place in the order of time."""
    bench = session_with(15)
    bench.answer_one(lost=range(5, 10))
    assert segments(bench) == [said(range(5))]
    ((_, again),) = bench.waiting
    (alone,) = (event.segment.text for event in decode(again) if isinstance(event, api.SegmentEvent))
    assert alone.strip() == said(range(5, 10))
    bench.answer_all()
    check_promises(bench)
    assert segments(bench) == [said(range(5)), said(range(5, 10)), said(range(10, 15))]
    (utterance,) = bench.of(events.Utterance)
    assert utterance.uncovered == ()
    assert utterance.counts.n_redecodes == 1
    assert utterance.counts.recovered_s == pytest.approx(5 * WORD_S, abs=0.2)
    starts = [event.start_s for event in bench.of(events.Segment)]
    assert starts == pytest.approx([0.5, 0.5 + 5 * WORD_S, 0.5 + 10 * WORD_S], abs=0.05)


def test_missed_speech_has_its_own_language_where_the_client_names_none() -> None:
    """A model that writes one language often misses what another speaker says in another one."""
    bench = session_with(10)
    bench.answer_one(lost=range(4, 10))
    ((_, again),) = bench.waiting
    assert (again.options.language, again.options.languages) == (None, MODEL.languages)


def test_missed_speech_at_the_end_delays_only_the_end_of_the_utterance() -> None:
    bench = session_with(10)
    bench.answer_one(lost=range(4, 10))
    assert segments(bench) == [said(range(4))]
    assert not bench.of(events.Utterance)
    bench.answer_all()
    check_promises(bench)
    assert bench.text() == said(range(10))
    assert len(bench.windows) == 2


@pytest.mark.parametrize(("reached_s", "n_again"), [(None, 1), (10 * WORD_S, 0), (5 * WORD_S, 1)])
def test_speech_that_the_last_text_reaches_by_attention_is_not_missed(reached_s: float | None, n_again: int) -> None:
    """A timestamp that comes too early, as Whisper's do among digits, would have the end heard twice."""
    bench = session_with(10)
    ((_, window),) = bench.waiting
    latest_s = window.options.latest_end_s
    assert latest_s == pytest.approx(10 * WORD_S - 1.0 + 0.3, abs=0.15)
    text_end_s = None if reached_s is None else 0.3 + reached_s
    bench.answer_with(said_at(0.3, 0.3 + 4 * WORD_S, f" {said(range(10))}"), text_end_s=text_end_s)
    assert len(bench.waiting) == n_again
    if not n_again:
        (utterance,) = bench.of(events.Utterance)
        assert utterance.uncovered == ()
    elif text_end_s:
        # What is heard again begins after the words that were heard.
        ((_, again),) = bench.waiting
        assert len(again.samples) / SAMPLE_RATE == pytest.approx(5 * WORD_S + 0.3, abs=0.1)


def test_a_translation_says_nothing_about_where_its_words_were_spoken() -> None:
    start = replace(WITHOUT_INTERIMS, language="de", task="translate")
    bench = Bench(start, CONFIG, replace(MODEL, tasks=("transcribe", "translate")))
    bench.feed(np.concatenate((silence(0.5), speech(range(10)), silence(0.6))), answer=False)
    ((_, window),) = bench.waiting
    assert window.options.latest_end_s is None


def test_a_refused_last_text_reaches_nowhere() -> None:
    bench = session_with(10)
    texts = said_at(0.3, 0.3 + 4 * WORD_S, f" {said(range(4))}"), said_at(4.5, 5.0, " Thank you.", -3.0, 0.9)
    bench.answer_with(*texts, text_end_s=0.3 + 10 * WORD_S)
    assert segments(bench) == [said(range(4))]
    assert len(bench.waiting) == 1


def test_a_window_without_any_text_is_decoded_again_without_its_prompt() -> None:
    """The previous text may have misled the model."""
    bench = session_with(8, replace(WITHOUT_INTERIMS, prompt="Names: Kowalski.", language="de"))
    bench.answer_one(lost=range(8))
    first, again = bench.windows
    assert first.options.previous_text
    assert again.options == api.DecodeOptions(language="de")
    assert again.priority is api.Priority.FINAL
    bench.answer_all()
    assert bench.text() == said(range(8))


def test_missed_speech_is_decoded_again_once_and_then_reported() -> None:
    """If nothing is found, the utterance ends and lists the speech without text."""
    bench = session_with(15)
    bench.answer_one(lost=range(5, 10))
    bench.answer_one(lost=range(5))
    check_promises(bench)
    assert segments(bench) == [said(range(5)), said(range(10, 15))]
    (utterance,) = bench.of(events.Utterance)
    ((start_s, end_s),) = utterance.uncovered
    assert (start_s, end_s) == pytest.approx((0.5 + 5 * WORD_S, 0.5 + 10 * WORD_S), abs=0.1)
    assert (utterance.counts.n_redecodes, utterance.counts.recovered_s) == (1, 0.0)


def test_missed_speech_of_which_the_token_limit_ends_the_text_is_decoded_from_there_on() -> None:
    """A script that takes many tokens for a letter needs several decodings for a window."""
    bench = session_with(30)
    for start_s, text in ((0.3, "the first third"), (0.0, "and what follows it")):
        bench.answer_with(said_at(start_s, start_s + 10 * WORD_S, f" {text}"), is_truncated=True)
        assert len(bench.waiting) == 1
    bench.answer_one()
    check_promises(bench)
    assert bench.text() == f"the first third and what follows it {said(range(20, 30))}"
    assert [(each.uncovered, each.counts.n_redecodes) for each in bench.of(events.Utterance)] == [((), 2)]


def test_short_speech_without_text_is_reported_and_not_decoded_again() -> None:
    """An utterance without any text lists all its speech."""
    bench = session_with(1)
    bench.answer_one(lost=[0])
    (utterance,) = bench.of(events.Utterance)
    assert utterance.uncovered == ((utterance.start_s, utterance.end_s),)
    (window,) = bench.windows
    assert window.options.latest_end_s is None


def test_missed_stretches_of_a_window_are_decoded_in_order_and_bounded_in_number() -> None:
    """Two stretches are decoded again, one after the other; more are reported, so that finals come in bounded time."""
    assert MAX_REDECODES == 2
    bench = session_with(40)
    bench.answer_one(lost=[*range(5, 10), *range(15, 20), *range(25, 30)])
    assert len(bench.waiting) == 1
    bench.answer_one()
    assert len(bench.waiting) == 1
    bench.answer_one()
    check_promises(bench)
    assert bench.text() == said([*range(25), *range(30, 40)])
    (utterance,) = bench.of(events.Utterance)
    assert len(utterance.uncovered) == 1


def test_windows_keep_their_order_during_a_redecode() -> None:
    """Later windows that are done already wait for missed speech of an earlier window."""
    bench = Bench(WITHOUT_INTERIMS, replace(CONFIG, context="none", max_finals_in_flight=8))
    for turn in range(3):
        bench.feed(np.concatenate((speech(range(turn * 10, turn * 10 + 10)), silence(0.6))), answer=False)
    assert len(bench.waiting) == 3
    bench.answer_one(2)
    bench.answer_one(1, lost=range(6))
    bench.answer_one(0, lost=range(3, 8))
    assert segments(bench) == [said(range(3))]
    bench.answer_all()
    bench.stop()
    check_promises(bench)
    assert bench.text() == said(range(30))


def test_the_next_window_is_shown_redecoded_text() -> None:
    """If windows need the text before them, a re-decode comes before the next window."""
    words = [index * 7 % 80 for index in range(120)]
    bench = Bench(WITHOUT_INTERIMS)
    bench.feed(speech(words), answer=False)
    bench.give(commands.Stop())
    bench.answer_one(lost=range(30, 120))
    bench.answer_one()
    _, _, second = bench.windows
    assert second.options.previous_text.endswith(bench.of(events.Segment)[1].text)
    bench.answer_all()
    assert bench.text() == said(words)


def test_a_redecode_is_dropped_if_the_engine_has_no_room() -> None:
    """The session goes on, the stretch is reported, and the text after it is sent."""
    bench = session_with(15)
    bench.give(commands.Flush(1))
    bench.answer_one(lost=range(5, 10))
    bench.perform(bench.session.engine_error(bench.waiting.popleft()[0], EngineOverloaded(5, 5)))
    assert segments(bench) == [said(range(5)), said(range(10, 15))]
    assert len(bench.of(events.Utterance)[0].uncovered) == 1
    assert bench.events[-1] == events.Flushed(1)
    bench.feed(speech(range(20, 24)))
    bench.stop()
    check_promises(bench)
    assert bench.text() == f"{said([*range(5), *range(10, 15)])} {said(range(20, 24))}"


@pytest.mark.parametrize(
    ("again", "compression_ratio"),
    [
        (said_at(0.2, 1.5, " Thank you.", logprob=-2.1), 1.0),
        (said_at(0.2, 1.5, " Thank you.", no_speech_prob=0.9), 1.0),
        (said_at(0.2, 1.5, " ..."), 1.0),
        (said_at(0.2, 1.5, " ha ha ha ha ha ha ha ha"), 2.5),
        (said_at(0.0, 1.5, " two, three"), 1.0),
        (said_at(0.0, 1.5, " Four five"), 1.0),
    ],
)
def test_redecoded_text_that_says_nothing_new_is_dropped(again: api.Segment, compression_ratio: float) -> None:
    """Uncertain text, repetitions, and text that only repeats its neighbours are not inserted."""
    bench = session_with(15)
    bench.answer_with(said_at(0.3, 1.5, " One two three."), said_at(3.1, 4.5, " four five six"))
    bench.answer_with(again, compression_ratio=compression_ratio)
    assert bench.text() == "One two three. four five six"
    assert bench.of(events.Utterance)[0].uncovered


def test_a_few_letters_do_not_stand_for_ten_seconds() -> None:
    """The rest of a repetition ends where its letters can end; the speech after it is decoded again, or reported."""
    bench = session_with(40)
    (window,) = bench.windows
    bench.answer_with(said_at(0.3, len(window.samples) / SAMPLE_RATE, " Ha ha."), is_repetitive=True)
    (sent,) = bench.of(events.Segment)
    assert sent.end_s - sent.start_s == pytest.approx((4 + 1) * LETTER_SAMPLES / SAMPLE_RATE)
    _, again = bench.windows
    assert len(again.samples) < len(window.samples) - 2 * SAMPLE_RATE
    bench.answer_with()
    check_promises(bench)
    (utterance,) = bench.of(events.Utterance)
    assert utterance.uncovered[0][0] - sent.end_s < 2 * WORD_S
    assert utterance.uncovered[-1][1] == pytest.approx(utterance.end_s)


def test_what_repeats_a_refused_text_is_refused() -> None:
    """The model is sure of a phrase that it has just made up, also when the audio is decoded again."""
    made_up = said_at(0.3, 2.0, " I'm going to add the chicken.", logprob=-2.1)
    once_more = replace(made_up, start_s=2.0, end_s=4.0, text_logprob=-0.4)
    bench = session_with(20)
    bench.answer_with(made_up, once_more)
    bench.answer_with(made_up, once_more)
    assert not bench.of(events.Segment)
    assert bench.of(events.Utterance)[0].uncovered


@pytest.mark.parametrize(("text_logprob", "is_kept"), [(-0.6, False), (-0.4, True)])
def test_text_after_a_refused_text_needs_more_trust(text_logprob: float, is_kept: bool) -> None:
    made_up = said_at(0.3, 2.0, " I'm going to add the chicken.", logprob=-2.1)
    bench = session_with(20)
    bench.answer_with(made_up, said_at(2.0, 4.0, " Four five six seven.", logprob=text_logprob))
    bench.answer_with()
    assert segments(bench) == (["Four five six seven."] if is_kept else [])


def test_text_denser_than_speech_is_dropped() -> None:
    """Text drawn at a high temperature may be endless."""
    dense = said_at(0.3, 0.9, " Good affordhood of September and Herdaff starts", logprob=-1.1)
    bench = session_with(20)
    bench.answer_with(dense)
    bench.answer_with(dense)
    assert not bench.of(events.Segment)
    assert bench.of(events.Utterance)[0].uncovered


def test_a_window_that_the_model_takes_for_silence_is_decoded_once() -> None:
    """Noise costs one decoding, unless a prompt may have misled the model."""
    for prompt, n_windows in (("", 1), ("Names: Kowalski.", 2)):
        bench = session_with(20, replace(WITHOUT_INTERIMS, prompt=prompt))
        bench.answer_with(no_speech_prob=0.9)
        bench.answer_all()
        assert len(bench.windows) == n_windows
        assert bool(bench.of(events.Utterance)[0].uncovered) == (n_windows == 1)


@given(turns=st.lists(st.integers(2, 12), min_size=1, max_size=4), pauses=st.lists(st.integers(8, 75)), data=st.data())
def test_words_are_sent_once_or_reported_whatever_is_missed(
    turns: list[int], pauses: list[int], data: st.DataObject
) -> None:
    """Each word is sent once and in order, or is listed as uncovered, and the promises hold.

    An engine that misses nothing loses nothing, whenever its answers come.
    """
    words, parts, places = 0, [silence(0.3)], []
    for turn, n_words in enumerate(turns):
        at_s = sum(map(len, parts)) / SAMPLE_RATE
        places += [(turn, at_s + index * WORD_S) for index in range(n_words)]
        parts += [speech(range(words, words + n_words)), silence(0.02 * (pauses[turn] if turn < len(pauses) else 40))]
        words += n_words
    samples = np.concatenate(parts)
    bench = Bench(replace(START, interim=data.draw(st.booleans())))
    misses = data.draw(st.booleans())

    def answer_one() -> None:
        index = data.draw(st.integers(0, len(bench.waiting) - 1))
        is_final = bench.waiting[index][1].priority is api.Priority.FINAL
        first = data.draw(st.integers(0, 20)) if misses else 0
        n_lost = data.draw(st.integers(0, 12)) if misses and is_final else 0
        bench.answer_one(index, range(first, first + n_lost))

    for at in range(0, len(samples), 3200):
        bench.feed(samples[at : at + 3200], answer=False)
        while len(bench.waiting) and data.draw(st.booleans()):
            answer_one()
    bench.give(commands.Stop())
    while bench.waiting:
        answer_one()
    check_promises(bench)
    numbers = [int(word[1:]) for word in bench.text().split()]
    assert numbers == sorted(set(numbers)), "sent twice, or out of order"
    spans = [span for utterance in bench.of(events.Utterance) for span in utterance.uncovered]
    assert all(end_s <= after_s for (_, end_s), (after_s, _) in pairwise(spans))
    lost = set(range(words)) - set(numbers)
    assert misses or (not lost and not any(each.counts.n_redecodes for each in bench.of(events.Utterance)))
    for word in lost:
        # Three words in a row without text are longer than what may go unreported.
        is_inside = {word - 1, word + 1} <= lost and places[word - 1][0] == places[word][0] == places[word + 1][0]
        if is_inside:
            assert any(start_s <= places[word][1] + 0.1 <= end_s for start_s, end_s in spans), f"w{word} has vanished"


def test_a_text_ends_where_its_letters_end_at_the_latest() -> None:
    """Only speech counts, not a pause between two words. Letters of any script count."""
    speech_spans = [(0, 4 * LETTER_SAMPLES), (20 * LETTER_SAMPLES, 30 * LETTER_SAMPLES)]
    assert plausible_end(" So.", speech_spans, 0, 4 * LETTER_SAMPLES) == 3 * LETTER_SAMPLES
    assert plausible_end(" Well, so.", speech_spans, 0, 22 * LETTER_SAMPLES) == 22 * LETTER_SAMPLES
    assert plausible_end(" Well, so.", speech_spans, 0, 30 * LETTER_SAMPLES) == 23 * LETTER_SAMPLES
    assert plausible_end("你好", speech_spans, LETTER_SAMPLES, 30 * LETTER_SAMPLES) == 4 * LETTER_SAMPLES
    assert plausible_end("7", [], 5, 10) == 10


def test_uncovered_speech_is_what_no_segment_reaches() -> None:
    assert uncovered([(0, 10), (20, 30)], [(2, 4), (8, 22)], min_samples=1) == [(0, 2), (4, 8), (22, 30)]
    assert uncovered([(0, 10), (20, 30)], [(2, 4), (8, 22)], min_samples=4) == [(4, 8), (22, 30)]


def test_repeats_are_found_in_any_script_and_spelling() -> None:
    assert repeats_neighbour(" to the end.", "It goes on to the End", "")
    assert repeats_neighbour("你好", "", "你好。再见")
    assert not repeats_neighbour(" the end is near", "to the end", "of it")
    assert repeats_neighbour(
        " A Oliver Bennett, apartment nine.", "Send it to Oliver Bennett, apartment nine.", " Harbor Street."
    )
    assert repeats_neighbour(" Harbour street", "apartment nine.", " Harbor Street.")
    assert not repeats_neighbour(" four nine", "three, four five", "")
