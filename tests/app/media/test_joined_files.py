"""WAV after WAV, in a file or in a stream, is read to its end."""

import io
import struct

import numpy as np
import pytest

from tests.app.media.test_stream_decoder import decoded_in_pieces
from tests.made_files import Track, heard, loud_stretches, made_file, tone
from tutti_server.app.media import joined_files
from tutti_server.app.media.file_decoder import decode_frames
from tutti_server.app.media.pcm import Samples
from tutti_server.app.media.stream_decoder import ContainerDecoder

TONE = tone(1.0)
LATE_S = 0.02
"""How much a resampler may move the end of a part."""


def wav(codec: str = "pcm_s16le", rate: int = 16_000, samples: Samples = TONE) -> bytes:
    return made_file("wav", codec, rate, [Track(samples=samples)])


def stating(content: bytes, n_bytes: int) -> bytes:
    """A WAV whose header states this length of its audio."""
    at = content.index(b"data") + 4
    return content[:at] + struct.pack("<I", n_bytes) + content[at + 4 :]


def decoded(content: bytes) -> Samples:
    return heard(content)[0]


def noticed(content: bytes) -> list[str]:
    """The codes of what is noticed of a file."""
    return [each.code for each in heard(content)[1]]


def rf64(name: bytes = b"RF64", stated: int | None = None, samples: Samples = TONE) -> bytes:
    """A WAV whose chunk `ds64` states the length of its audio, as those of more than 4 GiB have."""
    content = stating(wav(rate=16_000, samples=samples), 0xFFFFFFFF)
    n_bytes = len(content) - content.index(b"data") - 8
    ds64 = struct.pack("<4sI3QI", b"ds64", 28, len(content) + 28, n_bytes if stated is None else stated, 0, 0)
    return name + b"\xff" * 4 + b"WAVE" + ds64 + content[12:]


def chunk(name: bytes, content: bytes) -> bytes:
    return name + struct.pack("<I", len(content)) + content + bytes(len(content) % 2)


async def decoded_live(content: bytes, n_message: int) -> Samples:
    """As `decoded`, from messages of this many bytes."""
    return await decoded_in_pieces(ContainerDecoder(), content, n_message)


PAIRS = [
    (wav(), wav()),
    (wav(rate=44_100), wav()),
    (wav("pcm_mulaw", 8_000), wav("pcm_f32le", 48_000)),
    (stating(wav(), 0), wav()),
    (stating(wav(), 0xFFFFFFFF), stating(wav(), 0xFFFFFFFF)),
    (stating(wav(), 3_200_000), wav()),
    (stating(wav(), 36_000), wav()),
    (wav() + b"LIST" + struct.pack("<I", 4) + b"INFO", wav()),
    (rf64(), rf64(b"BW64")),
    (rf64(stated=0), wav(rate=44_100)),
    (wav(), rf64(stated=64_000)),
    (stating(wav(rate=8_000), 1_000), stating(wav(), 1_001)),
]


@pytest.mark.parametrize(("first", "second"), PAIRS)
async def test_joined_files_are_read_to_the_end(first: bytes, second: bytes) -> None:
    """Whatever their formats are, and whatever their headers state; three of them, too."""
    content = first + second + first
    for samples in (decoded(content), await decoded_live(content, 1001), await decoded_live(content, len(content))):
        assert len(samples) / 16_000 == pytest.approx(3.0, abs=LATE_S)
        ((start, end),) = loud_stretches(samples)
        assert (start, end) == pytest.approx((0.0, 3.0), abs=LATE_S)


@pytest.mark.parametrize("stated", [0x7FFFF000, 0x7FFFFF00, 0x7FFFFFDB, 0x80000000, 0xFFFFFFDB])
def test_a_length_that_stands_for_none_is_not_missed(stated: int) -> None:
    """A recorder that writes to a pipe states the most that a header can."""
    assert noticed(stating(wav(rate=44_100), stated)) == noticed(stating(wav(), stated)) == noticed(sox()) == []
    ((start, end),) = loud_stretches(decoded(stating(wav(), stated) + wav()))
    assert (start, end) == pytest.approx((0.0, 2.0), abs=LATE_S)


@pytest.mark.parametrize("stated", [70, 20_000])
def test_a_file_that_states_too_little_of_itself_is_heard_to_its_end(stated: int) -> None:
    """The header states the right length of the audio, and a wrong length of the file."""
    content = wav()
    assert np.array_equal(decoded(content[:4] + struct.pack("<I", stated) + content[8:]), decoded(content))
    assert noticed(content[:4] + struct.pack("<I", stated) + content[8:]) == []


def test_only_the_last_part_may_be_cut_off() -> None:
    """The headers of a stream's chunks may all state too much; there is no warning for each."""
    chunk = stating(wav(), 3_200_000)
    assert noticed(chunk * 10 + wav()) == []
    assert noticed(wav() + chunk) == ["cut_off"]


