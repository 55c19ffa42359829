"""The command `benchmarks.live`: many clients stream at the pace of speech to a server in its own process.

    python -m benchmarks.live --streams 1,2,4 --seconds 60 -- --threads 2

Arguments after `--` go to `tutti serve`. The command exits with 1 when a session failed or a guarantee of the protocol
was broken.
"""

import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import click
import uvloop

import tutti
from benchmarks import machine, report
from benchmarks.live.client import ClientProfile
from benchmarks.live.encodings import format_name, parse_formats
from benchmarks.live.level import run_level, warm_up
from benchmarks.live.network import Network
from benchmarks.live.report import complain, table
from benchmarks.options import (
    audio_option,
    benchmark_command,
    json_option,
    kind_option,
    markdown_option,
    match_option,
    parse_numbers,
    serve_arguments_argument,
)
from benchmarks.recordings import Recording, as_call, load_recordings, with_silence
from benchmarks.server import ADMIT_ALL, RunningServer, running_server

SCHEMA = 2
TAIL_S = 2.0
"""Seconds of silence after each recording: longer than the silence that ends an utterance."""


@benchmark_command(needs=("transformers",))
@click.option(
    "--streams", default="1,2,4,8,16", show_default=True, help="Numbers of clients. Each number is a run of its own."
)
@click.option("--seconds", default=60.0, show_default=True, help="Length of each client's recording, in seconds.")
@audio_option
@kind_option
@match_option
@click.option(
    "--talk", type=click.FloatRange(0.01, 0.99), help="Simulate calls in which speech fills this share of the time."
)
@click.option("--jitter", "jitter_ms", default=0, show_default=True, help="Longest random delay of a chunk, in ms.")
@click.option("--bursts", is_flag=True, help="Sometimes hold back 0.5 to 2 s of audio and send it at once.")
@click.option(
    "--disconnects", default=0.0, show_default=True, help="Connections that each client loses and resumes per minute."
)
@click.option(
    "--encodings", default="pcm_s16le", show_default=True, help="ENCODING[@RATE],…: clients use them in turn."
)
@click.option("--seed", default=0, show_default=True, help="Seed of all random choices.")
@click.option("--language", default="en", show_default=True, help="Sent with `start`. Empty: the server detects it.")
@click.option(
    "--endpointing",
    type=click.Choice(["vad", "adaptive", "auto"]),
    default="vad",
    show_default=True,
    help="When utterances end. auto: as for a client that leaves it to the server.",
)
@click.option("--url", help="Measure the server at http://host:port instead of starting one.")
@json_option("live")
@markdown_option
@serve_arguments_argument
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
    endpointing: str,
    url: str | None,
    path: Path,
    markdown: bool,
    serve_arguments: tuple[str, ...],
) -> None:
    """Stream recordings at the pace of speech from many clients at once, and measure latencies and word errors."""
    levels = parse_numbers("--streams", streams)
    if url and serve_arguments:
        raise click.UsageError("arguments for `tutti serve` make no sense with --url")
    recordings = load_recordings(folder, kind, match, seconds=seconds, n=max(levels))
    if talk:
        sources = (recordings[i % len(recordings)] for i in range(max(levels)))
        recordings = [as_call(source, talk, seconds, seed + i) for i, source in enumerate(sources)]
    recordings = [with_silence(each, TAIL_S) for each in recordings]
    network = Network(jitter_ms / 1000, bursts, disconnects)
    formats = parse_formats(encodings)
    mode = None if endpointing == "auto" else cast(tutti.EndpointingMode, endpointing)
    profiles = [ClientProfile(formats[i % len(formats)], network, seed + i, mode) for i in range(max(levels))]
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
        "endpointing": endpointing,
        "serve_arguments": list(serve_arguments),
    }
    with ExitStack() as stack:
        if url:
            server = RunningServer(url.rstrip("/"), None)
        else:
            # A session whose connection was lost occupies the server until the server notices the loss.
            own = ["--max-sessions", str((1 + (disconnects > 0)) * max(levels) + 1), *ADMIT_ALL]
            server = stack.enter_context(running_server([*own, *serve_arguments]))
        warm_up(server, language or None)
        result |= run_levels(server, levels, recordings, language or None, profiles)
    report.show([table(result)], result, as_markdown=markdown, path=path)
    for complaint in complain(result):
        print(complaint, file=sys.stderr)
    if result["ended_early"] or any(level["failed"] for level in result["levels"]):
        sys.exit(1)


def run_levels(
    server: RunningServer,
    levels: list[int],
    recordings: list[Recording],
    language: str | None,
    profiles: list[ClientProfile],
) -> dict[str, Any]:
    """Measure each number of clients, and stop early if the server no longer answers."""
    found = []
    for n in levels:
        chosen = [recordings[i % len(recordings)] for i in range(n)]
        print(f"{n} streams, {max(each.audio_s for each in chosen):.0f} s …", file=sys.stderr, flush=True)
        try:
            found.append(uvloop.run(run_level(server, chosen, language, profiles[:n])))
        except OSError as error:
            # The levels measured before are still worth writing.
            return {"levels": found, "ended_early": f"{n} streams: the server no longer answers: {error}"}
    return {"levels": found, "ended_early": None}
