"""Simulates gateways, a router and engines, to plan for more GPUs than there are to measure.

    python -m benchmarks.simulate

It is fed with the times of encoder calls, prefills and decode steps that `benchmarks.engine_throughput --stages`
measured, and compared with sessions that `benchmarks.live_capacity` measured. Its parts answer:

- check: does the simulation give what was measured?
- capacity: how many sessions do 1 to 1,000 GPUs hold, and what does a session cost?
- routing: what does the choice of an engine for each window change?
- loss: what do callers see when engines go?
- day: what does a fleet cost that follows the sessions of a day?
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from benchmarks import machine, plot, report
from benchmarks.options import CONTEXT_SETTINGS, json_option, markdown_option, parse_numbers
from benchmarks.recordings import BUNDLED as CLIPS
from benchmarks.report import Table
from benchmarks.simulation import parts, pictures
from benchmarks.simulation.measured import BUNDLED, STEPS, Measurement, read_measurements
from benchmarks.simulation.parts import HOST_GPUS, Plan
from benchmarks.simulation.speakers import Habits
from benchmarks.simulation.stage_times import H200, read_times
from benchmarks.simulation.trial import Setup
from engine.config import EngineConfig

SCHEMA = 1
PARTS = ("check", "capacity", "routing", "loss", "day")
GUESS = {"full": 300, "interims": 600}
"""Sessions of one GPU with which the search begins, by audio context."""
TARGETS = (0.6, 0.75, 0.9)
"""Targets of the autoscaler that are compared."""
ENGINE_BACK_S = 60.0
"""Seconds after which an engine that was lost is back: it loads its model."""


@click.command(context_settings=CONTEXT_SETTINGS)
@click.option("--parts", "chosen", default=",".join(PARTS), show_default=True, help="Parts to run, by commas.")
@click.option(
    "--times",
    "times_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    default=H200,
    help="JSON of benchmarks.engine_throughput --stages. Default: one NVIDIA H200.",
)
@click.option(
    "--measured",
    "measured_files",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    help="JSON of benchmarks.live_capacity to compare with, once or more. Default: that of docs/results/gpu.md.",
)
@click.option("--model", default="random:turbo", show_default=True, help="A model of the times.")
@click.option("--audio-context", type=click.Choice(list(GUESS)), default="interims", show_default=True)
@click.option("--max-encode-batch", type=click.IntRange(1), default=16, show_default=True)
@click.option("--talk", type=click.FloatRange(0.01, 0.7), default=0.5, show_default=True, help="Share of speech.")
@click.option("--steps", type=click.IntRange(1), help="Decode steps of a window. Default: those of the random models.")
@click.option("--hop-ms", default=3.0, show_default=True, help="From a session to an engine, and back, each.")
@click.option("--engines", default="1,2,4,8,16", show_default=True, help="Numbers of engines that share their work.")
@click.option("--fleets", default="8,16,64,256,1000", show_default=True, help="GPUs of fleets of separate hosts.")
@click.option("--seconds", default=15.0, show_default=True, help="Measured time of each run.")
@click.option("--gpu-hour", default=3.0, show_default=True, help="Price of a GPU hour: a placeholder, give your own.")
@click.option("--peak", default=20_000.0, show_default=True, help="Sessions at the busiest moment of the day.")
@click.option("--seed", default=0, show_default=True)
@click.option("--images", type=click.Path(path_type=Path, file_okay=False), help="Folder for pictures (SVG).")
@json_option("simulate")
@markdown_option
def main(
    chosen: str,
    times_file: Path,
    measured_files: tuple[Path, ...],
    model: str,
    audio_context: str,
    max_encode_batch: int,
    talk: float,
    steps: int | None,
    hop_ms: float,
    engines: str,
    fleets: str,
    seconds: float,
    gpu_hour: float,
    peak: float,
    seed: int,
    images: Path | None,
    path: Path,
    markdown: bool,
) -> None:
    """Simulate many sessions on many GPUs."""
    wanted = _parse_parts(chosen)
    if images:
        plot.check_path(images / "check.png")
    habits = Habits(talk=talk, n_steps=steps or STEPS[audio_context])
    config = EngineConfig(audio_context=audio_context, max_encode_batch=max_encode_batch)  # type: ignore[arg-type]
    times = read_times(times_file, model, max_encode_batch)
    plan = Plan(
        setup=Setup(times=times, config=config, habits=habits, hop_s=hop_ms / 1000, seed=seed),
        lengths_s=_utterance_lengths(),
        seconds=seconds,
        gpu_hour=gpu_hour,
    )
    sizes = {"engines": parse_numbers("--engines", engines), "fleets": parse_numbers("--fleets", fleets)}
    run = _Run(plan, [each for file in measured_files or (BUNDLED,) for each in read_measurements(file)], images)
    if "check" in wanted:
        run.check(times_file)
    if wanted & {"capacity", "day"}:
        run.capacity(sizes["engines"], sizes["fleets"], GUESS[audio_context])
    if "routing" in wanted:
        run.routing()
    if "loss" in wanted:
        run.loss()
    if "day" in wanted:
        run.day(peak)
    result = {
        "benchmark": "simulate",
        "schema": SCHEMA,
        **machine.describe(),
        "times": json.loads(times_file.read_text()),
        **run.result,
    }
    report.show(run.tables, result, as_markdown=markdown, path=path)


def _parse_parts(text: str) -> set[str]:
    chosen = set(text.split(","))
    if unknown := sorted(chosen - set(PARTS)):
        raise click.BadParameter(f"expected some of {','.join(PARTS)}, got {','.join(unknown)}", param_hint="--parts")
    return chosen


def _utterance_lengths() -> tuple[float, ...]:
    """The lengths of the utterances in the bundled clips, in seconds."""
    clips = json.loads(CLIPS.read_text())
    return tuple(each["end"] - each["start"] for clip in clips for each in clip["utterances"])


class _Run:
    """The tables, pictures and figures of the parts that were run."""

    def __init__(self, plan: Plan, measurements: list[Measurement], images: Path | None) -> None:
        self.tables: list[Table] = []
        self.result: dict[str, Any] = {}
        self._plan = plan
        self._measurements = measurements
        self._images = images
        self._pools: list[dict[str, Any]] = []

    def check(self, times_file: Path) -> None:
        measurements = self._measurements
        times = {each.model: read_times(times_file, each.model, each.config.max_encode_batch) for each in measurements}
        rows = self.result["check"] = parts.check(measurements, times)
        self.tables += parts.check_tables(rows)
        if self._images:
            pictures.draw_check(rows, self._images / "planning_check.png")

    def capacity(self, sizes: list[int], fleet_sizes: list[int], guess: int) -> None:
        self._pools = parts.capacity(self._plan, sizes, guess)
        fleets = parts.fleet(self._pools, fleet_sizes, self._plan.setup.seed)
        self.result["capacity"] = {"pools": self._pools, "fleets": fleets}
        self.tables += parts.capacity_tables(self._pools, fleets, self._plan.gpu_hour)
        if self._pools[0]["gpus"] == 1:
            one = parts.response(self._plan, self._pools[0])
            checked = self.result["capacity"]["fleet_check"] = parts.fleet_check(self._plan, one)
            self.tables.append(parts.fleet_check_table(checked))
        if self._images:
            measured = parts.measured_limits(self._measurements, self._plan.setup.config.audio_context)
            pictures.draw_fleet(self._pools, fleets, measured, self._images / "planning_fleet.png")

    def routing(self) -> None:
        n_engines, per_gpu = parts.ROUTED_ENGINES, parts.ROUTED_PER_GPU[self._plan.setup.config.audio_context]
        rows = self.result["routing"] = parts.routing(self._plan, n_engines, per_gpu)
        self.tables.append(parts.routing_table(rows, n_engines))
        if self._images:
            pictures.draw_routing(rows, n_engines, self._images / "planning_routing.png")

    def loss(self) -> None:
        per_gpu = parts.LOST_PER_GPU[self._plan.setup.config.audio_context]
        rows = [
            parts.loss(self._plan, 8, 1, per_gpu, ENGINE_BACK_S),
            parts.loss(self._plan, 8, 4, per_gpu, ENGINE_BACK_S),
        ]
        self.result["loss"] = rows
        self.tables.append(parts.loss_table(rows))
        if self._images:
            pictures.draw_loss(rows, self._images / "planning_loss.png")

    def day(self, peak: float) -> None:
        host = next((row for row in self._pools if row["gpus"] == HOST_GPUS), self._pools[-1])
        response = parts.response(self._plan, host)
        courses = parts.days(response, peak, TARGETS, self._plan.setup.seed)
        self.result["day"] = [{"target": target, **asdict(day)} for target, day in courses.items()]
        self.tables.append(parts.day_table(courses, peak, self._plan.gpu_hour))
        if self._images:
            pictures.draw_day(courses[0.75], response.held, self._images / "planning_day.png")


if __name__ == "__main__":
    main()
