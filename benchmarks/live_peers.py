"""Compares live servers: tutti and its peers transcribe the same recordings, one server after the other.

    benchmarks/peers.sh
    python -m benchmarks.live_peers --streams 1,2,4 --seconds 60 --ct2 FOLDER

Every server runs in its own process on loopback, with the same number of threads. All are measured by the captions that
a client shows. Arguments after `--` go to `tutti serve`.
"""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import uvloop

from benchmarks import machine, report
from benchmarks.live.captions import WordLatencies, measure_words, spoken_words
from benchmarks.live.level import STAGGER_S, WARM_UP_S, Snapshot, late_text, usage
from benchmarks.options import (
    audio_option,
    benchmark_command,
    parse_numbers,
    result_options,
    serve_arguments_argument,
)
from benchmarks.peers.live_clients import CaptionLog, PeerClient, run_client
from benchmarks.peers.live_servers import PEER_SERVERS, PeerServer, ServerSetup
from benchmarks.recordings import Recording, load_bundled, load_recordings, with_silence
from benchmarks.report import Table, number, percent
from benchmarks.scoring import WordErrors, word_errors, word_summary
from benchmarks.server import RunningServer

TAIL_S = 3.0
"""Seconds of silence after each recording: some servers close a segment only after silence."""
MAX_OTHERS_CORES = 0.1
"""If other processes use more cores than this, figures of different runs are not comparable."""


@benchmark_command(needs=("transformers",))
@click.option(
    "--streams", default="1,2,4", show_default=True, help="Numbers of clients. Each server runs once for each number."
)
@click.option("--seconds", default=60.0, show_default=True, help="Length of each client's recording, in seconds.")
@audio_option
@click.option(
    "--peers", default=",".join(PEER_SERVERS), show_default=True, help="Servers, separated by commas, in this order."
)
@click.option("--model", default="tutti-base", show_default=True, help="The model of tutti.")
@click.option(
    "--ct2",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="The checkpoint of the peers, for CTranslate2, as benchmarks.peers.ctranslate2_weights writes it.",
)
@click.option("--threads", default=2, show_default=True, help="CPU threads of each server.")
@click.option(
    "--give-up",
    "give_up_s",
    default=5.0,
    show_default=True,
    help="Do not give a server more clients once its p95 latency of first shown words exceeds this many seconds.",
)
@result_options("live_peers")
@serve_arguments_argument
def main(
    streams: str,
    seconds: float,
    folder: Path | None,
    peers: str,
    model: str,
    ct2: Path,
    threads: int,
    give_up_s: float,
    path: Path,
    markdown: bool,
    serve_arguments: tuple[str, ...],
) -> None:
    """Stream the same recordings to tutti and its peers at the pace of speech, and measure when words appear."""
    levels, names = parse_numbers("--streams", streams), peers.split(",")
    if unknown := [name for name in names if name not in PEER_SERVERS]:
        raise click.BadParameter(f"expected some of {','.join(PEER_SERVERS)}, got {','.join(unknown)}")
    recordings = [with_silence(each, TAIL_S) for each in load_recordings(folder, seconds=seconds, n=max(levels))]
    setup = ServerSetup(
        model=model, ct2_folder=ct2, n_threads=threads, n_streams=max(levels), tutti_arguments=serve_arguments
    )
    result: dict[str, Any] = {**machine.describe(), "runs": [], "failed": {}}
    for name in names:
        peer = PEER_SERVERS[name]
        if not peer.python.exists():
            result["failed"][name] = f"not installed: benchmarks/peers.sh {peer.environment}"
            continue
        try:
            result["runs"] += run_peer(peer, setup, levels, recordings, give_up_s)
        except (click.ClickException, OSError) as error:
            result["failed"][name] = getattr(error, "message", str(error))
    report.show([table(result)], result, as_markdown=markdown, path=path)
    for complaint in complain(result):
        print(complaint, file=sys.stderr)
    if result["failed"] or any(run["failed"] or is_empty(run) for run in result["runs"]):
        sys.exit(1)


