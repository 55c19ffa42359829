"""Decides where speech begins, pauses and ends, by smoothing a detector's decisions about single frames.

Everything counts in frames of audio; there is no clock.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import webrtcvad

from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.speech.loudness import Loudness, energies
from tutti_server.engine.api import SAMPLE_RATE

FRAME_MS = 20
"""The length of a frame in milliseconds. The WebRTC detector accepts 10, 20 and 30."""
FRAME_SAMPLES = SAMPLE_RATE * FRAME_MS // 1000

DEFAULT_THRESHOLD = 0.5
"""How sure a detector must be of speech, 0 to 1, by default."""
N_AGGRESSIVENESS = 4
"""The number of modes of the WebRTC detector."""
ONSET_WINDOW = 10
"""How many of the last frames decide whether speech has begun (200 ms)."""
ONSET_MASK = (1 << ONSET_WINDOW) - 1
ONSET_VOICED = 6
"""Speech begins when this many of the last `ONSET_WINDOW` frames are voiced, and it began at the first of them."""
ONSET_VOICED_AT_FLUSH = 3
"""How many voiced frames begin speech at a flush, which can end it before it is announced. Fewer are a click."""
SPEECH_WINDOW = 5
"""How many of the last frames decide whether speech goes on (100 ms)."""
SPEECH_MASK = (1 << SPEECH_WINDOW) - 1
SPEECH_VOICED = 3
"""Speech goes on while this many of the last `SPEECH_WINDOW` frames are voiced."""
PCM_16 = np.dtype("<i2")
"""The samples that the WebRTC detector takes."""
FRAME_BYTES = FRAME_SAMPLES * PCM_16.itemsize
FULL_SCALE = np.float32(32767)

MEMORY_FRAMES = 300
"""How many of the last frames a renewed WebRTC detector processes first (6 s).

Measured over 50 minutes of speech: renewed after every utterance, the detector finds speech as one that has adapted for
long. In calls with long silence it takes less noise for speech. With 2 s it begins later: of 37 beginnings of human
speech 5 by more than 0.1 s, with 6 s one. 300 frames take 0.6 ms of a core.
"""


class SpeechDetector(Protocol):
    """Decides of one frame after another whether it holds speech."""

    memory_samples: int
    """The audio before a renewal that the decisions after it depend on, in samples: whole frames."""

    def prepare(self, frames: Samples) -> None:
        """Prepare for frames, all in one array, that `is_speech` gets next. Nothing is decided yet."""
        ...

    def is_speech(self, frame: Samples) -> bool:
        """Whether a frame of `FRAME_SAMPLES` mono float32 samples at 16 kHz holds speech."""
        ...

    def set_threshold(self, threshold: float | None) -> None:
        """Change how sure the detector must be of speech, 0 to 1; `None` restores the operator's value."""
        ...

    def renew(self) -> None:
        """Decide from now on as a new detector that has processed the last `memory_samples`, and nothing before."""
        ...


UpcomingFrames = tuple[SpeechDetector, Samples]
"""The detector of a channel, and the frames that it receives next, in one array."""
DetectAhead = Callable[[Sequence[UpcomingFrames]], Awaitable[None]]
"""Prepares detectors for the frames that they receive next, many at the same time. It changes no decision."""


class WebRtcDetector:
    """The Gaussian-mixture detector of the WebRTC project."""

    memory_samples = MEMORY_FRAMES * FRAME_SAMPLES

    def __init__(self, threshold: float = DEFAULT_THRESHOLD) -> None:
        """Make a detector; `set_threshold` explains the threshold."""
        self._default_threshold = threshold
        self._aggressiveness = aggressiveness(threshold)
        self._vad: webrtcvad.Vad | None = None
        """`None` before the next frame is the first one after a renewal, or the very first."""
        self._prepared, self._at = b"", 0
        """The frames that were prepared last, as the library takes them, and where the next one begins."""
        self._memory: deque[bytes] = deque(maxlen=MEMORY_FRAMES)
        """The last frames that were decided."""

    def set_threshold(self, threshold: float | None) -> None:
        """Change how sure the detector must be of speech, 0 to 1, in the four steps that it knows."""
        self._aggressiveness = aggressiveness(self._default_threshold if threshold is None else threshold)
        if self._vad:
            self._vad.set_mode(self._aggressiveness)

    def prepare(self, frames: Samples) -> None:
        """Convert frames that `is_speech` gets next: many take as long as two."""
        self._prepared, self._at = _to_pcm(frames), 0

    def is_speech(self, frame: Samples) -> bool:
        """Whether a frame of `FRAME_SAMPLES` mono float32 samples at 16 kHz holds speech."""
        begin = self._at
        self._at = begin + FRAME_BYTES
        pcm = self._prepared[begin : self._at] or _to_pcm(frame)
        vad = self._vad or self._renewed()
        self._memory.append(pcm)
        return bool(vad.is_speech(pcm, SAMPLE_RATE, FRAME_SAMPLES))

    def renew(self) -> None:
        """Decide from now on as a new detector that has processed the last `memory_samples`, and nothing before."""
        # The next frame begins it: none may come, as at the end of a recording.
        self._vad = None

    def _renewed(self) -> webrtcvad.Vad:
        self._vad = vad = webrtcvad.Vad(self._aggressiveness)
        for pcm in self._memory:
            vad.is_speech(pcm, SAMPLE_RATE)
        return vad


def _to_pcm(samples: Samples) -> bytes:
    return (samples * FULL_SCALE).astype(PCM_16).tobytes()


