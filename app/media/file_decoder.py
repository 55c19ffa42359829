"""Decodes audio files of any container and codec to 16 kHz samples, in pieces, by PyAV (FFmpeg)."""

import asyncio
import itertools
import re
from collections.abc import AsyncGenerator, Generator, Iterator
from dataclasses import dataclass
from typing import IO, Any, cast

import av
import numpy as np
from av.stream import Disposition

from tutti_server.app.errors import MediaError
from tutti_server.app.media.container_clock import ContainerClock
from tutti_server.app.media.joined_files import FilePart, Part, Source, parts
from tutti_server.app.media.mixing import ChannelMixer
from tutti_server.app.media.notices import Notice, OnNotice, drop
from tutti_server.app.media.pcm import Samples
from tutti_server.app.media.plain_wav import MAX_FILE_H, PIECE_SAMPLES, read_plain_wav
from tutti_server.app.media.tracks import choose_track, language_of
from tutti_server.engine.api import SAMPLE_RATE

LOUDEST = 16.0
"""The largest sample that is passed on: 24 dB over full scale. Files of floats may hold any number, and NaN, of which
models make more NaN.
"""
HELD_SAMPLES = 16_000
"""Samples of all channels that are resampled together. Frame by frame, decoding takes twice the time."""
MIN_RATE, MAX_RATE = 4_000, 384_000
"""The sample rates that are decoded, in Hz. A resampler of a rate far outside takes gigabytes of memory."""
MAX_CHANNELS = 32
MAX_PLACES = 8
"""FFmpeg supposes places of loudspeakers for up to this many channels whose places a file does not name."""
UNKNOWN_FRAMES = 1 << 30
"""The length that FFmpeg states in an AVI which it writes to a pipe."""
PROBE_BYTES = 4096
"""How many bytes of a stream FFmpeg reads to recognise its format.

FFmpeg's default waits until it can estimate the bit rate, and delayed a live WAV by 5 s.
"""
PROBE_US = 100_000
"""How much audio of a stream FFmpeg analyses to find its parameters, in microseconds; for the same reason."""
_EMPTY = "file: expected audio, got an empty file"
_NO_AUDIO = "file: expected audio, got a container without an audio stream"
# Tags may be in any encoding, and the service does not use them. PyAV up to version 18 decodes them by itself.
_IGNORING_TAGS: dict[str, Any] = {} if int(av.__version__.split(".")[0]) > 18 else {"metadata_errors": "ignore"}


async def decode_file(
    file: IO[bytes], channels: int | None = None, on_notice: OnNotice = drop, track: str | None = None
) -> AsyncGenerator[Samples, None]:
    """Decode one audio track of the file to float32 pieces of `PIECE_SAMPLES`, in threads. Cancelling is safe.

    The samples follow the file's own clock: silence stands for a late beginning, for gaps and for damaged packets.
    `Decoders` does the same in another process.

    Args:
        file: the file, at its beginning.
        channels: the number of channels of the file, to get them interleaved; `None` to have them mixed into one.
        on_notice: receives what people should know, each before the samples that follow it.
        track: which track; see `choose_track`.

    Raises:
        MediaError: the file holds no audio that can be decoded, or another number of channels, or more audio than
            `MAX_FILE_H`.
    """
    loop = asyncio.get_running_loop()

    def notify(notice: Notice) -> None:
        loop.call_soon_threadsafe(on_notice, notice)

    pieces = decode_pieces(file, channels, notify, track)
    decoding: asyncio.Future[Samples | None] | None = None
    try:
        while True:
            decoding = asyncio.ensure_future(asyncio.to_thread(next, pieces, None))
            piece = await asyncio.shield(decoding)
            if piece is None:
                return
            yield piece
    finally:
        if decoding:
            # The thread cannot be cancelled, and may still be inside the generator. Its error has no receiver.
            await asyncio.gather(decoding, return_exceptions=True)
        pieces.close()


@dataclass(frozen=True, slots=True)
class FileInfo:
    """What a file states about its first audio stream, before anything is decoded."""

    duration_s: float | None
    """The length of the whole file in seconds, its pictures included; `None` if it states none."""
    audio_s: float | None
    """The length of the audio in seconds; `None` if the file states none, or only one that may be of its pictures."""


def probe(file: IO[bytes], track: str | None = None) -> FileInfo:
    """Read what the file states. Leaves the file, which must be seekable, at its beginning.

    Raises:
        MediaError: FFmpeg does not know the format, or the file has no audio stream, or one that is not decoded here.
    """
    try:
        with _open(next(parts(file))) as container:
            stream = _audio_stream(container, track, drop)
            duration_s = container.duration / av.time_base if container.duration else None
            return FileInfo(duration_s, _audio_s(container, stream))
    except av.FFmpegError as error:
        raise MediaError(_not_decoded(_reason(error))) from error
    finally:
        file.seek(0)


