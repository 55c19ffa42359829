"""An operator's model of turns: its interface, and its calls for several sessions together."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from app.errors import SettingsError
from app.media.pcm import Samples
from app.speech.turn_model import INPUT_SAMPLES, AudioTurnModel, TurnBatcher

pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")

PATIENCE_S = 20.0


def save(path: Path, operators: Sequence[tuple[str, dict[str, object]]], n_samples: int = INPUT_SAMPLES) -> Path:
    """Write a model that applies operators in a row to its input, `(batch, n_samples)`."""
    from onnx import TensorProto, helper

    names = ["audio", *(f"x{index}" for index in range(len(operators)))]
    nodes = [
        helper.make_node(name, [before], [after], **attributes)
        for (name, attributes), before, after in zip(operators, names, names[1:], strict=False)
    ]
    audio = helper.make_tensor_value_info("audio", TensorProto.FLOAT, ["batch", n_samples])
    out = helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "turns", [audio], [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, str(path))
    return path


LOUDEST = ("ReduceMax", {"axes": [1], "keepdims": 0})


def test_every_pause_has_a_probability(tmp_path: Path) -> None:
    """The model of the test returns the loudest sample. Only the last 8 s count, after silence if there are less."""
    model = AudioTurnModel(save(tmp_path / "turns.onnx", [LOUDEST]))
    short, long = np.full(1600, 0.25, np.float32), np.full(INPUT_SAMPLES + 1, 0.5, np.float32)
    long[0] = 1.0
    assert model.judge([short, long, short[:0]]) == [0.25, 0.5, 0.0]


def test_a_column_of_probabilities_will_do(tmp_path: Path) -> None:
    model = AudioTurnModel(save(tmp_path / "turns.onnx", [("ReduceMax", {"axes": [1], "keepdims": 1})]))
    assert model.judge([np.full(10, 0.5, np.float32)] * 2) == [0.5, 0.5]


@pytest.mark.parametrize(
    ("operators", "n_samples", "got"),
    [
        ([LOUDEST], 16_000, "INVALID_ARGUMENT|Got invalid dimensions"),
        ([("Identity", {})], INPUT_SAMPLES, r"probabilities of shape \(1, 128000\) for 1 rows"),
        ([("Cos", {}), ("ReduceSum", {"keepdims": 0})], INPUT_SAMPLES, r"probabilities of shape \(\) for 1 rows"),
        ([("Cos", {}), ("Neg", {}), LOUDEST], INPUT_SAMPLES, r"probabilities outside 0 to 1: \[-1.0\]"),
    ],
)
def test_another_model_is_refused_at_the_start(
    tmp_path: Path, operators: list[tuple[str, dict[str, object]]], n_samples: int, got: str
) -> None:
    """The error says what was expected and what came."""
    path = save(tmp_path / "turns.onnx", operators, n_samples)
    with pytest.raises(SettingsError, match=rf"turns\.onnx: expected a model with one input, .* got: .*({got})"):
        AudioTurnModel(path)


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="which is no file"):
        AudioTurnModel(tmp_path / "none.onnx")
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(SettingsError, match=r"text\.onnx: expected a model"):
        AudioTurnModel(tmp_path / "text.onnx")


class HeldModel:
    """Returns the first sample of each pause, when the test lets it."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.called, self.may_end = threading.Event(), threading.Event()

    def judge(self, pauses: Sequence[Samples]) -> list[float]:
        self.batches.append(len(pauses))
        self.called.set()
        assert self.may_end.wait(PATIENCE_S)
        return [float(each[0]) for each in pauses]


async def test_pauses_that_come_during_a_call_share_the_next_one() -> None:
    model = HeldModel()
    batcher = TurnBatcher(model.judge)
    tasks = [asyncio.create_task(batcher.judge(np.array([0.125 * at], np.float32))) for at in range(1, 6)]
    await asyncio.to_thread(model.called.wait, PATIENCE_S)
    model.may_end.set()
    assert await asyncio.gather(*tasks) == [0.125, 0.25, 0.375, 0.5, 0.625]
    assert sum(model.batches) == 5 and len(model.batches) <= 2


async def test_a_session_that_leaves_does_not_take_the_others_along() -> None:
    """Also the one whose turn it was to run the model."""
    model = HeldModel()
    batcher = TurnBatcher(model.judge)
    first, second = (asyncio.create_task(batcher.judge(np.array([value], np.float32))) for value in (0.25, 0.75))
    await asyncio.to_thread(model.called.wait, PATIENCE_S)
    first.cancel()
    model.may_end.set()
    assert await second == 0.75 and first.cancelled()
