"""Of several audio tracks the wanted one is decoded, and the others are named."""

import functools
import io
from pathlib import Path

import numpy as np
import pytest

from tests.app.media.test_stream_decoder import decoded_in_pieces
from tests.made_files import Track, heard, made_file, tone
from tutti_server.app.errors import MediaError
from tutti_server.app.media.decoder_workers import Decoders
from tutti_server.app.media.file_decoder import n_channels
from tutti_server.app.media.notices import Notice
from tutti_server.app.media.pcm import Samples
from tutti_server.app.media.stream_decoder import ContainerDecoder

PITCHES = (300, 500, 700)
LANGUAGES = ("eng", "fre", "")
KINDS = [("matroska", "aac", 48_000), ("webm", "libopus", 48_000), ("mp4", "aac", 48_000), ("mpegts", "aac", 48_000)]


@functools.cache
def film(container: str, codec: str, rate: int, default: int = 0) -> bytes:
    tracks = [
        Track(samples=tone(1.0, pitch), language=language, is_default=number == default)
        for number, (pitch, language) in enumerate(zip(PITCHES, LANGUAGES, strict=True))
    ]
    return made_file(container, codec, rate, tracks)


def pitch(samples: Samples) -> int:
    return int(np.argmax(np.abs(np.fft.rfft(samples[4000:12_000]))) * 2)


def decoded(content: bytes, track: str | None) -> tuple[int, list[Notice]]:
    samples, notices = heard(content, track)
    return pitch(samples), notices


@pytest.mark.parametrize("kind", KINDS)
def test_a_track_is_chosen_by_its_number_or_language(kind: tuple[str, str, int]) -> None:
    """However the language is spelled."""
    content = film(*kind)
    for track, expected in {"0": 300, "1": 500, "2": 700, "fr": 500, "fre": 500, "French": 500, "en-US": 300}.items():
        assert decoded(content, track) == (expected, [])
        assert n_channels(io.BytesIO(content), track) == 1


@pytest.mark.parametrize("kind", KINDS[:3])
@pytest.mark.parametrize("default", [0, 1])
async def test_without_a_choice_the_default_track_is_decoded_and_the_others_are_named(
    kind: tuple[str, str, int], default: int
) -> None:
    content = film(*kind, default=default)
    got, (notice,) = decoded(content, None)
    assert got == PITCHES[default]
    assert notice.code == "other_tracks"
    other = f"{1 - default} ({LANGUAGES[1 - default]})"
    assert f"{default} ({LANGUAGES[default]}) is transcribed, and not {other}, 2" in notice.message


async def test_a_live_container_names_its_other_tracks() -> None:
    notices: list[Notice] = []
    content = film("matroska", "aac", 48_000)
    assert pitch(await decoded_in_pieces(ContainerDecoder(on_notice=notices.append), content, len(content))) == 300
    assert [each.code for each in notices] == ["other_tracks"]


@pytest.mark.parametrize("track", ["3", "-1", "de", "x" * 500, "9" * 500])
def test_a_track_that_is_not_there_is_refused(track: str) -> None:
    with pytest.raises(MediaError, match=r"^track: expected one of 0 \(eng\), 1 \(fre\), 2, got '") as raised:
        decoded(film("matroska", "aac", 48_000), track)
    assert len(str(raised.value)) < 200


def test_a_plain_wav_has_one_track() -> None:
    content = made_file("wav", "pcm_s16le", 16_000, [Track(samples=tone(1.0, 300))])
    assert decoded(content, "0") == (300, [])
    with pytest.raises(MediaError, match="track: expected one of 0, got '1'"):
        decoded(content, "1")


async def test_another_process_chooses_the_same_track(decoders: Decoders, tmp_path: Path) -> None:
    path = tmp_path / "film"
    path.write_bytes(film("matroska", "aac", 48_000))
    with path.open("rb") as file:
        assert await decoders.n_channels(file, "1") == 1
        pieces = [piece async for piece in decoders.decode(file, track="fr")]
    assert pitch(np.concatenate(pieces)) == 500