def sox() -> bytes:
    """A WAV with a number of samples that stands for none, as SoX writes it into a pipe before all but PCM."""
    content = stating(wav("pcm_mulaw", rate=8_000), 0x7FFFF000)
    at = content.index(b"fact") + 8
    return content[:at] + struct.pack("<I", 0x7FFFF000) + content[at + 4 :]


@pytest.mark.parametrize(
    "content",
    [
        # As of a recorder that never completed its header, or of a stream with the header of its first chunk.
        pytest.param(stating(wav(), 3_200), id="audio behind what the header states"),
        pytest.param(stating(wav(rate=44_100), 3_200), id="audio of another rate behind what the header states"),
        pytest.param(wav() + b"ID3\x04\0\0\0\0\x7f\x7f" + b"\x55" * 20_000, id="an ID3 tag behind the audio"),
        pytest.param(wav() + b"APETAGEX" + b"\x55" * 20_000, id="another tag behind the audio"),
        pytest.param(wav() + b"\xff\xd8\xff\xe0" + b"\x55" * 20_000, id="a picture behind the audio"),
        pytest.param(sox(), id="a number of samples that would make days"),
    ],
)
async def test_all_of_the_audio_and_nothing_else_is_heard(content: bytes) -> None:
    for samples in (decoded(content), await decoded_live(content, 100)):
        assert len(samples) / 16_000 == pytest.approx(1.0, abs=LATE_S)


@pytest.mark.parametrize("n_audio", [16_000, 15_999])
async def test_chunks_behind_the_audio_are_not_heard(n_audio: int) -> None:
    """Whatever they hold; but audio behind them is."""
    audio = wav("pcm_mulaw", 16_000)
    audio = stating(audio[: audio.index(b"data") + 8 + n_audio], n_audio) + bytes(n_audio % 2)
    pictures = chunk(b"LIST", b"INFO" + bytes(5)) + chunk(b"id3 ", b"\x55" * 20_000)
    alone, both = audio + pictures, audio + pictures + chunk(b"data", audio[-n_audio:])
    for content, end_s in ((alone, 1.0), (both, 2.0)):
        for samples in (decoded(content), await decoded_live(content, 100)):
            assert len(samples) / 16_000 == pytest.approx(end_s, abs=LATE_S)


def test_a_cut_rf64_is_cut_off() -> None:
    assert noticed(rf64()[:-10_000]) == ["cut_off"]
    assert noticed(rf64()) == noticed(rf64(stated=0)) == []


def test_joined_plain_files_lose_no_sample() -> None:
    """FFmpeg gives the samples of both, one after the other."""
    assert np.array_equal(decoded(wav() + wav()), np.tile(decoded(wav()), 2))


@pytest.mark.parametrize(
    ("stated", "n_message"), [(None, 7), (None, 1024), (0, None), (0xFFFFFFFF, 333), (1_000_000, None)]
)
async def test_a_stream_may_have_a_header_on_each_chunk(stated: int | None, n_message: int | None) -> None:
    """However the stream is cut, and whatever length the headers state."""
    chunks = [wav(samples=TONE[at : at + 1600]) for at in range(0, len(TONE), 1600)]
    content = b"".join(chunk if stated is None else stating(chunk, stated) for chunk in chunks)
    samples = await decoded_live(content, n_message or len(chunks[0]))
    assert np.array_equal(samples, decoded(wav()))


def test_bytes_like_a_header_are_samples() -> None:
    """Only a whole header begins a WAV."""
    samples = np.frombuffer(b"RIFF" * 1000 + b"RIFF0000WAVF" * 1000 + b"R" * 99 + b"RIF", "<i2")
    content = wav(samples=np.zeros(len(samples), np.float32))
    content = content[: content.index(b"data") + 8] + samples.tobytes()
    expected = samples.astype(np.float32) / 32768
    assert np.array_equal(decoded(content), expected)

    class Pipe:
        def __init__(self) -> None:
            self._file = io.BytesIO(content)

        def read(self, n: int, /) -> bytes:
            return self._file.read(min(n, 5))

    assert np.array_equal(np.concatenate(list(decode_frames(Pipe()))), expected)


def test_a_part_without_audio_is_left_out() -> None:
    empty = wav()[: wav().index(b"data") + 8]
    assert len(decoded(wav() + stating(empty, 0) + wav())) == 2 * 16_000


def test_a_header_at_the_border_of_what_is_searched_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    content = wav()
    for scan_bytes in range(len(content) - 14, len(content) + 2):
        monkeypatch.setattr(joined_files, "SCAN_BYTES", scan_bytes)
        assert not joined_files.is_plain(io.BytesIO(content + content))
        assert joined_files.is_plain(io.BytesIO(content))
