"""Runs one number of live clients against a server, and measures the server, the clients and the machine meanwhile."""

import asyncio
import time
from typing import Any

import click
import uvloop

from benchmarks import machine
from benchmarks.live.client import ClientProfile, StreamLog, stream
from benchmarks.live.encodings import format_name
from benchmarks.live.latencies import Latencies, measure, problems
from benchmarks.recordings import Recording, load_bundled
from benchmarks.scoring import WordErrors, summary, word_summary
from benchmarks.server import RunningServer
from benchmarks.server_counters import Counters

DELAYS = ("first_text_s", "interim_lag_s", "final_s", "final_true_s", "endpoint_s", "after_endpoint_s")
"""The fields of `Latencies` that are lists of delays."""
STAGGER_S = 0.23
"""Seconds between two clients' starts.

It is no multiple of the chunk length, so that chunks do not arrive all at once.
"""
WARM_UP_S = 4.0
"""Length of the recording that warms a server up."""


def warm_up(server: RunningServer, language: str | None) -> None:
    """Run one short session, so that the first measured session does not pay for one-time costs.

    Raises:
        ClickException: no server answers.
    """
    try:
        uvloop.run(run_level(server, load_bundled(WARM_UP_S, 1), language))
    except OSError as error:
        raise click.ClickException(f"no server at {server.url}: {error}") from error


async def run_level(
    server: RunningServer,
    recordings: list[Recording],
    language: str | None,
    profiles: list[ClientProfile] | None = None,
) -> dict[str, Any]:
    """Run one client for each recording and return all figures of this level."""
    profiles = profiles or [ClientProfile()] * len(recordings)
    logs = [StreamLog(recording=recording) for recording in recordings]
    before = await _snapshot(server)
    async with asyncio.TaskGroup() as tasks:
        for index, (log, profile) in enumerate(zip(logs, profiles, strict=True)):
            tasks.create_task(stream(server.url, log, language=language, delay_s=index * STAGGER_S, profile=profile))
    after = await _snapshot(server)
    return {**level_result(logs, before, after), "by_encoding": by_encoding(logs, profiles)}


def by_encoding(logs: list[StreamLog], profiles: list[ClientProfile]) -> dict[str, Any]:
    """The word errors of each encoding that clients sent."""
    errors: dict[str, WordErrors] = {}
    for log, profile in zip(logs, profiles, strict=True):
        name = format_name(profile.format)
        errors[name] = errors.get(name, WordErrors()) + measure(log).errors
    return {
        name: {"words": each.words, "wer": each.rate, "missing": each.missing_rate} for name, each in errors.items()
    }


class _Snapshot:
    """The use of the machine by the server and by this process, and the server's counters, at one moment."""

    def __init__(self, server: RunningServer, metrics: str) -> None:
        self.taken_at = time.monotonic()
        self.counters = Counters.parse(metrics)
        self.server = machine.Usage.of(server.pid) if server.pid else None
        self.generator_cpu_s = time.process_time()
        self.busy_s = machine.busy_s()


async def _snapshot(server: RunningServer) -> _Snapshot:
    return _Snapshot(server, await asyncio.to_thread(server.fetch, "/metrics"))


