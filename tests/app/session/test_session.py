"""The session core: the promises of the design as properties, and the answers to single commands."""

import gc
import itertools
import math
from collections import Counter, deque
from dataclasses import replace
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench import CONFIG, START, Bench, check_promises
from tests.fakes import MODEL, LevelDetector, decode, done, pcm, said, segment, silence, speech, word
from tutti_server.app.errors import IdleTimeout, LimitExceeded, SessionError
from tutti_server.app.media.pcm import AudioFormat, Samples
from tutti_server.app.session.core.effects import Close, Submit
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.messages.commands import MAX_PENDING_FLUSHES
from tutti_server.app.session.session import Session
from tutti_server.app.session.speech.endpointing import aggressiveness
from tutti_server.app.session.text.hallucination_filter import HallucinationFilter
from tutti_server.app.text_rules.pipeline import TextRuleOptions
from tutti_server.engine import api
from tutti_server.engine.api import SAMPLE_RATE
from tutti_server.engine.errors import EngineError, EngineFailed, EngineOverloaded


@pytest.fixture
def bench() -> Bench:
    return Bench()


@st.composite
def talks(draw: st.DrawFn) -> tuple[list[int], Samples]:
    """Some turns of speech with pauses between them: the words, and the audio."""
    words: list[int] = []
    parts = [silence(draw(st.sampled_from([0.0, 0.13, 0.5])))]
    for _ in range(draw(st.integers(1, 3))):
        turn = draw(st.lists(st.integers(0, 80), min_size=2, max_size=12))
        words += turn
        parts += [speech(turn), silence(draw(st.integers(8, 75)) * 0.02)]
    return words, np.concatenate(parts)


def long_talk(n_words: int) -> tuple[list[int], Samples]:
    """Speech without any pause that would end an utterance."""
    words = [index * 7 % 80 for index in range(n_words)]
    return words, speech(words)


@pytest.mark.parametrize(("asked", "beam_size"), [(None, 2), (1, 1), (3, 3)])
def test_final_texts_have_the_beams_that_were_asked_for(asked: int | None, beam_size: int) -> None:
    """Else the operator's. Interims are greedy."""
    config = replace(CONFIG, beam_size=2)
    bench = Bench(replace(START, beam_size=asked), config=config)
    bench.feed(np.concatenate((silence(0.5), speech(range(12)), silence(1.0))))
    bench.stop()
    beams = {
        priority: {window.options.sampling.beam_size for window in bench.windows if window.priority is priority}
        for priority in (api.Priority.FINAL, api.Priority.INTERIM)
    }
    assert beams == {api.Priority.FINAL: {beam_size}, api.Priority.INTERIM: {1}}


def test_no_more_beams_than_the_engine_has_slots() -> None:
    """A client that asks for more gets an error. Where the operator has asked for more, all slots are used."""
    config = replace(CONFIG, beam_size=MODEL.n_slots + 1)
    bench = Bench(replace(START, beam_size=MODEL.n_slots + 1))
    assert bench.failure.is_fatal and f"beam_size: expected at most {MODEL.n_slots}, " in bench.failure.message
    bench = Bench(START, config=config)
    bench.feed(np.concatenate((silence(0.5), speech(range(4)), silence(1.0))))
    bench.stop()
    finals = [window for window in bench.windows if window.priority is api.Priority.FINAL]
    assert {window.options.sampling.beam_size for window in finals} == {MODEL.n_slots}


