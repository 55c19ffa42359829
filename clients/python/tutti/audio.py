"""Reads WAV files in encodings that the server accepts, and slows audio down that comes faster than real time."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from tutti.errors import AudioError, BadOption
from tutti.messages import AudioFormat, Encoding

AHEAD_SHARE = 0.8
"""The part of `limits.max_ahead_s` that is used. The rest is a margin for clocks and networks that are not exact."""
CHUNK_S = 0.1
"""The length of the pieces in which a file is read, in seconds."""

_FORMAT_BYTES = 40
_FORMAT_PCM = 1
_FORMAT_EXTENSIBLE = 0xFFFE
_ENCODINGS: Mapping[tuple[int, int], Encoding] = {
    (_FORMAT_PCM, 8): "pcm_s16le",
    (_FORMAT_PCM, 16): "pcm_s16le",
    (_FORMAT_PCM, 24): "pcm_s16le",
    (_FORMAT_PCM, 32): "pcm_s16le",
    (3, 32): "pcm_f32le",
    (6, 8): "alaw",
    (7, 8): "mulaw",
}
"""The encoding in which audio of a WAVE format tag and a number of bits per sample is sent."""
_SUBTYPE_REST = bytes.fromhex("000000001000800000aa00389b71")
"""The end of the KSDATAFORMAT_SUBTYPE_* identifiers of WAVE_FORMAT_EXTENSIBLE, after two bytes of format tag."""
_FLIP_HIGHEST_BIT = bytes(value ^ 0x80 for value in range(256))
"""Converts unsigned 8-bit samples to signed ones: half the range is subtracted, which flips the highest bit."""


class WavFile:
    """A WAV file that is read as audio in `format`. A context manager: the file is closed at the end of the block.

    PCM of 8, 24 and 32 bits is converted to 16 bits. 32-bit float, mu-law and a-law are not changed.
    """

    format: AudioFormat

    def __init__(self, path: str | Path) -> None:
        """Open the file and read its header.

        Raises:
            AudioError: it is not a WAV file, or the server accepts no audio of its format.
            OSError: it cannot be opened or read.
        """
        self._name = str(path)
        self._file = Path(path).open("rb")  # noqa: SIM115  # closed by `close`: this object is the context manager
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

    @property
    def duration_s(self) -> float:
        """The length of the audio in seconds: as its header states it, or up to the end of a file that was cut off."""
        return self._n_frames / self.format.sample_rate

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read(self, n_frames: int) -> bytes:
        """The next `n_frames` frames (one sample of every channel each), or fewer at the end; then nothing."""
        wanted = n_frames * self._frame_bytes
        if self._left_bytes is not None:
            wanted = min(wanted, self._left_bytes)
        data = self._file.read(wanted)
        if self._left_bytes is not None:
            self._left_bytes -= len(data)
        # A file that was cut off may end inside a frame.
        whole = data[: len(data) - len(data) % self._frame_bytes]
        return self._convert(whole)

    def _read_header(self, file: BinaryIO) -> None:
        header = file.read(12)
        if len(header) < 12 or header[:4] != b"RIFF" or header[8:] != b"WAVE":
            raise self._error(f"not a WAV file; convert it, for example: ffmpeg -i {self._name} -ar 16000 out.wav")
        format_chunk = b""
        while True:
            chunk_header = file.read(8)
            if len(chunk_header) < 8:
                raise self._error("the file ends before its audio")
            name, size = struct.unpack("<4sI", chunk_header)
            if name == b"data":
                break
            # Chunks are padded to an even size. A damaged one may state any, for which there is no memory.
            next_at = file.tell() + size + size % 2
            if name == b"fmt ":
                format_chunk = file.read(min(size, _FORMAT_BYTES))
            file.seek(next_at)
        if len(format_chunk) < 16:
            raise self._error("the file has no format before its audio")
        self._read_format(format_chunk)
        # Programs that cannot seek back to fill in the size write one of these: the audio ends with the file.
        self._left_bytes = None if size in (0, 0xFFFFFFFF) else size
        in_file_bytes = max(0, os.fstat(file.fileno()).st_size - file.tell())
        self._n_frames: int = min(in_file_bytes, self._left_bytes or in_file_bytes) // self._frame_bytes

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
            # Little-endian: the last two bytes of a sample are the highest.
            samples[0::2] = data[size - 2 :: size]
            samples[1::2] = data[size - 1 :: size]
        return bytes(samples)

    def _error(self, reason: str) -> AudioError:
        return AudioError(self._name, reason)


async def read_chunks(wav: WavFile) -> AsyncGenerator[bytes, None]:
    """The audio of a file in pieces of `CHUNK_S`. It is read on a thread, as disks may be slow."""
    while chunk := await asyncio.to_thread(wav.read, round(wav.format.sample_rate * CHUNK_S)):
        yield chunk


@dataclass(frozen=True, slots=True)
class Pace:
    """Decides when audio may be sent."""

    speed: float | None
    """1.0 sends audio when a microphone would, 2.0 twice as fast; None: as fast as the server allows."""
    max_ahead_s: float
    """`limits.max_ahead_s` of the session, in seconds."""

    def __post_init__(self) -> None:
        if self.speed is not None and not self.speed > 0:
            raise BadOption("speed", "a number above 0", self.speed)

    def due_s(self, end_s: float, late_s: float = 0.0) -> float:
        """When a chunk that ends at `end_s` of the audio may be sent, in seconds after the first chunk.

        Args:
            end_s: the time in the audio.
            late_s: how far the audio before was behind the clock at most, in seconds. The server does not let a client
                catch up on it: what may be sent at once does not grow while the source is silent.
        """
        allowed_s = max(0.0, end_s + late_s - AHEAD_SHARE * self.max_ahead_s)
        return allowed_s if self.speed is None else max(allowed_s, end_s / self.speed)


async def paced(audio: AsyncIterable[bytes], format: AudioFormat, pace: Pace) -> AsyncGenerator[bytes, None]:
    """The chunks of `audio`, each when `pace` allows it."""
    loop = asyncio.get_running_loop()
    began_s: float | None = None
    late_s = 0.0
    n_bytes = 0
    async for chunk in audio:
        if began_s is None:
            began_s = loop.time()
        elapsed_s = loop.time() - began_s
        late_s = max(late_s, elapsed_s - n_bytes / format.bytes_per_s)
        n_bytes += len(chunk)
        wait_s = pace.due_s(n_bytes / format.bytes_per_s, late_s) - elapsed_s
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        yield chunk
