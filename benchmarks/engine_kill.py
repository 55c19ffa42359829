"""Kill one of several engines under live sessions, and measure how long finals are late.

    python -m benchmarks.engine_kill --sessions 400 -- --model random:turbo --engines 2 --gateways 12

The clients are those of `benchmarks.live_capacity`. Arguments after `--` go to `tutti serve`.
"""

import os
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
from prometheus_client.parser import text_string_to_metric_families

from benchmarks import machine, report
from benchmarks.faults.service import engine_processes
from benchmarks.live.level import warm_up
from benchmarks.live.load_clients import CONNECT_AHEAD_S, LoadLog
from benchmarks.live_capacity import (
    N_CALLS,
    SESSIONS_PER_PROCESS,
    START_S,
    Load,
    client_groups,
    run_groups,
    session_figures,
    write_calls,
)
from benchmarks.options import json_option, markdown_option, serve_arguments_argument
from benchmarks.report import Table, spread
from benchmarks.scoring import summary
from benchmarks.server import ADMIT_ALL, PROBE_S, RunningServer, running_server

SCHEMA = 1
RECOVERY_S = 10.0
"""Finals must be in time again this many seconds after the engine is ready."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--sessions", default=400, show_default=True, help="Number of clients.")
@click.option("--seconds", default=90.0, show_default=True, help="Length of each call, in seconds.")
@click.option("--ramp", "ramp_s", default=8.0, show_default=True, help="Seconds within which clients begin.")
@click.option("--kill-at", "kill_at_s", default=20.0, show_default=True, help="When the engine is killed, in seconds.")
@json_option("engine_kill")
@markdown_option
@serve_arguments_argument
def main(
    sessions: int,
    seconds: float,
    ramp_s: float,
    kill_at_s: float,
    path: Path,
    markdown: bool,
    serve_arguments: tuple[str, ...],
) -> None:
    """Kill one of several engines under live sessions, and measure how long finals are late."""
    if not ramp_s < kill_at_s < seconds:
        raise click.UsageError("expected --ramp < --kill-at < --seconds")
    start: dict[str, Any] = {"type": "start", "language": "en", "endpointing": {"mode": "vad"}}
    load = Load(start=start, seconds=seconds, ramp_s=ramp_s, flushes=True)
    result = {"benchmark": "engine_kill", "schema": SCHEMA, **machine.describe(), "sessions": sessions}
    own = ["--max-sessions", str(sessions + 1), *ADMIT_ALL]
    with tempfile.TemporaryDirectory() as folder, running_server([*own, *serve_arguments]) as server:
        calls = write_calls(Path(folder), min(N_CALLS, sessions), 0.5, seconds)
        warm_up(server, "en")
        first = time.monotonic() + START_S + CONNECT_AHEAD_S
        groups = client_groups(server, calls, load, sessions, -(-sessions // SESSIONS_PER_PROCESS), first)
        with ThreadPoolExecutor(1) as thread:
            killing = thread.submit(kill_engine, server, first + kill_at_s, first + seconds)
            log = run_groups(groups)
        ready_at = killing.result()
    times = [first + ramp_s, first + kill_at_s, ready_at, ready_at + RECOVERY_S, first + seconds]
    result |= figures(log, times)
    report.show([table(result)], result, as_markdown=markdown, path=path)
    sys.exit(1 if result["ended"] or result["finals_missing"] or result["failures"] else 0)


def kill_engine(server: RunningServer, at: float, until: float) -> float:
    """Kill the first engine process at a time of `time.monotonic`.

    Returns the time at which all engines accept windows again; `until` if they do not until then.
    """
    assert server.pid
    time.sleep(max(at - time.monotonic(), 0.0))
    engines = engine_processes(server.pid)
    if len(engines) < 2:
        raise click.UsageError(f"expected a server with several engines (-- --engines 2), got {len(engines)}")
    os.kill(engines[0], signal.SIGKILL)
    while n_engines_up(server) >= len(engines) and time.monotonic() < until:
        time.sleep(PROBE_S / 10)
    while n_engines_up(server) < len(engines) and time.monotonic() < until:
        time.sleep(PROBE_S)
    return min(time.monotonic(), until)


def n_engines_up(server: RunningServer) -> int:
    """The number of engines that accept windows, by the service's metrics."""
    families = text_string_to_metric_families(server.fetch("/metrics"))
    return round(sum(each.value for family in families if family.name == "tutti_engine_up" for each in family.samples))


def figures(log: LoadLog, times: list[float]) -> dict[str, Any]:
    """What became of the sessions, and the latencies of the speech between each two of these times, in order."""
    names = ("before", "one engine fewer", f"the {RECOVERY_S:.0f} s after its start", "later")
    return {
        **session_figures(log),
        "finals_missing": log.n_announced - log.n_ended + log.n_flushes - log.n_flushed,
        "failures": log.failures[:10],
        "periods": [
            {
                "name": name,
                "seconds": max(end - begin, 0.0),
                "final_s": summary([lag for at, lag in log.finals if begin <= at < end]),
                "interim_lag_s": summary([lag for at, lag in log.interims if begin <= at < end]),
            }
            for name, (begin, end) in zip(names, pairwise(times), strict=True)
        ],
    }


def table(result: dict[str, Any]) -> Table:
    """One row for each period."""
    rows = [
        (
            each["name"],
            f"{each['seconds']:.1f}",
            str(each["final_s"]["n"]),
            spread(each["final_s"]),
            spread(each["interim_lag_s"]),
        )
        for each in result["periods"]
    ]
    title = (
        f"One engine killed under {result['accepted']} live sessions: {result['ended']} ended, "
        f"{result['finals_missing']} finals missing (s, p50/p95/p99)"
    )
    return Table(title, ("period", "seconds", "finals", "final after\nend of speech", "interim lag"), rows)


if __name__ == "__main__":
    main()
