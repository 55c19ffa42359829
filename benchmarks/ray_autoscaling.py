"""Lets Serve choose how many engines and gateways there are while speakers come and go, and compares every word.

    python -m benchmarks.ray_autoscaling

The cluster has three nodes on this machine (CPU), and begins with one engine and one gateway. A few people speak, then
many, then a few again: the service grows, and shrinks under those who go on, whose clients move to other gateways. The
policies are those of deploy/ray/serve.yaml; their delays are shorter here. It needs the extra `ray`.

The command exits with 1 if engines or gateways do not grow, or do not shrink to what they were; or if words were lost
or repeated, if text changed that was shown as stable, if an audio gap was reported, or if a session failed.
"""

import asyncio
import itertools
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks import machine, report
from benchmarks.chaos import noise, print_progress, summarise, tables
from benchmarks.faults.campaign import CampaignLog, Plan, locate_differences, undisturbed
from benchmarks.faults.differences import TimedWord
from benchmarks.faults.ray_service import RayService, ray_nodes
from benchmarks.faults.sessions import stream
from benchmarks.options import CONTEXT_SETTINGS, json_option, markdown_option
from benchmarks.ray_kills import campaign_settings
from benchmarks.recordings import load_bundled
from benchmarks.report import Table

SCHEMA = 1
N_NODES = 3
DELAYS = {"metrics_interval_s": 1.0, "look_back_period_s": 5.0, "upscale_delay_s": 3.0, "downscale_delay_s": 10.0}
"""Serve's delays. In deploy/ray/serve.yaml they are those of a service that runs for days."""
LIMITS = {"min_replicas": 1, "max_replicas": N_NODES}
SAMPLE_S = 1.0
"""Seconds between two looks at the numbers of engines and gateways."""


@dataclass(frozen=True, slots=True)
class Phase:
    """How many people speak at the same time, and for how long."""

    n_sessions: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """How many replicas served at a moment."""

    phase: int
    at_s: float
    """Since the first phase began."""
    engines: int
    gateways: int


@click.command(context_settings=CONTEXT_SETTINGS)
@click.option("--few", default=2, show_default=True, help="Sessions before and after.")
@click.option("--many", default=16, show_default=True, help="Sessions meanwhile.")
@click.option("--phase", "phase_s", default=120.0, show_default=True, help="Seconds of each of the three phases.")
@click.option("--sessions-each", default=6, show_default=True, help="Sessions for which there is a gateway.")
@click.option("--seconds", default=25.0, show_default=True, help="The longest piece of a recording, in seconds.")
@json_option("ray_autoscaling")
@markdown_option
def main(few: int, many: int, phase_s: float, sessions_each: int, seconds: float, path: Path, markdown: bool) -> None:
    """Let a Ray cluster grow and shrink under speakers, and compare every word with an undisturbed run."""
    plan = Plan(
        recordings=load_bundled(seconds, many),
        files={},
        n_sessions=many,
        n_uploads=0,
        speed=1.0,
        language="en",
        n_cuts=0,
        n_process_faults=0,
        cut_every_s=1.0,
        process_fault_every_s=1.0,
        seed=0,
    )
    phases = [Phase(few, phase_s), Phase(many, phase_s), Phase(few, phase_s)]
    engines = {**LIMITS, **DELAYS, "policy": {"policy_function": "cluster.ray.autoscaling:scale_engines"}}
    gateways = {**LIMITS, **DELAYS, "target_ongoing_requests": sessions_each}
    with ray_nodes(N_NODES) as cluster:
        service = RayService(cluster, campaign_settings(many), N_NODES)
        service.launch_scaling(engines, gateways)
        figures = asyncio.run(compare(service, plan, phases))
    result = {"benchmark": "ray_autoscaling", "schema": SCHEMA, **machine.describe(), **figures}
    report.show([sizes(result["phases"]), *tables(result)], result, as_markdown=markdown, path=path)
    if not result["holds"]:
        sys.exit(1)


async def compare(service: RayService, plan: Plan, phases: Sequence[Phase]) -> dict[str, Any]:
    """Run the phases after two undisturbed runs, for each of which the service has grown. Returns the figures."""
    expected, again = await undisturbed(service.url, plan), await undisturbed(service.url, plan)
    log, samples = await run_phases(service, plan, phases)
    return summarise_phases(log, samples, phases, expected, again)


async def run_phases(service: RayService, plan: Plan, phases: Sequence[Phase]) -> tuple[CampaignLog, list[Sample]]:
    """Let as many people speak as each phase says, one recording after another, and look at the service meanwhile."""
    log, samples = CampaignLog(), list[Sample]()
    order = itertools.cycle(plan.recordings)
    began = time.monotonic()
    number = 0

    async def speak(speaker: int) -> None:
        while number < len(phases):
            if speaker >= phases[number].n_sessions:
                await asyncio.sleep(SAMPLE_S)
                continue
            session = await stream(service.url, next(order), speed=plan.speed, language=plan.language)
            log.sessions.append((speaker, session))
            print_progress(log)

    async def look() -> None:
        while number < len(phases):
            # While Serve's controller is busy, Ray raises no narrower error.
            with suppress(Exception):
                engines, gateways = await asyncio.to_thread(service.n_running)
                at_s = time.monotonic() - began
                samples.append(Sample(phase=number, at_s=round(at_s, 1), engines=engines, gateways=gateways))
            await asyncio.sleep(SAMPLE_S)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(look())
        for speaker in range(plan.n_sessions):
            tasks.create_task(speak(speaker))
        for phase in phases:
            await asyncio.sleep(phase.seconds)
            number += 1
    return log, samples


def summarise_phases(
    log: CampaignLog,
    samples: Sequence[Sample],
    phases: Sequence[Phase],
    expected: dict[str, list[TimedWord]],
    again: dict[str, list[TimedWord]],
) -> dict[str, Any]:
    """The sizes of the service in each phase, the words, and whether both were as they must be."""
    found = locate_differences(log, expected, 1.0)
    words = summarise(log, found, noise(expected, again), {"done": 0, "different": [], "failures": []})
    described = [describe(number, phase, samples) for number, phase in enumerate(phases)]
    first, middle, last = (described[0], max(described, key=lambda each: each["n_sessions"]), described[-1])
    has_grown = all(middle[name][1] > first[name][2] for name in ("engines", "gateways"))
    has_shrunk = all(last[name][2] <= first[name][2] for name in ("engines", "gateways"))
    return {**words, "phases": described, "holds": words["holds"] and has_grown and has_shrunk}


def describe(number: int, phase: Phase, samples: Sequence[Sample]) -> dict[str, Any]:
    """A phase with the fewest engines and gateways in it, the most, and those at its end."""
    within = [each for each in samples if each.phase == number]
    engines, gateways = [each.engines for each in within], [each.gateways for each in within]
    return {
        "n_sessions": phase.n_sessions,
        "seconds": phase.seconds,
        "engines": [min(engines), max(engines), engines[-1]],
        "gateways": [min(gateways), max(gateways), gateways[-1]],
    }


def sizes(phases: Sequence[dict[str, Any]]) -> Table:
    """The sizes of the service in each phase."""

    def show(numbers: Sequence[int]) -> str:
        return f"{numbers[0]} to {numbers[1]}, {numbers[2]} at its end"

    rows = [
        (str(each["n_sessions"]), f"{each['seconds']:g}", show(each["engines"]), show(each["gateways"]))
        for each in phases
    ]
    return Table("The size of the service", ("speakers", "seconds", "engines", "gateways"), rows)


if __name__ == "__main__":
    main()
