"""Reads WAV files as encodings the server takes, and paces audio so that it does not run ahead of the clock."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from tutti.errors import AudioError, BadOption
from tutti.messages import AudioFormat, Encoding

# Of `limits.max_ahead_s`: the rest is for clocks and networks that do not keep time.
AHEAD_SHARE = 0.8
CHUNK_S = 0.1

_FORMAT_PCM = 1
_FORMAT_EXTENSIBLE = 0xFFFE
# Of a WAVE format and its bits per sample.
_ENCODINGS: Mapping[tuple[int, int], Encoding] = {
    (_FORMAT_PCM, 8): "pcm_s16le",
    (_FORMAT_PCM, 16): "pcm_s16le",
    (_FORMAT_PCM, 24): "pcm_s16le",
    (_FORMAT_PCM, 32): "pcm_s16le",
    (3, 32): "pcm_f32le",
    (6, 8): "alaw",
    (7, 8): "mulaw",
}
# KSDATAFORMAT_SUBTYPE_*: two bytes of format tag, then these.
_SUBTYPE_REST = bytes.fromhex("000000001000800000aa00389b71")
# 8-bit PCM is unsigned: half the range is subtracted, which flips the highest bit.
_FLIP_HIGHEST_BIT = bytes(value ^ 0x80 for value in range(256))


class WavFile:
    """A WAV file, read as audio in `format`.

    PCM of 8, 24 and 32 bits is read as 16-bit; 32-bit float, mu-law and a-law are read as they are.

    Raises:
        AudioError: it is not a WAV file, or the server takes no audio of its kind.
        OSError: it cannot be opened or read.
    """

    def __init__(self, path: str | Path) -> None:
        self._name = str(path)
        self._file = Path(path).open("rb")
        try:
            self._read_header(self._file)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> WavFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def read(self, n_frames: int) -> bytes:
        """Up to `n_frames` more frames (one sample of every channel) in `format`; empty at the end."""
        wanted = n_frames * self._frame_bytes
        if self._left_bytes is not None:
            wanted = min(wanted, self._left_bytes)
        data = self._file.read(wanted)
        if self._left_bytes is not None:
            self._left_bytes -= len(data)
        # A file cut short may end inside a frame.
        whole = data[: len(data) - len(data) % self._frame_bytes]
        return self._convert(whole)

    def _read_header(self, file: BinaryIO) -> None:
        header = file.read(12)
        if len(header) < 12 or header[:4] != b"RIFF" or header[8:] != b"WAVE":
            raise self._error(
                f"not a WAV file; convert it, for example: ffmpeg -i {self._name} -ac 1 -ar 16000 out.wav"
            )
        format_chunk = b""
        while True:
            chunk_header = file.read(8)
            if len(chunk_header) < 8:
                raise self._error("the file ends before its audio")
            name, size = struct.unpack("<4sI", chunk_header)
            if name == b"data":
                break
            # Chunks are padded to an even size.
            body = file.read(size + size % 2)
            if name == b"fmt ":
                format_chunk = body
        if len(format_chunk) < 16:
            raise self._error("its audio comes without a format before it")
        self._read_format(format_chunk)
        # Written by programs that could not seek back and fill in the size: the audio goes on to the end of the file.
        self._left_bytes = None if size in (0, 0xFFFFFFFF) else size

    def _read_format(self, chunk: bytes) -> None:
        tag, channels, sample_rate, _, frame_bytes, bits = struct.unpack_from("<HHIIHH", chunk)
        if tag == _FORMAT_EXTENSIBLE and chunk[26:40] == _SUBTYPE_REST:
            (tag,) = struct.unpack_from("<H", chunk, 24)
        encoding = _ENCODINGS.get((tag, bits))
        if encoding is None:
            raise self._error(
                "expected PCM of 8 to 32 bits, 32-bit float, mu-law or a-law, "
                f"got WAVE format {tag:#06x} of {bits} bits"
            )
        if not 1 <= channels <= 8:
            raise self._error(f"expected 1 to 8 channels, got {channels}")
        if not 8000 <= sample_rate <= 48000:
            raise self._error(
                f"expected a sample rate of 8000 to 48000, got {sample_rate}; "
                f"convert it, for example: ffmpeg -i {self._name} -ar 16000 out.wav"
            )
        if frame_bytes != channels * bits // 8:
            raise self._error(f"expected frames of {channels * bits // 8} bytes, got {frame_bytes}")
        self.format = AudioFormat(encoding, sample_rate, channels)
        self._frame_bytes = frame_bytes
        self._pcm_bytes = bits // 8 if tag == _FORMAT_PCM else 0

    def _convert(self, data: bytes) -> bytes:
        size = self._pcm_bytes
        if size in (0, 2):
            return data
        samples = bytearray(len(data) // size * 2)
        if size == 1:
            samples[1::2] = data.translate(_FLIP_HIGHEST_BIT)
        else:
            # Little-endian: the two highest bytes of a sample come last.
            samples[0::2] = data[size - 2 :: size]
            samples[1::2] = data[size - 1 :: size]
        return bytes(samples)

    def _error(self, reason: str) -> AudioError:
        return AudioError(self._name, reason)


async def read_chunks(wav: WavFile, chunk_s: float = CHUNK_S) -> AsyncGenerator[bytes, None]:
    """The audio of `wav` in pieces of `chunk_s`. Files may be on slow disks: they are read on a thread."""
    n_frames = max(1, round(wav.format.sample_rate * chunk_s))
    while chunk := await asyncio.to_thread(wav.read, n_frames):
        yield chunk


@dataclass(frozen=True, slots=True)
class Pace:
    """When audio may be sent.

    Args:
        speed: times real time; 1.0 sends audio when a microphone would have, None as fast as allowed.
        max_ahead_s: `limits.max_ahead_s` of the session.
    """

    speed: float | None
    max_ahead_s: float

    def __post_init__(self) -> None:
        if self.speed is not None and not self.speed > 0:
            raise BadOption("speed", "a number above 0", self.speed)

    def due_s(self, end_s: float) -> float:
        """Seconds after the first chunk at which a chunk that ends at `end_s` of the audio may be sent."""
        allowed_s = max(0.0, end_s - AHEAD_SHARE * self.max_ahead_s)
        return allowed_s if self.speed is None else max(allowed_s, end_s / self.speed)


async def paced(audio: AsyncIterable[bytes], format: AudioFormat, pace: Pace) -> AsyncGenerator[bytes, None]:
    """`audio`, each chunk held back until `pace` allows it."""
    loop = asyncio.get_running_loop()
    began: float | None = None
    n_bytes = 0
    async for chunk in audio:
        if began is None:
            began = loop.time()
        n_bytes += len(chunk)
        wait_s = began + pace.due_s(n_bytes / format.bytes_per_s) - loop.time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        yield chunk
