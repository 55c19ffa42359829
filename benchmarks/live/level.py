"""Runs one number of live clients against a server, and measures the server, the clients and the machine meanwhile."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import click
import uvloop

import tutti
from benchmarks import machine
from benchmarks.live.client import ClientLog, StreamLog, stream
from benchmarks.live.latencies import DELAYS, Latencies, measure, problems
from benchmarks.recordings import Recording, load_bundled
from benchmarks.scoring import summary, word_summary
from benchmarks.server import RunningServer

STAGGER_S = 0.23
"""Seconds between two clients' starts.

It is no multiple of the chunk length, so that chunks do not arrive all at once.
"""
WARM_UP_S = 4.0
LATE_S = 0.1
"""A load generator that is later than this (one chunk, in seconds) makes the figures worse than the server's."""


def warm_up(server: RunningServer) -> None:
    """Run one short session, so that the first measured session does not pay for one-time costs."""
    level = uvloop.run(run_level(server, load_bundled(WARM_UP_S, 1)))
    if level["problems"]:
        raise click.ClickException(f"{server.url}: {level['problems'][0]}")


async def run_level(
    server: RunningServer,
    recordings: list[Recording],
    endpointing: tutti.EndpointingMode | None = "vad",
) -> dict[str, Any]:
    """Run one client for each recording and return all figures of this level."""
    logs = [StreamLog(recording=recording) for recording in recordings]
    before = Snapshot(server)
    async with asyncio.TaskGroup() as tasks:
        for index, log in enumerate(logs):
            delay_s = index * STAGGER_S
            tasks.create_task(stream(server.url, log, delay_s=delay_s, endpointing=endpointing))
    return level_result(logs, usage(logs, before, Snapshot(server)))


class Snapshot:
    """The use of the machine by a server and by this process at one moment."""

    def __init__(self, server: RunningServer) -> None:
        self.taken_at = time.monotonic()
        self.server_cpu_s = machine.family_cpu_s(server.pid)
        self.server_rss_mib = machine.rss_mib(server.pid)
        self.generator_s = time.process_time()
        self.busy_s = machine.busy_s()


def usage(logs: Sequence[ClientLog], before: Snapshot, after: Snapshot) -> dict[str, Any]:
    """What the server, the clients and other processes used of the machine between two moments."""
    audio_s = sum(log.recording.audio_s for log in logs)
    generator_s = after.generator_s - before.generator_s
    server_s = others_s = None
    if before.server_cpu_s is not None and after.server_cpu_s is not None:
        server_s = after.server_cpu_s - before.server_cpu_s
    if server_s is not None and before.busy_s is not None and after.busy_s is not None:
        others_s = max(after.busy_s - before.busy_s - server_s - generator_s, 0.0)
    return {
        "audio_s": audio_s,
        "server": {
            "cpu_s_per_audio_s": None if server_s is None else server_s / audio_s,
            "rss_mib": after.server_rss_mib,
        },
        "generator_late_s": summary([late for log in logs for late in log.late_s]),
        "others_cores": None if others_s is None else others_s / (after.taken_at - before.taken_at),
    }


def level_result(logs: list[StreamLog], used: dict[str, Any]) -> dict[str, Any]:
    """The figures of one level, as the result file holds them."""
    total = Latencies()
    for log in logs:
        total.add(measure(log))
    problems_by_log = [problems(log) for log in logs]
    return {
        "streams": len(logs),
        "recordings": [log.recording.name for log in logs],
        "failed": sum(bool(each) for each in problems_by_log),
        "problems": [f"stream {i}: {what}" for i, each in enumerate(problems_by_log) for what in each],
        **{name: summary(getattr(total, name)) for name in DELAYS},
        "word_seen_s": word_summary(total.words.seen_s),
        "word_shown_s": word_summary(total.words.shown_s),
        "word_stable_s": word_summary(total.words.stable_s),
        "words": total.errors.words,
        "wer": total.errors.rate,
        "missing": total.errors.missing_rate,
        "revised_per_word": total.words.n_revised / total.errors.words if total.errors.words else None,
        **used,
    }


def late_text(late_s: dict[str, Any]) -> list[str]:
    if (late_s["max"] or 0.0) <= LATE_S:
        return []
    return [f"the load generator was up to {late_s['max']:.2f} s late; the figures are worse than the server's"]
