"""Hours of audio in one session, faster than it is spoken: whether it costs at its end what it cost at its beginning.

    python -m benchmarks.soak --hours 8 --pace 20 -- --threads 2

A column for each hour of audio. Where the engine does not keep up with the pace there are no interims, as finals come
first: a lower one shows those too. What follows `--` goes to `tutti serve`. Exits with 1 when the session failed.
"""

import asyncio
import itertools
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import uvloop

import tutti
from app.media.pcm import Samples
from benchmarks import machine, report
from benchmarks.live.client import described
from benchmarks.live.encodings import PLAIN, encode
from benchmarks.live.streams import warm_up
from benchmarks.recordings import load_bundled, load_folder, with_silence
from benchmarks.report import Table, number
from benchmarks.server import RunningServer, running_server
from benchmarks.server_counters import Counters
from engine.api import SAMPLE_RATE

SCHEMA = 1
LOOP_S = 300.0
"""Length of what is said over and over. The last row differs from the first for no other reason than its time."""
PAUSE_S = 2.0
CHUNK_SAMPLES = SAMPLE_RATE // 10
GRACE_S = 600.0
"""A session that takes so much longer than its audio takes at the pace of speech has failed."""
STOP_TIMEOUT_S = 120.0


@dataclass(slots=True)
class Plan:
    """What one session is sent."""

    samples: Samples
    """Again and again."""
    audio_s: float
    pace: float
    """Times real time; less where the engine does not keep up, as the server then stops reading."""
    period_s: float
    """Of audio, from one row to the next; the last one may be half as long again."""
    language: str | None = "en"
    endpointing: tutti.EndpointingMode = "vad"


@dataclass(frozen=True, slots=True)
class _Mark:
    """The session and the server at one moment."""

    at: float
    sent_s: float
    counters: Counters
    server: machine.Usage | None
    busy_s: float | None
    n_interims: int
    n_utterances: int
    n_words: int


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--hours", default=8.0, show_default=True, help="Of audio.")
@click.option("--pace", default=20.0, show_default=True, help="Times real time.")
@click.option("--every", "period_s", default=3600.0, show_default=True, help="Seconds of audio from row to row.")
@click.option(
    "--audio",
    "folder",
    type=click.Path(path_type=Path),
    help="Folder with a manifest.jsonl. Default: the bundled clips.",
)
@click.option("--kind", default="synth-dialogue", show_default=True, help="Lines of the manifest to use.")
@click.option("--match", default="", help="Use only files with this in their name.")
@click.option("--language", default="en", show_default=True, help="Sent with `start`; empty: detected.")
@click.option("--endpointing", type=click.Choice(["vad", "manual"]), default="vad", show_default=True)
@click.option(
    "--url",
    help="Measure this server (http://host:port; with --max-ahead-s of twice the length), start none.",
)
@click.option(
    "--json", "path", type=click.Path(path_type=Path), default=Path("build/bench/soak.json"), show_default=True
)
@click.option("--markdown", is_flag=True, help="Print the table in Markdown.")
@click.argument("serve_arguments", nargs=-1, type=click.UNPROCESSED)
def main(
    hours: float,
    pace: float,
    period_s: float,
    folder: Path | None,
    kind: str,
    match: str,
    language: str,
    endpointing: tutti.EndpointingMode,
    url: str | None,
    path: Path,
    markdown: bool,
    serve_arguments: tuple[str, ...],
) -> None:
    """Stream hours of audio through one session, and measure what each of them takes."""
    if url and serve_arguments:
        raise click.UsageError("arguments for `tutti serve` make no sense with --url")
    if min(hours, pace, period_s) <= 0:
        raise click.UsageError("--hours, --pace and --every: expected numbers above 0")
    recordings = load_folder(folder, kind, match) if folder else load_bundled(LOOP_S, 1)
    said = with_silence(next(iter(recordings)), PAUSE_S)
    plan = Plan(said.samples, hours * 3600, pace, period_s, language or None, endpointing)
    result = {
        "benchmark": "soak",
        "schema": SCHEMA,
        **machine.describe(),
        "audio": said.name,
        "loop_s": said.audio_s,
        "hours": hours,
        "pace": pace,
        "endpointing": endpointing,
        "serve_arguments": list(serve_arguments),
    }
    with ExitStack() as stack:
        if url:
            server = RunningServer(url.rstrip("/"), None)
        else:
            # It is as far ahead of the clock at its end as it is long.
            # Clients keep to a part of it; beyond, they would go on at the pace of speech.
            ahead = ["--max-ahead-s", str(2 * plan.audio_s + GRACE_S)]
            server = stack.enter_context(running_server([*ahead, *serve_arguments]))
        warm_up(server, language or None)
        result |= uvloop.run(soak(server, plan, _tell))
    report.show([table(result)], result, as_markdown=markdown, path=path)
    if result["failure"]:
        print(result["failure"], file=sys.stderr)
        sys.exit(1)


