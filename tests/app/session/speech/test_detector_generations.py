"""A session that continues a lost one makes the same windows as if nothing had been lost."""

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest

from tests.bench import CONFIG, START, Bench
from tests.fakes import LevelDetector, segment
from tests.recordings import read
from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.speech.detector_generations import RENEWAL_SAMPLES, DetectorGenerations
from tutti_server.app.session.speech.endpointing import FRAME_SAMPLES, WebRtcDetector
from tutti_server.engine.api import SAMPLE_RATE

PIECE_SAMPLES = SAMPLE_RATE // 5
"""Audio is fed in pieces of this many samples."""
CLIPS = ("hello", "train", "call", "names")


def talk(seed: int, seconds: float) -> Samples:
    """Recordings of speech in a random order, louder and quieter, with pauses between them, over noise."""
    chance = np.random.default_rng(seed)
    pieces: list[Samples] = []
    while sum(map(len, pieces)) < seconds * SAMPLE_RATE:
        pause_s = chance.choice([0.1, 0.4, 0.7, 1.5, 4.0, 25.0], p=[0.2, 0.2, 0.2, 0.2, 0.15, 0.05])
        pieces.append(np.zeros(int(pause_s * SAMPLE_RATE), np.float32))
        pieces.append(read(chance.choice(CLIPS)).astype(np.float32) / 32768 * chance.choice([0.1, 0.4, 1.0]))
    audio = np.concatenate(pieces)[: int(seconds * SAMPLE_RATE)]
    noise = chance.choice([0.0, 0.0003, 0.01]) * chance.standard_normal(len(audio))
    clipped: Samples = np.clip(audio + noise, -1, 1).astype(np.float32)
    return clipped


class RealBench(Bench):
    """A session with the real detector. The engine answers each window with one segment, made of its samples."""

    def __init__(self, start: commands.Start, make_detector: Callable[[], WebRtcDetector] = WebRtcDetector) -> None:
        super().__init__(start, replace(CONFIG, make_detector=make_detector))

    def answer_some(self, n: int) -> None:
        """Answer this many of the windows that wait."""
        for _ in range(min(n, len(self.waiting))):
            samples = self.waiting[0][1].samples
            text = " " + hashlib.sha256(samples.tobytes()).hexdigest()[:12]
            self.answer_with(segment(text, 0.0, len(samples) / SAMPLE_RATE))

    def play(self, audio: Samples, answers: Sequence[int], flushes: Sequence[int] = ()) -> None:
        """Feed all audio `(samples, channels)` and stop.

        Args:
            audio: samples, by channel.
            answers: how many windows are answered after each piece.
            flushes: the numbers of samples after which the client flushes.
        """
        ends = sorted({*range(PIECE_SAMPLES, len(audio), PIECE_SAMPLES), *flushes, len(audio)})
        for number, (at, end) in enumerate(pairwise([0, *ends])):
            self.give(commands.Audio(audio[at:end].tobytes()))
            if end in flushes:
                self.give(commands.Flush(end))
            self.answer_some(answers[number % len(answers)])
        self.give(commands.Stop())
        while self.waiting:
            self.answer_some(1)


@dataclass(frozen=True)
class Shape:
    """What a channel has sent after a time: beginnings, ends, and segments with a hash of their audio."""

    began: list[tuple[float, float]]
    ended: list[float]
    segments: list[tuple[float, float, float, str]]


def shape(bench: Bench, channel: int, since_s: float) -> Shape:
    began = [e for e in bench.of(events.SpeechStarted) if e.channel == channel and e.from_s >= since_s]
    ended = [e for e in bench.of(events.Endpoint) if e.channel == channel and e.end_s > since_s]
    segments = [e for e in bench.of(events.Segment) if e.channel == channel and e.window_start_s >= since_s]
    return Shape(
        [(e.at_s, e.from_s) for e in began],
        [e.end_s for e in ended],
        [(e.window_start_s, e.start_s, e.end_s, e.text.strip()) for e in segments],
    )


def check_resumed_anywhere(
    start: commands.Start,
    audio: Samples,
    answers: Sequence[int],
    flushes: Sequence[int] = (),
    make_detector: Callable[[], WebRtcDetector] = WebRtcDetector,
) -> Counter[str]:
    """Continue a session at each of its utterances, and compare with the rest of it. Counts what was compared."""
    whole = RealBench(start, make_detector)
    whole.play(audio, answers, flushes)
    counts: Counter[str] = Counter()
    for utterance in whole.of(events.Utterance):
        times = zip(utterance.resume_from_s, utterance.detector_from_s, strict=True)
        first_s = min(max(0.0, done_s - 10.0) if known_s is None else known_s for done_s, known_s in times)
        resume = commands.Resume(utterance.resume_from_s, "", first_s, utterance.detector_from_s)
        rest = RealBench(replace(start, resume=resume), make_detector)
        first = round(first_s * SAMPLE_RATE)
        rest.play(audio[first:], answers, [at - first for at in flushes if at > first])
        for channel, known_s in enumerate(utterance.detector_from_s):
            if known_s is None:
                counts["inside"] += 1
                continue
            done_s = utterance.resume_from_s[channel]
            assert done_s - known_s < 27.0
            assert shape(rest, channel, done_s) == shape(whole, channel, done_s)
            counts["exact"] += 1
    return counts


