"""Small recordings of any container and codec, with the faults that files of people have."""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import av
import numpy as np
from av.stream import Disposition

from tutti_server.app.media.file_decoder import decode_pieces
from tutti_server.app.media.notices import Notice
from tutti_server.app.media.pcm import Samples
from tutti_server.engine.api import SAMPLE_RATE


def tone(seconds: float, pitch: float = 440.0) -> Samples:
    """A tone at half of full scale."""
    return (np.sin(2 * np.pi * pitch * np.arange(round(SAMPLE_RATE * seconds)) / SAMPLE_RATE) * 0.5).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class Track:
    """One audio track of a file."""

    samples: Samples
    """Those of every channel, or a row for each channel. Without any the track has no packets."""
    offset_s: float = 0.0
    """When it begins."""
    gap: tuple[float, float] = (0.0, 0.0)
    """At which second of the samples the times of packets jump, and how far."""
    language: str = ""
    is_default: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)

    def moved_s(self, at_s: float) -> float:
        """How much later than its samples say a packet comes."""
        gap_at_s, gap_s = self.gap
        return self.offset_s + (gap_s if gap_s and at_s >= gap_at_s else 0.0)


def made_file(
    container: str,
    codec: str,
    rate: int,
    tracks: Sequence[Track],
    picture_s: int = 0,
    *,
    layout: str = "mono",
    is_inverted: bool = False,
    options: dict[str, str] | None = None,
) -> bytes:
    """A file of these tracks, with a black picture of some seconds where `picture_s` says so.

    With `is_inverted` the second channel has its samples upside down. `options` are FFmpeg's for the container.
    """
    file = io.BytesIO()
    with av.open(file, "w", format=container, options=options or {}) as output:
        picture = _picture(output, "libvpx" if container == "webm" else "mpeg4") if picture_s else None
        streams = [output.add_stream(codec, rate=rate, layout=layout) for _ in tracks]
        for stream, track in zip(streams, tracks, strict=True):
            stream.disposition = Disposition.default if track.is_default else Disposition(0)
            stream.metadata.update(track.tags)
            if track.language:
                stream.metadata["language"] = track.language
        packets: list[av.Packet[Any]] = []
        if picture:
            for second in range(picture_s):
                image = av.VideoFrame.from_ndarray(np.zeros((96, 64), np.uint8), "yuv420p")
                image.pts = second
                packets += picture.encode(image)
            packets += picture.encode(None)
        for stream, track in zip(streams, tracks, strict=True):
            packets += _packets(stream, track, is_inverted=is_inverted)
        # Streams beside each other, as recorders write them.
        for packet in sorted(packets, key=lambda each: (each.pts or 0) * each.time_base):
            output.mux(packet)
    return file.getvalue()


def _picture(output: av.container.OutputContainer, codec: str) -> av.VideoStream:
    stream = output.add_stream(codec, rate=1)
    assert isinstance(stream, av.VideoStream)
    stream.width = stream.height = 64
    stream.pix_fmt = "yuv420p"
    return stream


def _packets(stream: object, track: Track, *, is_inverted: bool) -> Iterator["av.Packet[av.AudioStream]"]:
    """The packets of a track, at the times that it says."""
    assert isinstance(stream, av.AudioStream)
    if not track.samples.size:
        return
    context = stream.codec_context
    shape = context.layout.nb_channels, track.samples.shape[-1]
    channels = np.array(np.broadcast_to(track.samples, shape), order="C")
    channels[1::2] *= -1 if is_inverted else 1
    whole = av.AudioFrame.from_ndarray(channels, "fltp", context.layout.name)
    whole.sample_rate = SAMPLE_RATE
    # Frames of 20 ms for a codec that takes any, so that there is a packet where a gap begins.
    resampler = av.AudioResampler(
        context.format, context.layout, context.sample_rate, context.frame_size or context.rate // 50
    )
    at = 0
    for frame in [*resampler.resample(whole), *resampler.resample(None), None]:
        if frame is not None:
            frame.time_base, frame.pts = Fraction(1, context.sample_rate), at
            at += frame.samples
        for packet in stream.encode(frame):
            if packet.pts is not None:
                packet.pts += round(track.moved_s(float(packet.pts * packet.time_base)) / packet.time_base)
                packet.dts = packet.pts
            yield packet


def heard(content: bytes, track: str | None = None) -> tuple[Samples, list[Notice]]:
    """The samples of a file, and what is noticed of it."""
    notices: list[Notice] = []
    return np.concatenate(list(decode_pieces(io.BytesIO(content), None, notices.append, track))), notices


def loud_stretches(samples: Samples) -> list[tuple[float, float]]:
    """Where the samples are loud, in seconds. Silence of less than 30 ms ends no stretch."""
    loud = np.flatnonzero(np.abs(samples) > 0.1)
    ends = np.flatnonzero(np.diff(loud) > 0.03 * SAMPLE_RATE)
    starts = [*loud[:1], *loud[ends + 1]]
    return [
        (start / SAMPLE_RATE, end / SAMPLE_RATE) for start, end in zip(starts, [*loud[ends], *loud[-1:]], strict=True)
    ]


def damaged(content: bytes, start_share: float, share: float) -> bytes:
    """A file in which some bytes were overwritten with zeros."""
    start, n = int(len(content) * start_share), int(len(content) * share)
    return content[:start] + bytes(n) + content[start + n :]