async def soak(server: RunningServer, plan: Plan, tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """One session; a row for each period is told as soon as it is over, the last one when all is final."""
    session = _Soak(server, plan, tell)
    failure: str | None = None
    try:
        async with asyncio.timeout(plan.audio_s / min(plan.pace, 1.0) + GRACE_S):
            await session.run()
    except (tutti.TuttiError, TimeoutError, OSError) as error:
        failure = described(error)
    return {"rows": session.rows, "failure": failure}


class _Soak:
    def __init__(self, server: RunningServer, plan: Plan, tell: Callable[[dict[str, Any]], None]) -> None:
        self.rows: list[dict[str, Any]] = []
        self._server = server
        self._plan = plan
        self._tell = tell
        self._sent_s = 0.0
        self._n_interims = self._n_utterances = self._n_words = 0
        self._last: _Mark | None = None

    async def run(self) -> None:
        self._last = await self._mark()
        async with tutti.connect(
            self._server.url,
            language=self._plan.language,
            endpointing=self._plan.endpointing,
            proxy=None,
            stop_timeout_s=STOP_TIMEOUT_S,
        ) as session:
            pace = tutti.Pace(self._plan.pace, session.started.limits.max_ahead_s)
            async for event in session.stream(tutti.paced(self._chunks(), PLAIN, pace)):
                match event:
                    case tutti.Interim():
                        self._n_interims += 1
                    case tutti.Utterance():
                        self._n_utterances += 1
                        self._n_words += len(event.text.split())
                    case _:
                        pass
        await self._end_row()

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        data = encode(self._plan.samples, PLAIN)
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
        before, after = self._last, await self._mark()
        assert before
        self._last = after
        self.rows.append(row(before, after))
        self._tell(self.rows[-1])

    async def _mark(self) -> _Mark:
        metrics = await asyncio.to_thread(self._server.fetch, "/metrics")
        return _Mark(
            time.monotonic(),
            self._sent_s,
            Counters.parse(metrics),
            machine.Usage.of(self._server.pid) if self._server.pid else None,
            machine.busy_s(),
            self._n_interims,
            self._n_utterances,
            self._n_words,
        )


def row(before: _Mark, after: _Mark) -> dict[str, Any]:
    """What happened between two moments."""
    audio_s, wall_s = after.sent_s - before.sent_s, after.at - before.at
    counters = after.counters - before.counters
    cpu_s = after.server.cpu_s - before.server.cpu_s if before.server and after.server else None
    return {
        "until_s": round(after.sent_s, 3),
        "audio_s": round(audio_s, 3),
        "wall_s": wall_s,
        "pace": audio_s / wall_s,
        "server": {
            "rss_mib": after.server and after.server.rss_mib,
            "cpu_s_per_audio_s": None if cpu_s is None else cpu_s / audio_s,
        },
        "engine": {
            "step_s": counters.mean("tutti_engine_step_seconds"),
            "encode_s": counters.mean("tutti_engine_encode_seconds"),
            "windows_done": counters.value("tutti_engine_windows_total", how="done"),
        },
        "interim_lag_s": {
            "mean": counters.mean("tutti_interim_lag_seconds"),
            "p95": counters.quantile("tutti_interim_lag_seconds", 0.95),
        },
        "final_s": counters.mean("tutti_final_latency_seconds"),
        "loop_lag_s": counters.mean("tutti_loop_lag_seconds"),
        "interims": after.n_interims - before.n_interims,
        "utterances": after.n_utterances - before.n_utterances,
        "words": after.n_words - before.n_words,
        "busy_cores": (after.busy_s - before.busy_s) / wall_s if before.busy_s and after.busy_s else None,
    }


def table(result: dict[str, Any]) -> Table:
    """A column for each period, so that what is flat is seen to be."""
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
    "interim lag, mean s": lambda each: number(each["interim_lag_s"]["mean"]),
    "interim lag, p95 s": lambda each: number(each["interim_lag_s"]["p95"]),
    "final after end of speech, mean s": lambda each: number(each["final_s"]),
    "event loop late, mean ms": lambda each: _ms(each["loop_lag_s"]),
    "windows decoded": lambda each: number(each["engine"]["windows_done"], 0),
    "interims": lambda each: str(each["interims"]),
    "utterances": lambda each: str(each["utterances"]),
    "words": lambda each: str(each["words"]),
    "pace": lambda each: number(each["pace"], 1),
    "busy cores of the machine": lambda each: number(each["busy_cores"]),
}


def _tell(each: dict[str, Any]) -> None:
    figures = (f"{name} {read(each)}" for name, read in itertools.islice(ROWS.items(), 6))
    print(f"{_clock(each['until_s'])}: {', '.join(figures)}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
