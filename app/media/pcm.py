"""Decodes raw audio bytes to float32 samples at 16 kHz, for each channel; the bytes may be cut anywhere."""

from dataclasses import dataclass
from typing import Literal, assert_never

import numpy as np
import soxr
from numpy.typing import NDArray

from tutti_server.app.media.mixing import ChannelMixer
from tutti_server.app.media.notices import OnNotice, drop
from tutti_server.engine.api import SAMPLE_RATE

Samples = NDArray[np.float32]
"""Audio samples in [-1, 1]; at 16 kHz unless a docstring names another rate."""
NO_SAMPLES: Samples = np.zeros(0, dtype=np.float32)

Encoding = Literal["pcm_s16le", "pcm_f32le", "mulaw", "alaw"]
BYTES_PER_SAMPLE: dict[Encoding, int] = {"pcm_s16le": 2, "pcm_f32le": 4, "mulaw": 1, "alaw": 1}
"""Bytes of one sample of one channel."""


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """The format of raw audio. The samples of several channels are interleaved."""

    encoding: Encoding = "pcm_s16le"
    sample_rate: int = 16_000
    """Samples of one channel per second."""
    channels: int = 1
    """The number of channels in the bytes."""
    is_mixed: bool = False
    """Whether all channels are mixed into one, which is transcribed."""

    @property
    def n_transcribed(self) -> int:
        """The number of channels that are transcribed, each with its own transcript."""
        return 1 if self.is_mixed else self.channels


def _mulaw_table() -> Samples:
    """All 256 values of G.711 mu-law in [-1, 1]. Source: ITU-T G.711, table 2."""
    code = ~np.arange(256, dtype=np.uint8)
    exponent = (code >> 4 & 7).astype(np.int32)
    magnitude = (((code & 15).astype(np.int32) << 3) + 132 << exponent) - 132
    return np.where(code & 128, -magnitude, magnitude).astype(np.float32) / np.float32(32768)


def _alaw_table() -> Samples:
    """All 256 values of G.711 A-law in [-1, 1]. Source: ITU-T G.711, table 1."""
    code = np.arange(256, dtype=np.uint8) ^ np.uint8(0x55)
    exponent = (code >> 4 & 7).astype(np.int32)
    mantissa = (code & 15).astype(np.int32) << 4
    magnitude = np.where(exponent == 0, mantissa + 8, mantissa + 264 << np.maximum(exponent - 1, 0))
    return np.where(code & 128, magnitude, -magnitude).astype(np.float32) / np.float32(32768)


_MULAW = _mulaw_table()
_ALAW = _alaw_table()


def decode_samples(data: bytes, encoding: Encoding) -> Samples:
    """Decode whole samples to float32 in [-1, 1]. Floats are clipped; NaN becomes 0."""
    match encoding:
        case "pcm_s16le":
            return np.frombuffer(data, dtype="<i2") * np.float32(1 / 32768)
        case "pcm_f32le":
            samples = np.frombuffer(data, dtype="<f4").astype(np.float32, copy=False)
            if not len(samples) or (samples.min() >= -1.0 and samples.max() <= 1.0):
                # Nearly all audio, and what checks it costs a tenth of what mends it. NaN fails both comparisons.
                return samples
            return np.clip(np.nan_to_num(samples, nan=0.0, posinf=1.0, neginf=-1.0), -1.0, 1.0)
        case "mulaw":
            return _MULAW[np.frombuffer(data, dtype=np.uint8)]
        case "alaw":
            return _ALAW[np.frombuffer(data, dtype=np.uint8)]
        case _:
            assert_never(encoding)


class Resampler:
    """Converts the samples of one channel to 16 kHz. The output does not depend on how the input was cut."""

    def __init__(self, sample_rate: int) -> None:
        self._stream = (
            None if sample_rate == SAMPLE_RATE else soxr.ResampleStream(sample_rate, SAMPLE_RATE, 1, dtype="float32")
        )

    def drain(self) -> Samples:
        """The samples that are still held back, as if the stream ended here; it may go on."""
        if self._stream is None:
            return NO_SAMPLES
        held = _clipped(self._stream.resample_chunk(NO_SAMPLES, last=True))
        self._stream.clear()
        return held

    def resample(self, samples: Samples) -> Samples:
        """Convert the next samples; some of the output is held back until more come."""
        if self._stream is None:
            return samples
        return _clipped(self._stream.resample_chunk(samples))


