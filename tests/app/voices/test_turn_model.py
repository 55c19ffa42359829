"""An operator's turn model: the interface that its file must have."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.onnx_files import Operator, save_model
from tutti_server.app.errors import SettingsError
from tutti_server.app.session.speech.turn_taking import AUDIO_SAMPLES
from tutti_server.app.voices.turn_model import AudioTurnModel

pytest.importorskip("onnxruntime")

LOUDEST: Operator = ("ReduceMax", {"axes": [1], "keepdims": 0})
"""The loudest sample of each row."""


def test_every_pause_has_a_probability(tmp_path: Path) -> None:
    """Only the last 8 s count, after silence if there are less."""
    model = AudioTurnModel(save_model(tmp_path / "turns.onnx", [LOUDEST], AUDIO_SAMPLES))
    short, long = np.full(1600, 0.25, np.float32), np.full(AUDIO_SAMPLES + 1, 0.5, np.float32)
    long[0] = 1.0
    assert model.score([short, long, short[:0]]) == [0.25, 0.5, 0.0]


@pytest.mark.parametrize(
    ("operators", "n_samples", "n_inputs", "got"),
    [
        ([LOUDEST], 16_000, 1, "INVALID_ARGUMENT|Got invalid dimensions"),
        ([LOUDEST], AUDIO_SAMPLES, 2, r"2 inputs"),
        ([("Identity", {})], AUDIO_SAMPLES, 1, r"probabilities of shape \(1, 128000\) for 1 rows"),
        ([("Cos", {}), ("ReduceSum", {"keepdims": 0})], AUDIO_SAMPLES, 1, r"probabilities of shape \(\) for 1 rows"),
        ([("Cos", {}), ("Neg", {}), LOUDEST], AUDIO_SAMPLES, 1, r"probabilities outside 0 to 1: \[-1.0\]"),
    ],
)
def test_another_model_is_refused(
    tmp_path: Path, operators: Sequence[Operator], n_samples: int, n_inputs: int, got: str
) -> None:
    """The error says what was expected and what came."""
    path = save_model(tmp_path / "turns.onnx", operators, n_samples, n_inputs)
    with pytest.raises(SettingsError, match=rf"turns\.onnx: expected a model with one input, .* got: .*({got})"):
        AudioTurnModel(path)
