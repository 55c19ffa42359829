"""WAV files that need no decoding."""

import io

import numpy as np
import pytest

from tests.app.dialects.openai.test_files_endpoint import wav
from tests.made_files import tone
from tutti_server.app.media.file_decoder import decode_frames
from tutti_server.app.media.notices import drop
from tutti_server.app.media.plain_wav import read_plain_wav

TONE = tone(12.0)


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_samples_are_those_of_ffmpeg(cut: int) -> None:
    """They are equal to the last whole sample, in pieces of at most ten seconds."""
    content = wav(TONE)
    content = content[: len(content) - cut]
    pieces = list(read_plain_wav(io.BytesIO(content), None, drop, "0"))
    assert [len(piece) for piece in pieces] == [160_000, 32_000 - bool(cut)]
    assert np.array_equal(np.concatenate(pieces), np.concatenate(list(decode_frames(io.BytesIO(content)))))


@pytest.mark.parametrize(
    ("content", "channels", "track"),
    [
        pytest.param(wav(TONE, 8_000), None, None, id="8 kHz"),
        pytest.param(wav(TONE, n_channels=2), None, None, id="two channels"),
        pytest.param(wav(TONE), 2, None, id="other channels are expected"),
        pytest.param(wav(TONE), None, "1", id="another track is asked for"),
        pytest.param(wav(TONE) + wav(TONE), None, None, id="two files in one"),
        pytest.param(wav(TONE[:0]), None, None, id="no audio"),
        pytest.param(b"no audio at all", None, None, id="no WAV"),
    ],
)
def test_other_files_are_left_at_their_beginning(content: bytes, channels: int | None, track: str | None) -> None:
    file = io.BytesIO(content)
    assert list(read_plain_wav(file, channels, drop, track)) == []
    assert file.tell() == 0
