"""Shows that a Ray cluster loses a node and no word: `make demo-cluster`.

    python -m benchmarks.faults cluster-demo

Starts three Ray nodes on this machine, each with an engine and a gateway (CPU, the embedded model), and streams eight
recordings through the Python SDK: undisturbed, and once more while a node is killed. Then compares every word. It needs
the extra `ray`, and takes about two minutes and 4 GB of memory.
"""

import asyncio
import sys

import click

from benchmarks.faults.campaign import Plan
from benchmarks.faults.ray_kills import campaign_settings, compare
from benchmarks.faults.ray_service import RAY_FAULTS, ray_service
from benchmarks.faults.service_faults import tables
from benchmarks.options import benchmark_command
from benchmarks.recordings import load_bundled
from tutti_server.app.cli.terminal import console

N_NODES = 3
N_SESSIONS = 8
KILL = "node killed"


@benchmark_command(needs=("ray",))
@click.option("--seconds", default=20.0, show_default=True, help="The length of each recording, in seconds.")
def main(seconds: float) -> None:
    """Kill a node of a Ray cluster while eight people speak, and compare every word."""
    plan = Plan(
        recordings=load_bundled(seconds, N_SESSIONS),
        n_sessions=N_SESSIONS,
        n_process_faults=1,
        process_fault_every_s=8.0,
    )
    out = console()
    out.print(f"Starting {N_NODES} Ray nodes on this machine, each with an engine and a gateway …")
    with ray_service(campaign_settings(N_SESSIONS), N_NODES) as service:
        out.print(f"Streaming {N_SESSIONS} recordings, twice undisturbed, then while a node is killed …")
        result = asyncio.run(compare(service, plan, {KILL: RAY_FAULTS[KILL]}))
    for table in tables(result):
        out.print(table.rich(), "")
    sys.exit(0 if result["holds"] else 1)
