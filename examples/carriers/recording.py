"""The audio of a file as the pieces that a telephone system sends."""

import array
import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import av

FRAME_S = 0.02
"""The audio in one message, in seconds."""
RATES = (8000, 16_000)
"""The sample rates that all telephone systems know, in Hz. A recording with another one is resampled to the last."""


@dataclass(frozen=True)
class Recording:
    """16-bit samples, little-endian, with interleaved channels."""

    data: bytes
    sample_rate: int
    channels: int

    @classmethod
    def open(cls, path: Path) -> "Recording":
        """Read the first audio track of a file in any format of FFmpeg. More than two channels become two.

        Raises:
            ValueError: there is no audio that can be decoded.
        """
        try:
            with av.open(str(path)) as container:
                if not container.streams.audio:
                    raise ValueError(f"{path}: expected a file with sound, got one without")
                track = container.streams.audio[0]
                rate = track.rate if track.rate in RATES else RATES[-1]
                channels = min(track.channels, 2)
                resampler = av.AudioResampler(format="s16", layout=("mono", "stereo")[channels - 1], rate=rate)
                frames = [frame for each in container.decode(track) for frame in resampler.resample(each)]
                frames += resampler.resample(None)
        except av.FFmpegError as error:
            raise ValueError(f"{path}: expected a file with sound, got {error.strerror}") from error
        return cls(b"".join(frame.to_ndarray().tobytes() for frame in frames), rate, channels)

    def channel(self, number: int) -> "Recording":
        """One channel alone."""
        return Recording(self._samples()[number :: self.channels].tobytes(), self.sample_rate, 1)

    def mulaw(self) -> bytes:
        """The recording at 8 kHz in mu-law: half of 16 kHz, the mean of two samples each."""
        sides = [self._samples()[number :: self.channels] for number in range(self.channels)]
        if self.sample_rate == 16_000:
            sides = [array.array("h", ((a + b) // 2 for a, b in zip(s[::2], s[1::2], strict=False))) for s in sides]
        return bytes(_mulaw(sample) for group in zip(*sides, strict=True) for sample in group)

    def _samples(self) -> "array.array[int]":
        samples = array.array("h", self.data)
        if sys.byteorder == "big":
            samples.byteswap()
        return samples


async def pieces(data: bytes, bytes_per_s: int, speed: float) -> AsyncIterator[bytes]:
    """Audio as pieces of 20 ms, at this many times the speed of speech."""
    n_bytes = int(bytes_per_s * FRAME_S)
    for at in range(0, len(data), n_bytes):
        yield data[at : at + n_bytes]
        await asyncio.sleep(FRAME_S / speed)


def _mulaw(sample: int) -> int:
    """One sample in mu-law, as ITU-T G.711 defines it."""
    sign, magnitude = (0x80, -sample) if sample < 0 else (0, sample)
    magnitude = min(magnitude, 32_635) + 132
    exponent = magnitude.bit_length() - 8
    return ~(sign | exponent << 4 | magnitude >> exponent + 3 & 0x0F) & 0xFF
