"""Damaged recordings, through the decoders of `app/media`."""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from functools import cache

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.fuzz.mutations import EDITS, Edit, damaged
from tests.made_files import Track, made_file
from tests.recordings import read
from tutti_server.app.errors import MediaError
from tutti_server.app.media.file_decoder import decode_file, n_channels, probe
from tutti_server.app.media.stream_decoder import ContainerDecoder
from tutti_server.engine.api import SAMPLE_RATE

SOURCE_S = 0.5
"""The length of the recordings, in seconds. Headers matter more than sound."""
MAX_DECODED_S = 60.0
"""Seconds that are decoded of one damaged recording, which may claim to be hours long."""
MAX_PIECES = 40
"""The most pieces in which a recording arrives: each one wakes a thread."""
FORMATS = {
    "wav": "pcm_s16le",
    "flac": "flac",
    "ogg": "libopus",
    "mp3": "libmp3lame",
    "mp4": "aac",
    "webm": "libopus",
    "aiff": "pcm_s16be",
    "matroska": "pcm_f32le",
    "au": "pcm_mulaw",
}
"""Containers, by the codec in them."""


@cache
def recording(container: str) -> bytes:
    """A true recording: the beginning of a bundled clip, in stereo."""
    samples = read("hello")[: int(SOURCE_S * SAMPLE_RATE)].astype(np.float32) / np.float32(32_768)
    codec = FORMATS[container]
    rate = 48_000 if codec == "libopus" else SAMPLE_RATE
    return made_file(container, codec, rate, [Track(samples=samples)], layout="stereo")


DAMAGED = st.tuples(st.sampled_from(sorted(FORMATS)), EDITS, st.sampled_from([None, 1, 2]), st.integers(1, 5_000))
"""A container, its damage, the channels that the caller expects, and the size of the pieces in which it arrives."""


def check_recording(example: tuple[str, list[Edit], int | None, int]) -> None:
    """Damage is a `MediaError` or leaves samples that can be used. No other error is raised, and the decoder ends."""
    container, edits, channels, piece_bytes = example
    data = damaged(recording(container), edits)
    for describe in (n_channels, probe):
        with suppress(MediaError):
            describe(io.BytesIO(data))
    asyncio.run(_decode(data, channels, piece_bytes))


async def _decode(data: bytes, channels: int | None, piece_bytes: int) -> None:
    await _use(decode_file(io.BytesIO(data), channels), channels)
    decoder = ContainerDecoder(channels or 1)
    try:
        n_bytes = max(piece_bytes, len(data) // MAX_PIECES)
        for start in range(0, len(data), n_bytes):
            if not await _use(decoder.decode(data[start : start + n_bytes]), channels):
                return
        await _use(decoder.finish(), channels)
    finally:
        decoder.close()


async def _use(pieces: AsyncIterator[NDArray[np.float32]], channels: int | None) -> bool:
    """Look at the samples. Returns whether the decoder may be asked for more."""
    n_samples = 0
    try:
        async with aclosing(pieces):  # type: ignore[type-var]  # both decoders return generators
            async for piece in pieces:
                assert piece.dtype == np.float32
                assert piece.ndim == 1
                assert len(piece) % (channels or 1) == 0
                n_samples += len(piece) // (channels or 1)
                if n_samples > MAX_DECODED_S * SAMPLE_RATE:
                    return False
    except MediaError as error:
        assert str(error)
        return False
    return True
