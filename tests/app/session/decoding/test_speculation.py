"""Speculative finals: a pause is decoded as if the utterance ended there, and the text is ready when it does."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench import CONFIG, START, Bench, check_promises
from tests.fakes import decode, silence, speech
from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.decoding.speculation import TAIL_SAMPLES
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.speech.endpointing import FRAME_SAMPLES
from tutti_server.engine import api
from tutti_server.engine.api import SAMPLE_RATE, Priority
from tutti_server.engine.errors import EngineOverloaded

SPECULATES = replace(CONFIG, speculates=True)
MANUAL = replace(START, interim=False, endpointing=commands.Endpointing(mode="manual"))
WITHOUT_INTERIMS = replace(START, interim=False)


def bench(start: commands.Start = WITHOUT_INTERIMS) -> Bench:
    return Bench(start, SPECULATES)


def priorities(session: Bench) -> list[Priority]:
    return [window.priority for window in session.windows]


def pause(session: Bench, seconds: float = 0.16, numbers: tuple[int, ...] = (1, 2, 3)) -> None:
    """Speech, and a pause that is decoded; the engine has not answered yet."""
    session.feed(np.concatenate((speech(numbers, gap_samples=640), silence(seconds))), answer=False)


def test_the_text_is_ready_when_the_utterance_ends() -> None:
    """No final is decoded: the answer to the pause came before the endpoint, and both events come with one frame."""
    session = bench()
    pause(session)
    session.answer_all()
    session.feed(silence(0.5), answer=False)
    assert priorities(session) == [Priority.SPECULATIVE]
    kinds = [type(event) for event in session.events]
    assert kinds[-3:] == [events.Endpoint, events.Segment, events.Utterance]
    (utterance,) = session.of(events.Utterance)
    assert (utterance.text, utterance.counts.is_speculative, utterance.counts.n_speculative) == ("w1 w2 w3", True, 1)


def test_an_answer_that_comes_after_the_endpoint_is_waited_for() -> None:
    """It was begun earlier than a final would be."""
    session = bench()
    pause(session)
    job, window = session.waiting[0]
    session.tell(job, api.StartedEvent(0.0, 1))
    session.feed(silence(0.5), answer=False)
    assert not session.of(events.Utterance) and priorities(session) == [Priority.SPECULATIVE]
    session.waiting.clear()
    session.tell(job, *decode(window))
    assert session.text() == "w1 w2 w3" and session.of(events.Utterance)[0].counts.is_speculative


def test_what_waits_in_the_queue_gives_way_to_the_final() -> None:
    """A final comes first there."""
    session = bench()
    pause(session)
    session.feed(silence(0.5), answer=False)
    assert priorities(session) == [Priority.SPECULATIVE, Priority.FINAL]
    assert [window.priority for _, window in session.waiting] == [Priority.FINAL]
    session.answer_all()
    (utterance,) = session.of(events.Utterance)
    assert (utterance.text, utterance.counts.is_speculative, utterance.counts.n_speculative) == ("w1 w2 w3", False, 1)


@pytest.mark.parametrize("is_interim", [True, False])
def test_speech_that_goes_on_withdraws_what_waits(is_interim: bool) -> None:
    """And the next pause is decoded in its turn, with all the speech."""
    session = bench(replace(START, interim=is_interim))
    pause(session)
    session.feed(np.concatenate((speech([4, 5, 6]), silence(0.2))), answer=False)
    waiting = [window for _, window in session.waiting if window.priority is Priority.SPECULATIVE]
    assert len(waiting) == 1 and len(waiting[0].samples) > 1.5 * SAMPLE_RATE
    session.answer_all()
    session.feed(silence(0.5))
    assert session.text() == "w1 w2 w3 w4 w5 w6"
    assert Priority.FINAL not in priorities(session)


def test_the_text_of_a_pause_in_speech_is_shown_as_an_interim() -> None:
    """The work is not for nothing: it takes the place of the interim at the pause, and gives its draft."""
    session = bench(START)
    session.feed(np.concatenate((speech([1, 2, 3]), silence(0.12))))
    last = session.of(events.Interim)[-1]
    assert (last.stable + last.tail).split() == ["w1", "w2", "w3"]
    n_windows = len(session.windows)
    session.feed(silence(0.1))
    assert len(session.windows) == n_windows, "the pause is decoded once"
    session.feed(np.concatenate((speech([4, 5, 6]), silence(0.7))))
    assert session.text() == "w1 w2 w3 w4 w5 w6"
    assert session.windows[n_windows].options.draft or session.windows[n_windows].options.prefix


def test_a_text_that_contradicts_what_became_stable_meanwhile_is_not_shown() -> None:
    """The interim before the pause was decoded already when the pause came, and made other words stable."""
    session = bench(START)
    session.feed(speech(range(1, 9), gap_samples=640))
    session.feed(speech(range(9, 13), gap_samples=640), answer=False)
    ((interim, interim_window),) = session.waiting
    session.tell(interim, api.StartedEvent(0.0, 1))
    session.feed(silence(0.12), answer=False)
    speculative, window = session.waiting[-1]
    assert window.priority is Priority.SPECULATIVE and window.options.prefix == interim_window.options.prefix
    session.tell(interim, *decode(interim_window)[1:])
    shown = session.of(events.Interim)
    assert shown[-1].stable == "w1 w2 w3 w4 w5 w6 w7"
    others = speech([1, 2, 3, 4, 5, 26, 27, 28, 29, 30, 31, 32], gap_samples=640)
    session.tell(speculative, *decode(replace(window, samples=others)))
    assert session.of(events.Interim) == shown
    session.waiting.clear()
    session.feed(silence(0.7))
    assert session.text() == " ".join(f"w{number}" for number in range(1, 13))


@pytest.mark.parametrize("end", ["superseded", "overloaded", "stalled"])
@pytest.mark.parametrize("has_ended", [False, True])
def test_the_session_goes_on_without_it(end: str, has_ended: bool) -> None:
    """Whether the engine drops it before or after the endpoint: the window is decoded as a final then."""
    session = bench()
    pause(session)
    job, _ = session.waiting[0]
    session.tell(job, api.StartedEvent(0.0, 1))
    if has_ended:
        session.feed(silence(0.5), answer=False)
    session.waiting.clear()
    match end:
        case "superseded":
            session.tell(job, api.SupersededEvent())
        case "overloaded":
            session.perform(session.session.engine_error(job, EngineOverloaded(5, 5)))
        case "stalled":
            session.perform(session.session.engine_stalled(job, 30.0))
    session.feed(silence(0.5))
    assert priorities(session) == [Priority.SPECULATIVE, Priority.FINAL]
    (utterance,) = session.of(events.Utterance)
    assert utterance.text == "w1 w2 w3" and not utterance.counts.is_speculative
    assert not session.jobs and not session.closes


def test_text_that_does_not_begin_with_stable_text_is_decoded_anew() -> None:
    """An interim that was asked for before the pause may make text stable that the speculative final does not have."""
    session = bench(START)
    session.feed(speech([1, 2, 3]))
    session.feed(np.concatenate((speech([4, 5]), silence(0.15))), answer=False)
    job, window = session.waiting.popleft()
    session.tell(job, api.StartedEvent(0.0, 1))
    assert window.priority is Priority.SPECULATIVE
    session.channels[0]._open.stabilizer.tokens = (18, 19)  # type: ignore[union-attr]
    session.feed(silence(0.5), answer=False)
    session.tell(job, *decode(window))
    assert priorities(session)[-2:] == [Priority.SPECULATIVE, Priority.FINAL]
    assert session.windows[-1].options.prefix == (18, 19)


def test_a_discarded_utterance_withdraws_it() -> None:
    """Its audio is forgotten, so its text must be, too."""
    session = bench()
    pause(session)
    session.answer_all()
    session.give(commands.Discard())
    assert session.text() == "" and not session.jobs


def test_only_the_last_window_of_an_utterance_counts_as_speculative() -> None:
    """A long one is cut in a pause, just where its text was decoded up to. The next window has a decode of its own."""
    session = bench(replace(MANUAL, endpointing=commands.Endpointing(mode="manual", silence_ms=500)))
    words = speech([number % 80 for number in range(134)], gap_samples=0)
    session.feed(np.concatenate((silence(0.02), words, silence(0.28))))
    assert len(session.channels[0].finals) == 0 and session.channels[0].final_until > 26 * SAMPLE_RATE
    assert Priority.FINAL not in priorities(session), "the cut window has the text of the pause"
    session.feed(speech([1, 2, 3]), answer=False)
    session.give(commands.Flush(1), answer=True)
    assert priorities(session)[-1] is Priority.FINAL
    (utterance,) = session.of(events.Utterance)
    assert not utterance.counts.is_speculative


def test_a_slow_engine_is_spared() -> None:
    """Where it does not begin in time, only every tenth utterance is tried, until it does."""
    session = bench()
    for _ in range(24):
        pause(session)
        session.feed(silence(0.5), answer=False)
        session.answer_all()
    n_tried = priorities(session).count(Priority.SPECULATIVE)
    assert n_tried == 5, "1 to 3, then 13 and 23"
    for _ in range(30):
        pause(session)
        session.answer_all()
        session.feed(silence(0.5))
    assert priorities(session)[-4:] == [Priority.SPECULATIVE] * 4
    session.stop()
    check_promises(session)


parts = st.lists(
    st.one_of(
        st.tuples(st.just("speech"), st.integers(1, 8)),
        st.tuples(st.just("silence"), st.sampled_from([0.06, 0.1, 0.12, 0.2, 0.3, 0.45, 0.6, 1.2])),
        st.tuples(st.just("flush"), st.just(0)),
    ),
    min_size=1,
    max_size=14,
)


def finals(script: list[tuple[str, float]], start: commands.Start, *, speculates: bool, answers: list[bool]) -> Bench:
    """A session over the same audio, in which the engine answers after each 100 ms or not."""
    session = Bench(start, replace(CONFIG, speculates=speculates))
    number = 0
    for at, (kind, amount) in enumerate(script):
        audio: Samples
        match kind:
            case "speech":
                audio = speech(range(number, number + int(amount)))
                number += int(amount)
            case "silence":
                audio = silence(amount)
            case _:
                session.give(commands.Flush(at))
                continue
        session.feed(audio, answer=answers[at % len(answers)])
    session.stop()
    check_promises(session)
    return session


@given(parts, st.lists(st.booleans(), min_size=1, max_size=4), st.booleans(), st.sampled_from(["vad", "manual"]))
def test_finals_are_those_without_speculation(
    script: list[tuple[str, float]], answers: list[bool], interim: bool, mode: commands.EndpointingMode
) -> None:
    """Segment for segment, with the same times, however late the engine answers."""
    start = replace(START, interim=interim, endpointing=commands.Endpointing(mode=mode))
    with_it, without = (finals(script, start, speculates=each, answers=answers) for each in (True, False))
    for a, b in zip(with_it.of(events.Segment), without.of(events.Segment), strict=True):
        assert (a.text, a.start_s, a.end_s, a.utterance) == (b.text, b.start_s, b.end_s, b.utterance)
    for left, right in zip(with_it.of(events.Utterance), without.of(events.Utterance), strict=True):
        assert timeless(left) == timeless(right)


def timeless(utterance: events.Utterance) -> events.Utterance:
    """An utterance without what depends on the moment at which it was sent."""
    return replace(utterance, counts=events.DecodingCounts(), final_until_s=0.0, resume_from_s=(), detector_from_s=())


def test_the_final_is_decoded_from_the_same_audio_either_way() -> None:
    """Up to a tenth of a second of silence: so both are the same tokens, whatever the model."""
    windows = []
    for config in (CONFIG, SPECULATES):
        session = Bench(WITHOUT_INTERIMS, config)
        session.feed(np.concatenate((speech([1, 2, 3], gap_samples=640), silence(0.6))))
        (window,) = session.windows
        windows.append(window)
    assert np.array_equal(windows[0].samples, windows[1].samples)
    assert windows[0].options == windows[1].options
    last = int(np.flatnonzero(windows[0].samples)[-1])
    assert 0 <= len(windows[0].samples) - last - TAIL_SAMPLES <= FRAME_SAMPLES


def hangover(session: Bench, seconds: float) -> None:
    """Quiet that the detector takes for speech, as WebRTC's does after a word."""
    session.feed(np.full(round(seconds * SAMPLE_RATE), 0.0015, dtype=np.float32), answer=False)


