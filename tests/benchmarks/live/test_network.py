"""Networks that the load generator makes up."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.live.network import APART_S, BURST_S, QUIET_EDGE_S, Network

SPOKEN_S = [0.1 * (i + 1) for i in range(600)]
NETWORKS = st.builds(
    Network, jitter_s=st.sampled_from([0.0, 0.05, 0.4]), has_bursts=st.booleans(), losses_per_min=st.just(0.0)
)


@given(NETWORKS, st.integers(0, 1000))
def test_chunks_keep_their_order_and_leave_when_spoken_at_the_earliest(network: Network, seed: int) -> None:
    """They are late by the jitter and one burst at most, and alike for the same seed."""
    late_s = network.delays(SPOKEN_S, seed)
    leave_s = [spoken + late for spoken, late in zip(SPOKEN_S, late_s, strict=True)]
    assert all(a <= b + 1e-9 for a, b in itertools.pairwise(leave_s))
    assert all(0 <= late <= network.jitter_s + network.has_bursts * BURST_S[1] + 1e-9 for late in late_s)
    assert late_s == network.delays(SPOKEN_S, seed)


def test_a_burst_delivers_at_once_what_was_held_back() -> None:
    late_s = Network(has_bursts=True).delays(SPOKEN_S, 3)
    together = [round(spoken + late, 6) for spoken, late in zip(SPOKEN_S, late_s, strict=True) if late > 0]
    assert len(together) > 2 * len(set(together)) > 0


def test_a_plain_network_delays_nothing() -> None:
    assert set(Network().delays(SPOKEN_S, 1)) == {0.0}
    assert Network().losses(60.0, 1) == []


@pytest.mark.parametrize(("audio_s", "n"), [(60.0, 6), (120.0, 12), (5.0, 1), (1.0, 1)])
def test_connections_are_lost_as_often_as_asked(audio_s: float, n: int) -> None:
    """Not at the edges, and with time proxy them to come back."""
    for seed in range(20):
        at_s = Network(losses_per_min=6).losses(audio_s, seed)
        assert len(at_s) == n
        assert all(QUIET_EDGE_S <= at <= max(audio_s - QUIET_EDGE_S, QUIET_EDGE_S) + 1e-9 for at in at_s)
        assert all(b - a >= APART_S - 1e-9 for a, b in itertools.pairwise(at_s))
