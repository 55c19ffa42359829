"""The command `benchmarks.live`: many clients stream at the pace of speech to a server in its own process.

    python -m benchmarks.live --streams 1,2,4 --seconds 60 -- --threads 2

Arguments after `--` go to `tutti serve`. The command exits with 1 when a session failed or a guarantee of the protocol
was broken.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import click
import uvloop

import tutti
from benchmarks import machine, report
from benchmarks.live.level import late_text, run_level, warm_up
from benchmarks.options import (
    audio_option,
    benchmark_command,
    parse_numbers,
    result_options,
    serve_arguments_argument,
)
from benchmarks.recordings import load_recordings, with_silence
from benchmarks.report import Table, number, percent, spread
from benchmarks.server import ADMIT_ALL, running_server

TAIL_S = 2.0
"""Seconds of silence after each recording: longer than the silence that ends an utterance."""


@benchmark_command(needs=("transformers",))
@click.option(
    "--streams", default="1,2,4,8,16", show_default=True, help="Numbers of clients. Each number is a run of its own."
)
@click.option("--seconds", default=60.0, show_default=True, help="Length of each client's recording, in seconds.")
@audio_option
@click.option(
    "--endpointing",
    type=click.Choice(["vad", "adaptive", "auto"]),
    default="vad",
    show_default=True,
    help="When utterances end. auto: as for a client that leaves it to the server.",
)
@result_options("live")
@serve_arguments_argument
def main(
    streams: str,
    seconds: float,
    folder: Path | None,
    endpointing: str,
    path: Path,
    markdown: bool,
    serve_arguments: tuple[str, ...],
) -> None:
    """Stream recordings at the pace of speech from many clients at once, and measure latencies and word errors."""
    levels = parse_numbers("--streams", streams)
    recordings = [with_silence(each, TAIL_S) for each in load_recordings(folder, seconds=seconds, n=max(levels))]
    mode = None if endpointing == "auto" else cast(tutti.EndpointingMode, endpointing)
    result: dict[str, Any] = {**machine.describe(), "levels": []}
    own = ["--max-sessions", str(max(levels) + 1), *ADMIT_ALL]
    with running_server([*own, *serve_arguments]) as server:
        warm_up(server)
        for n in levels:
            chosen = [recordings[i % len(recordings)] for i in range(n)]
            print(f"{n} streams, {max(each.audio_s for each in chosen):.0f} s …", file=sys.stderr, flush=True)
            result["levels"].append(uvloop.run(run_level(server, chosen, mode)))
    report.show([table(result)], result, as_markdown=markdown, path=path)
    for level in result["levels"]:
        for complaint in [*level["problems"], *late_text(level["generator_late_s"])]:
            print(f"{level['streams']} streams: {complaint}", file=sys.stderr)
    if any(level["failed"] for level in result["levels"]):
        sys.exit(1)


def table(result: dict[str, Any]) -> Table:
    levels = result["levels"]
    return Table(
        "Live sessions (times in s, p50/p95/p99)",
        ("", *(f"{level['streams']} stream{'s' if level['streams'] > 1 else ''}" for level in levels)),
        [(name, *(read(level) for level in levels)) for name, read in ROWS.items()],
    )


ROWS: dict[str, Callable[[dict[str, Any]], str]] = {
    "first text": lambda level: spread(level["first_text_s"]),
    "interim lag": lambda level: spread(level["interim_lag_s"]),
    "word first shown": lambda level: spread(level["word_seen_s"]),
    "word shown for good": lambda level: spread(level["word_shown_s"]),
    "word stable": lambda level: spread(level["word_stable_s"]),
    "final after end_s": lambda level: spread(level["final_s"]),
    "final after true end": lambda level: spread(level["final_true_s"]),
    "WER %": lambda level: percent(level["wer"]),
    "missing words %": lambda level: percent(level["missing"]),
    "revised words %": lambda level: percent(level["revised_per_word"]),
    "failed sessions": lambda level: str(level["failed"]),
    "server CPU s per audio s": lambda level: number(level["server"]["cpu_s_per_audio_s"], 3),
    "server RSS MiB": lambda level: number(level["server"]["rss_mib"], 0),
    "other processes' cores": lambda level: number(level["others_cores"]),
}
