"""Kills engines, gateways, proxies and nodes of a Ray cluster while people speak, and compares every word.

    python -m benchmarks.faults ray --kills 100 --sessions 16 --seconds 25 --every 2

The cluster has three nodes on this machine, each with an engine and a gateway (CPU). Sessions of the Python client
go on through all kills; undisturbed runs come before. The head is killed, too: what it knows is in a Redis of its own
(docs/cluster.md), unless `--no-head`. The kills come from a seed. It needs the extra `ray`, and redis-server.

The command exits with 1 if words were lost or repeated, if text changed that was shown as stable, if an audio gap was
reported, or if a session failed.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from benchmarks import machine, report
from benchmarks.faults import service_faults
from benchmarks.faults.campaign import Faults, Plan
from benchmarks.faults.ray_service import HEAD_FAULTS, RAY_FAULTS, RayService, ray_service
from benchmarks.options import benchmark_command, result_options
from benchmarks.recordings import load_bundled
from tutti_server.app.service.settings import Settings


@benchmark_command(needs=("ray",))
@click.option("--kills", default=100, show_default=True, help="How many kills there are.")
@click.option("--sessions", default=16, show_default=True, help="Live sessions at the same time.")
@click.option("--nodes", default=3, show_default=True, help="Nodes of the cluster, the head among them.")
@click.option(
    "--every", "every_s", default=4.0, show_default=True, help="Mean seconds from a mended kill to the next one."
)
@click.option("--seconds", default=40.0, show_default=True, help="The longest piece of a recording, in seconds.")
@click.option("--head/--no-head", "kills_head", default=True, show_default=True, help="Kill the head, too.")
@click.option("--seed", default=0, show_default=True, help="Seed of the kills.")
@result_options("ray_kills")
def main(
    kills: int,
    sessions: int,
    nodes: int,
    every_s: float,
    seconds: float,
    kills_head: bool,
    seed: int,
    path: Path,
    markdown: bool,
) -> None:
    """Kill parts of a Ray cluster, and compare every word with an undisturbed run."""
    plan = Plan(
        recordings=load_bundled(seconds, sessions),
        n_sessions=sessions,
        n_process_faults=kills,
        process_fault_every_s=every_s,
        seed=seed,
    )
    result = {**machine.describe(), **run(plan, nodes, kills_head)}
    report.show(service_faults.tables(result), result, as_markdown=markdown, path=path)
    if not result["holds"]:
        sys.exit(1)


def run(plan: Plan, n_nodes: int, kills_head: bool) -> dict[str, Any]:
    """Run the campaign on a new cluster, after two undisturbed runs. Returns the figures."""
    faults = {**RAY_FAULTS, **(HEAD_FAULTS if kills_head else {})}
    with ray_service(campaign_settings(plan.n_sessions), n_nodes, can_lose_head=kills_head) as service:
        return asyncio.run(compare(service, plan, faults))


async def compare(service: RayService, plan: Plan, faults: Faults[RayService]) -> dict[str, Any]:
    """As in `service_faults`, with the nodes that were added because Ray found no room."""
    return {**await service_faults.compare(service, plan, faults), "n_added_nodes": service.n_added_nodes}


def campaign_settings(n_sessions: int) -> Settings:
    """Settings of a cluster on a machine that is too small for it: no session is refused, or ended for slow engines."""
    return Settings(
        host="0.0.0.0",
        allow_anyone=True,
        threads=1,
        log_level="warning",
        max_sessions=4 * n_sessions,
        max_final_wait_s=1000.0,
        final_deadline_s=120.0,
        max_ahead_s=3600.0,
    )
