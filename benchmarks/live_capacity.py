"""Measures how many live sessions a server holds: growing numbers of clients speak to it from several processes.

    python -m benchmarks.live_capacity --sessions 100,250,500,750,1000 -- --model random:turbo

Arguments after `--` go to `tutti serve`. A client speaks half of the time and ends its utterances with a flush. The
command exits with 1 when the clients themselves were late, when a session failed, or when a final is missing.

With `--admission` the server refuses sessions as it does in service, and a client that was refused calls again until it
is let in. So a server with three times as many callers as it holds is measured like this:

    python -m benchmarks.live_capacity --admission --sessions 900 --seconds 600 -- --model random:turbo

With `--search` both are compared: the most of these numbers that a server serves in time, by the limits of admission,
when it lets all in; and how many of three times as many callers it lets in by itself:

    python -m benchmarks.live_capacity --search --sessions 4,6,8,10,12,14 --seconds 60 -- --model base
"""

import multiprocessing
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks import machine, report
from benchmarks.live.level import warm_up
from benchmarks.live.load_clients import (
    CONNECT_AHEAD_S,
    FLUSH_AFTER_S,
    ClientGroup,
    LoadLog,
    PreparedCall,
    run_clients,
    write_call,
)
from benchmarks.options import benchmark_command, parse_numbers, result_options, serve_arguments_argument
from benchmarks.recordings import as_call, load_bundled
from benchmarks.report import NO_VALUE, Table, number, percents, spread
from benchmarks.scoring import summary
from benchmarks.server import ADMIT_ALL, RunningServer, running_server
from benchmarks.server_counters import Counters
from tutti_server.app.service.live_load import INTERIM_EVERY_S
from tutti_server.app.service.settings import Settings
from tutti_server.engine.api import SAMPLE_RATE

TALK = 0.5
"""The share of each call that is speech."""
INTERIM_INTERVAL_MS = 1000
"""The setting of the server: an interim of a session is due for this much speech."""
N_CALLS = 32
"""Number of different calls. With more clients, several send the same call at different times."""
SESSIONS_PER_PROCESS = 100
START_S = 5.0
MAX_INTERIM_LAG_S = 1.0
"""A number of sessions is held if the p95 lag of interims is at most this, in seconds."""
MAX_FINAL_S = 0.5
"""A number of sessions is held if the p95 latency of finals is at most this, in seconds."""
MAX_LATE_S = 0.1
"""A run is valid only if the p99 lateness of sent chunks is at most this, in seconds."""
MIN_INTERIMS = 0.8
"""Least share of the due interims that a server must send: a server that leaves interims out has few late ones."""
LEAST_SPEECH_S = 10.0
"""The least speech of a session whose rate of interims counts, in seconds."""
OVERLOAD = 3
"""How many times as many call as are served in time, with `--search`."""
N_SHOWN_FAILURES = 5


