"""Audio files of any container and codec to mono 16 kHz samples, in pieces, through PyAV (FFmpeg)."""

import asyncio
import wave
from collections.abc import AsyncGenerator, Generator, Iterator
from typing import IO, Any, Protocol

import av
import numpy as np

from app.errors import MediaError
from app.media.pcm import Samples
from engine.api import SAMPLE_RATE

PIECE_SAMPLES = 10 * SAMPLE_RATE
# What arrives live is not to wait until FFmpeg has guessed at its bit rate: its defaults held a WAV back for 5 s.
PROBE_BYTES = 4096
PROBE_US = 100_000
# Tags may be in any encoding, and nobody reads them. PyAV decodes them by itself up to version 18.
_IGNORING_TAGS: dict[str, Any] = {} if int(av.__version__.split(".")[0]) > 18 else {"metadata_errors": "ignore"}


class Source(Protocol):
    """What a container is read from; without `seek` it is read from the beginning to the end."""

    def read(self, n: int, /) -> bytes: ...


async def decode_file(file: IO[bytes], channels: int | None = None) -> AsyncGenerator[Samples, None]:
    """The file's first audio stream as float32 pieces of about 10 s. Decodes in threads.

    Packets that are damaged are passed over, as FFmpeg's own programs do.

    Args:
        channels: as many as the file has, to get them interleaved; `None` to have them mixed down.

    Raises:
        MediaError: it holds no audio that can be decoded, or not so many channels.
    """
    pieces = _pieces(file, channels)
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


def n_channels(file: IO[bytes]) -> int:
    """Of the file's first audio stream; 1 if it cannot be read. Leaves it at its beginning."""
    try:
        with _open(file) as container:
            return container.streams.audio[0].channels if container.streams.audio else 1
    except av.FFmpegError:
        return 1
    finally:
        file.seek(0)


def _open(file: Source) -> av.container.InputContainer:
    """Open the container for reading what is in it, and nothing that it names.

    Some formats, SDP among them, are lists of addresses; an upload must not make us listen or fetch.
    """
    options = {"protocol_whitelist": "none"}
    if not hasattr(file, "seek"):
        options |= {"probesize": str(PROBE_BYTES), "analyzeduration": str(PROBE_US)}
    container: av.container.InputContainer = av.open(file, mode="r", options=options, **_IGNORING_TAGS)
    return container


def _pieces(file: IO[bytes], channels: int | None) -> Generator[Samples, None, None]:
    """Collects decoded frames, which last some 20 ms each, into pieces worth handing to another thread."""
    is_plain = False
    for samples in _plain_wav(file) if channels in (None, 1) and file.seekable() else ():
        is_plain = True
        yield samples
    if is_plain:
        return
    held: list[Samples] = []
    n_held = 0
    for samples in decoded(file, channels):
        held.append(samples)
        n_held += len(samples) // (channels or 1)
        if n_held >= PIECE_SAMPLES:
            yield np.concatenate(held)
            held, n_held = [], 0
    if n_held:
        yield np.concatenate(held)


def _plain_wav(file: IO[bytes]) -> Generator[Samples, None, None]:
    """The samples of a WAV that has them as we want them, mono, 16 kHz, 16 bits; of any other file nothing.

    FFmpeg gives the same. It takes 16 ms of CPU to probe, decode and convert 7 s of it, this a fraction of one.
    """
    try:
        with wave.open(file, "rb") as wav:
            if (wav.getnchannels(), wav.getframerate(), wav.getsampwidth()) == (1, SAMPLE_RATE, 2):
                while pcm := wav.readframes(PIECE_SAMPLES):
                    yield np.frombuffer(pcm[: len(pcm) & ~1], "<i2").astype(np.float32) / np.float32(32_768)
    except (wave.Error, EOFError, RuntimeError):
        # The last is raised for chunks beyond the file. FFmpeg knows more kinds, and says what is wrong with others.
        pass
    file.seek(0)


def decoded(file: Source, channels: int | None = None) -> Generator[Samples, None, None]:
    """Decoded frames at 16 kHz, arguments and errors as for `decode_file`.

    A stream that changes its rate or channels on the way gets another resampler.
    """
    resampler: av.AudioResampler | None = None
    layout: tuple[object, ...] = ()
    for frame in _frames(file):
        if resampler is None or layout != (frame.sample_rate, frame.layout.name, frame.format.name):
            yield from _resampled(resampler, None)
            if channels is not None and frame.layout.nb_channels != channels:
                raise MediaError(f"audio: expected {channels} channels, got {frame.layout.nb_channels}")
            heard = "mono" if channels is None else frame.layout
            resampler = av.AudioResampler(format="flt", layout=heard, rate=SAMPLE_RATE)
            layout = (frame.sample_rate, frame.layout.name, frame.format.name)
        yield from _resampled(resampler, frame)
    yield from _resampled(resampler, None)


def _resampled(resampler: av.AudioResampler | None, frame: av.AudioFrame | None) -> Iterator[Samples]:
    if resampler is not None:
        for resampled in resampler.resample(frame):
            yield resampled.to_ndarray()[0]


def _frames(file: Source) -> Generator[av.AudioFrame, None, None]:
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
