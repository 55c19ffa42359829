"""Live sessions: clients paced like real ones against a server in a process of its own.

    python -m benchmarks.live --streams 1,2,4 --seconds 60 -- --threads 2

What follows `--` goes to `tutti serve`. Exits with 1 when a session failed or a promise of the protocol was broken.
"""

import asyncio
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import uvloop

from benchmarks import machine, plot, report
from benchmarks.live.client import Manner, StreamLog, stream
from benchmarks.live.encodings import format_name, parse_formats
from benchmarks.live.latencies import Delays, measure, problems
from benchmarks.live.network import Network
from benchmarks.live.report import complain, table
from benchmarks.recordings import Recording, as_call, cut, load_bundled, load_folder, with_silence
from benchmarks.scoring import WordErrors, summary, word_summary
from benchmarks.server import RunningServer, running_server
from benchmarks.server_counters import Counters

SCHEMA = 2
TAIL_S = 2.0
"""Silence behind every recording: longer than what ends an utterance, so that the last one is timed like the others."""
STAGGER_S = 0.23
"""Between two connections. No multiple of the chunks' length, so that chunks do not arrive all at once."""
WARM_UP_S = 4.0


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--streams", default="1,2,4,8,16", show_default=True, help="Numbers of clients, one run for each.")
@click.option("--seconds", default=60.0, show_default=True, help="Length of each client's recording.")
@click.option(
    "--audio",
    "folder",
    type=click.Path(path_type=Path),
    help="Folder with a manifest.jsonl. Default: the bundled clips.",
)
@click.option("--kind", default="synth-dialogue", show_default=True, help="Lines of the manifest to use.")
@click.option("--match", default="", help="Use only files with this in their name.")
@click.option("--talk", type=click.FloatRange(0.01, 0.99), help="Share of speech: utterances with pauses between them.")
@click.option("--jitter", "jitter_ms", default=0, show_default=True, help="Delay every chunk by up to so many ms.")
@click.option("--bursts", is_flag=True, help="Now and then hold back 0.5 to 2 s of audio and send it at once.")
@click.option(
    "--disconnects", default=0.0, show_default=True, help="Connections lost and resumed, per minute and client."
)
@click.option(
    "--encodings", default="pcm_s16le", show_default=True, help="ENCODING[@RATE],…: clients take them in turn."
)
@click.option("--seed", default=0, show_default=True, help="For all that happens by chance.")
@click.option("--language", default="en", show_default=True, help="Sent with `start`; empty: detected.")
@click.option("--url", help="Measure this server (http://host:port) instead of starting one.")
@click.option(
    "--json", "path", type=click.Path(path_type=Path), default=Path("build/bench/live.json"), show_default=True
)
@click.option("--plot", "picture", type=click.Path(path_type=Path), help="Draw latencies too: FILE.svg or FILE.png.")
@click.option("--markdown", is_flag=True, help="Print the tables in Markdown.")
@click.argument("serve_arguments", nargs=-1, type=click.UNPROCESSED)
def main(
    streams: str,
    seconds: float,
    folder: Path | None,
    kind: str,
    match: str,
    talk: float | None,
    jitter_ms: int,
    bursts: bool,
    disconnects: float,
    encodings: str,
    seed: int,
    language: str,
    url: str | None,
    path: Path,
    picture: Path | None,
    markdown: bool,
    serve_arguments: tuple[str, ...],
) -> None:
    """Stream recordings at the pace of speech from many clients at once, and measure what comes back."""
    levels = parse_numbers("--streams", streams)
    if picture:
        plot.check_path(picture)
    if url and serve_arguments:
        raise click.UsageError("arguments for `tutti serve` make no sense with --url")
    if folder:
        recordings = [piece for each in load_folder(folder, kind, match) for piece in cut(each, seconds)]
    else:
        recordings = load_bundled(seconds, max(levels))
    if talk:
        sources = (recordings[i % len(recordings)] for i in range(max(levels)))
        recordings = [as_call(source, talk, seconds, seed + i) for i, source in enumerate(sources)]
    recordings = [with_silence(each, TAIL_S) for each in recordings]
    network = Network(jitter_ms / 1000, bursts, disconnects)
    formats = parse_formats(encodings)
    result = {
        "benchmark": "live",
        "schema": SCHEMA,
        **machine.describe(),
        "audio": str(folder or "bundled"),
        "seconds": seconds,
        "talk": talk,
        "network": asdict(network),
        "encodings": [format_name(each) for each in formats],
        "seed": seed,
        "serve_arguments": list(serve_arguments),
        "levels": [],
        "ended_early": None,
    }
    with ExitStack() as stack:
        if url:
            server = RunningServer(url.rstrip("/"), None)
        else:
            # A session whose connection was lost keeps its place until the server has noticed.
            room = ["--max-sessions", str((1 + (disconnects > 0)) * max(levels) + 1)]
            server = stack.enter_context(running_server([*room, *serve_arguments]))
        warm_up(server, language or None)
        for n in levels:
            chosen = [recordings[i % len(recordings)] for i in range(n)]
            manners = [Manner(formats[i % len(formats)], network, seed + i) for i in range(n)]
            print(f"{n} streams, {max(each.audio_s for each in chosen):.0f} s …", file=sys.stderr, flush=True)
            try:
                result["levels"].append(uvloop.run(run_level(server, chosen, language or None, manners)))
            except OSError as error:
                # What was measured before is still worth writing.
                result["ended_early"] = f"{n} streams: the server no longer answers: {error}"
                break
    report.show([table(result)], result, as_markdown=markdown, path=path)
    if picture:
        plot.draw([result], picture)
    complaints = complain(result)
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    if result["ended_early"] or any(level["failed"] for level in result["levels"]):
        sys.exit(1)


