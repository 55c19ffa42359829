"""The packaged speaker network."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from tutti_server.app.media.file_decoder import decode_pieces
from tutti_server.app.media.pcm import Samples
from tutti_server.app.voices.file_speakers import WINDOW_S
from tutti_server.app.voices.speaker_model import load
from tutti_server.app.voices.speaker_network import DEFAULT_WEIGHTS, MAX_SAMPLES, NumpyNetwork
from tutti_server.engine.api import SAMPLE_RATE

ASSETS = DEFAULT_WEIGHTS.parents[1]
RECORDED = [-0.021, 0.031, -0.018, 0.0, -0.003, -0.008, -0.018, 0.128, -0.085, -0.011, 0.01, 0.1]
"""The first numbers of the embedding of `sample.flac` from 0.5 to 2 s."""


def recording(file: Path) -> Samples:
    with file.open("rb") as stream:
        return np.concatenate(list(decode_pieces(stream, 1)))


def windows(file: Path) -> list[Samples]:
    """Windows without silence around them, one after another."""
    samples, size = recording(file)[SAMPLE_RATE // 2 : -SAMPLE_RATE // 4], int(WINDOW_S * SAMPLE_RATE)
    return [samples[start : start + size] for start in range(0, len(samples) - size, size)]


def test_the_packaged_weights_are_small_and_give_the_embeddings_that_were_recorded() -> None:
    assert DEFAULT_WEIGHTS.stat().st_size < 3_400_000
    found = NumpyNetwork().embed(windows(ASSETS / "sample.flac")[:1])[0]
    assert found.shape == (256,) and float(np.linalg.norm(found)) == pytest.approx(1)
    np.testing.assert_allclose(found[: len(RECORDED)], RECORDED, atol=2e-3)


def test_windows_of_one_person_are_alike_and_those_of_two_are_not() -> None:
    network, model = NumpyNetwork(), load()
    assert model
    assert model.network == hashlib.sha256(DEFAULT_WEIGHTS.read_bytes()).hexdigest()[:12]
    one, other = (network.embed(windows(ASSETS / name)) for name in ("sample.flac", "sample_fr.flac"))
    assert min((one @ one.T).mean(), (other @ other.T).mean()) > model.thresholds.joins > (one @ other.T).mean()


def test_level_does_not_count_and_short_or_silent_stretches_have_an_embedding() -> None:
    audio = windows(ASSETS / "sample.flac")[0]
    loud, soft = NumpyNetwork().embed([audio, audio * 0.05])
    assert loud @ soft > 0.999
    short = NumpyNetwork().embed([audio[:800], np.zeros(0, np.float32), np.zeros(16_000, np.float32)])
    assert np.isfinite(short).all()


def test_stretches_of_one_call_do_not_change_each_other() -> None:
    """Of different lengths, and one of several parts."""
    samples, network = recording(ASSETS / "sample.flac")[8_000:], NumpyNetwork()
    stretches = [samples[:n] for n in (24_000, 30_000, MAX_SAMPLES + 1, 12_000)]
    together = network.embed(stretches)
    alone = np.concatenate([network.embed([each]) for each in stretches])
    np.testing.assert_allclose(together, alone, atol=1e-4)


def test_files_that_hold_no_network_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.npz"
    assert load(path) is None
    np.savez(path, other=np.zeros(1))
    with pytest.raises(ValueError, match=r"expected the weights of a speaker network, got others: .*other"):
        load(path)
    for content in (b"", b"no weights", DEFAULT_WEIGHTS.read_bytes()[:100_000]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="expected the weights of a speaker network, got another file"):
            load(path)


def test_a_call_takes_one_core() -> None:
    """With more threads than free cores, they would wait for each other."""
    assert load() is not None
    libraries = [each for each in threadpool_info() if each["internal_api"] == "openblas"]
    assert [each["num_threads"] for each in libraries] == [1] * len(libraries)
