"""The last ten minutes of a long session cost what the first cost: objects, audio, text, work.

`benchmarks.soak` measures eight.
"""

import gc
from collections import Counter, deque
from collections.abc import Container
from dataclasses import replace
from types import BuiltinFunctionType, FunctionType, ModuleType

import numpy as np
import pytest

from tests.bench import START, Bench
from tests.fakes import LevelDetector, pcm, silence, speech
from tutti_server.app.media.pcm import AudioFormat, Samples
from tutti_server.app.session.core.effects import Close, Effect
from tutti_server.app.session.messages import commands
from tutti_server.app.session.session import Session, SessionConfig
from tutti_server.engine import api
from tutti_server.engine.api import SAMPLE_RATE

CYCLE_S = 120
PARTS = 3
PART_S = 600
PIECE_SAMPLES = SAMPLE_RATE
"""Audio is fed in pieces of this many samples; the engine answers each piece before the next."""
WORD_SAMPLES = SAMPLE_RATE // 2


class FirstSampleDetector(LevelDetector):
    """Takes a frame for speech if it does not begin with silence: fast enough for hours of audio."""

    def is_speech(self, frame: Samples) -> bool:
        return bool(frame[0])


class ShortBench(Bench):
    """Answers every window at once with a word for each half second, and keeps neither events nor windows."""

    def __init__(self, start: commands.Start) -> None:
        self.work: Counter[str] = Counter()
        super().__init__(start, SessionConfig(make_detector=FirstSampleDetector))

    def perform(self, effects: list[Effect]) -> None:
        super().perform(effects)
        for event in self.events:
            self.work[type(event).__name__] += 1
        for window in self.windows:
            self.work[window.priority.name] += 1
            self.work["samples"] += len(window.samples)
            self.work["characters shown to the model"] += len(window.options.previous_text)
        self.events.clear()
        self.windows.clear()

    def answer_one(self, index: int = 0, lost: Container[int] = ()) -> None:
        job, window = self.waiting.popleft()
        pieces = (api.Piece((1,), " word"),) * max(len(window.samples) // WORD_SAMPLES, 1)
        text = " word" * len(pieces)
        segment = api.Segment(
            start_s=0.0,
            end_s=len(window.samples) / SAMPLE_RATE,
            text=text,
            tokens=(1,) * len(pieces),
            avg_logprob=-0.1,
            compression_ratio=1.0,
            no_speech_prob=0.0,
        )
        if window.priority is api.Priority.FINAL:
            self.perform(self.session.engine_event(job, api.SegmentEvent(segment, "en")))
        done = api.DoneEvent(
            text=text,
            pieces=pieces,
            segments=(segment,),
            language="en",
            no_speech_prob=0.0,
            avg_logprob=-0.1,
            compression_ratio=1.0,
            is_truncated=False,
            n_steps=len(pieces),
        )
        self.perform(self.session.engine_event(job, done))


def kept(session: Session) -> Counter[str]:
    """The objects that the session can reach, by type, and the bytes of its arrays and texts; without numbers."""
    counts: Counter[str] = Counter()
    seen: set[int] = set()
    left: deque[object] = deque([session])
    while left:
        each = left.pop()
        if id(each) in seen or isinstance(each, type | ModuleType | FunctionType | BuiltinFunctionType | int | float):
            continue
        seen.add(id(each))
        counts[type(each).__name__] += 1
        if isinstance(each, np.ndarray):
            counts["bytes of arrays"] += each.nbytes
            left.append(each.base)
        elif isinstance(each, str | bytes):
            counts["bytes of texts"] += len(each)
        left.extend(gc.get_referents(each))
    return counts


def talk() -> Samples:
    """Two minutes of audio: turns, pauses, a click, and speech without a pause that takes several windows."""
    parts = [
        *(part for n_words in (4, 30, 1, 12) for part in (speech([1] * n_words), silence(1.3))),
        np.full(SAMPLE_RATE // 50, 0.5, dtype=np.float32),
        silence(2.0),
        speech([2] * 250, 0),
        silence(0.2),
        speech([3] * 60),
    ]
    samples = np.concatenate(parts)
    return np.concatenate((samples, silence(CYCLE_S - len(samples) / SAMPLE_RATE)))


@pytest.mark.nightly
@pytest.mark.parametrize(("mode", "n_channels"), [("vad", 2), ("manual", 1)])
def test_the_last_ten_minutes_cost_what_the_first_did(mode: commands.EndpointingMode, n_channels: int) -> None:
    """With interims and flushes, a session holds the same and does the same in any ten minutes."""
    start = replace(
        START,
        audio=AudioFormat("pcm_f32le", channels=n_channels),
        endpointing=commands.Endpointing(mode=mode),
    )
    bench = ShortBench(start)
    # The second channel speaks when the first one does not.
    channels = [np.roll(talk(), channel * len(talk()) // 3) for channel in range(n_channels)]
    audio = np.stack(channels, axis=1).reshape(-1)
    size = PIECE_SAMPLES * n_channels
    pieces = [commands.Audio(pcm(audio[at : at + size])) for at in range(0, len(audio), size)]

    kept_after: list[Counter[str]] = []
    done_in: list[Counter[str]] = []
    for _ in range(PARTS):
        bench.work.clear()
        for _ in range(PART_S // CYCLE_S):
            for second, piece in enumerate(pieces):
                bench.give(piece)
                bench.answer_all()
                if second in (20, 41):
                    bench.give(commands.Flush(second))
                    bench.answer_all()
        kept_after.append(kept(bench.session))
        done_in.append(+bench.work)
    assert bench.session.audio_s == PARTS * PART_S
    assert kept_after[-1] == kept_after[0]
    assert done_in[-1] == done_in[1]
    assert done_in[0]["Utterance"] >= 15
    assert done_in[0]["INTERIM"] > 160 and done_in[0]["Interim"] > 160
    bench.stop()
    assert bench.closes == [Close(1000, "done")]
