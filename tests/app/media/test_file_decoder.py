"""Files of any container: which are refused, and that no other file or address is opened.

`test_corpus.py` shows which are decoded.
"""

import asyncio
import gc
import io
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path

import numpy as np
import pytest

from tests.app.dialects.openai.test_files_endpoint import wav
from tests.clients.python.test_client_audio import make_wav
from tests.made_files import Track, heard, made_file, tone
from tutti_server.app.errors import MediaError
from tutti_server.app.media import file_decoder
from tutti_server.app.media.file_decoder import (
    LOUDEST,
    FileInfo,
    decode_file,
    decode_pieces,
    probe,
)
from tutti_server.app.media.file_decoder import n_channels as count_channels
from tutti_server.app.media.plain_wav import PIECE_SAMPLES

TONE = tone(12.0)


def encode(
    container: str,
    codec: str,
    sample_rate: int,
    samples: np.ndarray = TONE,
    *,
    options: dict[str, str] | None = None,
) -> bytes:
    """A file of one track, at 16 kHz before it is resampled."""
    return made_file(container, codec, sample_rate, [Track(samples=samples)], options=options)


async def decode(content: bytes) -> np.ndarray:
    async with aclosing(decode_file(io.BytesIO(content))) as pieces:
        return np.concatenate([piece async for piece in pieces])


async def test_tags_in_any_encoding_are_passed_over() -> None:
    """A title in Shift JIS, which no UTF-8 is."""
    content = encode("wav", "pcm_s16le", 44_100, TONE[:16_000])
    title = "テスト".encode("shift_jis")
    tags = b"INFOINAM" + struct.pack("<I", len(title)) + title
    content += b"LIST" + struct.pack("<I", len(tags)) + tags
    content = content[:4] + struct.pack("<I", len(content) - 8) + content[8:]
    assert len(await decode(content)) == pytest.approx(16_000, abs=2)


