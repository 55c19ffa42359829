"""Turns: what was spoken before a pause decides how long the silence must be, and eager ends are reported."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from tests.bench import CONFIG, START, Bench
from tests.fakes import MODEL, segment, silence, speech
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.speech.turn_taking import AUDIO_SAMPLES
from tutti_server.engine.api import SAMPLE_RATE, Priority

SPECULATES = replace(CONFIG, speculates=True)
ADAPTIVE = commands.Endpointing(mode="adaptive")
EAGER = commands.Endpointing(eager_confidence=0.5)


def bench(endpointing: commands.Endpointing = ADAPTIVE) -> Bench:
    return Bench(replace(START, interim=False, endpointing=endpointing), SPECULATES)


def pause(session: Bench, seconds: float = 0.16) -> None:
    """Speech and a pause, which the engine and the turn model are asked about."""
    session.feed(np.concatenate((speech([1, 2, 3], gap_samples=640), silence(seconds))), answer=False)


def speak_and_pause(session: Bench, text: str) -> None:
    """Speech and 0.2 s of silence, which the engine decodes as this text."""
    pause(session)
    session.answer_with(segment(text, end_s=0.6))


def silence_waited_s(session: Bench, limit_s: float = 2.0) -> float:
    """How much silence the session waits for, in seconds, in steps of 20 ms."""
    for n_frames in range(round(limit_s * 50)):
        if session.of(events.Endpoint):
            break
        session.feed(silence(0.02), answer=False)
        assert n_frames < limit_s * 50 - 1, "no endpoint"
    return session.of(events.Endpoint)[0].end_s - session.of(events.Utterance)[0].end_s


def test_a_complete_sentence_ends_soon() -> None:
    """The answer to the pause ends the utterance, with its text."""
    session = bench()
    speak_and_pause(session, " What time do you close on Sunday?")
    assert silence_waited_s(session) < 0.3
    assert session.text() == "What time do you close on Sunday?"
    assert [window.priority for window in session.windows] == [Priority.SPECULATIVE]
    (endpoint,) = session.of(events.Endpoint)
    assert endpoint.confidence is not None and endpoint.confidence > 0.7


def test_an_unfinished_phrase_gets_more_time() -> None:
    """More than the usual 0.5 s, and at most what the client allows."""
    session = bench(replace(ADAPTIVE, max_silence_ms=1200))
    speak_and_pause(session, " My number is")
    assert 0.8 < silence_waited_s(session) <= 1.22


def test_a_translation_is_judged_as_english() -> None:
    """Whatever language was spoken: the last word of an English text says whether it goes on."""
    endpointing = replace(ADAPTIVE, max_silence_ms=1200)
    start = replace(START, interim=False, endpointing=endpointing, language="de", task="translate")
    session = Bench(start, SPECULATES, replace(MODEL, tasks=("transcribe", "translate")))
    speak_and_pause(session, " My number is")
    assert silence_waited_s(session) > 0.8


def test_without_a_text_the_usual_silence_ends_the_utterance() -> None:
    """The engine was too slow, or the text is probably a hallucination."""
    session = bench()
    pause(session, 0.42)
    assert not session.of(events.Endpoint)
    session.feed(silence(0.1), answer=False)
    assert session.of(events.Endpoint)[0].confidence is None


def test_an_eager_end_is_reported_and_then_the_end() -> None:
    """With the same text, and the confidence that there was."""
    session = bench(EAGER)
    speak_and_pause(session, " What time do you close on Sunday?")
    (eager_end,) = session.of(events.EagerEnd)
    assert eager_end.text == "What time do you close on Sunday?" and eager_end.confidence > 0.7
    assert not session.of(events.Endpoint)
    session.feed(silence(0.5), answer=False)
    assert session.text() == eager_end.text and not session.of(events.SpeechResumed)


def test_speech_that_goes_on_takes_an_eager_end_back() -> None:
    """Once; the next pause is judged anew."""
    session = bench(EAGER)
    speak_and_pause(session, " I close.")
    session.feed(speech([4, 5, 6], gap_samples=640), answer=False)
    assert len(session.of(events.SpeechResumed)) == 1
    session.feed(silence(0.16), answer=False)
    session.answer_with(segment(" I close. I go home.", end_s=1.8))
    assert [event.text for event in session.of(events.EagerEnd)] == ["I close.", "I close. I go home."]
    assert len(session.of(events.SpeechResumed)) == 1


def test_another_text_takes_an_eager_end_back() -> None:
    """A client that acts on the eager end learns that the final text is not what it acted on."""
    session = bench(EAGER)
    speak_and_pause(session, " I close.")
    # A click lengthens the audio that is decoded, and begins no speech.
    click = np.full(SAMPLE_RATE // 50, 0.3, dtype=np.float32)
    session.feed(np.concatenate((click, silence(0.6))), answer=False)
    session.answer_with(segment(" I closed.", end_s=0.6))
    kinds = [type(event) for event in session.events if isinstance(event, events.SpeechResumed | events.Utterance)]
    assert kinds == [events.SpeechResumed, events.Utterance] and session.text() == "I closed."


def test_an_unsure_end_is_not_reported() -> None:
    """Below the client's threshold, and where it asked for none."""
    for endpointing in (EAGER, commands.Endpointing()):
        session = bench(endpointing)
        speak_and_pause(session, " My number is" if endpointing.eager_confidence else " I close.")
        session.feed(silence(0.5), answer=False)
        assert not session.of(events.EagerEnd)


