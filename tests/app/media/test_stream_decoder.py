"""Containers that arrive in pieces: they are decoded as they come, in bounded memory."""

import asyncio
import threading

import numpy as np
import pytest

from tests.app.dialects.openai.test_files_endpoint import wav
from tests.app.media.test_file_decoder import TONE, encode
from tutti_server.app.errors import MediaError
from tutti_server.app.media.notices import Notice
from tutti_server.app.media.stream_decoder import MAX_HELD_SAMPLES, ContainerDecoder


async def decoded_in_pieces(decoder: ContainerDecoder, content: bytes, n_step: int) -> np.ndarray:
    """All samples of a container that arrives in pieces of `n_step` bytes."""
    pieces = []
    for at in range(0, len(content), n_step):
        pieces += [piece async for piece in decoder.decode(content[at : at + n_step])]
    pieces += [piece async for piece in decoder.finish()]
    decoder.close()
    return np.concatenate(pieces)


@pytest.mark.parametrize(
    ("container", "codec", "sample_rate"),
    [
        ("wav", "pcm_s16le", 44_100),
        ("flac", "flac", 22_050),
        ("mp3", "libmp3lame", 44_100),
        ("ogg", "libopus", 48_000),
        ("webm", "libopus", 48_000),
    ],
)
async def test_containers_are_decoded_though_they_are_cut(container: str, codec: str, sample_rate: int) -> None:
    """A tone keeps its length and pitch."""
    samples = await decoded_in_pieces(ContainerDecoder(), encode(container, codec, sample_rate, TONE[:64_000]), 997)
    assert len(samples) == pytest.approx(64_000, rel=0.02)
    assert np.argmax(np.abs(np.fft.rfft(samples[16_000:32_000]))) == 440


@pytest.mark.parametrize(("container", "codec"), [("webm", "libopus"), ("mp4", "aac")])
async def test_each_of_many_recordings_of_a_recorder_that_begins_again_is_decoded(container: str, codec: str) -> None:
    """FFmpeg reads two joined files of Matroska and no third, and of MP4 the first."""
    rates = (24_000, 48_000, 16_000, 48_000)
    # A browser's MP4 is in fragments, so that it can be read while it comes.
    options = {"movflags": "empty_moov+default_base_moof+delay_moov"} if container == "mp4" else {}
    joined = b"".join(
        encode(container, codec, rate, TONE[: 16_000 * n], options=options) for n, rate in enumerate(rates, 1)
    )
    samples = await decoded_in_pieces(ContainerDecoder(), joined, 397)
    assert len(samples) == pytest.approx(16_000 * (1 + 2 + 3 + 4), rel=0.01 if codec == "libopus" else 0.02)


async def test_samples_come_before_the_end_of_the_container() -> None:
    """A live recording is decoded soon, not when FFmpeg has estimated its bit rate."""
    content = encode("webm", "libopus", 48_000)
    decoder = ContainerDecoder()
    n_bytes_per_s = len(content) // 12
    pieces = [piece async for piece in decoder.decode(content[:n_bytes_per_s])]
    decoder.close()
    assert sum(map(len, pieces)) > 8000


async def test_channels_are_kept_apart_or_mixed() -> None:
    left, right = np.full(16_000, 0.5, np.float32), np.full(16_000, -0.25, np.float32)
    content = wav(np.stack((left, right), axis=1), n_channels=2)
    apart = (await decoded_in_pieces(ContainerDecoder(2), content, 4000)).reshape(-1, 2)
    assert apart[8000] == pytest.approx([0.5, -0.25], abs=0.001)
    mixed = await decoded_in_pieces(ContainerDecoder(), content, 4000)
    # FFmpeg keeps the power of sounds that are not alike, not their mean.
    assert mixed[8000] == pytest.approx(0.25 / 2**0.5, abs=0.001)
    with pytest.raises(MediaError, match="expected 3 channels, got 2"):
        await decoded_in_pieces(ContainerDecoder(3), content, 4000)


@pytest.mark.parametrize(("content", "problem"), [(b"", "an empty file"), (b"this is no audio at all", "FFmpeg")])
async def test_bytes_that_are_no_audio_are_an_error(content: bytes, problem: str) -> None:
    with pytest.raises(MediaError, match=problem):
        await decoded_in_pieces(ContainerDecoder(), content * 1000, 1000)


async def test_a_few_bytes_that_expand_to_minutes_are_decoded_piece_by_piece() -> None:
    """Samples that wait for the caller are bounded, and leaving early ends the thread."""
    content = encode("flac", "flac", 16_000, np.zeros(16_000 * 120, np.float32))
    assert len(content) < 36_000
    decoder = ContainerDecoder()
    pieces = decoder.decode(content)
    async for piece in pieces:
        assert len(piece) <= 2 * MAX_HELD_SAMPLES
        break
    await pieces.aclose()
    decoder.close()
    for thread in [each for each in threading.enumerate() if each.name == "container"]:
        await asyncio.to_thread(thread.join)


@pytest.mark.parametrize("n_step", [20_000, 10_000_000])
async def test_what_follows_a_container_that_has_ended_is_not_kept_and_is_named_once(n_step: int) -> None:
    """Whether it comes with the container or later. An AIFF states its length."""
    notices: list[Notice] = []
    decoder = ContainerDecoder(1, notices.append)
    content = encode("aiff", "pcm_s16be", 16_000, TONE[:16_000]) + bytes(1_000_000)
    samples = await decoded_in_pieces(decoder, content, n_step)
    assert len(samples) == 16_000
    assert not decoder._data
    assert [each.code for each in notices] == ["after_end"]
