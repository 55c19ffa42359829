"""An operator's speaker network: its features, and the interface that its file must have."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import pytest

from tests.onnx_files import Operator, save_model
from tests.recordings import read
from tests.stand_in_hub import stand_in_hub
from tutti_server.app.cli.running import fetch_all
from tutti_server.app.errors import SettingsError
from tutti_server.app.service.settings import Settings
from tutti_server.app.voices.filterbank import N_BANDS, filterbank
from tutti_server.app.voices.onnx_network import OnnxNetwork
from tutti_server.app.voices.speaker_clustering import SpeakerThresholds
from tutti_server.app.voices.speaker_model import load_onnx

REFERENCE = Path(__file__).parent / "filterbank.npz"
"""Every sixteenth frame of kaldi-native-fbank 1.23.0 (dither 0, 80 bands, the rest as it is), without the mean."""


def test_features_are_those_of_kaldi() -> None:
    with np.load(REFERENCE) as arrays:
        features, n_frames = arrays["features"], int(arrays["mean_over"])
    found = filterbank(np.asarray(read("train")[:16_000] / 32768, np.float32))
    assert found.shape == (n_frames, N_BANDS)
    np.testing.assert_allclose(found[::16], features, atol=0.01)


class TestFile:
    """What a file must have; ONNX Runtime runs it."""

    @pytest.fixture(autouse=True)
    def _needs_runtime(self) -> None:
        pytest.importorskip("onnxruntime")

    async def test_a_network_of_features_embeds_stretches_of_any_length(self, tmp_path: Path) -> None:
        """This one returns the greatest energy of each band."""
        operators: list[Operator] = [("ReduceMax", {"axes": [1], "keepdims": 0})]
        path = save_model(tmp_path / "voices.onnx", operators, "frames", n_bands=N_BANDS)
        model = load_onnx(path, SpeakerThresholds(joins=0.5, knows=0.6))
        low, high = (np.sin(np.arange(24_000) * pitch).astype(np.float32) * 0.3 for pitch in (0.1, 0.9))
        assert model.embed_live
        vectors = await model.embed_live([low, low[:9_000], high, low[:100]])
        assert vectors.shape == (4, N_BANDS)
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
        assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]

    def test_a_network_of_samples_will_do(self, tmp_path: Path) -> None:
        operators: list[Operator] = [("Cos", {})]
        network = OnnxNetwork(save_model(tmp_path / "voices.onnx", operators, "samples"))
        assert network.embed([np.zeros(8000, np.float32)]).shape == (1, 8000)

    @pytest.mark.parametrize(
        ("operators", "shape", "got"),
        [
            ([("Identity", {})], ("frames", 1, 64), r"of shape \['batch', 'frames', 64\]"),
            ([("Identity", {})], ("frames", 1, N_BANDS), r"an output of shape \(1, 48, 80\)"),
            ([("Identity", {})], ("samples", 2, None), "2 inputs"),
            ([("Identity", {})], (16_000, 1, None), "INVALID_ARGUMENT|Got invalid dimensions"),
        ],
    )
    def test_another_file_is_refused(
        self, tmp_path: Path, operators: Sequence[Operator], shape: tuple[int | str, int, int | None], got: str
    ) -> None:
        path = save_model(tmp_path / "voices.onnx", operators, *shape)
        with pytest.raises(SettingsError, match=rf"voices\.onnx: expected a network with one input, .* got: .*({got})"):
            OnnxNetwork(path)


def test_a_network_of_the_hub_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a network, what is in the cache is used."""
    pytest.importorskip("onnxruntime")
    (folder := tmp_path / "repository").mkdir()
    save_model(folder / "voices.onnx", [("Cos", {})], "samples")
    settings = Settings(model="tutti-base", speaker_model="someone/voices")
    with stand_in_hub() as hub:
        hub.use(monkeypatch, tmp_path / "cache")
        with pytest.raises(click.ClickException, match="someone/voices: expected a folder or a model on the hub"):
            fetch_all(settings)
        hub.add("someone/voices", folder)
        path = Path(fetch_all(settings).speaker_model)
        assert OnnxNetwork(path).embed([np.zeros(8000, np.float32)]).shape == (1, 8000)
    assert fetch_all(settings).speaker_model == str(path)
    assert fetch_all(replace(settings, speaker_model=str(path))).speaker_model == str(path)
