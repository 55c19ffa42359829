"""The packaged speaker network."""

from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from app.voices.speaker_model import load
from app.voices.speaker_network import DEFAULT_WEIGHTS, NumpyNetwork

REFERENCE = Path(__file__).parent / "reference.npz"
"""Two clips of held-out voices, and the embeddings that torch computed for them where the network was trained."""


def test_the_packaged_weights_are_small_and_compute_what_torch_does() -> None:
    assert DEFAULT_WEIGHTS.stat().st_size < 4_000_000
    reference = np.load(REFERENCE)
    found = NumpyNetwork().embed([each.astype(np.float32) / 32768 for each in reference["audio"]])
    assert np.sum(found * reference["embeddings"], axis=1) == pytest.approx(1.0, abs=2e-3)


def test_level_does_not_count_and_short_or_silent_stretches_have_an_embedding() -> None:
    audio = np.load(REFERENCE)["audio"][0].astype(np.float32) / 32768
    loud, soft = NumpyNetwork().embed([audio, audio * 0.05])
    assert loud @ soft > 0.999
    short = NumpyNetwork().embed([audio[:800], np.zeros(0, np.float32), np.zeros(16_000, np.float32)])
    assert np.isfinite(short).all()


def test_files_that_hold_no_network_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.npz"
    assert load(path) is None
    np.savez(path, other=np.zeros(1))
    with pytest.raises(ValueError, match="expected thresholds"):
        load(path)
    with pytest.raises(ValueError, match="expected the weights of a speaker network"):
        NumpyNetwork(path)


def test_a_call_takes_one_core() -> None:
    """With more threads than free cores, they would wait for each other."""
    assert load() is not None
    libraries = [each for each in threadpool_info() if each["internal_api"] == "openblas"]
    assert [each["num_threads"] for each in libraries] == [1] * len(libraries)
