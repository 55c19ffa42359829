"""Who speaks in a live session: labels come beside the text, and may revise earlier ones."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tutti
from tests import speaker_sessions
from tests.bench import CONFIG, START, Bench
from tests.fakes import silence, speech
from tutti_server.app.media.pcm import AudioFormat, Samples
from tutti_server.app.session.core.effects import Effect, EmbedSpeech, LimitSpeakers
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.observers.speaker_labels import LAST_WAIT_S, MAX_LABELS, MAX_WAITING, SpeakerLabels
from tutti_server.app.session.observers.speaker_stretches import HOP_FRAMES, SpeakersFound, SpeechStretches, Stretch
from tutti_server.app.session.session import give_up_speakers, speakers_found
from tutti_server.engine.api import SAMPLE_RATE

FRAME = SAMPLE_RATE // 50
ASKS = replace(START, max_speakers=4, words=True)
LOW, HIGH = range(1, 13), range(51, 63)
"""The words of two voices: the louder ones are the second speaker's."""


class Voices:
    """A memory that the test answers by hand."""

    def __init__(self, max_speakers: int, voices: str) -> None:
        self.opened = max_speakers, voices

    async def add(self, stretches: tuple[Stretch, ...]) -> SpeakersFound | None:
        raise AssertionError("the test answers")


class Teller:
    def open(self, max_speakers: int, voices: str) -> Voices | None:
        if voices == "bad":
            raise ValueError("damaged")
        return Voices(max_speakers, voices) if max_speakers != 9 else None