async def test_a_file_that_lost_its_index_is_refused() -> None:
    """The index of an MP4, at its end, tells where the audio is."""
    content = encode("mp4", "aac", 48_000)
    with pytest.raises(MediaError, match="file: expected audio"):
        await decode(content[: len(content) // 2])


@pytest.mark.parametrize("content", [b"", b"hello", bytes(1000), wav(TONE)[:20], wav(TONE[:0])])
async def test_a_file_without_audio_is_refused(content: bytes) -> None:
    with pytest.raises(MediaError, match="file: expected audio"):
        await decode(content)


READERS = (lambda file: list(decode_pieces(file, None)), count_channels, probe)
"""What reads files."""


KINDS = [
    ("wav", "pcm_s16le", 16_000),
    ("mp3", "libmp3lame", 44_100),
    ("adts", "aac", 44_100),
    ("flac", "flac", 44_100),
    ("ogg", "libopus", 48_000),
    ("webm", "libopus", 48_000),
    ("mp4", "aac", 48_000),
    ("mpegts", "aac", 48_000),
    ("flv", "libmp3lame", 44_100),
    ("aiff", "pcm_s16be", 16_000),
]


@pytest.mark.parametrize(("container", "codec", "rate"), KINDS)
def test_a_file_that_ends_anywhere_is_decoded_or_refused(
    container: str, codec: str, rate: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With one line that says why; nothing else is printed. FFmpeg knows an empty MP3 by its name."""
    content = encode(container, codec, rate, TONE[:32_000])
    path = tmp_path / "recording.mp3"
    for n_bytes in (*range(0, 64, 5), 44, *range(64, 600, 67), 1000, 4096, len(content) - 1):
        path.write_bytes(content[:n_bytes])
        for decode_with in READERS:
            with path.open("rb") as file:
                try:
                    decode_with(file)
                except MediaError as error:
                    assert str(error).startswith("file: expected audio") and "\n" not in str(error)
    assert capfd.readouterr() == ("", "")


async def test_a_film_without_sound_is_refused() -> None:
    with pytest.raises(MediaError, match="container without an audio stream"):
        await decode(made_file("mp4", "aac", 16_000, [], picture_s=1))


@pytest.mark.parametrize(
    "content",
    [
        b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\n"
        b"m=audio 6000 RTP/AVP 0\na=rtpmap:0 PCMU/8000\n",
        b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nhttp://127.0.0.1:1/a.ts\n#EXT-X-ENDLIST\n",
        b"ffconcat version 1.0\nfile /etc/hostname\n",
    ],
)
async def test_a_file_that_names_addresses_opens_none_of_them(content: bytes) -> None:
    """A playlist or session description is refused at once, without a socket or another file."""
    async with asyncio.timeout(5):
        with pytest.raises(MediaError):
            await decode(content)


def header(sample_rate: int, n_channels: int, codec: int = 1, n_bytes: int = 6400) -> bytes:
    """A WAV file of 16 bits with zeros, whose header states these numbers."""
    return make_wav(codec, 16, bytes(n_bytes), rate=sample_rate, channels=n_channels)


@pytest.mark.parametrize(
    ("content", "message", "readers"),
    [
        # A resampler for such a rate would take gigabytes, or make hours of a few bytes.
        (header(3999, 1), "expected a sample rate from 4000 to 384000 Hz, got 3999", READERS[:1]),
        (header(384_001, 1), "expected a sample rate from 4000 to 384000 Hz, got 384001", READERS[:1]),
        (header(16_000, 0), "expected audio", READERS[:2]),
        (header(16_000, 33), "expected 1 to 32 channels, got 33", READERS),
        (header(16_000, 2, codec=0x9999), "its codec is unknown", READERS),
    ],
    ids=["a low rate", "a high rate", "no channel", "many channels", "an unknown codec"],
)
def test_a_header_that_no_recording_has_is_refused(
    content: bytes, message: str, readers: Sequence[Callable[[io.BytesIO], object]]
) -> None:
    for read in readers:
        with pytest.raises(MediaError, match=message):
            read(io.BytesIO(content))


@pytest.mark.parametrize("n_channels", [1, 2, 3, 9, 17, 32])
def test_any_number_of_channels_is_mixed_or_kept(n_channels: int) -> None:
    """Also one for which FFmpeg knows no places of loudspeakers."""
    content = header(16_000, n_channels, n_bytes=2 * n_channels * 1600)
    assert count_channels(io.BytesIO(content)) == n_channels
    assert sum(map(len, decode_pieces(io.BytesIO(content), None))) == 1600
    assert sum(map(len, decode_pieces(io.BytesIO(content), n_channels))) == 1600 * n_channels


def test_more_audio_than_a_day_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once where the file states its length, and else where the audio is too long."""
    monkeypatch.setattr(file_decoder, "MAX_FILE_H", 11 / 3600)
    with pytest.raises(MediaError, match=r"of audio, got 0\.0"):
        next(decode_pieces(io.BytesIO(encode("flac", "flac", 22_050)), None))
    pieces = decode_pieces(io.BytesIO(wav(TONE)), None)
    assert len(next(pieces)) == PIECE_SAMPLES
    with pytest.raises(MediaError, match="of audio, got more"):
        list(pieces)


def test_a_piece_of_many_channels_is_not_larger() -> None:
    """The session works on one piece at a time, and nothing else runs meanwhile."""
    content = header(16_000, 32, n_bytes=2 * 32 * 16_000)
    assert max(map(len, decode_pieces(io.BytesIO(content), 32))) <= PIECE_SAMPLES + 32 * 1024


class HeldFile(io.BytesIO):
    """Its first `read` waits until the test has cancelled the decoding."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.is_read, self.may_go_on = threading.Event(), threading.Event()

    def read(self, size: int | None = -1, /) -> bytes:
        self.is_read.set()
        self.may_go_on.wait(10)
        return super().read(size)


async def test_a_client_that_leaves_takes_the_error_of_its_file_along(caplog: pytest.LogCaptureFixture) -> None:
    """The thread finds out that the file is no audio when nothing waits for it; the log has no error."""
    file = HeldFile(b"no audio" * 100)
    task = asyncio.create_task(anext(decode_file(file)))
    await asyncio.to_thread(file.is_read.wait)
    task.cancel()
    await asyncio.sleep(0)
    file.may_go_on.set()
    await asyncio.wait((task,))
    assert task.cancelled()
    del task
    gc.collect()
    assert caplog.records == []


def test_a_probe_gives_the_length_that_the_file_states() -> None:
    file = io.BytesIO(wav(TONE))
    assert probe(file) == FileInfo(duration_s=12.0, audio_s=12.0)
    assert file.tell() == 0


@pytest.mark.parametrize(
    ("container", "codec", "audio_s"),
    [("mp4", "aac", 5.0), ("matroska", "aac", 5.0), ("mpegts", "aac", 5.0), ("asf", "libmp3lame", None)],
)
def test_a_picture_may_be_longer_than_the_sound(container: str, codec: str, audio_s: float | None) -> None:
    """The length of the sound is known where the container states one for it."""
    film = io.BytesIO(made_file(container, codec, 16_000, [Track(samples=TONE[: 5 * 16_000])], picture_s=30))
    assert count_channels(film) == 1
    info = probe(film)
    assert info.duration_s == pytest.approx(30.0, abs=0.2)
    assert info.audio_s == (None if audio_s is None else pytest.approx(audio_s, abs=0.2))


def test_a_picture_may_be_as_long_as_the_sound() -> None:
    """Only so a film that lost its end can be told: as clips of whole seconds that were not loaded wholly."""
    film = made_file("mp4", "aac", 48_000, [Track(samples=TONE[:32_000])], picture_s=2)
    assert probe(io.BytesIO(film)).audio_s == 2.0


@pytest.mark.parametrize("rate", [16_000, 44_100])
def test_a_file_of_floats_gives_numbers_that_the_models_can_use(rate: int) -> None:
    """NaN becomes silence, and what is far over full scale becomes loud. Other samples stay as they are."""
    samples = np.full(rate, 0.5, np.float32)
    samples[100:200] = np.nan
    samples[300:310], samples[400:410] = 1e30, -np.inf
    decoded, _ = heard(make_wav(3, 32, samples.tobytes(), rate=rate))
    assert np.isfinite(decoded).all() and np.abs(decoded).max() <= LOUDEST
    assert np.allclose(decoded[8000:15_000], 0.5, atol=0.01)


def test_a_length_that_a_file_only_claims_is_not_believed() -> None:
    """A tag of any text may stand in a file, also one with more digits than a number may have."""
    track = Track(samples=TONE[:16_000], tags={"DURATION": f"{'9' * 5000}:00:00"})
    file = io.BytesIO(made_file("ogg", "libopus", 48_000, [track]))
    assert probe(file).audio_s == pytest.approx(1.0, abs=0.1)