def _clipped(samples: Samples) -> Samples:
    """The samples in [-1, 1]: a resampler's filter goes over the edges of loud ones."""
    return np.clip(samples, -1.0, 1.0)


class AudioDecoder:
    """Decodes bytes of interleaved channels to 16 kHz samples, an array for each channel that is transcribed.

    Bytes that do not make a sample of every channel yet are kept for the next call.
    """

    def __init__(self, audio: AudioFormat, on_notice: OnNotice = drop) -> None:
        """Begin with this format. `on_notice` receives what the client should know of its audio."""
        self._encoding = audio.encoding
        self._channels = audio.channels
        is_mixed = audio.is_mixed and audio.channels > 1
        self._mixer = ChannelMixer(audio.sample_rate, audio.channels, 1.0, on_notice) if is_mixed else None
        self._group_bytes = BYTES_PER_SAMPLE[audio.encoding] * audio.channels
        """Bytes of a sample group: one sample of every channel."""
        self.bytes_per_s = self._group_bytes * audio.sample_rate
        """Bytes that make a second of audio."""
        self._resamplers = [Resampler(audio.sample_rate) for _ in range(audio.n_transcribed)]
        self._rest = b""

    @property
    def n_rest_bytes(self) -> int:
        """How many bytes are kept because they do not make a sample of every channel yet."""
        return len(self._rest)

    def decode(self, data: bytes) -> list[Samples]:
        """Decode the next bytes; returns an array for each channel that is transcribed."""
        data = self._rest + data if self._rest else data
        n_whole = len(data) - len(data) % self._group_bytes
        self._rest = data[n_whole:]
        samples = decode_samples(data[:n_whole], self._encoding)
        if self._channels == 1:
            return [self._resamplers[0].resample(samples)]
        groups = samples.reshape(-1, self._channels)
        if self._mixer:
            groups = self._mixer.mix(groups)[:, None]
        return [
            resampler.resample(np.ascontiguousarray(groups[:, channel]))
            for channel, resampler in enumerate(self._resamplers)
        ]

    def drain(self) -> list[Samples]:
        """The samples that the resamplers still hold back, for each channel that is transcribed."""
        return [resampler.drain() for resampler in self._resamplers]


class SampleBuffer:
    """The part of a channel's audio that may still be needed. Positions are in samples since the session began.

    Appending a sample costs amortised constant time. A sample that was appended is never overwritten, so that whoever
    has a view of it needs no copy.
    """

    def __init__(self) -> None:
        self._samples = np.empty(SAMPLE_RATE, dtype=np.float32)
        self._offset = 0
        self.start = 0
        """Position of the first sample that is kept."""
        self.end = 0
        """Position after the last sample."""

    def append(self, samples: Samples) -> None:
        """Add samples at the end; they are copied."""
        n_held = self.end - self.start
        if self._offset + n_held + len(samples) > len(self._samples):
            held = self._samples[self._offset : self._offset + n_held]
            size = max(len(self._samples), 2 * (n_held + len(samples)))
            self._samples = np.empty(size, dtype=np.float32)
            self._samples[:n_held] = held
            self._offset = 0
        end = self._offset + n_held
        self._samples[end : end + len(samples)] = samples
        self.end += len(samples)

    def view(self, start: int, end: int) -> Samples:
        """The samples from position `start` to `end`, without a copy. They keep all of the buffer's memory."""
        assert self.start <= start <= end <= self.end
        index = self._offset + start - self.start
        return self._samples[index : index + end - start]

    def forget_before(self, position: int) -> None:
        """Keep only the samples from `position` on."""
        n_gone = min(max(position, self.start), self.end) - self.start
        self._offset += n_gone
        self.start += n_gone