@pytest.mark.parametrize(("interim", "gap_ms"), [(True, 80), (False, 40)])
def test_speech_longer_than_a_window_is_cut_between_words(interim: bool, gap_ms: int) -> None:
    """A minute without an endpoint becomes several windows, and every word is decoded once, uncut."""
    words = [index * 7 % 80 for index in range(65 * 1000 // (200 + gap_ms))]
    bench = Bench(replace(START, interim=interim))
    bench.feed(speech(words, gap_ms * 16))
    bench.stop()
    check_promises(bench)
    assert bench.text() == said(words)
    assert len([w for w in bench.windows if w.priority is api.Priority.FINAL]) >= 3
    # A segment tells whether it may be the last of its utterance.
    segments = bench.of(events.Segment)
    last = {segment.utterance: segment.id for segment in segments}
    assert any(segment.goes_on for segment in segments)
    assert all(not segment.goes_on for segment in segments if segment.id == last[segment.utterance])


def test_windows_without_speech_are_no_backlog() -> None:
    """Each utterance that ends soon after 20 s leaves a window without speech, which keeps no other from the engine."""
    config = replace(CONFIG, context="none", max_finals_in_flight=8)
    bench = Bench(replace(START, interim=False, endpointing=commands.Endpointing(silence_ms=700)), config)
    words, samples = long_talk(20_300 // 280)
    for n_turns in (1, 2):
        bench.feed(np.concatenate((samples, silence(1.0))), answer=False)
        assert bench.session.backlog == len(bench.waiting) == n_turns
        assert len(bench.channels[0].finals) == 2 * n_turns
    bench.stop()
    check_promises(bench)
    assert bench.text() == said(words * 2)


@pytest.mark.parametrize("padding_ms", [0, 300])
def test_an_utterance_is_ended_when_it_grows_too_long(padding_ms: int) -> None:
    """`max_utterance_s` bounds what an utterance holds; no word is lost at its end, or cut where the next begins."""
    words, samples = long_talk(300)
    endpointing = commands.Endpointing(max_utterance_s=10, padding_ms=padding_ms)
    bench = Bench(replace(START, interim=False, endpointing=endpointing))
    bench.feed(samples)
    bench.stop()
    check_promises(bench)
    assert bench.text() == said(words)
    assert all(event.end_s - event.start_s <= 31 for event in bench.of(events.Utterance))
    assert len(bench.of(events.Utterance)) >= 3


@given(
    talks=st.lists(talks(), min_size=1, max_size=2),
    share=st.floats(0.1, 0.9),
    silence_ms=st.sampled_from([200, 500]),
    ends=st.sampled_from(["cut off", "drained", "drained, to be resumed", "idle, to be resumed", "flushed"]),
    lead_in_s=st.sampled_from([None, 0.0, 0.3, 2.0]),
)
def test_a_client_that_resumes_loses_and_repeats_nothing(
    talks: list[tuple[list[int], Samples]], share: float, silence_ms: int, ends: str, lead_in_s: float | None
) -> None:
    """Replaying the audio since `resume_from_s` to another server gives each word of each channel exactly once.

    So does audio before it, which only the detector hears.

    Segments that begin where the replay does, or later, come again, and are dropped. Only a client that flushes in the
    middle of a word gets it in two pieces, and one that is drained and did not say that it resumes.
    """
    n_samples = max(len(samples) for _, samples in talks)
    audio = np.stack([np.pad(samples, (0, n_samples - len(samples))) for _, samples in talks], axis=1)
    n_first = round(n_samples * share) // 1600 * 1600
    start = replace(
        START,
        audio=AudioFormat("pcm_f32le", channels=len(talks)),
        endpointing=commands.Endpointing(silence_ms=silence_ms),
        resumes=ends.endswith("to be resumed"),
    )
    first = Bench(start)
    first.feed(audio[:n_first].reshape(-1), n_channels=len(talks))
    if ends.startswith("drained"):
        first.perform(first.session.drain())
    elif ends.startswith("idle"):
        first.perform(first.session.end(IdleTimeout("no message for 60 s")))
    elif ends == "flushed":
        first.give(commands.Flush(1))
    first.answer_all()
    utterances = first.of(events.Utterance)
    from_s = utterances[-1].resume_from_s if utterances else (0.0,)
    audio_from_s = None if lead_in_s is None else max(0.0, min(from_s) - lead_in_s)
    second = Bench(replace(start, resume=commands.Resume(from_s, "", audio_from_s)))
    n_done = round((min(from_s) if audio_from_s is None else audio_from_s) * SAMPLE_RATE)
    second.feed(audio[n_done:].reshape(-1), n_channels=len(talks))
    second.stop()
    check_promises(second)
    for channel, (words, samples) in enumerate(talks):
        done_s = from_s[channel % len(from_s)]
        segments = [segment for segment in first.of(events.Segment) if segment.channel == channel]
        kept = [segment.text.strip() for segment in segments if segment.start_s < done_s]
        text = " ".join([*kept, *([second.text(channel)] if second.text(channel) else [])])
        pieces = text.split()
        is_inside_word = n_first < len(samples) and samples[n_first - 1] > 0 and samples[n_first] > 0
        if ends in ("drained", "flushed") and is_inside_word:
            # The word that the client's own flush has cut comes as two pieces, or uncut; the other words are uncut.
            pieces = [piece for piece in pieces if piece[0] == "w"]
            assert len(pieces) >= len(words) - 1
            rest = iter(said(words).split())
            assert all(piece in rest for piece in pieces), "not in order, or twice"
        else:
            assert pieces == said(words).split()


def test_final_until_waits_for_every_channel() -> None:
    """Audio that one channel has not finished cannot be forgotten, though the other channel is done."""
    left = np.concatenate((silence(0.5), speech([1, 2] * 20)))
    right = np.concatenate((silence(0.5), speech([3, 4]), silence(len(left) / SAMPLE_RATE)))[: len(left)]
    bench = Bench(replace(START, audio=AudioFormat("pcm_f32le", 16_000, 2)))
    bench.feed(np.stack((left, right), axis=1).reshape(-1))
    assert [e.channel for e in bench.of(events.Utterance)] == [1]
    assert bench.of(events.Utterance)[0].final_until_s <= 0.5


def test_words_are_timed_on_the_sessions_timeline() -> None:
    """Only finals have words. Words lie inside their segment and make up its text."""
    bench = Bench(replace(START, words=True, hotwords=("Kowalski",), resume=commands.Resume((100.0,))))
    bench.feed(np.concatenate((silence(1.0), speech([1, 2, 3]), silence(1.0), speech([4]), silence(1.0))))
    bench.stop()
    segments = bench.of(events.Segment)
    assert [segment.text for segment in segments] == [said([1, 2, 3]), said([4])]
    for each in segments:
        assert " ".join(word.text for word in each.words) == each.text
        times = [time for word in each.words for time in (word.start_s, word.end_s)]
        assert times == sorted(times) and each.start_s <= times[0] and times[-1] <= each.end_s
        assert all(word.confidence == 0.75 for word in each.words)
    assert 100.5 < segments[0].words[0].start_s < 101.5
    assert {window.options.word_times for window in bench.windows if window.priority is api.Priority.FINAL} == {True}
    assert {window.options.word_times for window in bench.windows if window.priority is api.Priority.INTERIM} == {False}
    assert {window.options.hotwords for window in bench.windows} == {("Kowalski",)}


def test_flush_ends_the_utterance_even_while_speech_goes_on(bench: Bench) -> None:
    """A flush is answered when the text of all audio before it is final."""
    bench.feed(speech([1, 2, 3, 4]), answer=False)
    bench.give(commands.Flush("turn"))
    assert not bench.of(events.Flushed)
    bench.answer_all()
    assert bench.text() == said([1, 2, 3, 4])
    assert bench.events[-1] == events.Flushed("turn")


def test_a_flush_is_answered_before_the_text_of_later_audio(bench: Bench) -> None:
    """It is so even where the engine has decoded the later audio first."""
    bench.feed(speech([1, 2]), answer=False)
    bench.give(commands.Flush("turn"))
    bench.feed(speech([3, 4]), answer=False)
    bench.give(commands.Flush("next"))
    while bench.waiting:
        bench.answer_one(-1)
    kinds = (events.Utterance, events.Flushed)
    assert [type(event) for event in bench.events if isinstance(event, kinds)] == 2 * list(kinds)
    assert bench.text() == said([1, 2, 3, 4])


def test_flush_of_a_channel_leaves_the_others_alone() -> None:
    """It is answered while they still speak."""
    both = np.repeat(speech([1, 2, 3, 4]), 2)
    bench = Bench(replace(START, audio=AudioFormat("pcm_f32le", 16_000, 2)))
    bench.feed(both)
    bench.give(commands.Flush("left", 0), answer=True)
    assert bench.events[-1] == events.Flushed("left")
    assert [utterance.channel for utterance in bench.of(events.Utterance)] == [0]
    bench.give(commands.Flush("all"), answer=True)
    assert [utterance.channel for utterance in bench.of(events.Utterance)] == [0, 1]


def test_channels_may_be_mixed_into_one() -> None:
    """There is one transcript then, of channel 0."""
    both = np.stack((speech([3, 5]), speech([3, 5])), axis=1).reshape(-1)
    bench = Bench(replace(START, audio=AudioFormat("pcm_f32le", 16_000, 2, is_mixed=True)))
    bench.feed(both, n_channels=2)
    bench.stop()
    assert bench.text(0) == said([3, 5])
    assert {utterance.channel for utterance in bench.of(events.Utterance)} == {0}


def test_every_utterance_has_an_endpoint_before_its_text_is_final(bench: Bench) -> None:
    """Silence, a flush, which the endpoint names, and the end of the session end an utterance."""
    bench.feed(np.concatenate((speech([1, 2]), silence(1.0), speech([3, 4]))), answer=False)
    bench.give(commands.Flush("turn"))
    bench.feed(speech([5, 6]), answer=False)
    bench.give(commands.Stop())
    endpoints = bench.of(events.Endpoint)
    assert [endpoint.flush for endpoint in endpoints] == [None, "turn", None]
    assert [round(endpoint.end_s, 1) for endpoint in endpoints] == [1.0, 2.1, 2.7]
    assert not bench.of(events.Utterance)
    bench.answer_all()
    check_promises(bench)


def test_a_flush_includes_what_the_resampler_held_back() -> None:
    """The last sound of a turn belongs to it, also at other rates."""
    bench = Bench(replace(START, audio=AudioFormat("pcm_f32le", 48_000)))
    bench.give(commands.Audio(pcm(np.repeat(speech([1, 2], gap_samples=0), 3))))
    bench.give(commands.Flush(1))
    (endpoint,) = bench.of(events.Endpoint)
    assert endpoint.end_s == 0.4


@pytest.mark.parametrize("mode", ["vad", "manual"])
def test_discarding_forgets_only_the_open_utterance(mode: commands.EndpointingMode) -> None:
    """Ended utterances are still decoded; the discarded one keeps its stable text, and is not decoded."""
    bench = Bench(replace(START, endpointing=commands.Endpointing(mode=mode, max_utterance_s=10)))
    bench.feed(speech([1, 2]), answer=False)
    bench.give(commands.Flush(1))
    bench.feed(speech([3, 4]), answer=False)
    bench.give(commands.Discard())
    bench.feed(speech([5, 6]), answer=False)
    bench.stop()
    check_promises(bench)
    assert bench.text() == said([1, 2, 5, 6])
    first, discarded, last = bench.of(events.Utterance)
    assert (first.is_complete, discarded.is_complete, last.is_complete) == (True, False, True)
    assert discarded.uncovered == ((discarded.start_s, discarded.end_s),)
    assert [endpoint.is_discarded for endpoint in bench.of(events.Endpoint)] == [False, True, False]
    ends = {1: 0.56, 2: 1.12}
    assert last.start_s == pytest.approx(ends[2])


def test_discarding_forgets_speech_that_was_not_announced_yet(bench: Bench) -> None:
    bench.feed(np.concatenate((silence(1.0), speech([1])[: SAMPLE_RATE // 10])))
    bench.give(commands.Discard())
    bench.feed(np.concatenate((silence(0.1), speech([2, 3]), silence(1.0))))
    bench.stop()
    (started,) = bench.of(events.SpeechStarted)
    assert bench.text() == said([2, 3]) and started.at_s == 1.2


CHANGED = commands.Configure(
    audio=START.audio,
    language="de",
    endpointing=commands.Endpointing(silence_ms=1500),
    prompt="Two.",
    hotwords=("Kowalski",),
    words=True,
)


def test_a_change_of_options_is_for_utterances_to_come() -> None:
    """The open utterance keeps its options; audio format and endpointing change at once."""
    bench = Bench(replace(START, language="en", prompt="One.", interim=False))
    bench.feed(speech([1, 2]), answer=False)
    bench.give(CHANGED)
    bench.feed(np.concatenate((silence(1.0), speech([3]), silence(2.0), speech([4]), silence(2.0))), answer=False)
    options = [window.options for window in bench.windows]
    assert [each.language for each in options] == ["en", "de"]
    assert [each.previous_text for each in options] == ["One.", "Two."]
    assert [each.hotwords for each in options] == [(), ("Kowalski",)]
    assert [each.word_times for each in options] == [False, True]
    bench.stop()
    assert [event.text for event in bench.of(events.Utterance)] == [said([1, 2, 3]), said([4])]


@pytest.mark.parametrize("rules", [TextRuleOptions(), TextRuleOptions(redact_names=("Ada",))])
@pytest.mark.parametrize("words", [False, True])
def test_an_utterance_has_words_if_it_has_begun_with_them(rules: TextRuleOptions, words: bool) -> None:
    """Text rules need the times of words in any case."""
    bench = Bench(replace(START, words=words, interim=False, text_rules=rules))
    bench.feed(speech([1, 2]))
    bench.give(replace(CHANGED, words=not words))
    bench.feed(np.concatenate((silence(2.0), speech([3]))))
    bench.stop()
    assert [bool(each.words) for each in bench.of(events.Segment)] == [words, not words]


def test_time_goes_on_when_the_encoding_changes(bench: Bench) -> None:
    """Time counts audio, not bytes."""
    bench.feed(speech([1, 2]))
    bench.give(replace(CHANGED, audio=AudioFormat("pcm_f32le", 48_000)))
    bench.give(commands.Audio(pcm(np.repeat(speech([3, 4], gap_samples=0), 3))))
    bench.stop()
    check_promises(bench)
    assert bench.of(events.Stopped)[0].audio_s == pytest.approx(0.56 + 0.4)


@pytest.mark.parametrize(("before", "after"), [("vad", "manual"), ("manual", "vad")])
def test_another_mode_ends_the_open_utterance(
    before: commands.EndpointingMode, after: commands.EndpointingMode
) -> None:
    bench = Bench(replace(START, endpointing=commands.Endpointing(mode=before, max_utterance_s=10)))
    bench.feed(speech([1, 2]))
    bench.give(replace(CHANGED, endpointing=commands.Endpointing(mode=after)))
    bench.feed(np.concatenate((silence(0.2), speech([3]))))
    bench.stop()
    check_promises(bench)
    assert [event.text for event in bench.of(events.Utterance)] == [said([1, 2]), said([3])]
    assert [event.is_detected for event in bench.of(events.SpeechStarted)] == [before == "vad", after == "vad"]


@pytest.mark.parametrize("change", [replace(CHANGED, language="xx"), replace(CHANGED, audio=AudioFormat(channels=2))])
def test_an_impossible_change_of_options_is_refused_and_changes_nothing(change: commands.Configure) -> None:
    bench = Bench()
    bench.give(change)
    (failure,) = bench.of(events.Failure)
    assert failure.code == "bad_message" and not failure.is_fatal
    bench.feed(speech([1, 2]))
    bench.stop()
    assert bench.text() == said([1, 2])


MANUAL = replace(START, endpointing=commands.Endpointing(mode="manual", max_utterance_s=10))


def test_in_manual_mode_silence_ends_no_utterance() -> None:
    """Push-to-talk: one utterance from the first audio to the flush, the next from there to the stop."""
    bench = Bench(MANUAL)
    bench.feed(np.concatenate((silence(1.0), speech([1, 2]), silence(3.0), speech([3, 4]))))
    assert [event.at_s for event in bench.of(events.SpeechStarted)] == [0.0]
    assert not bench.of(events.Utterance)
    bench.give(commands.Flush("up"), answer=True)
    assert bench.text() == said([1, 2, 3, 4])
    assert bench.events[-1] == events.Flushed("up")
    bench.feed(speech([5, 6]))
    bench.stop()
    check_promises(bench)
    assert bench.text() == said([1, 2, 3, 4, 5, 6])
    assert len(bench.of(events.Utterance)) == 2


def test_in_manual_mode_audio_without_detected_speech_is_decoded() -> None:
    """The client takes it for speech; the model may still take it for silence."""
    for no_speech_prob, text in ((0.1, "Psst."), (0.9, "")):
        bench = Bench(MANUAL)
        bench.feed(silence(2.0), answer=False)
        assert len(bench.of(events.SpeechStarted)) == 1 and not bench.windows
        bench.give(commands.Flush(1))
        bench.answer_with(segment(" Psst.", 0.2, 0.6, logprob=-0.9, text_logprob=-0.9, no_speech_prob=no_speech_prob))
        assert [(event.text, event.uncovered) for event in bench.of(events.Utterance)] == [(text, ())]
        assert bench.events[-1] == events.Flushed(1)
        assert all(len(window.samples) == 2 * SAMPLE_RATE for window in bench.windows)


@pytest.mark.parametrize("sample_rate", [16_000, 48_000])
def test_in_manual_mode_the_rest_after_a_flush_begins_no_utterance(sample_rate: int) -> None:
    """The rest may be the end of a frame, or samples that the resampler held back."""
    bench = Bench(replace(MANUAL, audio=AudioFormat("pcm_f32le", sample_rate)))
    bench.give(commands.Flush(0))
    bench.give(commands.Audio(pcm(np.repeat(speech([1, 2, 3]), sample_rate // SAMPLE_RATE)[:-100])))
    bench.give(commands.Flush(1))
    bench.give(commands.Flush(2))
    bench.stop()
    check_promises(bench)
    assert len(bench.of(events.Utterance)) == 1
    assert [event.id for event in bench.of(events.Flushed)] == [0, 1, 2]


@pytest.mark.parametrize(("min_utterance_s", "texts"), [(0.0, ["w1", "w2 w3"]), (2.0, ["w1 w2 w3"])])
def test_a_single_word_waits_for_what_may_follow(min_utterance_s: float, texts: list[str]) -> None:
    """Silence ends an utterance only after its minimum length."""
    endpointing = commands.Endpointing(silence_ms=300, min_utterance_s=min_utterance_s)
    bench = Bench(replace(START, endpointing=endpointing))
    bench.feed(np.concatenate((speech([1]), silence(0.8), speech([2, 3]), silence(1.2))))
    assert [event.text for event in bench.of(events.Utterance)] == texts
    assert len(bench.of(events.SpeechStarted)) == len(texts)


def test_flush_decodes_a_short_word_that_was_not_announced(bench: Bench) -> None:
    """A word that is too short to be detected as speech is decoded if the client flushes."""
    bench.feed(np.concatenate((silence(0.2), word(5)[: SAMPLE_RATE // 10])))
    assert not bench.of(events.SpeechStarted)
    bench.give(commands.Flush("f"), answer=True)
    check_promises(bench)
    assert bench.text() == "p5"


def test_flushes_are_bounded(bench: Bench) -> None:
    """One flush more than may wait for an answer is refused, and the session goes on."""
    bench.feed(speech([1, 2, 3]), answer=False)
    for index in range(MAX_PENDING_FLUSHES + 1):
        bench.give(commands.Flush(index))
    assert bench.failure.code == "too_many_flushes"
    bench.answer_all()
    assert len(bench.of(events.Flushed)) == MAX_PENDING_FLUSHES


def test_every_window_carries_the_last_hypothesis_as_prefix_and_draft(bench: Bench) -> None:
    """So does the final window. The engine then has little left to decode."""
    bench.feed(np.concatenate((speech([1, 2, 3, 4, 5, 6, 7, 8]), silence(0.8))))
    assert bench.windows[-1].priority is api.Priority.FINAL
    assert not bench.windows[0].options.draft
    for last, window in itertools.pairwise(bench.windows):
        done = decode(last)[-1]
        assert isinstance(done, api.DoneEvent)
        tokens = tuple(token for piece in done.pieces for token in piece.tokens)
        assert window.options.prefix + window.options.draft == tokens


@pytest.mark.parametrize(
    ("text", "no_speech_prob", "text_logprob", "is_text"),
    [
        (" Thank you.", 0.9, -0.9, False),
        (" Thank you.", 0.9, -0.1, False),
        (" Thank you.", 0.5, -0.2, True),
        (" Stop.", 0.9, -0.2, True),
        (" Thank you.", 0.05, -1.2, True),
        (" Thank you.", 0.1, -0.9, True),
        (" Thank you.", 0.1, -1.1, False),
        (" I'll see you in the next video.", 0.25, -1.1, False),
        (" Stop.", 0.2, -1.9, True),
        (" Stop.", 0.2, -2.1, False),
        (" Thank you.", 0.4, -1.4, False),
        (" Thank you for watching.", 0.45, -1.2, False),
        (" Thank you very much for watching.", 0.33, -1.2, False),
        (" Thank you very much for asking.", 0.33, -1.2, True),
        (" Thank you.", 0.33, -0.7, True),
        (" Stop.", 0.45, -0.9, True),
        (" I'm going to cut it into small pieces.", 0.2, -1.4, False),
        (" I'm going to cut it into small pieces.", 0.2, -1.2, True),
        (" I'm going to cut the onion into small pieces.", 0.095, -1.62, False),
        (" スライスを入れます。", 0.16, -1.68, False),
        (" ありがとう。", 0.16, -1.68, True),
        (" Dat is plezierlijk, ze zien er bijna ouders.", 0.05, -1.9, True),
        (" Dat is plezierlijk, ze zien er bijna ouders.", 0.05, -2.1, False),
        (" Thank you very much for watching.", 0.05, -1.4, False),
        (" ...", 0.1, -0.2, False),
    ],
)
def test_the_hallucination_filter_drops_text_of_no_speech(
    bench: Bench, text: str, no_speech_prob: float, text_logprob: float, is_text: bool
) -> None:
    """Text is dropped if the model does not trust its words, and punctuation alone is no text."""
    bench.feed(np.concatenate((speech([1] * 8), silence(0.6))), answer=False)
    made_up = segment(text, 0.0, 2.0, logprob=-1.0, text_logprob=text_logprob, no_speech_prob=no_speech_prob)
    bench.waiting.rotate(1)
    bench.answer_with(made_up, no_speech_prob=no_speech_prob)
    assert (bench.text() == text.strip()) is is_text


@pytest.mark.parametrize(
    ("n_letters", "length_s", "text_logprob", "ratio", "is_dropped"),
    [
        # Dense text is dropped if it is not trusted, or if it repeats itself.
        (41, 0.6, -1.1, 1.0, True),
        (41, 0.6, -0.9, 1.0, False),
        (41, 2.1, -1.1, 1.0, False),
        (72, 2.6, -0.3, 3.8, True),
        (72, 2.6, -1.1, 1.0, False),
        (72, 4.7, -0.3, 3.8, False),
        # A phrase that is repeated needs more evidence at any pace.
        (88, 10.0, -1.2, 2.0, True),
        (88, 10.0, -0.9, 2.0, False),
        (88, 10.0, -1.2, 1.7, False),
    ],
)
def test_text_denser_than_speech_and_repeated_text_are_dropped(
    n_letters: int, length_s: float, text_logprob: float, ratio: float, is_dropped: bool
) -> None:
    """Whisper says "cut it into pieces" three times for the noise of dishes; people who repeat themselves are clear."""
    said = segment("x" * n_letters, 0.0, length_s, text_logprob=text_logprob, compression_ratio=ratio)
    assert HallucinationFilter().is_implausibly_dense(said) is is_dropped


@pytest.mark.parametrize(
    ("logprobs", "no_speech_prob", "shown"),
    [
        ((-1.0, -0.1), 0.1, " In fact"),
        ((-1.0, -0.3), 0.1, " In"),
        ((-1.2, -0.1), 0.1, ""),
        ((-2.1, -0.1), 0.1, ""),
        ((-0.5, -0.5), 0.7, ""),
    ],
)
def test_words_are_shown_up_to_the_first_without_evidence(
    bench: Bench, logprobs: tuple[float, float], no_speech_prob: float, shown: str
) -> None:
    """Whisper writes "Thank you." for the first breath; a probable first word is shown at once."""
    bench.feed(speech([1] * 3), answer=False)
    job, window = bench.waiting.pop()
    assert window.priority is api.Priority.INTERIM
    pieces = tuple(api.Piece((1,), word, logprob=each) for word, each in zip((" In", " fact"), logprobs, strict=True))
    answer = done(" In fact", pieces=pieces, no_speech_prob=no_speech_prob)
    bench.tell(job, answer)
    assert [interim.tail for interim in bench.of(events.Interim)] == ([shown.strip()] if shown else [])


def test_text_that_became_stable_keeps_the_confidence_of_its_interims(bench: Bench) -> None:
    """The engine chooses only what follows it: here an uncertain timestamp, and "yes." in the final text."""
    words = {" In": -0.05, " fact": -0.1, " yes": -0.2}
    pieces = tuple(api.Piece((n,), word, logprob=logprob) for n, (word, logprob) in enumerate(words.items(), start=1))
    for _ in range(2):
        bench.feed(speech([1] * 3), answer=False)
        job, _ = bench.waiting.pop()
        bench.tell(job, done("".join(words), pieces=pieces))
    assert [interim.stable for interim in bench.of(events.Interim)] == ["", "In fact"]
    assert bench.of(events.Interim)[-1].avg_logprob == pytest.approx(-(3 * 0.05 + 5 * 0.1 + 4 * 0.2) / 12)
    bench.give(commands.Stop())
    bench.answer_with(segment(" In fact yes.", logprob=-1.9, text_logprob=-0.4))
    (final,) = bench.of(events.Segment)
    assert final.confidence == pytest.approx(math.exp(-(3 * 0.05 + 5 * 0.1 + 5 * 0.4) / 13), abs=0.001)


def test_a_client_is_notified_when_final_text_is_late(bench: Bench) -> None:
    """Lag is reported while finals wait, at most once per second of audio."""
    bench.feed(np.concatenate((speech([1, 2, 3]), silence(6.0))), answer=False)
    lags = bench.of(events.Lag)
    assert 3 <= len(lags) <= 5
    assert all(lag.behind_s >= 2.0 for lag in lags)


def test_a_client_is_notified_when_interims_do_not_come(bench: Bench) -> None:
    """The lag counts from the first speech without text, however often a waiting interim is replaced."""
    bench.feed(np.concatenate((silence(1.0), speech([1] * 20))), answer=False)
    assert len(bench.windows) > 10 and len(bench.waiting) == 1
    lags = [lag.behind_s for lag in bench.of(events.Lag)]
    assert lags == pytest.approx([2.0 + index for index in range(len(lags))], abs=0.12) and len(lags) >= 3
    bench.answer_all()
    n_lags = len(bench.of(events.Lag))
    bench.feed(speech([1] * 10))
    assert len(bench.of(events.Lag)) == n_lags


@pytest.mark.parametrize("interim", [True, False])
def test_no_lag_is_reported_when_text_comes_in_time(interim: bool) -> None:
    """None is reported in long speech, in long silence, or without interims."""
    bench = Bench(replace(START, interim=interim))
    bench.feed(np.concatenate((speech([1] * 30), silence(3.0))))
    assert not bench.of(events.Lag)
    assert bench.text() == said([1] * 30)


def kept(session: Session) -> Counter[str]:
    """The objects that the session can reach, by type; without numbers."""
    counts: Counter[str] = Counter()
    seen: set[int] = set()
    left: deque[object] = deque([session])
    while left:
        each = left.pop()
        if id(each) in seen or isinstance(each, type | ModuleType | FunctionType | BuiltinFunctionType | int | float):
            continue
        seen.add(id(each))
        counts[type(each).__name__] += 1
        left.extend(gc.get_referents(each))
    return counts


@pytest.mark.parametrize("mode", ["vad", "manual"])
def test_memory_does_not_grow_with_the_session(mode: commands.EndpointingMode) -> None:
    """With interims and flushes, a session keeps as many objects and as much audio after turns as before them."""
    bench = Bench(replace(START, endpointing=commands.Endpointing(mode=mode)))
    turn = np.concatenate((speech([1, 2, 3]), silence(1.2)))
    objects, audio = [], []
    for number in range(60):
        bench.feed(turn)
        bench.give(commands.Flush(number), answer=True)
        buffer = bench.channels[0]._buffer
        audio.append(buffer.end - buffer.start)
        if number % 20 == 19:
            objects.append(kept(bench.session))
    assert len(bench.of(events.Utterance)) == 60 and not bench.jobs
    assert objects[1] == objects[2]
    assert max(audio[30:]) <= max(audio[:20])


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (replace(START, language="fr"), "language: expected"),
        (replace(START, task="translate"), "task: expected"),
        (replace(START, languages=("en", "fr")), "languages: expected a list of the model's languages (en, de)"),
        (replace(START, language="en", languages=("en", "de")), "languages: expected none beside a language"),
        (replace(START, interim_words=True), "interim_words: expected true only with interim and words, got True"),
        (replace(START, resume=commands.Resume((1.0, 2.0))), "resume.from_s: expected"),
        (replace(START, resume=commands.Resume((2.0,), "", 2.5)), "resume.audio_from_s: expected at most the least"),
        (replace(START, resume=commands.Resume((2.0,), "", 1.0, (2.5,))), "resume.detector_from_s: expected"),
        (replace(START, resume=commands.Resume((2.0,), "", 1.0, (None, None))), "resume.detector_from_s: expected"),
        (replace(START, resume=commands.Resume((1.0,), language=("en", None))), "resume.language: expected a language"),
        (
            replace(START, resume=commands.Resume((1.0,), voices="v1.x")),
            "resume.voices: expected none without speakers",
        ),
    ],
)
def test_a_start_that_cannot_be_is_refused(start: commands.Start, message: str) -> None:
    """The error names the field, what was expected, and what came."""
    bench = Bench(start)
    assert (bench.failure.code, bench.failure.is_fatal) == ("bad_start", True)
    assert bench.failure.message.startswith(message)
    assert bench.closes[0].code == 1008


def test_audio_after_stop_is_refused(bench: Bench) -> None:
    bench.feed(speech([1, 2, 3]), answer=False)
    bench.give(commands.Stop())
    bench.give(commands.Audio(pcm(word(1))))
    assert bench.failure.code == "audio_after_stop"
    bench.answer_all()
    assert bench.text() == said([1, 2, 3])
    assert bench.closes == [Close(1000, "done")]


@pytest.mark.parametrize(
    ("language", "understood"),
    [("en_us", "en"), ("German", "de"), ("auto", None)],
)
def test_a_language_may_have_any_spelling(language: str, understood: str | None) -> None:
    """At the start and in a change: every protocol comes to the session."""
    for bench in (Bench(replace(START, language=language, interim=False)), Bench(replace(START, interim=False))):
        bench.give(replace(CHANGED, audio=START.audio, language=language))
        bench.feed(np.concatenate((speech([1, 2]), silence(2.0))), answer=False)
        assert bench.windows[0].options.language == understood


def test_bytes_that_make_no_sample_are_reported_at_stop(bench: Bench) -> None:
    """Audio may be cut inside a sample, but it must not end there."""
    bench.give(commands.Audio(pcm(speech([1, 2, 3])) + b"\0\0\0"))
    bench.stop()
    assert [e.code for e in bench.of(events.Failure)] == ["incomplete_sample"]
    assert bench.text() == said([1, 2, 3])


@pytest.mark.parametrize("ends", ["drained", "engine failed"])
def test_a_client_that_resumes_keeps_its_open_utterance(ends: str) -> None:
    """The server ends the session at once and the utterance not at all: it would be cut in the middle of a word."""
    bench = Bench(replace(START, interim=False, resumes=True))
    bench.feed(np.concatenate((speech([1, 2, 3]), silence(0.6))), answer=False)
    bench.feed(speech([4]), answer=False)
    if ends == "drained":
        bench.perform(bench.session.drain())
    else:
        bench.perform(bench.session.engine_error(bench.waiting.pop()[0], EngineFailed("gone")))
    assert bench.of(events.SpeechStarted) and not bench.of(events.Utterance)
    assert bench.failure.is_fatal
    assert [close.code for close in bench.closes] == [1012 if ends == "drained" else 1011]


@pytest.mark.parametrize(("error", "code"), [(EngineFailed("gone"), 1011), (EngineOverloaded(5, 5), 1013)])
def test_a_final_that_the_engine_refuses_ends_the_session(error: EngineError, code: int) -> None:
    bench = Bench(replace(START, interim=False))
    bench.feed(np.concatenate((speech([1, 2, 3]), silence(0.6))), answer=False)
    bench.perform(bench.session.engine_error(bench.waiting.pop()[0], error))
    assert bench.failure.is_fatal
    assert bench.closes[0].code == code


def test_a_final_that_does_not_come_ends_the_session_with_a_time_to_resume_from() -> None:
    """The client learns which audio to send to another server: that which the engine did not finish."""
    bench = Bench(replace(START, interim=False))
    bench.feed(np.concatenate((speech([1, 2, 3]), silence(1.0))))
    bench.feed(np.concatenate((silence(1.0), speech([4, 5, 6]), silence(0.6))), answer=False)
    bench.perform(bench.session.engine_stalled(bench.waiting[0][0], 30.0))
    check_promises(bench)
    done, stalled = bench.of(events.Utterance)
    assert (done.text, stalled.text) == (said([1, 2, 3]), "")
    assert stalled.uncovered == ((stalled.start_s, stalled.end_s),)
    assert done.end_s < stalled.final_until_s <= stalled.start_s
    assert (bench.failure.code, bench.closes[0].code) == ("engine_stalled", 1011)


@pytest.mark.parametrize("pause_ms", range(440, 540, 20))
def test_an_utterance_never_ends_inside_the_next_word(pause_ms: int) -> None:
    """A word after a pause of about the endpoint's length is uncut, in this utterance or in the next."""
    bench = Bench(replace(START, interim=False))
    bench.feed(np.concatenate((speech([1, 2, 3], 0), silence(pause_ms / 1000), speech([4, 5, 6]), silence(1.0))))
    bench.stop()
    assert bench.text() == said([1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize(
    ("resumes", "error"),
    [
        (False, IdleTimeout("no message for 60 s")),
        # A client could not resume after this error.
        (True, LimitExceeded("too_big", "too large", 1009)),
    ],
)
def test_the_audio_so_far_is_made_final_before_the_server_ends_a_session(resumes: bool, error: SessionError) -> None:
    """A client that breaks a limit still gets the text of the audio before."""
    bench = Bench(replace(START, resumes=resumes))
    bench.feed(speech([1, 2, 3, 4]), answer=False)
    bench.perform(bench.session.end(error))
    assert not bench.closes
    bench.give(commands.Flush("late"))
    bench.give(commands.Audio(pcm(speech([5, 6]))), answer=True)
    check_promises(bench)
    assert bench.text() == said([1, 2, 3, 4])
    assert bench.of(events.Flushed) == [events.Flushed("late")]
    assert bench.events[-1] == events.Failure(error.code, str(error), True)
    assert [close.code for close in bench.closes] == [error.close_code]


@pytest.mark.parametrize("is_open", [True, False])
def test_stable_text_becomes_final_when_the_engine_fails(bench: Bench, is_open: bool) -> None:
    """It was promised, so it is part of the utterance. Its audio is not acknowledged."""
    bench.feed(speech([1, 2, 3, 4, 5, 6, 7, 8]))
    stable = bench.of(events.Interim)[-1].stable
    bench.feed(speech([9, 10]) if is_open else silence(0.6), answer=False)
    bench.perform(bench.session.engine_error(bench.waiting[-1][0], EngineFailed("gone")))
    check_promises(bench)
    (segment,), (utterance,) = bench.of(events.Segment), bench.of(events.Utterance)
    assert segment.text == utterance.text == stable != ""
    assert utterance.uncovered[0][0] == segment.end_s
    assert utterance.final_until_s == 0.0


def test_stable_text_is_sent_once_when_the_engine_fails_after_a_part_of_it(bench: Bench) -> None:
    bench.feed(np.concatenate((speech([1, 2, 3, 4]), silence(0.2), speech([5, 6, 7, 8, 9, 10]))))
    stable = bench.of(events.Interim)[-1].stable
    bench.feed(silence(0.6), answer=False)
    job, window = bench.waiting[-1]
    bench.tell(job, next(each for each in decode(window) if isinstance(each, api.SegmentEvent)))
    assert bench.of(events.Segment)[0].text != stable
    bench.perform(bench.session.engine_error(job, EngineFailed("gone")))
    check_promises(bench)
    assert bench.text() == stable


def test_an_overloaded_engine_that_refuses_a_replaced_interim_does_not_end_the_session(bench: Bench) -> None:
    """The engine may refuse an interim that a newer one has replaced meanwhile."""
    effects = bench.session.receive(commands.Audio(pcm(speech([1] * 20))))
    older, newer = (effect.request_id for effect in effects if isinstance(effect, Submit))
    assert bench.session.engine_error(older, EngineOverloaded(5, 5)) == []
    bench.feed(speech([1] * 4), answer=False)
    assert len(bench.windows) == 1, "a second replacement must wait until the engine confirms the first"
    bench.stop()
    assert bench.text() == said([1] * 24)
    assert newer


def test_silence_is_not_decoded_for_an_interim() -> None:
    """After a cut in a pause the next window has no speech yet."""
    words = [index % 80 for index in range(80)]
    bench = Bench(replace(START, endpointing=commands.Endpointing(silence_ms=2000)))
    bench.feed(np.concatenate((speech(words), silence(2.5))))
    assert all(np.abs(window.samples).max() > 0 for window in bench.windows)


class LateDetector(LevelDetector):
    """Notices no speech in its first frames."""

    def __init__(self, n_frames: int) -> None:
        self._n_frames = n_frames

    def is_speech(self, frame: Samples) -> bool:
        self._n_frames -= 1
        return super().is_speech(frame) and self._n_frames < 0


@pytest.mark.parametrize(("late_s", "is_in_time"), [(0.0, True), (0.6, True), (1.6, False)])
def test_a_window_begins_where_the_session_resumes_although_its_detector_is_late(
    late_s: float, is_in_time: bool
) -> None:
    """Up to a second late: the window of the lost session began there. Speech before it is not transcribed again."""
    config = replace(CONFIG, make_detector=lambda: LateDetector(round((2.0 + late_s) * 50)))
    bench = Bench(replace(START, resume=commands.Resume((100.0,), "", 98.0)), config)
    before, after = speech(list(range(1, 9)))[:SAMPLE_RATE], speech(list(range(10, 22)))
    bench.feed(np.concatenate((silence(1.0), before, silence(0.1), after, silence(1.0))))
    bench.stop()
    (started,) = bench.of(events.SpeechStarted)
    if is_in_time:
        assert started.from_s == 100.0
        assert bench.text() == said(list(range(10, 22)))
    else:
        assert started.from_s > 101.0


def test_a_flush_in_audio_that_is_final_ends_nothing() -> None:
    bench = Bench(replace(START, resume=commands.Resume((100.0,), "", 98.0)))
    bench.feed(speech([1, 2, 3]))
    bench.give(commands.Flush("a"))
    assert [type(event) for event in bench.events] == [events.Started, events.Flushed]


def test_the_detector_gets_the_threshold_of_the_client() -> None:
    """At the start, and when the client changes it; none restores the operator's."""

    class Recorder(LevelDetector):
        thresholds: ClassVar[list[float | None]] = []

        def set_threshold(self, threshold: float | None) -> None:
            self.thresholds.append(threshold)

    start = replace(START, endpointing=commands.Endpointing(threshold=0.7))
    bench = Bench(start, replace(CONFIG, make_detector=Recorder))
    bench.give(replace(CHANGED, endpointing=commands.Endpointing()))
    assert Recorder.thresholds == [0.7, None]


@pytest.mark.parametrize(("threshold", "mode"), [(0.0, 0), (0.3, 1), (0.5, 2), (0.75, 3), (1.0, 3)])
def test_the_webrtc_detector_has_four_steps_of_a_threshold(threshold: float, mode: int) -> None:
    """Half is the step that it always had."""
    assert aggressiveness(threshold) == mode
