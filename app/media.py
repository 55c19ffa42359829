"""Audio files of any container and codec to mono 16 kHz samples, in pieces, through PyAV (FFmpeg)."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from typing import IO

import av
import numpy as np

from app.audio import Samples
from app.errors import MediaError
from engine.api import SAMPLE_RATE

PIECE_SAMPLES = 10 * SAMPLE_RATE


async def decode_file(file: IO[bytes] | str) -> AsyncGenerator[Samples, None]:
    """The file's first audio stream, channels mixed down, as float32 pieces of at most 10 s. Decodes in a thread.

    Raises:
        MediaError: it holds no audio that can be decoded. What was decoded before is still yielded.
    """
    pieces = _pieces(file)
    try:
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            yield piece
    finally:
        pieces.close()


def duration_s(path: str) -> float | None:
    """How long the file says that it is; `None` if it does not say, or cannot be read."""
    try:
        with av.open(path, mode="r", metadata_errors="ignore") as container:
            return container.duration / av.time_base if container.duration else None
    except (av.FFmpegError, OSError):
        return None


def _pieces(file: IO[bytes] | str) -> Generator[Samples, None, None]:
    """Collects decoded frames, which last some 20 ms each, into pieces worth handing to another thread."""
    held: list[Samples] = []
    n_held = 0
    for samples in _frames(file):
        held.append(samples)
        n_held += len(samples)
        if n_held >= PIECE_SAMPLES:
            yield np.concatenate(held)
            held, n_held = [], 0
    if n_held:
        yield np.concatenate(held)


def _frames(file: IO[bytes] | str) -> Generator[Samples, None, None]:
    try:
        with av.open(file, mode="r", metadata_errors="ignore") as container:
            if not container.streams.audio:
                raise MediaError("file: expected audio, got a container without an audio stream")
            resampler = av.AudioResampler(format="flt", layout="mono", rate=SAMPLE_RATE)
            for frame in container.decode(container.streams.audio[0]):
                for resampled in resampler.resample(frame):
                    yield resampled.to_ndarray()[0]
            for resampled in resampler.resample(None):
                yield resampled.to_ndarray()[0]
    except FileNotFoundError:
        raise MediaError(f"file: expected an audio file, found none at {file}") from None
    except av.FFmpegError as error:
        raise MediaError(f"file: expected audio in a format that FFmpeg decodes ({error.strerror})") from error