def level_result(logs: list[StreamLog], before: _Snapshot, after: _Snapshot) -> dict[str, Any]:
    """The figures of one level, as the result file holds them."""
    total = Latencies()
    for log in logs:
        total.add(measure(log))
    problems_by_log = [problems(log) for log in logs]
    audio_s = sum(log.recording.audio_s for log in logs)
    wall_s = after.taken_at - before.taken_at
    late_s = [late for log in logs for late in log.late_s]
    generator_s = after.generator_cpu_s - before.generator_cpu_s
    server_s = after.server.cpu_s - before.server.cpu_s if before.server and after.server else None
    others_s = (
        after.busy_s - before.busy_s - generator_s - server_s
        if before.busy_s is not None and after.busy_s is not None and server_s is not None
        else None
    )
    return {
        "streams": len(logs),
        "recordings": [log.recording.name for log in logs],
        "audio_s": audio_s,
        "wall_s": wall_s,
        "resumed": sum(len(log.resumed) for log in logs),
        "failed": sum(bool(each) for each in problems_by_log),
        "problems": [f"stream {i}: {what}" for i, each in enumerate(problems_by_log) for what in each],
        **{name: summary(getattr(total, name)) for name in DELAYS},
        "wrong_splits": total.n_wrong_splits,
        "word_seen_s": word_summary(total.words.seen_s),
        "word_shown_s": word_summary(total.words.shown_s),
        "word_stable_s": word_summary(total.words.stable_s),
        "words": total.errors.words,
        "wer": total.errors.rate,
        "missing": total.errors.missing_rate,
        "revised_per_word": total.words.n_revised / total.errors.words if total.errors.words else None,
        "uncovered_s": total.uncovered_s,
        "server": {
            "cpu_s": server_s,
            "cpu_s_per_audio_s": None if server_s is None else server_s / audio_s,
            "cores": None if server_s is None else server_s / wall_s,
            "rss_mib": after.server and after.server.rss_mib,
        },
        "engine": engine_figures(after.counters - before.counters),
        "generator": {
            "late_s": summary(late_s),
            "blocked_max_s": max((b for log in logs for b in log.blocked_s), default=None),
            "cores": generator_s / wall_s,
        },
        "others_cores": None if others_s is None else max(others_s, 0.0) / wall_s,
    }


def busy_shares(counters: Counters, wall_s: float) -> dict[str, float]:
    """The part of the time that each engine spent with encoder calls and decode steps, by its name."""
    return {name: busy_s / wall_s for name, busy_s in counters.engine_busy_s().items()}


def engine_figures(counters: Counters) -> dict[str, Any]:
    """The engine's figures from the server's counters. Quantiles are interpolated inside the buckets of histograms."""
    queue, after_endpoint = "tutti_engine_queue_seconds", "tutti_final_after_endpoint_seconds"
    return {
        "encode_batch": counters.mean("tutti_engine_encode_batch"),
        "decode_batch": counters.mean("tutti_engine_decode_batch"),
        "encode_s": counters.mean("tutti_engine_encode_seconds"),
        "step_s": counters.mean("tutti_engine_step_seconds"),
        "final_queue_s": {
            "mean": counters.mean(queue, priority="final"),
            "p95": counters.quantile(queue, 0.95, priority="final"),
        },
        "interim_queue_s": {
            "mean": counters.mean(queue, priority="interim"),
            "p95": counters.quantile(queue, 0.95, priority="interim"),
        },
        "speculative_queue_s": {
            "mean": counters.mean(queue, priority="speculative"),
            "p95": counters.quantile(queue, 0.95, priority="speculative"),
        },
        "final_after_endpoint_s": {
            "n": counters.value(after_endpoint + "_count"),
            **{f"p{percent}": counters.quantile(after_endpoint, percent / 100) for percent in (50, 95, 99)},
        },
        "speculative_finals": {
            outcome: counters.value("tutti_speculative_finals_total", outcome=outcome) for outcome in ("used", "unused")
        },
        "windows_done": counters.value("tutti_engine_windows_total", how="done"),
        "windows_superseded": counters.value("tutti_engine_windows_total", how="superseded"),
        "windows_cancelled": counters.value("tutti_engine_windows_total", how="cancelled"),
        "tokens": counters.value("tutti_engine_tokens_total"),
        "draft_tokens": {
            verdict: counters.value("tutti_engine_draft_tokens_total", verdict=verdict)
            for verdict in ("accepted", "rejected")
        },
        "audio_s": counters.value("tutti_engine_audio_seconds_total"),
        "loop_lag_p99_s": counters.quantile("tutti_loop_lag_seconds", 0.99),
    }
