"""Measures a start: the time of `tutti --version`, the time until a server is ready, and its memory when idle.

    python -m benchmarks.start --tutti /tmp/env/bin/tutti

Measure an installed wheel: an editable installation looks for its packages in Python, and byte code may be missing.
Times are as a user sees them, and as CPU time, which other programs on the machine disturb less. Arguments after `--`
go to `tutti serve`.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks import machine, report
from benchmarks.options import benchmark_command, result_options, serve_arguments_argument
from benchmarks.report import Table, number
from benchmarks.server import free_port, running_process

PROBE_S = 0.02
"""Seconds between two checks whether the server is ready. It bounds the error of the time to ready."""
IDLE_S = 2.0
"""The memory of a server is measured this many seconds after it became ready."""
FIGURES = {
    "`tutti --version`": "version",
    "`tutti serve`, until ready": "ready",
}


@benchmark_command()
@click.option("--runs", default=5, show_default=True, help="Measure each figure this many times.")
@click.option("--tutti", "program", help="The command to measure. Default: that of this checkout.")
@result_options("start")
@serve_arguments_argument
def main(runs: int, program: str | None, path: Path, markdown: bool, serve_arguments: tuple[str, ...]) -> None:
    """Measure how long tutti takes to start, and its memory when idle."""
    if runs < 1:
        raise click.UsageError("--runs: expected a number above 0")
    command = [program] if program else [sys.executable, "-m", "tutti_server.app"]
    result = {
        **machine.describe(),
        "version": [time_version(command) for _ in range(runs)],
        "ready": [time_ready(command, serve_arguments) for _ in range(runs)],
    }
    report.show([table(result)], result, as_markdown=markdown, path=path)


def time_version(command: Sequence[str]) -> dict[str, float]:
    used_s, start_s = _children_cpu_s(), time.perf_counter()
    subprocess.run([*command, "--version"], check=True, stdout=subprocess.DEVNULL)
    return {"wall_s": time.perf_counter() - start_s, "cpu_s": _children_cpu_s() - used_s}


def time_ready(command: Sequence[str], serve_arguments: Sequence[str]) -> dict[str, float | None]:
    """Seconds until a server answers /readyz, and its memory shortly afterwards."""
    port = free_port()
    serve = [*command, "serve", "--port", str(port), "--log-level", "warning", *serve_arguments]
    start_s = time.perf_counter()
    with running_process(serve, port, ready_path="/readyz", probe_s=PROBE_S) as server:
        wall_s = time.perf_counter() - start_s
        cpu_s = machine.family_cpu_s(server.pid)
        time.sleep(IDLE_S)
        return {"wall_s": wall_s, "cpu_s": cpu_s, "idle_rss_mib": machine.rss_mib(server.pid)}


def table(result: dict[str, Any]) -> Table:
    """The medians of all runs, and the worst."""
    rows = [
        (name, *(_median_and_worst([run[key] for run in result[figure]], 2) for key in ("wall_s", "cpu_s")))
        for name, figure in FIGURES.items()
    ]
    memory = _median_and_worst([run["idle_rss_mib"] for run in result["ready"]], 0)
    return Table(
        f"A start: median and worst of {len(result['ready'])}",
        ("", "seconds", "CPU seconds", "RSS, MiB"),
        [(*row, report.NO_VALUE) for row in rows] + [("a server when idle", *[report.NO_VALUE] * 2, memory)],
    )


def _median_and_worst(values: Sequence[float | None], digits: int) -> str:
    known = [value for value in values if value is not None]
    return f"{number(statistics.median(known), digits)} / {number(max(known), digits)}" if known else report.NO_VALUE


def _children_cpu_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


if __name__ == "__main__":
    main()
