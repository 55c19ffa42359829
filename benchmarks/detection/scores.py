"""What a speech detector makes of audio whose speech is known: what it misses, makes up, and how late it is.

The decisions go through the session's own `Endpointer`, so that the figures are those of utterances, as users see them.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from app.session.commands import Endpointing
from app.session.coverage import Span
from app.session.endpointing import FRAME_SAMPLES, Endpointer, SpeechBegan, SpeechDetector, SpeechEnded
from benchmarks.detection.labelled_audio import LabelledAudio
from engine.api import SAMPLE_RATE

SILENCE_MS = Endpointing().silence_ms
"""The silence that ends an utterance, in milliseconds: the service's default."""
PADDING_SAMPLES = Endpointing().padding_ms * SAMPLE_RATE // 1000
"""The audio before an utterance that is decoded with it."""
NEAR_SAMPLES = SAMPLE_RATE // 5
"""Detected speech this close to true speech belongs to it (0.2 s): true times are not exact."""
MAX_LATE_SAMPLES = 2 * SAMPLE_RATE
"""An utterance that begins later than this after true speech began (2 s) did not notice that beginning."""


@dataclass(frozen=True, slots=True)
class FoundUtterance:
    """An utterance that the detector found; positions in samples."""

    start: int
    """Where its speech began."""
    announced: int
    """When its beginning was noticed."""
    speech_end: int
    """Where its speech ended."""
    end: int
    """When its end was noticed."""


@dataclass(slots=True, kw_only=True)
class Scores:
    """The scores over all audio of a kind; they add up."""

    audio_s: float = 0.0
    cpu_s: float = 0.0
    """CPU time that the detector used."""
    speech_s: float = 0.0
    missed_s: float = 0.0
    """True speech that is in no utterance, its padding included."""
    silence_s: float = 0.0
    """Audio that is not near true speech, pauses that do not end an utterance left out."""
    false_s: float = 0.0
    """Detected speech in it."""
    n_true: int = 0
    """True utterances: speech without a pause that ends an utterance."""
    n_unnoticed: int = 0
    """True utterances that no found one touches."""
    n_false: int = 0
    """Found utterances that are not near any true speech."""
    n_split: int = 0
    """Found utterances that ended in the middle of true speech."""
    onset_s: list[float] = field(default_factory=list)
    """From the true beginning of an utterance until it was noticed, in seconds."""
    end_s: list[float] = field(default_factory=list)
    """From the true end of an utterance until it was noticed, in seconds; includes `SILENCE_MS`."""

    def add(self, audio: LabelledAudio, found: Sequence[FoundUtterance], cpu_s: float) -> None:
        """Score the utterances that a detector found in audio."""
        true = _merged(audio.speech, SILENCE_MS * SAMPLE_RATE // 1000)
        near = _merged([(start - NEAR_SAMPLES, end + NEAR_SAMPLES) for start, end in true], 0)
        windows = [(each.start - PADDING_SAMPLES, each.end) for each in found]
        detected = [(each.start, each.speech_end) for each in found]
        n_silent = len(audio.samples) - _overlap(near, [(0, len(audio.samples))])
        self.audio_s += audio.audio_s
        self.cpu_s += cpu_s
        self.speech_s += sum(end - start for start, end in audio.speech) / SAMPLE_RATE
        self.missed_s += (
            sum(end - start - _overlap([(start, end)], windows) for start, end in audio.speech) / SAMPLE_RATE
        )
        self.silence_s += n_silent / SAMPLE_RATE
        self.false_s += (sum(end - start for start, end in detected) - _overlap(near, detected)) / SAMPLE_RATE
        self.n_true += len(true)
        self.n_unnoticed += sum(not _overlap([span], windows) for span in true)
        self.n_false += sum(not _overlap(near, [span]) for span in detected)
        self.n_split += sum(any(start < each.end < end for start, end in audio.speech) for each in found)
        self._add_delays(true, found, len(audio.samples))

    def _add_delays(self, true: Sequence[Span], found: Sequence[FoundUtterance], n_samples: int) -> None:
        for index, (start, end) in enumerate(true):
            before = true[index - 1][1] if index else 0
            after = true[index + 1][0] if index + 1 < len(true) else n_samples
            onsets = [each.announced for each in found if max(before, start - SAMPLE_RATE // 2) <= each.start]
            if onsets and start <= onsets[0] <= min(start + MAX_LATE_SAMPLES, after):
                self.onset_s.append((onsets[0] - start) / SAMPLE_RATE)
            ends = [each.end for each in found if each.end >= end]
            if ends and ends[0] <= after and any(each.start < end <= each.end for each in found):
                self.end_s.append((ends[0] - end) / SAMPLE_RATE)


def find_utterances(detector: SpeechDetector, audio: LabelledAudio) -> tuple[list[FoundUtterance], float]:
    """The utterances that a new detector finds in audio, and the CPU seconds that it took.

    The detector is renewed after every utterance, as in a session.
    """
    endpointer = Endpointer(detector, SILENCE_MS)
    found: list[FoundUtterance] = []
    began = announced = 0
    started_s = time.thread_time()
    n_frames = len(audio.samples) // FRAME_SAMPLES
    for frame in (*np.split(audio.samples[: n_frames * FRAME_SAMPLES], n_frames), None):
        change = endpointer.end() if frame is None else endpointer.push(frame)
        if isinstance(change, SpeechBegan):
            began, announced = change.position, endpointer.position
        elif isinstance(change, SpeechEnded):
            found.append(FoundUtterance(began, announced, change.position, endpointer.position))
            detector.renew()
    return found, time.thread_time() - started_s


def quantile(values: Sequence[float], q: float) -> float | None:
    """A quantile of measured values; `None` without any."""
    return float(np.quantile(values, q)) if values else None


def _merged(spans: Sequence[Span], gap: int) -> list[Span]:
    merged: list[Span] = []
    for start, end in spans:
        if merged and start - merged[-1][1] <= gap:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _overlap(spans: Sequence[Span], others: Sequence[Span]) -> int:
    """Samples that lie in a span of both lists."""
    return sum(max(min(end, right) - max(start, left), 0) for start, end in spans for left, right in _merged(others, 0))
