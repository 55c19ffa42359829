"""Requests of the shape of MLPerf Inference's Whisper benchmark."""

import statistics

import pytest

from benchmarks.throughput.mlperf_shape import MEAN_TOKENS, N_CLIPS, mlperf_shaped
from tutti_server.engine.api import SAMPLE_RATE, WINDOW_SAMPLES


def test_all_clips_have_the_published_mean() -> None:
    work = mlperf_shaped()
    assert work.n_requests(1) == N_CLIPS == 1_633
    assert statistics.mean(work.lengths(N_CLIPS)) == pytest.approx(74.87, abs=0.05)
    assert statistics.mean(audio_s for audio_s, _ in work.clips) == pytest.approx(24, abs=1)


@pytest.mark.parametrize("n_requests", [64, 500])
@pytest.mark.parametrize("mean_tokens", [MEAN_TOKENS, 63.5])
def test_fewer_requests_have_the_same_distribution(n_requests: int, mean_tokens: float) -> None:
    lengths, all_lengths = (mlperf_shaped(n, mean_tokens).lengths(n) for n in (n_requests, N_CLIPS))
    assert statistics.mean(lengths) == pytest.approx(mean_tokens, rel=0.01)
    assert statistics.stdev(lengths) == pytest.approx(statistics.stdev(all_lengths), rel=0.05)
    assert lengths != sorted(lengths)


def test_windows_ask_for_their_own_lengths() -> None:
    work = mlperf_shaped(20)
    for index in range(20):
        window = work.window(index)
        assert window.options.max_tokens == work.n_tokens_of(index)
        assert len(window.samples) == round(work.clips[index][0] * SAMPLE_RATE) <= WINDOW_SAMPLES


@pytest.mark.parametrize(
    ("n_requests", "mean_tokens", "message"),
    [(0, 70.0, "requests: expected 1 to 1633, got 0"), (9, 300.0, "mean tokens: expected 4 to 100, got 300")],
)
def test_impossible_shapes_are_refused(n_requests: int, mean_tokens: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mlperf_shaped(n_requests, mean_tokens)