def _audio_s(container: av.container.InputContainer, audio: av.AudioStream) -> float | None:
    if tag := re.fullmatch(r"(\d{1,6}):(\d{1,2}):(\d{1,2}\.?\d{0,9})", audio.metadata.get("DURATION", "")):
        hours, minutes, seconds = tag.groups()
        return int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    format_name, is_pcm = container.format.name, audio.codec_context.name.startswith("pcm")
    if format_name == "avi" or (format_name == "caf" and is_pcm):
        # FFmpeg shortens the duration to the bytes that are there, and takes the index of an AVI for audio.
        is_known = audio.frames not in (0, UNKNOWN_FRAMES)
        return float(audio.frames * audio.time_base) if is_known and audio.time_base else None
    if not (audio.duration and audio.time_base):
        is_alone = len(container.streams) == 1 and format_name.partition(",")[0] in ("matroska", "flv")
        return container.duration / av.time_base if is_alone and container.duration else None
    lengths_s = [
        float(stream.duration * stream.time_base)
        for stream in container.streams
        if stream.duration and stream.time_base and not stream.disposition & Disposition.attached_pic
    ]
    # FFmpeg gives the length of the file to streams that state none. Those of MP4 state theirs.
    is_own = format_name.startswith("mov") or len(lengths_s) == 1 or max(lengths_s) - min(lengths_s) > 1 / av.time_base
    # Ogg and ASF state where their clocks end, which may begin at any time.
    start = audio.start_time if format_name in ("ogg", "asf") and audio.start_time else 0
    return float((audio.duration - start) * audio.time_base) if is_own else None


def n_channels(file: IO[bytes], track: str | None = None) -> int:
    """The number of channels of the file's first audio frame; some headers do not state it. Raises like `decode_file`.

    Leaves the file, which must be seekable, at its beginning.
    """
    try:
        _, frame = next(_frames(file, drop, track))
        assert frame is not None
        _check_format(frame.sample_rate, frame.layout.nb_channels)
        return frame.layout.nb_channels
    finally:
        file.seek(0)


def languages_of_tracks(file: IO[bytes]) -> list[str | None]:
    """The language that the file names for each of its audio tracks, `None` where it names none; for WAV after WAV one.

    Raises like `probe`, and leaves the file, which must be seekable, at its beginning.
    """
    try:
        with _open(next(parts(file))) as container:
            if not container.streams.audio:
                raise MediaError(_NO_AUDIO)
            return [language_of(each) for each in container.streams.audio]
    except av.FFmpegError as error:
        raise MediaError(_not_decoded(_reason(error))) from error
    finally:
        file.seek(0)


def _open(file: Part, is_live: bool = False) -> av.container.InputContainer:
    """Open a container so that only its own bytes are read, never what it refers to.

    Some formats, SDP among them, are lists of addresses. An upload must not make the server listen or fetch.
    """
    if file.is_empty:
        raise MediaError(_EMPTY)
    options = {"protocol_whitelist": "none"}
    if is_live:
        options |= {"probesize": str(PROBE_BYTES), "analyzeduration": str(PROBE_US)}
    container: av.container.InputContainer = av.open(file, mode="r", options=options, **_IGNORING_TAGS)
    return container


def decode_pieces(
    file: IO[bytes], channels: int | None, on_notice: OnNotice = drop, track: str | None = None
) -> Generator[Samples, None, None]:
    """Decode a file as `decode_file` does, in the thread of the caller."""
    n_left = MAX_FILE_H * 3600 * SAMPLE_RATE * (channels or 1)
    for piece in _pieces(file, channels, on_notice, track):
        n_left -= len(piece)
        if n_left < 0:
            raise MediaError(f"file: expected at most {MAX_FILE_H} hours of audio, got more")
        yield piece


def _pieces(
    file: IO[bytes], channels: int | None, on_notice: OnNotice, track: str | None
) -> Generator[Samples, None, None]:
    was_plain = False
    for samples in read_plain_wav(file, channels, on_notice, track):
        was_plain = True
        yield samples
    if was_plain:
        return
    held: list[Samples] = []
    n_held = 0
    for samples in decode_frames(file, channels, on_notice, track, n_held=HELD_SAMPLES):
        held.append(samples)
        n_held += len(samples)
        if n_held >= PIECE_SAMPLES:
            yield np.concatenate(held)
            held, n_held = [], 0
    if n_held:
        yield np.concatenate(held)


