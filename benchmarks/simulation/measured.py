"""What was measured on real GPUs, to compare the simulation with: results of `benchmarks.live_capacity`."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.live_capacity import N_CALLS
from benchmarks.recordings import as_call, load_bundled
from benchmarks.simulation.speakers import Habits, Span
from benchmarks.simulation.trial import Load
from engine.config import EngineConfig

BUNDLED = Path(__file__).parent / "measured.json"
"""The figures of docs/results/gpu.md, one NVIDIA H200."""
DEFAULTS = EngineConfig()
"""What a server does without arguments."""
STEPS = {"full": 18, "interims": 26}
"""Decode steps of a window after its prefill, where a result does not tell: those of `random:turbo` by audio context.

Interims with full context have more of their draft tokens accepted, and longer prefixes.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A result of `benchmarks.live_capacity`, and what is needed to simulate it."""

    title: str
    model: str
    config: EngineConfig
    habits: Habits
    n_engines: int
    n_gateways: int
    seconds: float
    """Length of each call."""
    ramp_s: float
    """Callers begin within this time, which is not measured."""
    levels: list[dict[str, Any]]

    def load(self, n_sessions: int) -> Load:
        """The same calls at the same times as in the measurement."""
        calls = _calls(min(N_CALLS, max(level["streams"] for level in self.levels)), self.habits.talk, self.seconds)
        starts = self.ramp_s * np.random.default_rng(n_sessions).random(n_sessions)
        return Load(
            calls=[(float(begin_s), calls[number % len(calls)]) for number, begin_s in enumerate(starts)],
            measured=(self.ramp_s, self.seconds),
        )


@cache
def _calls(n: int, talk: float, seconds: float) -> list[list[Span]]:
    """The utterances of the calls that `benchmarks.live_capacity` makes."""
    sources = load_bundled(seconds, min(n, 4))
    recordings = [as_call(sources[i % len(sources)], talk, seconds, seed=i) for i in range(n)]
    return [[(each.start_s, each.end_s) for each in recording.utterances] for recording in recordings]


def read_measurements(file: Path) -> list[Measurement]:
    """Read one result of `benchmarks.live_capacity`, or a list of them.

    Raises:
        ClickException: the file holds something else.
    """
    try:
        content = json.loads(file.read_text())
        return [_measurement(result) for result in (content if isinstance(content, list) else [content])]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise click.ClickException(f"{file}: expected the JSON of benchmarks.live_capacity: {error!r}") from error


def _measurement(result: dict[str, Any]) -> Measurement:
    arguments = result["serve_arguments"]
    context = _option(arguments, "--audio-context", "full")
    n_engines = _option(arguments, "--engines", "1")
    if not n_engines.isdigit():
        raise click.ClickException(
            f"--engines: expected a number in the result of benchmarks.live_capacity, got {n_engines}"
        )
    config = EngineConfig(
        audio_context=context,  # type: ignore[arg-type]  # checked by the config
        max_encode_batch=int(_option(arguments, "--max-encode-batch", str(DEFAULTS.max_encode_batch))),
    )
    habits = Habits(
        talk=result["talk"],
        interim_interval_s=result["interim_interval_ms"] / 1000,
        silence_s=result["silence_ms"] / 1000 if result["silence_ms"] else None,
        chunk_s=result["chunk_ms"] / 1000,
        n_steps=_steps(result["levels"], context),
        speculates="--no-speculative-finals" not in arguments,
    )
    return Measurement(
        title=result["title"],
        model=_option(arguments, "--model", DEFAULTS.model),
        config=config,
        habits=habits,
        n_engines=int(n_engines),
        n_gateways=int(_option(arguments, "--gateways", "1")),
        seconds=result["seconds"],
        ramp_s=result["ramp_s"],
        levels=result["levels"],
    )


def _option(arguments: Sequence[str], name: str, default: str) -> str:
    values = [value for option, value in itertools.pairwise(arguments) if option == name]
    values += [each.partition("=")[2] for each in arguments if each.startswith(f"{name}=")]
    return values[-1] if values else default


def _steps(levels: list[dict[str, Any]], context: str) -> int:
    """Decode steps of a window: its tokens without the one of the prefill, and without accepted draft tokens."""
    engines = [level["engine"] for level in levels if "tokens" in level["engine"]]
    n_windows = float(sum(each["windows_done"] for each in engines))
    if not n_windows:
        return STEPS.get(context, STEPS["full"])
    n_tokens = float(sum(each["tokens"] - each["draft_tokens"]["accepted"] for each in engines))
    return round(n_tokens / n_windows - 1)