def warm_up(server: RunningServer, language: str | None) -> None:
    """One short session, so that the first measured one does not pay for what happens once.

    Raises:
        ClickException: there is no server.
    """
    try:
        uvloop.run(run_level(server, load_bundled(WARM_UP_S, 1), language))
    except OSError as error:
        raise click.ClickException(f"no server at {server.url}: {error}") from error


async def run_level(
    server: RunningServer,
    recordings: list[Recording],
    language: str | None,
    manners: list[Manner] | None = None,
) -> dict[str, Any]:
    """One client for each recording, and everything that was measured meanwhile."""
    manners = manners or [Manner()] * len(recordings)
    logs = [StreamLog(recording) for recording in recordings]
    before = await _snapshot(server)
    async with asyncio.TaskGroup() as tasks:
        for index, (log, manner) in enumerate(zip(logs, manners, strict=True)):
            tasks.create_task(stream(server.url, log, language=language, delay_s=index * STAGGER_S, manner=manner))
    after = await _snapshot(server)
    return {**level_result(logs, before, after), "by_encoding": by_encoding(logs, manners)}


def by_encoding(logs: list[StreamLog], manners: list[Manner]) -> dict[str, Any]:
    """What became of each encoding that clients sent."""
    errors: dict[str, WordErrors] = {}
    for log, manner in zip(logs, manners, strict=True):
        name = format_name(manner.format)
        errors[name] = errors.get(name, WordErrors()) + measure(log).errors
    return {
        name: {"words": each.words, "wer": each.rate, "missing": each.missing_rate} for name, each in errors.items()
    }


class _Snapshot:
    """The machine, the server and this process at one moment."""

    def __init__(self, server: RunningServer, metrics: str) -> None:
        self.at = time.monotonic()
        self.counters = Counters.parse(metrics)
        self.server = machine.Usage.of(server.pid) if server.pid else None
        self.generator_cpu_s = time.process_time()
        self.busy_s = machine.busy_s()


async def _snapshot(server: RunningServer) -> _Snapshot:
    return _Snapshot(server, await asyncio.to_thread(server.fetch, "/metrics"))


def level_result(logs: list[StreamLog], before: _Snapshot, after: _Snapshot) -> dict[str, Any]:
    total = Delays()
    for log in logs:
        total.add(measure(log))
    troubles = [problems(log) for log in logs]
    audio_s = sum(log.recording.audio_s for log in logs)
    wall_s = after.at - before.at
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
        "failed": sum(bool(each) for each in troubles),
        "problems": [f"stream {i}: {what}" for i, each in enumerate(troubles) for what in each],
        "first_text_s": summary(total.first_text_s),
        "interim_lag_s": summary(total.interim_lag_s),
        "final_s": summary(total.final_s),
        "final_true_s": summary(total.final_true_s),
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


def engine_figures(counters: Counters) -> dict[str, Any]:
    """From the server's own counters; histograms are read off between the edges of their buckets."""
    queue = "tutti_engine_queue_seconds"
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


def parse_numbers(option: str, text: str) -> list[int]:
    """Numbers from a list such as "1,2,4".

    Raises:
        BadParameter: it is not one.
    """
    try:
        numbers = [int(each) for each in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise click.BadParameter(f"expected numbers such as 1,2,4, got {text!r}", param_hint=option)
    return numbers
