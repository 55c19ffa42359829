"""Streams hours of audio through one session, faster than real time, to see whether its cost stays constant.

    python -m benchmarks.soak --hours 8 --pace 20 -- --threads 2

The table has a column for each hour of audio. If the engine cannot keep up with the pace, there are no interims,
because finals go first; a lower pace shows interims too. Arguments after `--` go to `tutti serve`. The command exits
with 1 when the session failed.
"""

import asyncio
import itertools
import sys
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import uvloop

import tutti
from benchmarks import machine, report
from benchmarks.live.client import CHUNK_SAMPLES, describe_error
from benchmarks.live.level import warm_up
from benchmarks.options import benchmark_command, result_options, serve_arguments_argument
from benchmarks.recordings import PCM_16K, load_bundled, to_pcm, with_silence
from benchmarks.report import Table, number
from benchmarks.server import ADMIT_ALL, RunningServer, running_server
from benchmarks.server_counters import Counters
from tutti_server.app.media.pcm import Samples
from tutti_server.engine.api import SAMPLE_RATE

PERIOD_S = 3600.0
"""Seconds of audio for each column."""
LOOP_S = 300.0
"""Seconds of audio that are repeated. All periods hold the same audio, so that only time makes them differ."""
PAUSE_S = 2.0
"""Seconds of silence between two repetitions."""
GRACE_S = 600.0
"""A session that takes this many seconds longer than its audio takes in real time has failed."""
STOP_TIMEOUT_S = 120.0
"""How long the client waits for the last finals, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    samples: Samples
    audio_s: float
    pace: float
    """Speed as a multiple of real time.

    It is lower if the engine cannot keep up, because the server then stops reading.
    """
    period_s: float
    """Seconds of audio in each row. The last row may be up to half as long again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Snapshot:
    taken_at: float
    sent_s: float
    counters: Counters
    cpu_s: float | None
    rss_mib: float | None
    n_interims: int
    n_words: int


@benchmark_command()
@click.option("--hours", default=8.0, show_default=True, help="Hours of audio.")
@click.option("--pace", default=20.0, show_default=True, help="Speed of the audio, as a multiple of real time.")
@result_options("soak")
@serve_arguments_argument
def main(
    hours: float,
    pace: float,
    path: Path,
    markdown: bool,
    serve_arguments: tuple[str, ...],
) -> None:
    """Stream hours of audio through one session, and measure the cost of each hour."""
    if min(hours, pace) <= 0:
        raise click.UsageError("--hours and --pace: expected numbers above 0")
    (recording,) = load_bundled(LOOP_S, 1)
    samples = with_silence(recording, PAUSE_S).samples
    plan = Plan(samples=samples, audio_s=hours * 3600, pace=pace, period_s=PERIOD_S)
    result = {**machine.describe(), "hours": hours, "pace": pace}
    # At the end the session is almost as far ahead of the clock as it is long. Clients use only a part of the
    # limit and send at the pace of speech beyond it, so the limit is twice the length.
    ahead = ["--max-ahead-s", str(2 * plan.audio_s + GRACE_S)]
    with running_server([*ADMIT_ALL, *ahead, *serve_arguments]) as server:
        warm_up(server)
        result |= uvloop.run(soak(server, plan, _print_row))
    complaints = [result["failure"]] if result["failure"] else []
    report.finish([table(result)], result, complaints, as_markdown=markdown, path=path)