def test_a_server_without_speculative_finals_says_that_it_cannot_adapt() -> None:
    """The options would otherwise have no effect in silence."""
    for endpointing, option in ((ADAPTIVE, "endpointing.mode"), (EAGER, "endpointing.eager_confidence")):
        session = Bench(replace(START, endpointing=endpointing))
        (started,) = session.of(events.Started)
        assert [(notice.code, notice.message.split(":")[0]) for notice in started.notices] == [("no_effect", option)]
        assert bench(endpointing).of(events.Started)[0].notices == ()


@pytest.mark.parametrize(("was_measured", "speculates"), [(True, True), (True, False), (False, True)])
def test_the_service_chooses_the_mode_that_the_client_leaves_open(was_measured: bool, speculates: bool) -> None:
    """It is adaptive where that was measured for the model, and a pause is decoded; there is no notice.

    A text that says little about its end waits a little longer than the fixed silence.
    """
    start = replace(START, interim=False, endpointing=commands.Endpointing(mode=None))
    model = replace(MODEL, adaptive_endpointing=was_measured)
    session = Bench(start, replace(CONFIG, speculates=speculates), model)
    (started,) = session.of(events.Started)
    assert not started.notices
    if was_measured and speculates:
        speak_and_pause(session, " My number is")
        assert silence_waited_s(session) > 0.7
    else:
        session.feed(np.concatenate((speech([1, 2, 3], gap_samples=640), silence(0.6))))
        assert len(session.of(events.Endpoint)) == 1


def test_a_service_that_chooses_waits_where_the_text_is_not_known() -> None:
    """A fixed silence may be shorter: what it costs in errors is measured."""
    model = replace(MODEL, adaptive_endpointing=True)
    session = Bench(replace(START, interim=False, endpointing=commands.Endpointing(mode=None)), SPECULATES, model)
    pause(session, 0.64)
    assert not session.of(events.Endpoint)
    session.feed(silence(0.14), answer=False)
    assert session.of(events.Endpoint)[0].confidence is None


SCORES = replace(SPECULATES, score_turn=lambda samples: asyncio.sleep(0, None))


def scored_bench(endpointing: commands.Endpointing = ADAPTIVE) -> Bench:
    """A session whose operator has a turn model; the test answers for it by `Bench.score`."""
    return Bench(replace(START, interim=False, endpointing=endpointing), SCORES)


@pytest.mark.parametrize("is_first", [True, False])
def test_the_turn_model_is_a_witness_beside_the_text(is_first: bool) -> None:
    """Whichever answers first: a model that hears an unfinished turn makes the silence longer, and the reverse."""
    waited_s = {}
    for probability in (0.02, 0.5, 0.98):
        session = scored_bench(replace(ADAPTIVE, max_silence_ms=1500))
        pause(session)
        if is_first:
            session.score(probability)
        session.answer_with(segment(" I went to the shop", end_s=0.6))
        if not is_first:
            session.score(probability)
        waited_s[probability] = silence_waited_s(session)
    assert waited_s[0.02] > waited_s[0.5] + 0.2 and waited_s[0.5] > waited_s[0.98] + 0.1


def test_an_end_is_not_taken_back_by_a_later_answer() -> None:
    """The text alone ended the utterance; the turn model, which thinks otherwise, is too late."""
    session = scored_bench()
    pause(session)
    session.answer_with(segment(" What time do you close on Sunday?", end_s=0.6))
    waited_s = silence_waited_s(session)
    n_events = len(session.events)
    session.score(0.0)
    assert waited_s < 0.3 and len(session.events) == n_events


def test_an_answer_for_an_earlier_pause_is_no_evidence() -> None:
    """The speaker has gone on since, so the usual silence holds until the new pause is judged."""
    session = scored_bench(replace(ADAPTIVE, min_silence_ms=160))
    pause(session)
    session.answer_with(segment(" I went to the shop", end_s=0.6))
    session.feed(np.concatenate((speech([4, 5, 6], gap_samples=640), silence(0.3))), answer=False)
    assert len(session.pauses) == 2
    session.answer_with(segment(" I went to the shop and bought a bag", end_s=0.6))
    session.score(1.0, 0)
    assert not session.of(events.Endpoint)
    session.score(1.0, 1)
    assert session.of(events.Endpoint)


def test_the_turn_model_is_asked_only_where_its_answer_counts() -> None:
    """Not for clients whose silence is fixed and who want no eager ends, nor on servers without a model."""
    eager, fixed, manual = scored_bench(EAGER), scored_bench(commands.Endpointing()), bench()
    for session in (eager, fixed, manual):
        pause(session)
        assert session.windows
    assert eager.pauses and not fixed.pauses and not manual.pauses


def test_the_turn_model_hears_across_the_cut_of_a_window() -> None:
    """A long utterance is cut at a pause; the model still gets its last 8 s, and of the next one nothing before."""
    session = scored_bench(replace(ADAPTIVE, min_silence_ms=160, max_utterance_s=60))
    words = speech([1, 2, 3] * 36, gap_samples=640)
    audio = np.concatenate((words, silence(0.3), speech([4, 5, 6], gap_samples=640), silence(0.16)))
    session.feed(audio)
    assert len(session.of(events.SpeechStarted)) == 1 and not session.of(events.Endpoint)
    *_, asked = session.pauses
    assert len(session.windows[-1].samples) < AUDIO_SAMPLES, "the window was cut"
    np.testing.assert_array_equal(asked.samples, audio[asked.audio_end - AUDIO_SAMPLES : asked.audio_end])
    session.feed(np.concatenate((silence(2.0), speech([7, 8, 9], gap_samples=640), silence(0.16))))
    np.testing.assert_array_equal(session.pauses[-1].samples, session.windows[-1].samples)