def aggressiveness(threshold: float) -> int:
    """The WebRTC detector's mode, 0 to 3, for a threshold from 0 to 1: a higher mode takes fewer noises for speech."""
    return min(int(threshold * N_AGGRESSIVENESS), N_AGGRESSIVENESS - 1)


@dataclass(frozen=True, slots=True)
class SpeechBegan:
    """Speech has begun."""

    position: int
    """Position of the first voiced sample."""


@dataclass(frozen=True, slots=True)
class SpeechEnded:
    """Speech has ended."""

    position: int
    """Position after the last sample of speech; the silence that showed the end follows."""


class Endpointer:
    """Turns decisions about frames into the beginning and end of speech.

    Positions are in samples on the channel's timeline.
    """

    def __init__(self, detector: SpeechDetector, silence_ms: int, min_utterance_s: float = 0.0, first: int = 0) -> None:
        """Make an endpointer whose first frame begins at the position `first`; see `configure`."""
        self.detector = detector
        self.memory_samples = detector.memory_samples
        """The audio before a renewal that the decisions after it depend on, in samples."""
        self.configure(silence_ms, min_utterance_s)
        self._pause_samples_required: int | None = None
        """The silence that ends speech in the present pause, in samples; `None` for the usual silence."""
        self._began = 0
        self._recent = 0
        """The last `ONSET_WINDOW` frames, a bit for each, 1 where the detector takes it for speech; the last one is the
        lowest."""
        self.position = first
        """Position after the last frame."""
        self.is_speaking = False
        self.speech_until = 0
        """Position after the last frame of speech."""
        self.voiced_until = 0
        """Position after the last frame that the detector took for speech, smoothed or not."""
        self.loud_until = 0
        """Position after the last of these frames that was not quiet."""
        self._loudness = Loudness(detector.memory_samples // FRAME_SAMPLES)

    def renew(self) -> None:
        """Decide about frames, from now on, as if the last `memory_samples` were the first ones."""
        self.detector.renew()
        self._loudness.renew()

    @property
    def pause_samples(self) -> int:
        """Samples since the last frame of speech."""
        return self.position - self.speech_until

    def push(self, samples: Samples) -> Iterator[tuple[Samples, SpeechBegan | SpeechEnded | None]]:
        """Process whole frames, all in one array. Yields each, and what it changes, before it processes the next."""
        self.detector.prepare(samples)
        frames = samples.reshape(-1, FRAME_SAMPLES)
        for frame, energy in zip(frames, energies(frames), strict=True):
            yield frame, self._push(frame, energy)

    def _push(self, frame: Samples, energy: float) -> SpeechBegan | SpeechEnded | None:
        is_voiced, is_quiet = self.detector.is_speech(frame), self._loudness.is_quiet(energy)
        self._recent = (self._recent << 1 | is_voiced) & ONSET_MASK
        self.position += FRAME_SAMPLES
        if is_voiced:
            self.voiced_until = self.position
            self.loud_until = self.loud_until if is_quiet else self.position
        if not self.is_speaking:
            return self._begin() if self._recent.bit_count() >= ONSET_VOICED else None
        if is_voiced and (self._recent & SPEECH_MASK).bit_count() >= SPEECH_VOICED:
            self.speech_until = self.position
            self._pause_samples_required = None
        return self._end_if_silent()

    def require_silence(self, silence_ms: int) -> SpeechEnded | None:
        """Change the silence that ends speech in the present pause. Returns the end if there was enough silence.

        Args:
            silence_ms: the frames without speech that end it, in milliseconds; the next pause needs the usual silence.
        """
        self._pause_samples_required = silence_ms * SAMPLE_RATE // 1000
        return self._end_if_silent() if self.is_speaking else None

    def _end_if_silent(self) -> SpeechEnded | None:
        required = self._silence_samples if self._pause_samples_required is None else self._pause_samples_required
        # A voiced frame may be the onset of the next word, which must not be cut off.
        if self.pause_samples < required or self._recent & 1:
            return None
        if self.position - self._began < self._min_samples:
            return None
        self.reset()
        return SpeechEnded(self.speech_until)

    def configure(self, silence_ms: int, min_utterance_s: float) -> None:
        """Change when speech ends.

        Args:
            silence_ms: the frames without speech that end it, in milliseconds.
            min_utterance_s: speech does not end before this many seconds after its beginning.
        """
        self._silence_samples = silence_ms * SAMPLE_RATE // 1000
        self._min_samples = round(min_utterance_s * SAMPLE_RATE)

    def reset(self) -> None:
        """Take all audio so far for silence: only frames to come can begin speech."""
        self.is_speaking = False
        self._pause_samples_required = None
        self._recent = 0

    def flush(self) -> SpeechBegan | None:
        """Begin speech that was not announced yet, as when a flush follows a short word."""
        if self.is_speaking or self._recent.bit_count() < ONSET_VOICED_AT_FLUSH:
            return None
        return self._begin()

    def end(self) -> None:
        """End speech now, without waiting for silence. The frames since then may be the onset of the next word."""
        if self.is_speaking:
            n_since = self.pause_samples // FRAME_SAMPLES
            onset = self._recent & ((1 << n_since) - 1)
            self.reset()
            self._recent = onset

    def _begin(self) -> SpeechBegan:
        n_since_first, n_since_last = self._recent.bit_length(), (self._recent & -self._recent).bit_length() - 1
        self.is_speaking = True
        self.speech_until = self.position - n_since_last * FRAME_SAMPLES
        self._began = self.position - n_since_first * FRAME_SAMPLES
        return SpeechBegan(self._began)
