"""Two channels are mixed, and one is taken where they cancel each other."""

from itertools import pairwise

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.app.media.test_stream_decoder import decoded_in_pieces
from tests.made_files import Track, heard, made_file, tone
from tutti_server.app.media.mixing import ChannelMixer
from tutti_server.app.media.notices import Notice
from tutti_server.app.media.pcm import AudioDecoder, AudioFormat, Samples
from tutti_server.app.media.stream_decoder import ContainerDecoder

RNG = np.random.default_rng(1)
LOW, HIGH = tone(2.0, 300.0), tone(2.0, 700.0)
NOISE = RNG.normal(0, 0.005, len(LOW)).astype(np.float32)
LATE = 640
"""Samples after which a side is taken at the latest: two blocks."""


def stereo(container: str, codec: str, rate: int, left: Samples, right: Samples) -> bytes:
    return made_file(container, codec, rate, [Track(samples=np.stack((left, right)))], layout="stereo")


def mixed(left: Samples, right: Samples) -> tuple[Samples, list[Notice]]:
    notices: list[Notice] = []
    mixer = ChannelMixer(16_000, 2, 1.0, notices.append)
    return mixer.mix(np.stack((left, right), axis=1)), notices


@pytest.mark.parametrize(
    ("right", "side"), [(-LOW, LOW), (-0.8 * LOW, LOW), (NOISE - 0.9 * LOW, LOW), (-1.2 * LOW, -1.2 * LOW)]
)
def test_the_louder_of_two_channels_that_cancel_is_taken(right: Samples, side: Samples) -> None:
    """Also if they do not cancel wholly; and it says so once."""
    samples, notices = mixed(LOW, right.astype(np.float32))
    assert np.allclose(samples[LATE:], side[LATE:], atol=0.02)
    assert [each.code for each in notices] == ["channels_cancel"]
    assert "the right one" in notices[0].message if side is not LOW else "the left one" in notices[0].message


@pytest.mark.parametrize("right", [LOW, HIGH, 0 * LOW, NOISE, -0.3 * LOW])
def test_other_channels_are_mixed(right: Samples) -> None:
    """Equal ones, different ones, and sound on one side alone."""
    samples, notices = mixed(LOW, right)
    assert np.allclose(samples, (LOW + right) / 2, atol=1e-6)
    assert notices == []


def test_channels_are_mixed_again_after_they_cancelled() -> None:
    left, right = np.tile(LOW, 4), np.concatenate((-LOW, LOW, LOW, LOW))
    samples, _ = mixed(left, right)
    assert np.allclose(samples[LATE : len(LOW)], left[LATE : len(LOW)])
    assert np.allclose(samples[-len(LOW) :], (left + right)[-len(LOW) :] / 2)


def test_a_speaker_who_is_inverted_is_heard_at_once_after_another() -> None:
    """In turns: 0.2 s of each are lost, and the other one is mixed again."""
    left = np.tile(LOW, 8)
    right = np.concatenate([LOW, -LOW] * 4)
    samples, notices = mixed(left, right)
    for turn in range(1, 8):
        start, end = turn * len(LOW) + 3840, (turn + 1) * len(LOW)
        assert np.allclose(samples[start:end], left[start:end])
    assert [each.code for each in notices] == ["channels_cancel"]


def test_pauses_that_cancel_decide_nothing() -> None:
    """As the echo of a room may."""
    pause = 0.02 * HIGH
    left, right = np.concatenate((LOW, pause, LOW)), np.concatenate((LOW, -pause, LOW))
    samples, notices = mixed(left, right)
    assert np.allclose(samples, (left + right) / 2, atol=1e-6)
    assert notices == []


@given(cuts=st.lists(st.integers(0, 2000), max_size=20), n_inverted=st.integers(0, 2000))
def test_the_result_does_not_depend_on_how_the_audio_was_cut(cuts: list[int], n_inverted: int) -> None:
    pairs: NDArray[np.float32] = np.stack((LOW[:2000], LOW[:2000]), axis=1)
    pairs[:n_inverted, 1] *= -1
    mixer = ChannelMixer(16_000, 2, 1.0, lambda notice: None)
    edges = [0, *sorted(cuts), 2000]
    parts = [mixer.mix(pairs[start:end]) for start, end in pairwise(edges)]
    assert np.array_equal(np.concatenate(parts), ChannelMixer(16_000, 2, 1.0, lambda notice: None).mix(pairs))


@pytest.mark.parametrize(
    ("container", "codec", "rate"),
    [("wav", "pcm_s16le", 16_000), ("wav", "pcm_s16le", 44_100), ("flac", "flac", 44_100)],
)
async def test_files_and_live_containers_keep_a_side(container: str, codec: str, rate: int) -> None:
    content = stereo(container, codec, rate, LOW, -LOW)
    file, notices = heard(content)
    live = await decoded_in_pieces(ContainerDecoder(on_notice=notices.append), content, len(content))
    for samples in (file, live):
        assert np.abs(samples[8000:]).max() == pytest.approx(0.5, abs=0.05)
    assert [each.code for each in notices] == ["channels_cancel"] * 2


def test_equal_channels_are_as_loud_as_ffmpeg_makes_them() -> None:
    samples, _ = heard(stereo("wav", "pcm_s16le", 16_000, LOW, LOW))
    assert np.allclose(samples, LOW * 2**0.5, atol=0.001)


@pytest.mark.parametrize("layout", ["3.0", "quad", "5.1"])
async def test_sides_of_more_channels_may_cancel_too(layout: str) -> None:
    """With nothing in the others."""
    channels = np.zeros((av.AudioLayout(layout).nb_channels, len(LOW)), np.float32)
    channels[:2] = LOW, -LOW
    content = made_file("wav", "pcm_f32le", 16_000, [Track(samples=channels)], layout=layout)
    samples, notices = heard(content)
    assert np.allclose(samples[LATE:], LOW[LATE:], atol=1e-6)
    assert [each.code for each in notices] == ["channels_cancel"]


@pytest.mark.parametrize("n_others", [0, 2])
def test_raw_audio_keeps_a_channel(n_others: int) -> None:
    notices: list[Notice] = []
    decoder = AudioDecoder(AudioFormat("pcm_f32le", 16_000, 2 + n_others, is_mixed=True), notices.append)
    channels = np.stack((LOW, -LOW, *[0 * LOW] * n_others), axis=1)
    (samples,) = decoder.decode(channels.astype("<f4").tobytes())
    assert np.allclose(samples[LATE:], LOW[LATE:])
    assert [each.code for each in notices] == ["channels_cancel"]


@pytest.mark.parametrize("n_others", [1, 6])
def test_a_voice_on_one_of_many_channels_is_mixed(n_others: int) -> None:
    notices: list[Notice] = []
    decoder = AudioDecoder(AudioFormat("pcm_f32le", 16_000, 1 + n_others, is_mixed=True), notices.append)
    channels = np.stack((LOW, *[0 * LOW] * n_others), axis=1)
    (samples,) = decoder.decode(channels.astype("<f4").tobytes())
    assert np.allclose(samples, LOW / (1 + n_others), atol=1e-6)
    assert notices == []
