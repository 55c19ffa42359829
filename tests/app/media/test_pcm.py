"""Raw encodings and resampling."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutti_server.app.media.pcm import (
    BYTES_PER_SAMPLE,
    AudioDecoder,
    AudioFormat,
    Encoding,
    SampleBuffer,
    Samples,
    decode_samples,
)

# Values of ITU-T G.711: both ends and the smallest steps.
MULAW = {0x00: -32124, 0x80: 32124, 0xFF: 0, 0xFE: 8}
ALAW = {0x2A: -32256, 0xAA: 32256, 0x55: -8, 0xD5: 8, 0xD4: 24}


@pytest.mark.parametrize(("encoding", "values"), [("mulaw", MULAW), ("alaw", ALAW)])
def test_companded_values_are_those_of_g711(encoding: Encoding, values: dict[int, int]) -> None:
    decoded = decode_samples(bytes(values), encoding) * 32768
    assert decoded.tolist() == list(values.values())


def test_floats_are_clipped_and_never_infinite() -> None:
    """NaN becomes silence, because it must not reach the model."""
    values = np.array([0.5, 2.0, -3.0, np.nan, np.inf, -np.inf], dtype="<f4")
    expected = [0.5, 1.0, -1.0, 0.0, 1.0, -1.0]
    assert decode_samples(values.tobytes(), "pcm_f32le").tolist() == expected
    # Each alone, too, beside a value that is as it should be.
    for value, own in zip(values, expected, strict=True):
        assert decode_samples(np.array([0.25, value], "<f4").tobytes(), "pcm_f32le").tolist() == [0.25, own]


@given(
    encoding=st.sampled_from(list(BYTES_PER_SAMPLE)),
    sample_rate=st.sampled_from([8000, 11025, 16000, 22050, 24000, 44100, 48000]),
    channels=st.integers(1, 3),
    cuts=st.lists(st.integers(0, 3000), max_size=12),
    seed=st.integers(0, 99),
)
def test_any_cutting_resamples_to_the_same_samples(
    encoding: Encoding, sample_rate: int, channels: int, cuts: list[int], seed: int
) -> None:
    """Bytes may be cut anywhere, inside a sample too, and channels stay apart."""
    audio = AudioFormat(encoding, sample_rate, channels)
    n_bytes = 4000 * channels * BYTES_PER_SAMPLE[encoding]
    data = np.random.default_rng(seed).integers(0, 200, n_bytes, dtype=np.uint8).tobytes()
    if encoding == "pcm_f32le":
        data = np.random.default_rng(seed).uniform(-1, 1, 4000 * channels).astype("<f4").tobytes()
    whole = AudioDecoder(audio)
    expected = [np.concatenate(pair) for pair in zip(whole.decode(data), whole.drain(), strict=True)]
    pieces: list[list[Samples]] = [[] for _ in range(channels)]
    decoder, at = AudioDecoder(audio), 0
    for size in [*cuts, n_bytes]:
        for channel, samples in enumerate(decoder.decode(data[at : at + size])):
            pieces[channel].append(samples)
        at += size
    for channel, samples in enumerate(decoder.drain()):
        pieces[channel].append(samples)
    for got, want in zip(pieces, expected, strict=True):
        np.testing.assert_allclose(np.concatenate(got), want, atol=1e-6)
    assert abs(len(expected[0]) - 4000 * 16000 / sample_rate) <= 1


@given(
    sample_rate=st.sampled_from([8000, 16000, 24000, 44100]),
    parts=st.lists(st.integers(0, 2000), min_size=1, max_size=8),
)
def test_draining_loses_no_time(sample_rate: int, parts: list[int]) -> None:
    """After each drain all samples so far are there, and more may come."""
    decoder, n_in, n_out = AudioDecoder(AudioFormat("pcm_s16le", sample_rate)), 0, 0
    for number, n_samples in enumerate(parts, 1):
        n_in += n_samples
        n_out += len(decoder.decode(bytes(2 * n_samples))[0]) + len(decoder.drain()[0])
        assert abs(n_out - n_in * 16000 / sample_rate) <= number


def test_loud_audio_stays_in_range_when_it_is_resampled() -> None:
    """A detector that takes 16 bits would hear the loudest samples as their opposites."""
    square = np.tile(np.array([32767] * 20 + [-32768] * 20, "<i2"), 200).tobytes()
    decoder = AudioDecoder(AudioFormat("pcm_s16le", sample_rate=8000))
    for (samples,) in (decoder.decode(square), decoder.drain()):
        assert float(np.abs(samples).max()) <= 1.0


@given(sizes=st.lists(st.integers(0, 5000), max_size=30), keep=st.integers(0, 8000))
def test_the_buffer_keeps_what_was_not_forgotten(sizes: list[int], keep: int) -> None:
    """Positions are those of the whole stream, however much is forgotten; views keep what they showed."""
    buffer, stream = SampleBuffer(), np.zeros(0, dtype=np.float32)
    views = list[tuple[Samples, Samples]]()
    for size in sizes:
        piece = np.arange(len(stream), len(stream) + size, dtype=np.float32)
        stream = np.concatenate((stream, piece))
        buffer.append(piece)
        assert buffer.end == len(stream)
        buffer.forget_before(buffer.end - keep)
        np.testing.assert_array_equal(buffer.view(buffer.start, buffer.end), stream[buffer.start :])
        views.append((buffer.view(buffer.start, buffer.end), stream[buffer.start :]))
    assert buffer.end - buffer.start <= max(keep, 0)
    for view, samples in views:
        np.testing.assert_array_equal(view, samples)
