"""How many live sessions a server holds: growing numbers of callers at the pace of speech, from several processes.

    python -m benchmarks.live_capacity --sessions 100,250,500,750,1000 -- --model random:turbo

What follows `--` goes to `tutti serve`. A caller speaks half of the time and ends its utterances with a flush. Exits
with 1 when the callers themselves came late, when a session failed or a final was missing, or `--require` was not met.
"""

import multiprocessing
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks import machine, plot, report
from benchmarks.live.load_clients import CONNECT_AHEAD_S, FLUSH_AFTER_S, Call, Callers, Noted, run_callers, write_call
from benchmarks.live.streams import engine_figures, parse_numbers, warm_up
from benchmarks.recordings import as_call, load_bundled
from benchmarks.report import NOTHING, Table, number, spread
from benchmarks.scoring import summary
from benchmarks.server import RunningServer, running_server
from benchmarks.server_counters import Counters

SCHEMA = 1
N_CALLS = 32
"""Different ones; more callers than that say the same at other times."""
SESSIONS_PER_PROCESS = 100
START_S = 5.0
"""Processes of callers are up by then."""
MAX_INTERIM_LAG_S = 1.0
MAX_FINAL_S = 0.5
"""What holding a number of sessions means, for 95 of 100."""
LEAST_INTERIMS = 0.8
"""Of those that are due: a server that leaves interims out has few that are late."""
N_SHOWN_FAILURES = 5


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--sessions", default="100,250,500,750,1000", show_default=True, help="Numbers of callers, one run each.")
@click.option("--seconds", default=60.0, show_default=True, help="Length of each call.")
@click.option(
    "--ramp", "ramp_s", default=10.0, show_default=True, help="Seconds over which callers begin; not measured."
)
@click.option("--talk", type=click.FloatRange(0.01, 0.99), default=0.5, show_default=True, help="Share of speech.")
@click.option("--interim-interval-ms", default=1000, show_default=True, help="Given to a server that is started here.")
@click.option(
    "--silence-ms",
    type=click.IntRange(100, 5000),
    help="Let so much silence end utterances. Default: callers flush at the end of speech.",
)
@click.option("--processes", type=click.IntRange(min=1), help="Of callers. Default: one for each hundred.")
@click.option("--max-late-ms", default=100.0, show_default=True, help="99 of 100 chunks must leave no later.")
@click.option("--go-on", is_flag=True, help="Do not end at the first number that is not held.")
@click.option("--require", type=int, help="Fail unless so many sessions are held.")
@click.option("--title", default="tutti", show_default=True, help="Of its curve in a picture.")
@click.option("--url", help="Measure this server (http://host:port) instead of starting one.")
@click.option(
    "--json", "path", type=click.Path(path_type=Path), default=Path("build/bench/live_capacity.json"), show_default=True
)
@click.option("--plot", "picture", type=click.Path(path_type=Path), help="Draw latencies too: FILE.svg or FILE.png.")
@click.option("--markdown", is_flag=True, help="Print the table in Markdown.")
@click.argument("serve_arguments", nargs=-1, type=click.UNPROCESSED)
def main(
    sessions: str,
    seconds: float,
    ramp_s: float,
    talk: float,
    interim_interval_ms: int,
    silence_ms: int | None,
    processes: int | None,
    max_late_ms: float,
    go_on: bool,
    require: int | None,
    title: str,
    url: str | None,
    path: Path,
    picture: Path | None,
    markdown: bool,
    serve_arguments: tuple[str, ...],
) -> None:
    """Find the most live sessions whose interims and finals come in time."""
    levels = parse_numbers("--sessions", sessions)
    if picture:
        plot.check_path(picture)
    if url and serve_arguments:
        raise click.UsageError("arguments for `tutti serve` make no sense with --url")
    if seconds <= ramp_s:
        raise click.UsageError("--seconds: expected more than --ramp")
    start = {"type": "start", "language": "en"}
    if silence_ms:
        start |= {"endpointing": {"silence_ms": silence_ms}}
    result: dict[str, Any] = {
        "benchmark": "live_capacity",
        "schema": SCHEMA,
        **machine.describe(),
        "title": title,
        "seconds": seconds,
        "ramp_s": ramp_s,
        "talk": talk,
        "interim_interval_ms": interim_interval_ms,
        "silence_ms": silence_ms,
        "serve_arguments": list(serve_arguments),
        "levels": [],
    }
    with ExitStack() as stack:
        calls = write_calls(
            Path(stack.enter_context(tempfile.TemporaryDirectory())), min(N_CALLS, max(levels)), talk, seconds
        )
        if url:
            server = RunningServer(url.rstrip("/"), None)
        else:
            own = ["--max-sessions", str(max(levels) + 1), "--interim-interval-ms", str(interim_interval_ms)]
            server = stack.enter_context(running_server([*own, *serve_arguments]))
        warm_up(server, "en")
        for n in levels:
            print(f"{n} sessions, {seconds:.0f} s …", file=sys.stderr, flush=True)
            n_processes = processes or -(-n // SESSIONS_PER_PROCESS)
            level = run_level(server, calls, n, n_processes, start, seconds, ramp_s, flushes=silence_ms is None)
            level["generator"]["was_late"] = not (level["generator"]["late_s"]["p99"] or 0.0) <= max_late_ms / 1000
            level["interims_of_due"] = level["interims_per_s"] / (talk * 1000 / interim_interval_ms)
            level["holds"] = holds(level)
            result["levels"].append(level)
            if not (level["holds"] or go_on):
                break
    held = [level["streams"] for level in result["levels"] if level["holds"]]
    result["most_held"] = max(held, default=0)
    report.show([table(result)], result, as_markdown=markdown, path=path)
    if picture:
        plot.draw([result], picture)
    complaints = complain(result, require)
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    sys.exit(1 if complaints else 0)


def write_calls(folder: Path, n: int, talk: float, seconds: float) -> list[Call]:
    """Different calls made of the bundled clips, each a file in `folder`."""
    sources = load_bundled(seconds, min(n, 4))
    recordings = [as_call(sources[i % len(sources)], talk, seconds, seed=i) for i in range(n)]
    return [write_call(folder / f"{i}.npy", each.samples, each.said) for i, each in enumerate(recordings)]


def run_level(
    server: RunningServer,
    calls: list[Call],
    n: int,
    n_processes: int,
    start: dict[str, Any],
    seconds: float,
    ramp_s: float,
    *,
    flushes: bool,
) -> dict[str, Any]:
    """So many callers, and what came of it while all of them were there."""
    url = server.url.replace("http", "ws", 1) + "/v1/stream"
    first = time.monotonic() + START_S + CONNECT_AHEAD_S
    begins = first + ramp_s * np.random.default_rng(n).random(n)
    each = [(calls[i % len(calls)], float(begin)) for i, begin in enumerate(begins)]
    shares = [Callers(url, start, tuple(each[k::n_processes]), flushes) for k in range(n_processes)]
    before = _Moment(server)
    noted = Noted()
    # Spawned: what this process has open and running is not theirs.
    with ProcessPoolExecutor(n_processes, multiprocessing.get_context("spawn")) as pool:
        for part in pool.map(run_callers, shares):
            noted.add(part)
    after = _Moment(server)
    return level_result(noted, n, first + ramp_s, first + seconds, before, after)


class _Moment:
    """The server and its counters."""

    def __init__(self, server: RunningServer) -> None:
        self.at = time.monotonic()
        self.cpu_s = machine.family_cpu_s(server.pid) if server.pid else None
        self.counters = Counters.parse(server.fetch("/metrics"))


def level_result(
    noted: Noted, n: int, from_s: float, until_s: float, before: _Moment, after: _Moment
) -> dict[str, Any]:
    """Latencies are of what was spoken between two moments, all else of the whole run."""
    wall_s = after.at - before.at
    interims = [lag for spoken, lag in noted.interims if from_s <= spoken < until_s]
    finals = [lag for spoken, lag in noted.finals if from_s <= spoken < until_s]
    return {
        "streams": n,
        "wall_s": wall_s,
        "interim_lag_s": summary(interims),
        "interims_per_s": len(interims) / (until_s - from_s) / n,
        "final_s": summary(finals),
        "utterances": noted.n_announced,
        "finals_missing": noted.n_announced - noted.n_ended + noted.n_flushes - noted.n_flushed,
        "finals_empty": noted.n_empty,
        "refused": noted.n_refused,
        "failed": len(noted.failures),
        "failures": noted.failures[:N_SHOWN_FAILURES],
        "server_cores": None if before.cpu_s is None or after.cpu_s is None else (after.cpu_s - before.cpu_s) / wall_s,
        "engine": engine_figures(after.counters - before.counters),
        "generator": {"late_s": summary(noted.late_s), "cores": noted.cpu_s / wall_s},
    }


def holds(level: dict[str, Any]) -> bool:
    """Whether all sessions were served, in time."""
    lag, final = level["interim_lag_s"]["p95"], level["final_s"]["p95"]
    if lag is None or final is None or level["generator"]["was_late"]:
        return False
    is_whole = not (level["refused"] or level["failed"] or level["finals_missing"])
    is_whole &= level["interims_of_due"] >= LEAST_INTERIMS
    return bool(is_whole and lag <= MAX_INTERIM_LAG_S and final <= MAX_FINAL_S)


def complain(result: dict[str, Any], require: int | None) -> list[str]:
    """What makes the run a failure; not holding many sessions is none by itself."""
    found = []
    for level in result["levels"]:
        n = level["streams"]
        if level["generator"]["was_late"]:
            late_s = level["generator"]["late_s"]["p99"]
            found.append(f"{n} sessions: the callers were late (p99 {number(late_s, 3)} s): its figures mean nothing")
        if level["finals_missing"]:
            found.append(f"{n} sessions: {level['finals_missing']} utterances have no final")
        found += [f"{n} sessions: {failure}" for failure in level["failures"]]
    if require and result["most_held"] < require:
        found.append(f"expected {require} sessions to be held, got {result['most_held']}")
    return found


def table(result: dict[str, Any]) -> Table:
    """A row for each number of sessions."""
    silence_ms = result["silence_ms"]
    wait = f"{silence_ms} ms of silence" if silence_ms else f"a flush after {1000 * FLUSH_AFTER_S:.0f} ms"
    rows = [
        (
            str(level["streams"]),
            spread(level["interim_lag_s"]),
            number(100 * level["interims_of_due"], 0),
            spread(level["final_s"]),
            *(str(level[name]) for name in ("finals_missing", "refused", "failed")),
            number(level["server_cores"], 1),
            number(level["engine"]["encode_batch"], 1),
            number(level["engine"]["decode_batch"], 1),
            number(1000 * (level["engine"]["step_s"] or 0.0), 2),
            number(1000 * (level["generator"]["late_s"]["p99"] or 0.0), 0),
            "yes" if level["holds"] else "no",
        )
        for level in result["levels"]
    ]
    return Table(
        f"{result['title']}: {result['most_held'] or NOTHING} live sessions held, {100 * result['talk']:.0f} % talk, "
        f"interims every {result['interim_interval_ms']} ms, ended by {wait}, included (s, p50/p95/p99)",
        (
            "sessions",
            "interim lag",
            "interims\nof due %",
            "final after\nend of speech",
            "finals\nmissing",
            "refused",
            "failed",
            "server\ncores",
            "encode\nbatch",
            "decode\nbatch",
            "step\nms",
            "callers late\np99 ms",
            "holds",
        ),
        rows,
    )


if __name__ == "__main__":
    main()