@pytest.mark.parametrize("start", [WITHOUT_INTERIMS, MANUAL])
def test_a_flush_before_the_detector_notices_the_end_is_answered_at_once(start: commands.Start) -> None:
    """80 ms of quiet are enough, from the first utterance on."""
    session = bench(start)
    for _ in range(2):
        session.feed(speech([61, 62, 63], gap_samples=640))
        hangover(session, 0.1)
        session.answer_all()
        session.give(commands.Flush("now"), answer=True)
    first, second = session.of(events.Utterance)
    assert first.text == second.text == "w61 w62 w63"
    assert first.counts.is_speculative and second.counts.is_speculative
    n_samples = [len(window.samples) for window in session.windows]
    assert n_samples[0] == n_samples[-1], "both are decoded from the same audio"


def test_a_pause_that_its_client_flushes_is_decoded_once() -> None:
    """Also where the detector notices the end of speech before the flush comes."""
    session = bench()
    for _ in range(2):
        session.feed(speech([61, 62, 63], gap_samples=640))
        for seconds in (0.08, 0.03):
            session.feed(silence(seconds), answer=False)
            session.answer_all()
        session.give(commands.Flush("now"), answer=True)
    assert priorities(session) == [Priority.SPECULATIVE] * 2
    assert [utterance.counts.is_speculative for utterance in session.of(events.Utterance)] == [True, True]


def test_a_pause_that_its_client_does_not_flush_is_ready_for_the_endpoint() -> None:
    """The last utterance ended by a flush, this one by silence, and the next by a flush that comes late."""
    session = bench()
    session.feed(speech([61, 62, 63], gap_samples=640))
    session.give(commands.Flush("early"), answer=True)
    for n_silences in (6, 4):
        session.feed(speech([61, 62, 63], gap_samples=640))
        for _ in range(n_silences):
            session.feed(silence(0.1), answer=False)
            session.answer_all()
    session.give(commands.Flush("late"), answer=True)
    assert [utterance.counts.is_speculative for utterance in session.of(events.Utterance)] == [False, True, True]


def test_soft_speech_is_no_quiet() -> None:
    """What the detector takes for speech for longer than it is known to be late is decoded."""
    session = bench(MANUAL)
    session.feed(speech([61, 62, 63], gap_samples=640))
    hangover(session, 0.5)
    session.answer_all()
    session.give(commands.Flush("now"))
    assert len(session.windows[-1].samples) > 1.1 * SAMPLE_RATE