async def soak(server: RunningServer, plan: Plan, on_row: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Run one session, and call `on_row` with the figures of each period. The last one ends with the session."""
    session = _SoakSession(server, plan, on_row)
    failure: str | None = None
    try:
        async with asyncio.timeout(plan.audio_s / min(plan.pace, 1.0) + GRACE_S):
            await session.run()
    except (tutti.TuttiError, TimeoutError, OSError) as error:
        failure = describe_error(error)
    return {"rows": session.rows, "failure": failure}


class _SoakSession:
    """One session and the figures of its periods so far."""

    def __init__(self, server: RunningServer, plan: Plan, on_row: Callable[[dict[str, Any]], None]) -> None:
        self.rows: list[dict[str, Any]] = []
        self._server = server
        self._plan = plan
        self._on_row = on_row
        self._sent_s = 0.0
        self._n_interims = self._n_words = 0
        self._last: _Snapshot | None = None

    async def run(self) -> None:
        self._last = await self._take_snapshot()
        async with tutti.connect(
            self._server.url,
            language="en",
            endpointing="vad",
            proxy=None,
            stop_timeout_s=STOP_TIMEOUT_S,
            # A loss is a failure of the run.
            resume_buffer_s=0,
        ) as session:
            pace = tutti.Pace(self._plan.pace, session.started.limits.max_ahead_s)
            async for event in session.stream(tutti.paced(self._chunks(), PCM_16K, pace)):
                match event:
                    case tutti.Interim():
                        self._n_interims += 1
                    case tutti.Utterance():
                        self._n_words += len(event.text.split())
                    case _:
                        pass
        await self._end_row()

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        data = to_pcm(self._plan.samples)
        size = 2 * CHUNK_SAMPLES
        next_s = self._plan.period_s
        for begin in itertools.cycle(range(0, len(data), size)):
            chunk = data[begin : begin + size]
            yield chunk
            self._sent_s += len(chunk) / 2 / SAMPLE_RATE
            left_s = self._plan.audio_s - self._sent_s
            if left_s <= 0:
                return
            if self._sent_s >= next_s and left_s >= self._plan.period_s / 2:
                next_s += self._plan.period_s
                await self._end_row()

    async def _end_row(self) -> None:
        before, after = self._last, await self._take_snapshot()
        assert before
        self._last = after
        self.rows.append(row(before, after))
        self._on_row(self.rows[-1])

    async def _take_snapshot(self) -> _Snapshot:
        metrics = await asyncio.to_thread(self._server.fetch, "/metrics")
        return _Snapshot(
            taken_at=time.monotonic(),
            sent_s=self._sent_s,
            counters=Counters.parse(metrics),
            cpu_s=machine.family_cpu_s(self._server.pid),
            rss_mib=machine.rss_mib(self._server.pid),
            n_interims=self._n_interims,
            n_words=self._n_words,
        )


def row(before: _Snapshot, after: _Snapshot) -> dict[str, Any]:
    audio_s = after.sent_s - before.sent_s
    counters = after.counters - before.counters
    cpu_s = None if before.cpu_s is None or after.cpu_s is None else after.cpu_s - before.cpu_s
    return {
        "until_s": round(after.sent_s, 3),
        "audio_s": round(audio_s, 3),
        "pace": audio_s / (after.taken_at - before.taken_at),
        "server": {
            "rss_mib": after.rss_mib,
            "cpu_s_per_audio_s": None if cpu_s is None else cpu_s / audio_s,
        },
        "engine": {
            "step_s": counters.mean("tutti_engine_step_seconds"),
            "encode_s": counters.mean("tutti_engine_encode_seconds"),
        },
        "final_s": counters.mean("tutti_final_latency_seconds"),
        "interims": after.n_interims - before.n_interims,
        "words": after.n_words - before.n_words,
    }


def table(result: dict[str, Any]) -> Table:
    """The table: one column for each period, so that constant figures are easy to see."""
    rows = result["rows"]
    return Table(
        f"One session of {result['hours']:g} h at {result['pace']:g} times the pace of speech",
        ("until", *(_clock(each["until_s"]) for each in rows)),
        [(name, *(read(each) for each in rows)) for name, read in ROWS.items()],
    )


def _clock(seconds: float) -> str:
    return f"{seconds / 3600:.4g} h"


def _ms(seconds: float | None) -> str:
    return number(None if seconds is None else seconds * 1000)


ROWS: dict[str, Callable[[dict[str, Any]], str]] = {
    "server RSS MiB": lambda each: number(each["server"]["rss_mib"], 1),
    "server CPU s per audio s": lambda each: number(each["server"]["cpu_s_per_audio_s"], 4),
    "engine step, mean ms": lambda each: _ms(each["engine"]["step_s"]),
    "encoder call, mean ms": lambda each: _ms(each["engine"]["encode_s"]),
    "final after end of speech, mean s": lambda each: number(each["final_s"]),
    "interims": lambda each: str(each["interims"]),
    "words": lambda each: str(each["words"]),
    "pace": lambda each: number(each["pace"], 1),
}


def _print_row(each: dict[str, Any]) -> None:
    figures = (f"{name} {read(each)}" for name, read in ROWS.items())
    print(f"{_clock(each['until_s'])}: {', '.join(figures)}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
