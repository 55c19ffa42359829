"""How long a GPU takes for an encoder call, a prefill and a decode step: measured times, read from a file.

The file is the JSON of `python -m benchmarks.engine_throughput --stages`. Between the measured sizes, times are
interpolated; beyond the largest, the last slope goes on.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import click
import numpy as np

from engine.cuda.graph_sizes import FILLING_WINDOWS, GRAPH_SIZES, LEAST_SHARE
from engine.model.audio_context import LADDER

H200 = Path(__file__).parent / "h200.json"
"""Times of one NVIDIA H200."""
FULL_STATES = 1_500
"""Encoder states of a full window."""
STAGES = ("encode", "prefill", "step")
"""The stages that a file must have."""
STEP_STAGES = ("steps ahead", "step")
"""The stages that hold the time of a step, the one that the engine uses first: it launches steps ahead."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Milliseconds by size, as measured."""

    sizes: tuple[float, ...]
    """Ascending."""
    ms: tuple[float, ...]

    def seconds(self, size: float) -> float:
        """The time for a size, in seconds."""
        if size <= self.sizes[-1] or len(self.sizes) == 1:
            return float(np.interp(size, self.sizes, self.ms)) / 1000
        slope = (self.ms[-1] - self.ms[-2]) / (self.sizes[-1] - self.sizes[-2])
        return (self.ms[-1] + slope * (size - self.sizes[-1])) / 1000


class StageTimes:
    """The times of one model on one GPU, in seconds."""

    def __init__(self, encode: Curve, prefill: Curve, step: Curve, max_encode_batch: int) -> None:
        """Take measured curves.

        Args:
            encode: by the full windows of an encoder call.
            prefill: by rows.
            step: by rows.
            max_encode_batch: the most windows of an encoder call: it sets the sizes of the CUDA graphs.
        """
        self._encode = encode
        self._step = step
        self._prefill = prefill
        self._max_encode_batch = max_encode_batch
        self._packed = GRAPH_SIZES.packed_sizes(max_encode_batch, LADDER[-1])
        self.window_s = encode.seconds(FILLING_WINDOWS) / FILLING_WINDOWS
        """Seconds of encoder time per full window, as the engine measures them while it warms up."""
        self.step_s = lru_cache(maxsize=None)(self._time_step)
        """The time of a decode step by its rows."""
        self.prefill_s = lru_cache(maxsize=None)(self._time_prefill)
        """The time of a prefill by its rows."""

    def encode_s(self, n_states: Sequence[int]) -> float:
        """The time of one encoder call.

        Full windows share a CUDA graph, and so do shorter ones; each part has one, as in `engine/window_encoder.py`.

        Args:
            n_states: encoder states of each window; each number is a full window's or one of those for interims.
        """
        n_states = sorted(n_states)
        parts = GRAPH_SIZES.cut(FULL_STATES, self._max_encode_batch, n_states)
        return sum(self._part_s(n_states[part]) for part in parts)

    def _part_s(self, n_states: Sequence[int]) -> float:
        size = GRAPH_SIZES.packed_size(n_states, self._packed) if n_states[0] < FULL_STATES else None
        return self._graph_s((size.states if size else sum(n_states)) / FULL_STATES)

    def _graph_s(self, full_windows: float) -> float:
        one_s, two_s = self._encode.seconds(1), self._encode.seconds(2)
        if full_windows >= 1:
            return self._encode.seconds(full_windows)
        return max(one_s - (1 - full_windows) * (two_s - one_s), LEAST_SHARE * one_s)

    def _time_step(self, n_rows: int) -> float:
        return self._step.seconds(n_rows)

    def _time_prefill(self, n_rows: int) -> float:
        return self._prefill.seconds(n_rows)


def read_times(file: Path, model: str, max_encode_batch: int) -> StageTimes:
    """Read the times of a model from the JSON of `benchmarks.engine_throughput --stages`.

    Raises:
        ClickException: the file is no such JSON, or lacks a stage of the model.
    """
    try:
        rows = json.loads(file.read_text())["stages"]
        rows = [(row["model"], row["stage"], row["size"], row["ms"]) for row in rows]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise click.ClickException(
            f"{file}: expected the JSON of benchmarks.engine_throughput --stages: {error!r}"
        ) from error
    curves: dict[str, Curve] = {}
    for stage in (*STAGES, *STEP_STAGES):
        points = sorted((size, ms) for name, its_stage, size, ms in rows if (name, its_stage) == (model, stage))
        if points:
            curves[stage] = Curve(tuple(size for size, _ in points), tuple(ms for _, ms in points))
    missing = [stage for stage in STAGES if stage not in curves]
    if missing:
        known = ", ".join(dict.fromkeys(name for name, *_ in rows)) or "no model"
        raise click.ClickException(f"{file}: expected times of {', '.join(missing)} for {model}; it has {known}")
    step = next(curves[stage] for stage in STEP_STAGES if stage in curves)
    return StageTimes(curves["encode"], curves["prefill"], step, max_encode_batch)
