"""Where speech begins, pauses and ends: a detector's frame decisions, smoothed with hysteresis and hangover.

Everything here counts in frames of audio; there is no clock.
"""

from collections import deque
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import webrtcvad

from app.media.pcm import Samples
from engine.api import SAMPLE_RATE

FRAME_MS = 20
FRAME_SAMPLES = SAMPLE_RATE * FRAME_MS // 1000

# Speech begins when this many of the last ONSET_WINDOW frames are voiced, and then began at the first of them.
ONSET_WINDOW = 10
ONSET_VOICED = 6
# A flush may end speech that has not been announced yet; fewer voiced frames than this are taken for a click.
ONSET_VOICED_AT_FLUSH = 3
# Once speaking, a frame counts as speech when this many of the last SPEECH_WINDOW frames are voiced.
SPEECH_WINDOW = 5
SPEECH_VOICED = 3


class SpeechDetector(Protocol):
    """Says of one frame after another whether it holds speech. Frames are `FRAME_SAMPLES` of 16 kHz mono float32."""

    def is_speech(self, frame: Samples) -> bool: ...


class WebRtcDetector:
    """The WebRTC project's Gaussian-mixture detector; aggressiveness 0 to 3, more is stricter about noise."""

    def __init__(self, aggressiveness: int = 2) -> None:
        self._vad = webrtcvad.Vad(aggressiveness)

    def is_speech(self, frame: Samples) -> bool:
        pcm = (frame * 32767).astype("<i2")
        return bool(self._vad.is_speech(pcm.tobytes(), SAMPLE_RATE))


@dataclass(frozen=True, slots=True)
class SpeechBegan:
    at: int
    """Position of the first voiced sample."""


@dataclass(frozen=True, slots=True)
class SpeechEnded:
    at: int
    """Position behind the last sample of speech; the silence that showed it follows."""


class Endpointer:
    """Turns frame decisions into speech begun and speech ended.

    `silence_ms` of frames without speech end it, but not before `min_utterance_s` from its beginning. Positions are
    samples on the channel's timeline.
    """

    def __init__(self, detector: SpeechDetector, silence_ms: int, min_utterance_s: float = 0.0) -> None:
        self._detector = detector
        self.adjust(silence_ms, min_utterance_s)
        self._began = 0
        self._recent: deque[bool] = deque(maxlen=ONSET_WINDOW)
        self.position = 0
        """Behind the last frame taken in."""
        self.is_speaking = False
        self.speech_until = 0
        """Behind the last frame of speech."""

    @property
    def pause_samples(self) -> int:
        """How long it has been since the last frame of speech."""
        return self.position - self.speech_until

    def take(self, frame: Samples) -> SpeechBegan | SpeechEnded | None:
        self._recent.append(self._detector.is_speech(frame))
        self.position += FRAME_SAMPLES
        if not self.is_speaking:
            return self._begin() if sum(self._recent) >= ONSET_VOICED else None
        voiced = list(self._recent)[-SPEECH_WINDOW:]
        if self._recent[-1] and sum(voiced) >= SPEECH_VOICED:
            self.speech_until = self.position
        # A voiced frame may be the onset of the next word, which must not be cut off from it.
        if self.pause_samples < self._silence_samples or self._recent[-1]:
            return None
        if self.position - self._began < self._min_samples:
            return None
        return self._end()

    def adjust(self, silence_ms: int, min_utterance_s: float) -> None:
        """End speech in another way from now on."""
        self._silence_samples = silence_ms * SAMPLE_RATE // 1000
        self._min_samples = round(min_utterance_s * SAMPLE_RATE)

    def forget(self) -> None:
        """Whatever was said, nobody is speaking: only what still comes may be speech."""
        self.is_speaking = False
        self._recent.clear()

    def flush(self) -> SpeechBegan | None:
        """Speech that has begun but was not announced yet, as when a short word is followed by a flush at once."""
        if self.is_speaking or sum(self._recent) < ONSET_VOICED_AT_FLUSH:
            return None
        return self._begin()

    def end(self) -> SpeechEnded | None:
        """End speech now, without waiting for silence."""
        return self._end() if self.is_speaking else None

    def _begin(self) -> SpeechBegan:
        voiced = [i for i, is_voiced in enumerate(self._recent) if is_voiced]
        start_of_recent = self.position - len(self._recent) * FRAME_SAMPLES
        self.is_speaking = True
        self.speech_until = start_of_recent + (voiced[-1] + 1) * FRAME_SAMPLES
        self._began = start_of_recent + voiced[0] * FRAME_SAMPLES
        return SpeechBegan(self._began)

    def _end(self) -> SpeechEnded:
        self.forget()
        return SpeechEnded(self.speech_until)


def quietest(samples: Samples, span_samples: int) -> int:
    """Where the least energy lies: the middle of the quietest stretch of `span_samples`, as an index into `samples`."""
    if len(samples) <= span_samples:
        return len(samples) // 2
    energy = np.concatenate(([0.0], np.cumsum(np.square(samples, dtype=np.float64))))
    return int(np.argmin(energy[span_samples:] - energy[:-span_samples])) + span_samples // 2
