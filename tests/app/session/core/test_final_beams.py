"""Beams of final texts while the engine has time."""

from dataclasses import replace

import numpy as np
import pytest

from tests.bench import CONFIG, START, Bench
from tests.fakes import MODEL, silence, speech
from tutti_server.app.session.core.final_beams import (
    MAX_ANSWER_S,
    N_SMOOTHED,
    RECORDING_BEAMS,
    SURE_LOGPROB,
    FinalBeams,
    recording_beams,
    spare_beams,
    with_beams,
)
from tutti_server.engine import api


def took(seconds: float) -> api.WindowTiming:
    """An answer after this time, most of it in the queue."""
    return api.WindowTiming(
        queued_s=seconds * 0.7, encode_s=seconds * 0.1, prefill_s=seconds * 0.1, decode_s=seconds * 0.1
    )


def test_finals_are_greedy_while_interims_take_long() -> None:
    """One late answer is not enough, and it takes several to be in time again."""
    sampling = FinalBeams(api.Sampling(), with_beams(api.Sampling(), 5, MODEL))
    assert (sampling.now.beam_size, sampling.now.sure_logprob) == (5, SURE_LOGPROB)
    sampling.note_interim(took(3 * MAX_ANSWER_S))
    assert sampling.now.beam_size == 5
    sampling.note_interim(took(3 * MAX_ANSWER_S))
    assert sampling.now == api.Sampling()
    beams = []
    for _ in range(2 * N_SMOOTHED):
        sampling.note_interim(took(MAX_ANSWER_S / 2))
        beams.append(sampling.now.beam_size)
    assert beams == sorted(beams) and {*beams} == {1, 5}


@pytest.mark.parametrize(
    ("model", "n_beams", "n_live"),
    [
        (MODEL, RECORDING_BEAMS, RECORDING_BEAMS),
        (replace(MODEL, n_slots=2), 2, 2),
        (replace(MODEL, device="cuda"), RECORDING_BEAMS, 1),
    ],
)
def test_recording_beams_follow_the_model(model: api.ModelInfo, n_beams: int, n_live: int) -> None:
    """On a GPU, beams of live finals would cost sessions."""
    assert (recording_beams(model), spare_beams(model)) == (n_beams, n_live)


@pytest.mark.parametrize(
    ("device", "n_beams", "sure_logprob"), [("cpu", 5, SURE_LOGPROB), ("cpu", 1, None), ("cuda", 5, None)]
)
def test_beams_wait_for_a_doubt_on_a_cpu(device: str, n_beams: int, sure_logprob: float | None) -> None:
    """A GPU searches from the beginning: a second prefill would cost it more."""
    sampling = with_beams(api.Sampling(), n_beams, replace(MODEL, device=device))
    assert (sampling.beam_size, sampling.sure_logprob) == (n_beams, sure_logprob)


@pytest.mark.parametrize(("answer_s", "n_beams"), [(0.05, RECORDING_BEAMS), (2.0, 1)])
def test_a_session_has_the_recording_beams_if_its_interims_come_in_time(answer_s: float, n_beams: int) -> None:
    """It has them only where neither its client nor the operator has chosen a number."""
    bench = Bench(START, config=replace(CONFIG, beam_size=None))
    bench.timing = took(answer_s)
    bench.feed(np.concatenate((silence(0.5), speech(range(12)), silence(1.0))))
    bench.stop()
    finals = [window for window in bench.windows if window.priority is api.Priority.FINAL]
    assert [window.options.sampling.beam_size for window in finals] == [n_beams]