class SpeakerBench(Bench):
    """A session whose speakers the test finds by hand."""

    def __init__(self, start: commands.Start = ASKS) -> None:
        self.asked: deque[EmbedSpeech] = deque()
        self.limits: list[LimitSpeakers] = []
        super().__init__(start, replace(CONFIG, speaker_teller=Teller()))

    def perform(self, effects: list[Effect]) -> None:
        self.asked += [each for each in effects if isinstance(each, EmbedSpeech)]
        self.limits += [each for each in effects if isinstance(each, LimitSpeakers)]
        super().perform([each for each in effects if not isinstance(each, EmbedSpeech)])

    def find(self, revised: dict[int, int] | None = None) -> None:
        """Answer everything by level, and revise earlier answers."""
        while self.asked:
            stretches = self.asked.popleft().stretches
            found = {each.id: int(np.abs(each.samples).max() > 0.3) for each in stretches}
            self.perform(speakers_found(self.session, SpeakersFound(found | (revised or {}), "v1.memory")))

    def speak(self, *parts: Samples) -> None:
        """Audio of which the speakers are found as it comes."""
        for at in range(0, len(audio := np.concatenate(parts)), SAMPLE_RATE // 10):
            self.feed(audio[at : at + SAMPLE_RATE // 10])
            self.find()


@pytest.fixture
def session() -> SpeakerBench:
    return SpeakerBench()


def painted(found: Iterable[events.Speakers]) -> list[tuple[float, int]]:
    """The speaker at each tenth of a second, as a client that follows the events knows it."""
    known: dict[int, int] = {}
    for event in found:
        for span in event.spans:
            known |= dict.fromkeys(range(round(span.from_s * 10), round(span.until_s * 10)), span.speaker)
    return [(tenth / 10, speaker) for tenth, speaker in sorted(known.items())]


def test_text_and_words_get_the_speakers_that_are_known_and_events_say_who_speaks_when(session: SpeakerBench) -> None:
    session.speak(silence(0.3), speech(LOW), silence(0.9), speech(HIGH), silence(0.9))
    assert [(each.speaker, {word.speaker for word in each.words}) for each in session.of(events.Segment)] == [
        (0, {0}),
        (1, {1}),
    ]
    first_s = 0.3 + len(speech(LOW)) / SAMPLE_RATE
    for time_s, speaker in painted(session.of(events.Speakers)):
        if not first_s - 0.1 <= time_s <= first_s + 0.9:
            assert speaker == (time_s > first_s), time_s
    for event in session.of(events.Speakers):
        times = [time_s for span in event.spans for time_s in (span.from_s, span.until_s)]
        assert times == sorted(times) and all(span.from_s < span.until_s for span in event.spans)


def test_text_never_waits_and_late_labels_come_as_events(session: SpeakerBench) -> None:
    session.feed(np.concatenate((silence(0.3), speech(LOW), silence(0.9))))
    (segment,) = session.of(events.Segment)
    assert segment.speaker is None and not session.of(events.Speakers)
    session.find()
    assert {span.speaker for event in session.of(events.Speakers) for span in event.spans} == {0}


def test_a_later_answer_may_revise_an_earlier_one(session: SpeakerBench) -> None:
    session.speak(silence(0.3), speech(LOW))
    before = session.of(events.Speakers)
    session.feed(np.concatenate((speech(LOW), silence(0.9))))
    session.find(revised={0: 2})
    last = session.of(events.Speakers)[len(before)]
    assert last.spans[0].speaker == 2 and last.spans[0].from_s == before[0].spans[0].from_s


def test_stopped_waits_for_the_last_labels(session: SpeakerBench) -> None:
    session.feed(np.concatenate((silence(0.3), speech(LOW[:4]))))
    session.stop()
    assert session.of(events.Utterance) and not session.of(events.Stopped)
    session.find()
    assert [type(each) for each in session.events[-2:]] == [events.Speakers, events.Stopped]


def test_stopped_waits_for_a_limited_time_only(session: SpeakerBench) -> None:
    """After the time limit every request that waits is given up at once, and the client gets a warning."""
    session.feed(speech([*LOW, *HIGH] * 4))
    session.stop()
    assert session.limits == [LimitSpeakers(LAST_WAIT_S)] and not session.of(events.Stopped)
    session.perform(speakers_found(session.session, None))
    assert len(session.limits) == 1 and not session.of(events.Stopped)
    session.perform(give_up_speakers(session.session))
    assert [each.code for each in session.of(events.Notice)] == ["speakers_failed", "speakers_late"]
    assert isinstance(session.events[-1], events.Stopped) and session.session.is_closed
    assert session.session.receive(commands.Stop()) == [] == give_up_speakers(session.session)


def test_a_client_that_hears_of_no_revisions_waits_for_none() -> None:
    session = SpeakerBench(replace(ASKS, follows_speakers=False))
    session.feed(np.concatenate((silence(0.3), speech(LOW[:4]))))
    session.stop()
    assert session.asked and isinstance(session.events[-1], events.Stopped) and not session.limits


def test_a_network_that_is_too_slow_costs_labels_and_the_client_is_told_once() -> None:
    session = SpeakerBench(replace(ASKS, interim=False))
    for _ in range(3):
        session.feed(speech([*LOW, *HIGH] * 10))
    assert [each.code for each in session.of(events.Notice)] == ["speakers_late"]
    assert sum(len(each.stretches) for each in session.asked) <= MAX_WAITING
    text = session.text()
    session.find()
    assert session.text() == text and session.of(events.Speakers)


def test_without_an_answer_the_session_goes_on(session: SpeakerBench) -> None:
    session.feed(np.concatenate((silence(0.3), speech(LOW), silence(0.9))))
    session.asked.clear()
    session.perform(speakers_found(session.session, None))
    assert [each.code for each in session.of(events.Notice)] == ["speakers_failed"]
    session.speak(speech(HIGH), silence(0.9))
    assert session.of(events.Segment)[-1].speaker == 1


def test_a_network_that_fails_is_reported_once_until_it_answers(session: SpeakerBench) -> None:
    for n_notices in (1, 2):
        for _ in range(60):
            session.feed(speech(LOW[:1]))
            while session.asked:
                session.asked.popleft()
                session.perform(speakers_found(session.session, None))
        assert [each.code for each in session.of(events.Notice)] == ["speakers_failed"] * n_notices
        session.speak(speech(HIGH))
    assert session.of(events.Speakers)


def test_a_session_that_may_go_on_tells_its_client_the_voices() -> None:
    resumes = SpeakerBench(replace(ASKS, resumes=True))
    resumes.speak(silence(0.3), speech(LOW), silence(0.9))
    assert resumes.of(events.Utterance)[0].voices == "v1.memory"
    again = SpeakerBench(replace(ASKS, resumes=True, resume=commands.Resume((1.0,), voices="v1.earlier")))
    again.feed(np.concatenate((silence(0.3), speech(LOW), silence(0.9))))
    assert again.of(events.Utterance)[0].voices == "v1.earlier", "a connection that is lost soon loses no voices"
    once = SpeakerBench()
    once.speak(silence(0.3), speech(LOW), silence(0.9))
    assert once.of(events.Utterance)[0].voices is None


def test_windows_are_cut_wherever_on_the_timeline_a_session_begins() -> None:
    """Also in the middle between two frames, where rounding would skip every second line of the grid."""
    frame = np.ones(FRAME, np.float32)
    for origin in (0, 1, FRAME // 2, FRAME - 1):
        cutter = SpeechStretches(origin)
        found = [stretch for n in range(10 * HOP_FRAMES) for stretch in cutter.push(n * FRAME, frame, is_voiced=True)]
        starts = [each.start for each in found]
        assert len(found) in (9, 10), origin
        assert all(after - before == HOP_FRAMES * FRAME for before, after in pairwise(starts[1:]))


@given(st.randoms(use_true_random=False))
def test_following_the_events_gives_what_the_session_itself_knows(random: Random) -> None:
    """However stretches overlap, and whatever is revised or failed."""
    made = speaker_sessions.session(random, failures=0.2)
    followed, known = tutti.SpeakerTimeline(), tutti.SpeakerTimeline()
    for spans, timeline in (*((event["spans"], followed) for event in made["events"]), (made["known"], known)):
        assert all(before["until_s"] <= after["from_s"] for before, after in pairwise(spans))
        timeline.apply(tutti.Speakers(0, tuple(tutti.SpeakerSpan(**span) for span in spans)))
    assert followed.spans == known.spans


def test_the_sessions_that_clients_are_tested_with_are_those_of_the_server() -> None:
    """`python -m tests.speaker_sessions` writes the file anew."""
    assert speaker_sessions.FILE.read_text() == speaker_sessions.text()


def test_revising_everything_takes_little_time_and_memory() -> None:
    """Ten minutes of labels that all change at once must not hold up other sessions: one look at each is enough."""
    labels = SpeakerLabels(Voices(4, ""), 0.0, resumes=False)
    for id_ in range(MAX_LABELS + 8):
        stretch = Stretch(id=id_, start=id_ * 2 * FRAME, end=(id_ * 2 + 3) * FRAME, frames=())
        assert not list(labels._add([stretch])) and labels.submit() == (stretch,)
        labels.answered(SpeakersFound({id_: id_ % 2}, "v1"))
    assert len(labels._labels) == MAX_LABELS
    last = Stretch(id=MAX_LABELS + 8, start=0, end=FRAME, frames=())
    assert not list(labels._add([last])) and labels.submit() == (last,)
    event = labels.answered(SpeakersFound({id_: id_ % 3 for id_ in range(MAX_LABELS + 9)}, "v1"))
    assert isinstance(event, events.Speakers) and len(event.spans) > MAX_LABELS - 10


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (replace(ASKS, audio=AudioFormat("pcm_f32le", channels=2)), "more than one channel"),
        (replace(ASKS, max_speakers=9), "does not tell speakers apart"),
        (replace(ASKS, resume=commands.Resume((1.0,), voices="bad")), "resume.voices"),
    ],
)
def test_what_cannot_be_done_is_refused(start: commands.Start, message: str) -> None:
    session = SpeakerBench(start)
    assert session.failure.code == "bad_start" and message in session.failure.message


def test_speech_shorter_than_a_window_has_a_stretch_of_its_own() -> None:
    """It ends with 0.3 s of silence, and a very short one shows no new speaker."""

    def runs(*voiced: bool) -> Sequence[Stretch]:
        cutter = SpeechStretches(0)
        frames = [np.full(FRAME, 0.1 * each, np.float32) for each in voiced]
        pushed = [
            cutter.push(n * FRAME, frame, is_voiced)
            for n, (frame, is_voiced) in enumerate(zip(frames, voiced, strict=True))
        ]
        return [stretch for each in pushed for stretch in each if stretch.is_run]

    quiet = [False] * 40
    assert not runs(*quiet, *[True] * 10, *quiet)
    (short,) = runs(*quiet, *[True] * 25, *quiet)
    assert short.is_short and (short.start, short.end) == (40 * FRAME, 65 * FRAME)
    (longer,) = runs(*quiet, *[True] * 60, *quiet)
    assert not longer.is_short
    assert not runs(*quiet, *[True] * 200, *quiet)