@benchmark_command()
@click.option(
    "--sessions",
    default="100,250,500,750,1000",
    show_default=True,
    help="Numbers of clients. Each number is a run of its own.",
)
@click.option("--seconds", default=60.0, show_default=True, help="Length of each call, in seconds.")
@click.option(
    "--ramp",
    "ramp_s",
    default=10.0,
    show_default=True,
    help="Seconds within which clients begin. This time is not measured.",
)
@click.option(
    "--silence-ms",
    type=click.IntRange(100, 5000),
    help="Let this much silence end utterances. Default: clients flush at the end of speech.",
)
@click.option(
    "--chunk-ms",
    type=click.IntRange(10, 1000),
    default=100,
    show_default=True,
    help="Length of the chunks that clients send. A server acts on a pause when a chunk has arrived.",
)
@click.option(
    "--admission", is_flag=True, help="Let the server refuse sessions. Clients call again until they are accepted."
)
@click.option("--search", is_flag=True, help="Also count how many of three times as many callers are accepted.")
@click.option("--go-on", is_flag=True, help="Continue after the first number that is not held.")
@result_options("live_capacity")
@serve_arguments_argument
def main(
    sessions: str,
    seconds: float,
    ramp_s: float,
    silence_ms: int | None,
    chunk_ms: int,
    admission: bool,
    search: bool,
    go_on: bool,
    path: Path,
    markdown: bool,
    serve_arguments: tuple[str, ...],
) -> None:
    """Find the largest number of live sessions whose interims and finals arrive in time."""
    levels = parse_numbers("--sessions", sessions)
    if seconds <= ramp_s:
        raise click.UsageError("--seconds: expected more than --ramp")
    endpointing = {"mode": "vad"} | ({"silence_ms": silence_ms} if silence_ms else {})
    start: dict[str, Any] = {"type": "start", "language": "en", "endpointing": endpointing}
    load = Load(start=start, seconds=seconds, ramp_s=ramp_s, flushes=silence_ms is None, chunk_ms=chunk_ms)
    load = replace(load, calls_again=admission)
    result: dict[str, Any] = {**machine.describe(), "silence_ms": silence_ms, "chunk_ms": chunk_ms}
    own = ["--max-sessions", str(OVERLOAD * max(levels) + 1), "--interim-interval-ms", str(INTERIM_INTERVAL_MS)]
    with tempfile.TemporaryDirectory() as folder:
        calls = write_calls(Path(folder), min(N_CALLS, max(levels)), seconds)
        until = "" if go_on else "in_time" if search else "holds"
        with running_server([*own, *([] if admission else ADMIT_ALL), *serve_arguments]) as server:
            result["levels"] = run_levels(server, load, levels, until, calls)
        result["in_time"] = max((each["streams"] for each in result["levels"] if each["in_time"]), default=0)
        if search:
            callers = [OVERLOAD * (result["in_time"] or 1)]
            with running_server([*own, *serve_arguments]) as server:
                (result["let_in"],) = run_levels(server, replace(load, calls_again=True), callers, "", calls)
    result["most_held"] = max((level["streams"] for level in result["levels"] if level["holds"]), default=0)
    tables = [table(result), *admission_tables(result)]
    report.finish(tables, result, complain(result), as_markdown=markdown, path=path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    start: dict[str, Any]
    seconds: float
    ramp_s: float
    """Clients begin at random times within this many seconds. This time is not measured."""
    flushes: bool
    chunk_ms: int = 100
    calls_again: bool = False


def run_levels(
    server: RunningServer, load: Load, levels: list[int], until: str, calls: list[PreparedCall]
) -> list[dict[str, Any]]:
    """Run these numbers of clients, one after another, until the verdict `until` is no, and return their figures."""
    warm_up(server)
    found: list[dict[str, Any]] = []
    for n in levels:
        print(f"{n} sessions, {load.seconds:.0f} s …", file=sys.stderr, flush=True)
        found.append(run_level(server, calls, load, n))
        if until and not found[-1][until]:
            break
    return found


def write_calls(folder: Path, n: int, seconds: float) -> list[PreparedCall]:
    """Make `n` different calls of the bundled clips and write each to a file in `folder`."""
    sources = load_bundled(seconds, min(n, 4))
    recordings = [as_call(sources[i % len(sources)], TALK, seconds, seed=i) for i in range(n)]
    return [write_call(folder / f"{i}.npy", each.samples, each.utterances) for i, each in enumerate(recordings)]


def run_level(server: RunningServer, calls: list[PreparedCall], load: Load, n: int) -> dict[str, Any]:
    """Run `n` clients and return the figures of the time in which all of them were connected."""
    first = time.monotonic() + START_S + CONNECT_AHEAD_S
    groups = client_groups(server, calls, load, n, first)
    measured = (first + load.ramp_s, first + load.seconds)
    with ThreadPoolExecutor(1) as watcher:
        snapshots = watcher.submit(lambda: [_snapshot_at(server, at_s) for at_s in measured])
        log = run_groups(groups)
        before, after = snapshots.result()
    return level_result(log, n, measured, before, after)


def client_groups(
    server: RunningServer, calls: list[PreparedCall], load: Load, n: int, first: float
) -> list[ClientGroup]:
    """`n` clients in groups, one for each process; the first speaks at `first`, a time of `time.monotonic`."""
    n_processes = -(-n // SESSIONS_PER_PROCESS)
    starts = first + load.ramp_s * np.random.default_rng(n).random(n)
    clients = [(calls[i % len(calls)], float(speaks_at)) for i, speaks_at in enumerate(starts)]
    return [
        ClientGroup(
            url=server.url.replace("http", "ws", 1) + "/v1/stream",
            start=load.start,
            calls=tuple(clients[k::n_processes]),
            flushes=load.flushes,
            chunk_samples=load.chunk_ms * SAMPLE_RATE // 1000,
            calls_again=load.calls_again,
        )
        for k in range(n_processes)
    ]


def run_groups(groups: list[ClientGroup]) -> LoadLog:
    """Run each group in a process of its own, and return what all clients have recorded."""
    log = LoadLog()
    # Spawned, so that they inherit neither open files nor threads of this process.
    with ProcessPoolExecutor(len(groups), multiprocessing.get_context("spawn")) as pool:
        for part in pool.map(run_clients, groups):
            log.add(part)
    return log


class Snapshot:
    """The server's CPU time and counters at one moment; none where it has ended, so that earlier levels are shown."""

    def __init__(self, server: RunningServer) -> None:
        self.taken_at = time.monotonic()
        self.cpu_s = machine.family_cpu_s(server.pid)
        try:
            self.counters = Counters.parse(server.fetch("/metrics"))
        except OSError:
            self.counters = Counters({})


def _snapshot_at(server: RunningServer, at_s: float) -> Snapshot:
    """Wait until this time of `time.monotonic`, and look at the server then."""
    time.sleep(max(0.0, at_s - time.monotonic()))
    return Snapshot(server)


def level_result(
    log: LoadLog, n: int, measured: tuple[float, float], before: Snapshot, after: Snapshot
) -> dict[str, Any]:
    """The figures of one level, of the time between the two of `measured`, and the verdicts on them.

    What is counted of utterances, sessions, failures and the clients' lateness is of the whole run.
    """
    wall_s = after.taken_at - before.taken_at
    begin, end = measured
    interims = [lag for spoken_at, lag in log.interims if begin <= spoken_at < end]
    finals = [lag for spoken_at, lag in log.finals if begin <= spoken_at < end]
    counters, late_s = after.counters - before.counters, summary(log.late_s)
    interims_per_s = len(interims) / (end - begin) / n
    level = {
        "streams": n,
        "interim_lag_s": summary(interims),
        "interims_of_due": interims_per_s / (TALK * 1000 / INTERIM_INTERVAL_MS),
        "final_s": summary(finals),
        "utterances": log.n_announced,
        "finals_missing": log.n_announced - log.n_ended + log.n_flushes - log.n_flushed,
        "refused": log.n_refused,
        **session_figures(log),
        "failed": len(log.failures),
        "failures": log.failures[:N_SHOWN_FAILURES],
        "server_cores": None if before.cpu_s is None or after.cpu_s is None else (after.cpu_s - before.cpu_s) / wall_s,
        "engines_busy": {name: busy_s / wall_s for name, busy_s in counters.engine_busy_s().items()},
        "final_wait_s": counters.quantile("tutti_engine_queue_seconds", 0.95, priority="final"),
        "final_after_endpoint_s": {
            f"p{percent}": counters.quantile("tutti_final_after_endpoint_seconds", percent / 100)
            for percent in (50, 95, 99)
        },
        "late_s": late_s,
        "was_late": not (late_s["p99"] or 0.0) <= MAX_LATE_S,
    }
    return {**level, "holds": holds(level), "in_time": is_in_time(level)}


def session_figures(log: LoadLog) -> dict[str, Any]:
    """How many sessions were accepted and ended by the server, and the median interims for a second of their speech."""
    rates = [each.n_interims / each.speech_s for each in log.sessions if each.speech_s >= LEAST_SPEECH_S]
    return {
        "accepted": len(log.sessions),
        "ended": sum(bool(each.ended_by) for each in log.sessions),
        "session_interims_per_s": statistics.median(rates) if rates else None,
    }


def holds(level: dict[str, Any]) -> bool:
    """Whether the server served all sessions completely and in time."""
    lag, final = level["interim_lag_s"]["p95"], level["final_s"]["p95"]
    if lag is None or final is None or level["was_late"]:
        return False
    is_whole = not (level["refused"] or level["failed"] or level["finals_missing"])
    is_whole &= level["interims_of_due"] >= MIN_INTERIMS
    return bool(is_whole and lag <= MAX_INTERIM_LAG_S and final <= MAX_FINAL_S)


def is_in_time(level: dict[str, Any]) -> bool:
    """Whether the server kept the limits of admission: few finals wait longer than it allows, and interims suffice."""
    wait_s, interims_per_s = level["final_wait_s"], level["session_interims_per_s"]
    if wait_s is None or interims_per_s is None or level["was_late"]:
        return False
    return bool(wait_s <= Settings().max_final_wait_s and interims_per_s >= 1 / INTERIM_EVERY_S and not level["failed"])


def complain(result: dict[str, Any]) -> list[str]:
    """The reasons for which the run fails. A small number of sessions alone is no such reason."""
    found = []
    for level in result["levels"]:
        n = level["streams"]
        if level["was_late"]:
            late_s = level["late_s"]["p99"]
            found.append(
                f"{n} sessions: the clients were late (p99 {number(late_s, 3)} s), so these figures are not valid"
            )
        if level["finals_missing"]:
            found.append(f"{n} sessions: {level['finals_missing']} utterances have no final")
        found += [f"{n} sessions: {failure}" for failure in level["failures"]]
    return found


def admission_tables(result: dict[str, Any]) -> list[Table]:
    """What the server let in, beside the most that it served in time; nothing without `--search`."""
    if "let_in" not in result:
        return []
    let_in, most = result["let_in"], result["in_time"]
    row = (
        str(most),
        str(let_in["streams"]),
        str(let_in["accepted"]),
        number(100 * let_in["accepted"] / most if most else None, 0),
        number(let_in["final_wait_s"], 2),
        number(let_in["session_interims_per_s"], 2),
    )
    heads = (
        "served in\ntime",
        "callers",
        "let in",
        "%",
        "wait of their\nfinals p95 s",
        "interims a\nsecond of speech p50",
    )
    return [Table("Sessions that are let in, beside the most that are served in time", heads, [row])]


def table(result: dict[str, Any]) -> Table:
    silence_ms = result["silence_ms"]
    wait = f"{silence_ms} ms of silence" if silence_ms else f"a flush after {1000 * FLUSH_AFTER_S:.0f} ms"
    rows = [
        (
            str(level["streams"]),
            spread(level["interim_lag_s"]),
            number(100 * level["interims_of_due"], 0),
            spread(level["final_s"]),
            *(str(level[name]) for name in ("finals_missing", "accepted", "refused", "ended", "failed")),
            "/".join(number(1000 * (each or 0.0), 0) for each in level["final_after_endpoint_s"].values()),
            number(level["server_cores"], 1),
            percents(level["engines_busy"]),
            number(1000 * (level["late_s"]["p99"] or 0.0), 0),
            "yes" if level["holds"] else "no",
        )
        for level in result["levels"]
    ]
    return Table(
        f"{result['most_held'] or NO_VALUE} live sessions held, chunks of {result['chunk_ms']} ms, ended by {wait}, "
        "included (s, p50/p95/p99)",
        (
            "sessions",
            "interim lag",
            "interims\nof due %",
            "final after\nend of speech",
            "finals\nmissing",
            "accepted",
            "refused",
            "ended",
            "failed",
            "final after\nendpoint ms",
            "server\ncores",
            "engines\nbusy %",
            "clients late\np99 ms",
            "holds",
        ),
        rows,
    )


if __name__ == "__main__":
    main()