def run_peer(
    peer: PeerServer, setup: ServerSetup, levels: list[int], recordings: list[Recording], give_up_s: float
) -> Iterator[dict[str, Any]]:
    """Start a server and give it more and more clients until it falls behind. Yields the figures of each level."""
    with peer.start(setup) as server:
        uvloop.run(run_level(server, peer.client, load_bundled(WARM_UP_S, 1)))
        for n in levels:
            chosen = [recordings[i % len(recordings)] for i in range(n)]
            seconds = max(each.audio_s for each in chosen)
            print(f"{peer.title}, {n} streams, {seconds:.0f} s …", file=sys.stderr, flush=True)
            run = uvloop.run(run_level(server, peer.client, chosen))
            yield {"title": peer.title, **run}
            p95 = run["word_seen_s"]["p95"]
            if p95 is None or p95 > give_up_s:
                break


async def run_level(server: RunningServer, client: PeerClient, recordings: list[Recording]) -> dict[str, Any]:
    """Run one client for each recording, and measure the server until the last sample has been sent."""
    logs = [CaptionLog(recording=recording) for recording in recordings]
    before = Snapshot(server)
    async with asyncio.TaskGroup() as tasks:
        for index, log in enumerate(logs):
            tasks.create_task(run_client(client, server.url, log, delay_s=index * STAGGER_S))
        for log in logs:
            await log.all_sent.wait()
        after = Snapshot(server)
    return level_result(logs, usage(logs, before, after))


def level_result(logs: list[CaptionLog], used: dict[str, Any]) -> dict[str, Any]:
    words, errors = WordLatencies(), WordErrors()
    for log in logs:
        words.add(measure_words(log.captions, spoken_words(log.recording.utterances), log.started_at))
        errors += word_errors(log.recording.text, log.captions[-1].shown if log.captions else "")
    found = [([log.failure] if log.failure else []) + log.problems for log in logs]
    return {
        "streams": len(logs),
        "recordings": [log.recording.name for log in logs],
        "failed": sum(map(bool, found)),
        "problems": [f"stream {i}: {what}" for i, each in enumerate(found) for what in dict.fromkeys(each)],
        "word_seen_s": word_summary(words.seen_s),
        "word_shown_s": word_summary(words.shown_s),
        "word_stable_s": word_summary(words.stable_s),
        "wer": errors.rate,
        "taken_back_per_word": words.n_taken_back / len(words.shown_s) if words.shown_s else None,
        "texts": [log.captions[-1].shown if log.captions else "" for log in logs],
        **used,
    }


def table(result: dict[str, Any]) -> Table:
    columns = (
        "server",
        "streams",
        "first shown\np50/p95",
        "shown for good\np50/p95",
        "stable\np50/p95",
        "never\nshown %",
        "WER\n%",
        "taken\nback %",
        "CPU s per\naudio s",
        "RSS\nMiB",
        "failed",
    )
    return Table("Live servers side by side (times in s)", columns, [_row(run) for run in result["runs"]])


def _row(run: dict[str, Any]) -> tuple[str, ...]:
    shown = run["word_shown_s"]
    n_words = shown["n"] + shown["never"]
    return (
        run["title"],
        str(run["streams"]),
        *(f"{number(run[name]['p50'])}/{number(run[name]['p95'])}" for name in _LATENCIES),
        percent(shown["never"] / n_words if n_words else None),
        percent(run["wer"]),
        percent(run["taken_back_per_word"]),
        number(run["server"]["cpu_s_per_audio_s"], 3),
        number(run["server"]["rss_mib"], 0),
        str(run["failed"]),
    )


_LATENCIES = ("word_seen_s", "word_shown_s", "word_stable_s")


def complain(result: dict[str, Any]) -> list[str]:
    """Warnings about servers that did not run, sessions that failed and figures that are not reliable."""
    found = [f"{name}: {why}" for name, why in result["failed"].items()]
    for run in result["runs"]:
        mark = f"{run['title']}, {run['streams']} streams: "
        found += [mark + each for each in [*run["problems"], *late_text(run["generator_late_s"])]]
        found += [f"{mark}no text came for any word"] if is_empty(run) else []
        if (run["others_cores"] or 0.0) > MAX_OTHERS_CORES:
            found.append(f"{mark}other processes used {run['others_cores']:.2f} cores meanwhile")
    return found


def is_empty(run: dict[str, Any]) -> bool:
    """Whether a server wrote nothing that could be measured."""
    return not run["word_seen_s"]["n"]


if __name__ == "__main__":
    main()
