"""The least time of a request: against published arithmetic, and as it must change with the work."""

import pytest

from benchmarks.throughput.floor import Precision, encode_s, lower_bound_s
from tutti_server.engine.model.random_weights import SIZES

LARGE, TURBO = SIZES["large-v3"], SIZES["turbo"]


def test_the_floor_is_that_of_the_published_arithmetic() -> None:
    """large-v3, of which one window is 2.59 TFLOP: 3.75 ms, and 24 passes that read weights, keys and values."""
    assert encode_s(LARGE) == pytest.approx(3.75e-3, rel=0.01)
    assert 1 / lower_bound_s(LARGE, 64, [24]) == pytest.approx(190, rel=0.02)
    assert 1 / lower_bound_s(TURBO, 64, [24]) == pytest.approx(280, rel=0.02)


@pytest.mark.parametrize("n_tokens", [1, 28, 100, 400])
def test_each_token_costs_a_pass_over_weights_and_keys(n_tokens: int) -> None:
    """The weights of large-v3 are 1.60 GB, the keys and values of a window 246 MB, those of a token 164 kB."""
    more_s = lower_bound_s(LARGE, 64, [n_tokens + 1]) - lower_bound_s(LARGE, 64, [n_tokens])
    own_bytes = 4 * 32 * 1280 * (4 + n_tokens + 0.5)
    assert more_s * 4.43e12 == pytest.approx(1.60e9 / 64 + 246e6 + own_bytes, rel=0.005)


def test_requests_of_different_lengths_cost_what_each_costs_alone() -> None:
    apart = [lower_bound_s(LARGE, 128, [n_tokens]) for n_tokens in (10, 60, 200)]
    assert lower_bound_s(LARGE, 128, [10, 60, 200]) == pytest.approx(sum(apart) / 3)


def test_encoder_states_lower_the_floor_of_the_encoder_and_of_a_step() -> None:
    """The encoder makes no keys and values, and a step reads the states once where it read both."""
    kept = Precision(keeps_states=True)
    assert encode_s(LARGE) - encode_s(LARGE, kept) == pytest.approx(32 * 2 * 1500 * 1280 * 2560 / 690e12)
    saved_s = lower_bound_s(LARGE, 64, [100]) - lower_bound_s(LARGE, 64, [100], kept)
    assert saved_s == pytest.approx(100 * 246e6 / 2 / 4.43e12 + encode_s(LARGE) - encode_s(LARGE, kept), rel=0.01)


def test_8_bits_lower_the_floor_of_what_is_in_8_bits() -> None:
    assert encode_s(LARGE, Precision(is_encoder_fp8=True)) == pytest.approx(2.3e-3, rel=0.05)
    saved_s = lower_bound_s(LARGE, 64, [100]) - lower_bound_s(LARGE, 64, [100], Precision(is_cross_int8=True))
    # Half of 246 MB in each pass, but for a scale of 2 bytes beside each 64 numbers.
    assert saved_s == pytest.approx(100 * 246e6 * (0.5 - 1 / 64) / 4.43e12, rel=0.01)