class ForgetfulDetector(WebRtcDetector):
    """Is new after each renewal, as Silero's is."""

    memory_samples = 0

    def __init__(self) -> None:
        super().__init__()
        self._memory = deque(maxlen=0)


@pytest.mark.parametrize("make_detector", [WebRtcDetector, ForgetfulDetector])
def test_flushes_end_the_same_windows_in_a_continued_session(make_detector: Callable[[], WebRtcDetector]) -> None:
    """The quiet at the end of a flushed window is judged by the loudness of the same audio as the speech is."""
    audio = talk(121, 30)[:, None]
    flushes = range(10334, len(audio), 21921)
    start = replace(START, interim=False)
    assert check_resumed_anywhere(start, audio, [3], flushes, make_detector)["exact"]


def test_only_a_time_inside_an_utterance_cannot_be_continued_exactly() -> None:
    """On one channel there is none, but after an utterance that was cut because it became too long."""
    start = replace(START, interim=False)
    counts = check_resumed_anywhere(start, talk(1, 40)[:, None], [3])
    assert counts["exact"] >= 5 and not counts["inside"]
    cut = replace(start, endpointing=commands.Endpointing(max_utterance_s=10.0, silence_ms=2000))
    long: Samples = np.concatenate([read("call")] * 4).astype(np.float32) / np.float32(32768)
    assert check_resumed_anywhere(cut, long[:, None], [3])["inside"]


class CountingDetector(LevelDetector):
    """Counts its renewals; depends on five frames before each."""

    memory_samples = 5 * FRAME_SAMPLES

    def __init__(self) -> None:
        self.n_renewals = 0

    def renew(self) -> None:
        self.n_renewals += 1


def test_after_a_renewal_decisions_depend_on_the_memory_of_the_detector() -> None:
    """The session has no audio before its first sample, and a cut utterance leaves the detector as it was."""
    generations = DetectorGenerations(CountingDetector(), first=320, origin=0)
    generations.renew(640)
    generations.renew(6400)
    generations.cut(9600)
    starts = [generations.start_for(at) for at in (0, 320, 6399, 6400, 9599, 9600)]
    assert starts == [None, 320, 320, 4800, 4800, None]


def test_a_detector_is_renewed_in_silence_at_the_same_times_of_every_session() -> None:
    detector = CountingDetector()
    generations = DetectorGenerations(detector, first=0, origin=RENEWAL_SAMPLES - 2 * FRAME_SAMPLES)
    renewed: list[int] = []
    for frame in range(4):
        generations.renew_in_silence(frame * FRAME_SAMPLES, (frame + 1) * FRAME_SAMPLES)
        renewed.append(detector.n_renewals)
    assert renewed == [0, 1, 1, 1]


def test_a_renewed_detector_decides_like_a_new_one_that_processed_the_last_seconds() -> None:
    frames = np.split(read("call").astype(np.float32)[: 500 * FRAME_SAMPLES] / np.float32(32768), 500)
    renewed, other = WebRtcDetector(), WebRtcDetector()
    for frame in frames[:400]:
        renewed.is_speech(frame)
    renewed.renew()
    for frame in frames[400 - WebRtcDetector.memory_samples // FRAME_SAMPLES : 400]:
        other.is_speech(frame)
    assert [renewed.is_speech(frame) for frame in frames[400:]] == [other.is_speech(frame) for frame in frames[400:]]


@pytest.mark.parametrize("detector_from_s", [99.0, 99.48])
def test_audio_before_the_detector_begins_is_dropped(detector_from_s: float) -> None:
    """As another channel needs it. The session does not hold it, and counts it as processed."""
    resume = commands.Resume((100.0,), "", 90.0, (detector_from_s,))
    bench = RealBench(replace(START, resume=resume))
    bench.give(commands.Audio(np.zeros(9 * SAMPLE_RATE - 100, np.float32).tobytes()))
    assert bench.channels[0]._buffer.end - bench.channels[0]._buffer.start == 0
    assert bench.session.audio_s == pytest.approx(9.0, abs=0.01)
    bench.give(commands.Audio(np.zeros(3 * SAMPLE_RATE, np.float32).tobytes()))
    assert bench.session.audio_s == pytest.approx(12.0, abs=0.03)


def test_frames_that_are_prepared_together_are_decided_as_alone() -> None:
    """Also where the detector is renewed between two of them, and after the last of them."""
    samples = talk(3, 12.0)
    together, alone = WebRtcDetector(), WebRtcDetector()
    frames = samples[: len(samples) // FRAME_SAMPLES * FRAME_SAMPLES].reshape(-1, FRAME_SAMPLES)
    decisions = set()
    for first in range(0, len(frames), 50):
        together.prepare(frames[first : first + 40].ravel())
        for number, frame in enumerate(frames[first : first + 50], first):
            if number % 130 == 0:
                together.renew()
                alone.renew()
            is_speech = alone.is_speech(frame)
            assert together.is_speech(frame) == is_speech
            decisions.add(is_speech)
    assert decisions == {False, True}
