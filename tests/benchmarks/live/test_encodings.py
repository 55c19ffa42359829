"""Recordings in other encodings sound the same."""

import click
import numpy as np
import pytest

import tutti
from benchmarks.live.encodings import encode, parse_formats
from tutti_server.app.media.pcm import AudioDecoder, AudioFormat
from tutti_server.engine.api import SAMPLE_RATE

TONE = (0.4 * np.sin(2 * np.pi * 440 * np.arange(SAMPLE_RATE) / SAMPLE_RATE)).astype(np.float32)


@pytest.mark.parametrize("text", ["pcm_s16le", "pcm_s16le@8000", "pcm_s16le@48000", "pcm_f32le", "mulaw", "alaw@16000"])
def test_the_server_hears_what_was_recorded(text: str) -> None:
    """Every encoding and rate comes back as the same tone, as long as it was."""
    (format,) = parse_formats(text)
    decoder = AudioDecoder(AudioFormat(format.encoding, format.sample_rate, 1))
    (heard,), (rest,) = decoder.decode(encode(TONE, format)), decoder.drain()
    heard = np.concatenate((heard, rest))
    assert abs(len(heard) - len(TONE)) <= 2
    inner = slice(1000, 15_000)
    assert np.abs(heard[inner] - TONE[inner]).max() < 0.03


def test_formats_have_their_usual_rates() -> None:
    assert parse_formats("mulaw,pcm_f32le,pcm_s16le@8000") == [
        tutti.AudioFormat("mulaw", 8_000, 1),
        tutti.AudioFormat("pcm_f32le", 48_000, 1),
        tutti.AudioFormat("pcm_s16le", 8_000, 1),
    ]


@pytest.mark.parametrize("text", ["", "opus", "mulaw@", "mulaw@fast"])
def test_other_formats_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="expected some of pcm_s16le"):
        parse_formats(text)
