"""Measures the memory of a server over thousands of short sessions, aborted uploads and overload, and afterwards.

    python -m benchmarks.memory --sessions 5000

The memory is that of all processes of the server, once a second: its mean and its peak. A first, small load comes
before the others: it brings what every server takes that has worked once. The table has a row for each tenth of the
sessions, and for each stage after them. Memory that a stage took and that the server does not give back when it is idle
is a fault. Arguments after `--` go to `tutti serve`. The command exits with 1 when a session failed.
"""

import asyncio
import itertools
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import uvloop

import tutti
from benchmarks import machine, report
from benchmarks.files.endpoint import PATH, side_by_side
from benchmarks.files.labelled_clips import samples_to_wav
from benchmarks.live.client import chunks_of, describe_error
from benchmarks.options import benchmark_command, result_options, serve_arguments_argument
from benchmarks.recordings import PCM_16K, Recording, load_bundled
from benchmarks.report import Table, number
from benchmarks.server import RunningServer, running_server
from tutti_server.app.media.pcm import Samples
from tutti_server.engine.api import SAMPLE_RATE

CLIP_S = 30.0
"""Seconds of each recording of which clips are cut."""
N_RECORDINGS = 8
N_CLIENTS = 4
"""Clients of the short sessions and of the uploads."""
N_ROWS = 10
"""The number of parts into which the short sessions are divided; each has a mean and a peak of the memory."""
SAMPLE_PERIOD_S = 1.0
OVERLOAD_PACE = 4.0
"""The speed of the sessions of the overload, as a multiple of real time."""
TIMEOUT_S = 300.0
"""A session that takes longer has failed."""
GENEROUS = (
    *("--max-sessions", "1000", "--max-final-wait-s", "1000", "--max-uploads", "1000"),
    *("--final-deadline-s", str(TIMEOUT_S)),
)
"""Settings of the server that refuse nothing, so that the overload is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    n_warm_up: int
    n_sessions: int
    """Short sessions, one after another for each client."""
    shortest_s: float
    longest_s: float
    n_uploads: int
    """Uploads whose clients leave, in the middle of the file or before the answer."""
    n_overload: int
    """Sessions at the same time, of `CLIP_S` each."""
    n_after: int
    """Short sessions directly after these, by one client: what is given back although there is work."""
    idle_s: float
    """How long nothing happens after each stage, in seconds."""


@benchmark_command()
@click.option("--warm-up", "n_warm_up", default=100, show_default=True, help="Short sessions before all others.")
@click.option("--sessions", "n_sessions", default=2000, show_default=True, help="Short sessions.")
@click.option(
    "--shortest", "shortest_s", default=2.0, show_default=True, help="The least seconds of audio of a short session."
)
@click.option(
    "--longest", "longest_s", default=8.0, show_default=True, help="The greatest seconds of audio of a short session."
)
@click.option("--uploads", "n_uploads", default=300, show_default=True, help="Uploads that are aborted.")
@click.option(
    "--overload",
    "n_overload",
    default=64,
    show_default=True,
    help="Sessions at the same time, at four times real time.",
)
@click.option("--after", "n_after", default=0, show_default=True, help="Short sessions of one client after these.")
@click.option("--idle", "idle_s", default=30.0, show_default=True, help="Seconds without any work after each stage.")
@result_options("memory")
@serve_arguments_argument
def main(path: Path, markdown: bool, serve_arguments: tuple[str, ...], **options: Any) -> None:
    """Measure the memory of a server under loads of several kinds, and when it is idle after them."""
    load = Load(**options)
    if min(load.n_warm_up, load.n_sessions, load.n_uploads, load.n_overload, load.n_after) < 0:
        raise click.UsageError("--warm-up, --sessions, --uploads, --overload and --after: expected 0 or more")
    if not 0 < load.shortest_s <= load.longest_s <= CLIP_S:
        raise click.UsageError(f"--shortest and --longest: expected 0 < shortest <= longest <= {CLIP_S:g}")
    recordings = load_bundled(CLIP_S, N_RECORDINGS)
    with running_server([*GENEROUS, *serve_arguments]) as server:
        stages = Stages(server, load, recordings)
        uvloop.run(stages.run())
    result = {**machine.describe(), "rows": stages.rows, "failures": stages.failures}
    report.finish([table(result)], result, stages.failures[:5], as_markdown=markdown, path=path)


class Stages:
    """The stages of one run, and the rows so far."""

    def __init__(self, server: RunningServer, load: Load, recordings: Sequence[Recording]) -> None:
        self.rows: list[dict[str, Any]] = []
        self.failures: list[str] = []
        self._server = server
        self._load = load
        self._audio = [each.samples for each in recordings]
        self._files = [samples_to_wav(each.samples) for each in recordings]
        self._random = random.Random(1)
        self._samples: list[float] = []
        """The memory since the last row, in MiB."""

    async def run(self) -> None:
        sampling = asyncio.create_task(self._sample())
        try:
            await self._run()
        finally:
            sampling.cancel()

    async def _run(self) -> None:
        load = self._load
        await self._idle("at start")
        if load.n_warm_up:
            await self._short_sessions(0, load.n_warm_up)
            self._add_row(f"{load.n_warm_up} sessions to warm up")
            await self._idle("idle")
        n_done = 0
        n_points = min(N_ROWS, load.n_sessions)
        for point in range(1, n_points + 1):
            n_until = load.n_sessions * point // n_points
            await self._short_sessions(n_done, n_until)
            n_done = n_until
            self._add_row(f"{n_done} short sessions", n_done)
        if load.n_sessions:
            await self._idle("idle")
        if load.n_uploads:
            await side_by_side(range(load.n_uploads), N_CLIENTS, self._aborted_upload)
            self._add_row(f"{load.n_uploads} aborted uploads")
            await self._idle("idle")
        if load.n_overload:
            await side_by_side(range(load.n_overload), load.n_overload, self._long_session)
            self._add_row(f"{load.n_overload} sessions at once")
            if load.n_after:
                await side_by_side(range(load.n_after), 1, self._short_session)
                self._add_row(f"{load.n_after} short sessions of one client")
            await self._idle("idle")

    async def _short_sessions(self, begin: int, end: int) -> None:
        await side_by_side(range(begin, end), N_CLIENTS, self._short_session)

    async def _short_session(self, index: int) -> None:
        """Send a clip as fast as possible."""
        audio = self._audio[index % len(self._audio)]
        n_samples = int(self._random.uniform(self._load.shortest_s, self._load.longest_s) * SAMPLE_RATE)
        begin = self._random.randrange(max(1, len(audio) - n_samples))
        await self._session(audio[begin : begin + n_samples], tutti.Pace(1000.0, CLIP_S * 2))

    async def _long_session(self, index: int) -> None:
        await self._session(self._audio[index % len(self._audio)], tutti.Pace(OVERLOAD_PACE, CLIP_S * 2))

    async def _session(self, audio: Samples, pace: tutti.Pace) -> None:
        try:
            async with (
                asyncio.timeout(TIMEOUT_S),
                tutti.connect(
                    self._server.url,
                    language="en",
                    # With a fixed silence the number of windows does not depend on how soon the engine answers.
                    endpointing="vad",
                    proxy=None,
                    stop_timeout_s=TIMEOUT_S,
                    # A loss is a failure of the run.
                    resume_buffer_s=0,
                ) as session,
            ):
                async for _ in session.stream(tutti.paced(chunks_of(audio), PCM_16K, pace)):
                    pass
        except (tutti.TuttiError, TimeoutError, OSError) as error:
            self.failures.append(describe_error(error))

    async def _aborted_upload(self, index: int) -> None:
        """Send a part of a file, or all of it, and leave before the answer."""
        file = self._files[index % len(self._files)]
        body = _multipart(file)
        n_sent = len(body) if index % 2 else self._random.randrange(len(body))
        address = urlsplit(self._server.url)
        head = (
            f"POST {PATH} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Length: {len(body)}\r\n"
            f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n\r\n"
        )
        try:
            _, writer = await asyncio.open_connection(address.hostname, address.port)
            try:
                writer.write(head.encode() + body[:n_sent])
                await writer.drain()
                # A moment for the server to begin: to read the rest of what came, to decode, to transcribe.
                await asyncio.sleep(self._random.uniform(0, 0.3))
            finally:
                writer.transport.abort()
        except OSError as error:
            self.failures.append(f"upload: {describe_error(error)}")

    async def _idle(self, name: str) -> None:
        """Wait, then measure once: what the server gave back in the meantime does not count."""
        await asyncio.sleep(self._load.idle_s)
        self._samples.clear()
        self._add_row(name)

    async def _sample(self) -> None:
        """Measure the memory again and again, until cancelled."""
        while True:
            self._measure_once()
            await asyncio.sleep(SAMPLE_PERIOD_S)

    def _measure_once(self) -> None:
        mib = machine.family_memory_mib(self._server.pid)
        if mib is not None:
            self._samples.append(mib)

    def _add_row(self, name: str, n_sessions: int | None = None) -> None:
        """Add the memory since the last row. `n_sessions`: the short sessions so far, in a row of the curve."""
        self._measure_once()
        samples = self._samples
        row: dict[str, Any] = {
            "after": name,
            "at_s": time.monotonic(),
            "n_sessions": n_sessions,
            "n_processes": len(machine.family(self._server.pid)),
            "memory_mib": statistics.fmean(samples) if samples else None,
            "peak_mib": max(samples, default=None),
        }
        samples.clear()
        self.rows.append(row)
        print(f"{name}: {number(row['memory_mib'], 0)} MiB", file=sys.stderr, flush=True)


BOUNDARY = "tutti"


def _multipart(file: bytes) -> bytes:
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="speech.wav"\r\n\r\n'
    model = f'\r\n--{BOUNDARY}\r\nContent-Disposition: form-data; name="model"\r\n\r\ntutti\r\n--{BOUNDARY}--\r\n'
    return head.encode() + file + model.encode()


def table(result: dict[str, Any]) -> Table:
    """The table: a row for each stage and moment at which the memory was measured."""
    rows = result["rows"]
    start_mib = rows[0]["memory_mib"]
    warm_mib = next((row["memory_mib"] for row in rows if row["after"] == "idle"), None)
    changes = [0.0, *(after["at_s"] - before["at_s"] for before, after in itertools.pairwise(rows))]

    def compared(row: dict[str, Any], with_mib: float | None) -> str:
        return number(row["memory_mib"] / with_mib if with_mib else None)

    return Table(
        "Memory of a server",
        ("after", "took, s", "processes", "memory, MiB", "peak, MiB", "of the start", "of the first idle"),
        [
            (
                row["after"],
                number(took_s, 0),
                str(row["n_processes"]),
                number(row["memory_mib"], 0),
                number(row["peak_mib"], 0),
                compared(row, start_mib),
                compared(row, warm_mib),
            )
            for row, took_s in zip(rows, changes, strict=True)
        ],
    )


if __name__ == "__main__":
    main()
