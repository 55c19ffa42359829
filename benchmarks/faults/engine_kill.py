"""Kills one of several engines under live load, and compares latencies before, while it is away, and afterwards.

    python -m benchmarks.faults engine --sessions 400 -- --engines 2 --gateways 8 --model random:turbo

Arguments after `--` go to `tutti serve`. The command exits with 1 when a session was refused, failed or was ended by
the server, when a final is missing, when no engine was killed and came back, or when the p95 of finals is not back 10 s
after that.
"""

import os
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import click

from benchmarks import machine, report
from benchmarks.faults.service import engine_processes
from benchmarks.live.level import warm_up
from benchmarks.live.load_clients import CONNECT_AHEAD_S, LoadLog
from benchmarks.live_capacity import (
    INTERIM_INTERVAL_MS,
    N_CALLS,
    START_S,
    Load,
    client_groups,
    run_groups,
    session_figures,
    write_calls,
)
from benchmarks.options import benchmark_command, result_options, serve_arguments_argument
from benchmarks.report import Table, number, spread
from benchmarks.scoring import summary
from benchmarks.server import ADMIT_ALL, RunningServer, running_server
from benchmarks.server_counters import Counters

BACK_AFTER_S = 10.0
"""Latencies must be as before this many seconds after the engine is ready, at the latest."""
BACK_FACTOR, BACK_SLACK_S = 1.2, 0.05
"""The p95 of finals is back when it is at most this factor of that before, and this many seconds more."""
POLL_S = 0.2
"""How often the server is asked whether the engine is back, in seconds."""


@benchmark_command()
@click.option("--sessions", default=100, show_default=True, help="Number of clients.")
@click.option("--seconds", default=120.0, show_default=True, help="Length of each call, in seconds.")
@click.option("--ramp", "ramp_s", default=10.0, show_default=True, help="Seconds within which clients begin.")
@click.option("--kill-at", "kill_at_s", default=20.0, show_default=True, help="Seconds from then to the kill.")
@result_options("engine_kill")
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
    """Kill an engine under load, and see that only latencies change, and for how long."""
    if ramp_s + kill_at_s >= seconds:
        raise click.UsageError("--seconds: expected more than --ramp and --kill-at together")
    start = {"type": "start", "language": "en", "endpointing": {"mode": "vad"}}
    load = Load(start=start, seconds=seconds, ramp_s=ramp_s, flushes=True)
    own = ["--max-sessions", str(sessions + 1), "--interim-interval-ms", str(INTERIM_INTERVAL_MS), *ADMIT_ALL]
    with tempfile.TemporaryDirectory() as folder, running_server([*own, *serve_arguments]) as server:
        calls = write_calls(Path(folder), min(N_CALLS, sessions), seconds)
        warm_up(server)
        first = time.monotonic() + START_S + CONNECT_AHEAD_S
        kill = EngineKill(server, first + ramp_s + kill_at_s, first + seconds)
        log = run_groups(client_groups(server, calls, load, sessions, first))
        kill.join()
    result: dict[str, Any] = {
        **machine.describe(),
        "sessions": sessions,
        "away_s": kill.ready_s - kill.killed_s,
        **figures(log, sessions, (first + ramp_s, kill.killed_s, kill.ready_s + BACK_AFTER_S, first + seconds)),
    }
    report.finish([table(result)], result, complain(result), as_markdown=markdown, path=path)


class EngineKill(threading.Thread):
    """Kills the first engine at a time, and notes when all engines are up again."""

    def __init__(self, server: RunningServer, at_s: float, until_s: float) -> None:
        super().__init__(daemon=True)
        self.killed_s = self.ready_s = at_s
        """When the engine was killed, and when it was back; `ready_s` stays the earlier one if it was not."""
        self._server = server
        self._at_s = at_s
        self._until_s = until_s
        self.start()

    def run(self) -> None:
        n_engines = self._n_up()
        time.sleep(max(0.0, self._at_s - time.monotonic()))
        os.kill(engine_processes(self._server.pid)[0], signal.SIGKILL)
        self.killed_s = time.monotonic()
        was_down = False
        while time.monotonic() < self._until_s:
            is_down = self._n_up() < n_engines
            if was_down and not is_down:
                self.ready_s = time.monotonic()
                return
            was_down |= is_down
            time.sleep(POLL_S)

    def _n_up(self) -> float:
        return Counters.parse(self._server.fetch("/metrics")).value("tutti_engine_up")


def figures(log: LoadLog, n_sessions: int, times_s: tuple[float, float, float, float]) -> dict[str, Any]:
    """The figures of a run; its times are the end of the ramp, the kill, when latencies must be back, and the end."""
    phases = []
    for name, begin, end in zip(("before", "away", "back"), times_s[:-1], times_s[1:], strict=True):
        interims = [lag for spoken_at, lag in log.interims if begin <= spoken_at < end]
        finals = [lag for spoken_at, lag in log.finals if begin <= spoken_at < end]
        phases.append(
            {
                "name": name,
                "seconds": end - begin,
                "interim_lag_s": summary(interims),
                "interims_per_s": len(interims) / max(end - begin, 1e-9) / n_sessions,
                "final_s": summary(finals),
            }
        )
    return {
        "phases": phases,
        "finals_missing": log.n_announced - log.n_ended + log.n_flushes - log.n_flushed,
        "refused": log.n_refused,
        **session_figures(log),
        "failures": log.failures,
    }


def complain(result: dict[str, Any]) -> list[str]:
    found = [
        f"{result[name]} {name.replace('_', ' ')}" for name in ("finals_missing", "refused", "ended") if result[name]
    ]
    found += [f"failed: {failure}" for failure in result["failures"]]
    if result["away_s"] <= 0:
        found.append("expected an engine that was killed and came back, got none")
    before, _, back = (phase["final_s"]["p95"] for phase in result["phases"])
    if before is None or back is None:
        found.append("expected finals before the kill and after the engine was back, got none; use a longer --seconds")
    elif back > BACK_FACTOR * before + BACK_SLACK_S:
        found.append(f"expected the p95 of finals to be back at {before:.2f} s, got {back:.2f} s")
    return found


def table(result: dict[str, Any]) -> Table:
    return Table(
        f"{result['sessions']} sessions; one engine was killed, and was away for {result['away_s']:.1f} s; "
        f"{result['ended']} sessions were ended, {result['finals_missing']} finals are missing (s, p50/p95/p99)",
        ("", "seconds", "interim lag", "interims\nper session and s", "final after\nend of speech"),
        [
            (
                phase["name"],
                number(phase["seconds"], 1),
                spread(phase["interim_lag_s"]),
                number(phase["interims_per_s"]),
                spread(phase["final_s"]),
            )
            for phase in result["phases"]
        ],
    )
