"""Audio files of any container and codec to mono 16 kHz samples, in pieces, through PyAV (FFmpeg)."""

import asyncio
from collections.abc import AsyncGenerator, Generator, Iterator
from typing import IO

import av
import numpy as np

from app.audio import Samples
from app.errors import MediaError
from engine.api import SAMPLE_RATE

PIECE_SAMPLES = 10 * SAMPLE_RATE


async def decode_file(file: IO[bytes]) -> AsyncGenerator[Samples, None]:
    """The file's first audio stream, channels mixed down, as float32 pieces of at most 10 s. Decodes in threads.

    Packets that are damaged are passed over, as FFmpeg's own programs do.

    Raises:
        MediaError: it holds no audio that can be decoded.
    """
    pieces = _pieces(file)
    reading: asyncio.Future[Samples | None] | None = None
    try:
        while True:
            reading = asyncio.ensure_future(asyncio.to_thread(next, pieces, None))
            piece = await asyncio.shield(reading)
            if piece is None:
                return
            yield piece
    finally:
        if reading and not reading.done():
            # A thread cannot be cancelled, and is still inside the generator.
            await asyncio.wait((reading,))
        pieces.close()


def duration_s(file: IO[bytes]) -> float | None:
    """How long the file says that it is; `None` if it does not say, or cannot be read. Leaves it at its beginning."""
    try:
        with _open(file) as container:
            return container.duration / av.time_base if container.duration else None
    except av.FFmpegError:
        return None
    finally:
        file.seek(0)


def _open(file: IO[bytes]) -> av.container.InputContainer:
    """Open the container for reading what is in it, and nothing that it names.

    Some formats, SDP among them, are lists of addresses; an upload must not make us listen or fetch.
    """
    return av.open(file, mode="r", metadata_errors="ignore", options={"protocol_whitelist": "none"})


def _pieces(file: IO[bytes]) -> Generator[Samples, None, None]:
    """Collects decoded frames, which last some 20 ms each, into pieces worth handing to another thread."""
    held: list[Samples] = []
    n_held = 0
    for samples in _samples(file):
        held.append(samples)
        n_held += len(samples)
        if n_held >= PIECE_SAMPLES:
            yield np.concatenate(held)
            held, n_held = [], 0
    if n_held:
        yield np.concatenate(held)


def _samples(file: IO[bytes]) -> Generator[Samples, None, None]:
    """Decoded frames at 16 kHz; a stream that changes its rate or channels on the way gets another resampler."""
    resampler: av.AudioResampler | None = None
    layout: tuple[object, ...] = ()
    for frame in _frames(file):
        if resampler is None or layout != (frame.sample_rate, frame.layout.name, frame.format.name):
            yield from _resampled(resampler, None)
            resampler = av.AudioResampler(format="flt", layout="mono", rate=SAMPLE_RATE)
            layout = (frame.sample_rate, frame.layout.name, frame.format.name)
        yield from _resampled(resampler, frame)
    yield from _resampled(resampler, None)


def _resampled(resampler: av.AudioResampler | None, frame: av.AudioFrame | None) -> Iterator[Samples]:
    if resampler is not None:
        for resampled in resampler.resample(frame):
            yield resampled.to_ndarray()[0]


def _frames(file: IO[bytes]) -> Generator[av.AudioFrame, None, None]:
    n_frames, damage = 0, ""
    try:
        with _open(file) as container:
            if not container.streams.audio:
                raise MediaError("file: expected audio, got a container without an audio stream")
            for packet in container.demux(container.streams.audio[0]):
                try:
                    frames = packet.decode()
                except av.InvalidDataError as error:
                    damage = error.strerror or str(error)
                    continue
                n_frames += len(frames)
                yield from frames
    except av.FFmpegError as error:
        damage = error.strerror or str(error)
    if not n_frames:
        reason = damage or "it holds none"
        raise MediaError(f"file: expected audio in a format that FFmpeg decodes ({reason})")