def decode_frames(
    file: Source,
    channels: int | None = None,
    on_notice: OnNotice = drop,
    track: str | None = None,
    *,
    n_held: int = 0,
) -> Generator[Samples, None, None]:
    """Decode frame by frame to 16 kHz; the arguments and errors are those of `decode_file`.

    Frames are held until they have `n_held` samples, those of all channels: fewer calls take less time. A stream that
    changes its rate or its channels gets a new resampler, and so does audio after a gap.
    """
    resampler: _FrameResampler | None = None
    # FFmpeg keeps the power of channels that differ, so equal ones come out louder than each.
    mixer = ChannelMixer(SAMPLE_RATE, 2, 2**0.5, on_notice)
    for silence_s, frame in _frames(file, on_notice, track):
        if resampler is not None and (frame is None or silence_s or not resampler.suits(frame)):
            yield from resampler.resample(is_end=True)
            resampler = None
        if silence_s > 0:
            yield from _silence(silence_s, channels or 1)
        if frame is None:
            return
        if resampler is None:
            resampler = _FrameResampler(frame, channels, mixer, n_held)
            resampler.skip(-silence_s)
        if resampler.hold(frame):
            yield from resampler.resample()


def _silence(duration_s: float, n_channels: int) -> Generator[Samples, None, None]:
    n_left = max(round(duration_s * SAMPLE_RATE), 0) * n_channels
    while n_left > 0:
        n = min(n_left, PIECE_SAMPLES // n_channels * n_channels)
        yield np.zeros(n, np.float32)
        n_left -= n


class _FrameResampler:
    """Converts frames of one format to interleaved float32 samples at 16 kHz."""

    def __init__(self, frame: av.AudioFrame, channels: int | None, mixer: ChannelMixer, n_held: int) -> None:
        """Make a resampler for frames like this one. `channels` and the errors are those of `decode_file`.

        It holds frames back until they have `n_held` samples, those of all channels.
        """
        n_channels = frame.layout.nb_channels
        _check_format(frame.sample_rate, n_channels)
        if channels is not None and n_channels != channels:
            raise MediaError(f"audio: expected {channels} channels, got {n_channels}")
        self._format = (frame.sample_rate, frame.layout.name, frame.format.name)
        # Without knowing where the loudspeakers are, FFmpeg cannot mix: then all channels count the same.
        is_averaged = n_channels > MAX_PLACES and channels is None and frame.layout.name.endswith(" channels")
        self._n_averaged = n_channels if is_averaged else 1
        self._mixer = mixer if n_channels > 1 and channels is None and not is_averaged else None
        # The sides of more channels are what FFmpeg makes stereo of. One of them may be inverted, too.
        target = "stereo" if self._mixer and n_channels > 2 else frame.layout
        self._resampler = av.AudioResampler(format="flt", layout=target, rate=SAMPLE_RATE)
        self._n_resampled = 2 if self._mixer else n_channels
        self._n_skipped = 0
        """Samples of each channel that are still to be left out."""
        self._held = av.AudioFifo()
        self._n_held = n_held // n_channels

    def suits(self, frame: av.AudioFrame) -> bool:
        return self._format == (frame.sample_rate, frame.layout.name, frame.format.name)

    def skip(self, duration_s: float) -> None:
        """Leave out the beginning of what follows; nothing where the length is not positive."""
        self._n_skipped = max(round(duration_s * SAMPLE_RATE), 0)

    def hold(self, frame: av.AudioFrame) -> bool:
        """Hold a frame back. Returns whether there are enough samples to resample them."""
        frame.pts = None  # The clock has read it.
        self._held.write(frame)
        return self._held.samples >= self._n_held

    def resample(self, *, is_end: bool = False) -> Iterator[Samples]:
        """Resample what is held back; at the end also what FFmpeg's resampler itself holds back."""
        frames = [*self._held.read_many(self._held.samples or 1), *([None] if is_end else [])]
        for resampled in itertools.chain.from_iterable(map(self._resampler.resample, frames)):
            samples: Samples = resampled.to_ndarray()[0][self._n_skipped * self._n_resampled :]
            self._n_skipped = max(self._n_skipped - resampled.samples, 0)
            # False for NaN, too.
            if not np.abs(samples).max(initial=0.0) <= LOUDEST:
                samples = np.clip(np.nan_to_num(samples, nan=0.0), -LOUDEST, LOUDEST)
            if self._mixer:
                samples = self._mixer.mix(samples.reshape(-1, 2))
            yield samples if self._n_averaged == 1 else samples.reshape(-1, self._n_averaged).mean(axis=1)


def _frames(
    file: Source, on_notice: OnNotice, track: str | None
) -> Generator[tuple[float, av.AudioFrame | None], None, None]:
    """The frames of one audio track, each with the silence before it, as `ContainerClock.place` says.

    `None` for a frame follows the last one. Of WAV after WAV, parts without audio are left out.
    """
    is_live = not hasattr(file, "seek")
    failure: MediaError | None = None
    n_parts, silence_s = 0, 0.0
    for each in parts(file):
        part: Part | None = each
        clock: ContainerClock | None = None
        while part is not None:
            try:
                silence_s, part, clock = yield from _part_frames(part, is_live, on_notice, track, clock)
                n_parts += 1
            except MediaError as error:
                failure, part = failure or error, None
    if failure and not n_parts:
        raise failure
    yield silence_s, None


def _part_frames(
    file: Part, is_live: bool, on_notice: OnNotice, track: str | None, clock: ContainerClock | None
) -> Generator[tuple[float, av.AudioFrame | None], None, tuple[float, Part | None, ContainerClock | None]]:
    """The frames of one container. Damage is an error only if no frame can be decoded.

    Args:
        clock: of the container that this one goes on; `None` for one of its own.

    Returns:
        The silence at its end; what FFmpeg has not read of an MP4 that is damaged; and the clock of that.
    """
    damage = format_name = ""
    n_frames = n_bytes = 0
    goes_on = clock is not None
    try:
        with _open(file, is_live) as container:
            format_name = container.format.name.partition(",")[0]
            stream = _audio_stream(container, track, drop if goes_on else on_notice)
            if clock is None:
                clock = ContainerClock(container, stream, file, is_live, on_notice)
                clock.stated_s, n_bytes = (None, 0) if is_live else (_audio_s(container, stream), container.size)
            for packet in _packets(container, stream, clock, file):
                try:
                    frames = packet.decode()
                except av.FFmpegError as error:
                    # Decoders of AC-3 have errors of their own for damage, which FFmpeg does not name.
                    if isinstance(error, MemoryError):
                        raise
                    damage = _reason(error)
                    clock.fail(packet)
                    continue
                n_frames += len(frames)
                for frame in frames:
                    yield clock.place(frame), frame
    except av.FFmpegError as error:
        damage = _reason(error)
    if clock is None or not (n_frames or goes_on):
        raise MediaError(_not_decoded(damage or "it holds none"))
    if isinstance(file, FilePart) and format_name == "wav":
        # FFmpeg shortens what the header states to what is there.
        wav_s = clock.end_s * file.stated_share()
        clock.stated_s = wav_s if wav_s < MAX_FILE_H * 3600 else clock.stated_s
    if isinstance(file, FilePart) and format_name == "mov" and (fragments := file.fragments_after(clock.n_read)):
        clock.go_on()
        return 0.0, fragments, clock
    return clock.finish(n_bytes), None, None


def _packets(
    container: av.container.InputContainer, stream: av.AudioStream, clock: ContainerClock, file: Part
) -> "Iterator[av.Packet[av.AudioStream]]":
    for packet in _all_packets(container, file):
        if packet.stream.index == stream.index:
            own = cast("av.Packet[av.AudioStream]", packet)
            clock.receive(own)
            yield own
        else:
            clock.pass_over(packet)


def _all_packets(container: av.container.InputContainer, file: Part) -> "Iterator[av.Packet[Any]]":
    """The packets of all streams. FFmpeg gives up where much is damaged, and goes on when it is asked again."""
    failed_at = 0
    while True:
        try:
            yield from container.demux()
        except (av.InvalidDataError, av.BlockingIOError):
            if not isinstance(file, FilePart) or file.tell() <= failed_at:
                raise
            failed_at = file.tell()
        else:
            return


def _audio_stream(container: av.container.InputContainer, track: str | None, on_notice: OnNotice) -> av.AudioStream:
    """The chosen audio stream of a container, whose header names a format that is decoded here."""
    if not container.streams.audio:
        raise MediaError(_NO_AUDIO)
    stream = choose_track(container.streams.audio, track, on_notice)
    # FFmpeg has no decoder for a codec that it does not know, and PyAV then no context.
    if stream.codec_context is None:
        raise MediaError(_not_decoded("its codec is unknown"))
    # Some headers name neither; every frame does.
    _check_format(stream.codec_context.sample_rate or MIN_RATE, stream.codec_context.channels or 1)
    hours = (container.duration or 0) / av.time_base / 3600
    if hours > MAX_FILE_H and stream.frames != UNKNOWN_FRAMES:
        raise MediaError(f"file: expected at most {MAX_FILE_H} hours of audio, got {hours:.1f}")
    return stream


def _check_format(sample_rate: int, n_channels: int) -> None:
    if not MIN_RATE <= sample_rate <= MAX_RATE:
        raise MediaError(f"file: expected a sample rate from {MIN_RATE} to {MAX_RATE} Hz, got {sample_rate}")
    if not 1 <= n_channels <= MAX_CHANNELS:
        raise MediaError(f"file: expected 1 to {MAX_CHANNELS} channels, got {n_channels}")


def _reason(error: av.FFmpegError) -> str:
    return error.strerror or str(error)


def _not_decoded(reason: str) -> str:
    return f"file: expected audio in a format that FFmpeg decodes ({reason})"
