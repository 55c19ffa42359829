"""Compares live servers: tutti and its peers transcribe the same recordings, one server after the other.

    benchmarks/peers.sh
    python -m benchmarks.live_peers --streams 1,2,4 --seconds 60

Every server runs in its own process on loopback, with the same checkpoint and the same number of threads. All are
measured by the captions that a client shows. Arguments after `--` go to `tutti serve`.

    python -m benchmarks.live_peers --model random:base --peers tutti,whisperlive -- --audio-context interims

Random weights stand in for published checkpoints, and write nothing that could be compared with what was spoken. So
only servers that tell which audio a text covers are measured: by when the first text arrived that covers a word.
"""

import asyncio
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import uvloop

from benchmarks import machine, report
from benchmarks.live.captions import WordLatencies, measure_words, spoken_words
from benchmarks.live.level import STAGGER_S, WARM_UP_S
from benchmarks.live.report import late_text
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
from benchmarks.peers.ctranslate2 import convert_for_ctranslate2
from benchmarks.peers.live_clients import CaptionLog, PeerClient, run_client
from benchmarks.peers.live_servers import PEER_SERVERS, PeerServer, ServerSetup
from benchmarks.peers.random_checkpoint import write_checkpoint
from benchmarks.recordings import Recording, load_bundled, load_recordings, with_silence
from benchmarks.report import Table, number, percent
from benchmarks.scoring import WordErrors, summary, word_errors, word_summary
from benchmarks.server import RunningServer
from tutti_server.engine.checkpoint.checkpoint import find_checkpoint
from tutti_server.engine.model.random_weights import PREFIX

SCHEMA = 1
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
@kind_option
@match_option
@click.option(
    "--peers", help="Servers to compare, separated by commas, in this order. Default: all that can be measured."
)
@click.option(
    "--model",
    default="tutti-base",
    show_default=True,
    help="A model that `tutti models` lists, a checkpoint folder, or random:SIZE.",
)
@click.option(
    "--ct2",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="The checkpoint of the peers, for CTranslate2, as benchmarks.peers.ctranslate2_weights writes it. Default: "
    "that of --model, converted.",
)
@click.option("--language", default="en", show_default=True)
@click.option("--threads", default=2, show_default=True, help="CPU threads of each server.")
@click.option(
    "--give-up",
    "give_up_s",
    default=5.0,
    show_default=True,
    help="Do not give a server more clients once its p95 latency of first shown (with random weights: covered) words "
    "exceeds this many seconds.",
)
@json_option("live_peers")
@markdown_option
@serve_arguments_argument
def main(
    streams: str,
    seconds: float,
    folder: Path | None,
    kind: str,
    match: str,
    peers: str | None,
    model: str,
    ct2: Path | None,
    language: str,
    threads: int,
    give_up_s: float,
    path: Path,
    markdown: bool,
    serve_arguments: tuple[str, ...],
) -> None:
    """Stream the same recordings to tutti and its peers at the pace of speech, and measure when words appear."""
    levels = parse_numbers("--streams", streams)
    is_random = model.startswith(PREFIX)
    chosen = _parse_peers(peers, is_random=is_random)
    if serve_arguments and "tutti" not in chosen:
        raise click.UsageError("arguments for `tutti serve` make no sense without tutti among --peers")
    recordings = load_recordings(folder, kind, match, seconds=seconds, n=max(levels))
    recordings = [with_silence(each, TAIL_S) for each in recordings]
    result: dict[str, Any] = {
        "benchmark": "live_peers",
        "schema": SCHEMA,
        **machine.describe(),
        "audio": str(folder or "bundled"),
        "seconds": seconds,
        "threads": threads,
        "model": model,
        "ct2": ct2 and ct2.name,
        "serve_arguments": list(serve_arguments),
        "runs": [],
        "failed": {},
    }
    with tempfile.TemporaryDirectory(prefix="tutti-bench-") as scratch:
        checkpoint, ct2_folder = _checkpoints(model, ct2, Path(scratch))
        setup = ServerSetup(
            folder=checkpoint,
            ct2_folder=ct2_folder,
            language=language,
            n_threads=threads,
            n_streams=max(levels),
            tutti_arguments=serve_arguments,
        )
        for name, peer in chosen.items():
            if not peer.python.exists():
                result["failed"][name] = f"not installed: benchmarks/peers.sh {peer.environment}"
                continue
            try:
                result["runs"] += run_peer(name, peer, setup, levels, recordings, give_up_s)
            except (click.ClickException, OSError) as error:
                result["failed"][name] = getattr(error, "message", str(error))
    shown = time_table(result) if is_random else table(result)
    report.show([shown], result, as_markdown=markdown, path=path)
    for complaint in complain(result):
        print(complaint, file=sys.stderr)
    if result["failed"] or any(run["failed"] or is_empty(run, model) for run in result["runs"]):
        sys.exit(1)


def run_peer(
    name: str, peer: PeerServer, setup: ServerSetup, levels: list[int], recordings: list[Recording], give_up_s: float
) -> Iterator[dict[str, Any]]:
    """Start a server and give it more and more clients until it falls behind. Yields the figures of each level."""
    with peer.start(setup) as servers:
        warm_up = load_bundled(WARM_UP_S, len(servers))
        uvloop.run(run_level(servers, peer.client, warm_up, setup.language))
        for n in levels:
            chosen = [recordings[i % len(recordings)] for i in range(n)]
            seconds = max(each.audio_s for each in chosen)
            print(f"{peer.title}, {n} streams, {seconds:.0f} s …", file=sys.stderr, flush=True)
            run = uvloop.run(run_level(servers, peer.client, chosen, setup.language))
            run |= {} if peer.tells_times else {"word_covered_s": None}
            yield {"peer": name, "title": peer.title, **run}
            p95 = run[judged_by(setup.folder)]["p95"]
            if p95 is None or p95 > give_up_s:
                break


def judged_by(model: str) -> str:
    """The name of the delays by which servers are judged: with random weights, no text shows a word."""
    return "word_covered_s" if model.startswith(PREFIX) else "word_seen_s"


async def run_level(
    servers: Sequence[RunningServer], client: PeerClient, recordings: list[Recording], language: str
) -> dict[str, Any]:
    """Run one client for each recording, distributed over the servers in turn.

    The CPU time and memory of the servers with clients are measured until the last sample has been sent.
    """
    logs = [CaptionLog(recording=recording) for recording in recordings]
    used = servers[: len(logs)]
    before = _Snapshot(used)
    async with asyncio.TaskGroup() as tasks:
        for index, log in enumerate(logs):
            url = used[index % len(used)].url
            tasks.create_task(run_client(client, url, log, language=language, delay_s=index * STAGGER_S))
        for log in logs:
            await log.all_sent.wait()
        after = _Snapshot(used)
    return level_result(logs, before, after)


class _Snapshot:
    """The use of the machine by the servers and by other processes at one moment."""

    def __init__(self, servers: Sequence[RunningServer]) -> None:
        self.taken_at = time.monotonic()
        found = [machine.Usage.of(server.pid) if server.pid else None for server in servers]
        usages = [usage for usage in found if usage]
        is_known = len(usages) == len(found)
        self.server_s = sum(usage.cpu_s for usage in usages) if is_known else None
        self.rss_mib = sum(usage.rss_mib for usage in usages) if is_known else None
        self.generator_s = time.process_time()
        self.busy_s = machine.busy_s()


def level_result(logs: list[CaptionLog], before: _Snapshot, after: _Snapshot) -> dict[str, Any]:
    """The figures of one level, as the result file holds them."""
    words, errors, covered_s = WordLatencies(), WordErrors(), list[float]()
    for log in logs:
        spoken = spoken_words(log.recording.utterances)
        words.add(measure_words(log.captions, spoken, log.started_at))
        covered_s += covered_delays(log.covered, [word.end_s for word in spoken], log.started_at)
        errors += word_errors(log.recording.text, log.captions[-1].shown if log.captions else "")
    audio_s = sum(log.recording.audio_s for log in logs)
    wall_s = after.taken_at - before.taken_at
    server_s = None if after.server_s is None or before.server_s is None else after.server_s - before.server_s
    generator_s = after.generator_s - before.generator_s
    others_s = None
    if server_s is not None and before.busy_s is not None and after.busy_s is not None:
        others_s = max(after.busy_s - before.busy_s - server_s - generator_s, 0.0)
    n_words = len(words.shown_s)
    found = [([log.failure] if log.failure else []) + log.problems for log in logs]
    return {
        "streams": len(logs),
        "recordings": [log.recording.name for log in logs],
        "audio_s": audio_s,
        "failed": sum(map(bool, found)),
        "problems": [f"stream {i}: {what}" for i, each in enumerate(found) for what in dict.fromkeys(each)],
        "word_covered_s": word_summary(covered_s),
        "word_seen_s": word_summary(words.seen_s),
        "word_shown_s": word_summary(words.shown_s),
        "word_stable_s": word_summary(words.stable_s),
        "words": errors.words,
        "wer": errors.rate,
        "missing": errors.missing_rate,
        "revised_per_word": words.n_revised / n_words if n_words else None,
        "taken_back_per_word": words.n_taken_back / n_words if n_words else None,
        "texts": [log.captions[-1].shown if log.captions else "" for log in logs],
        "server": {
            "cpu_s": server_s,
            "cpu_s_per_audio_s": None if server_s is None else server_s / audio_s,
            "cores": None if server_s is None else server_s / wall_s,
            "rss_mib": after.rss_mib,
        },
        "generator": {
            "late_s": summary([late for log in logs for late in log.late_s]),
            "blocked_max_s": max((blocked for log in logs for blocked in log.blocked_s), default=None),
            "cores": generator_s / wall_s,
        },
        "others_cores": None if others_s is None else others_s / wall_s,
    }


def covered_delays(covered: list[tuple[float, float]], ends_s: Sequence[float], started_at: float) -> list[float]:
    """How long after each of these seconds of the audio the first text arrived that covers it; infinite if none did.

    Args:
        covered: when each text arrived, and the end of the audio that it covers.
        ends_s: seconds of audio.
        started_at: when the first sample was spoken.
    """
    return [
        min((arrived_at for arrived_at, until_s in covered if until_s >= end_s), default=math.inf) - started_at - end_s
        for end_s in ends_s
    ]


def time_table(result: dict[str, Any]) -> Table:
    """The table of random weights: one row for each server and number of clients."""
    columns = ("server", "streams", "covered\np50/p95", "p95 of\nall", "never\n%", *_USAGE_COLUMNS)
    rows = []
    for run in result["runs"]:
        covered = run["word_covered_s"]
        rows.append(
            (run["title"], str(run["streams"]), _p50_p95(covered), _of_all(covered), _never(covered), *_usage(run))
        )
    return Table(f"Live servers side by side, {result['model']} (times in s)", columns, rows)


def table(result: dict[str, Any]) -> Table:
    """The table: one row for each server and number of clients."""
    columns = (
        "server",
        "streams",
        "first shown\np50/p95",
        "shown for good\np50/p95",
        "p95 of\nall",
        "stable\np50/p95",
        "never\nshown %",
        "never\nstable %",
        "WER\n%",
        "revised\n%",
        "taken\nback %",
        *_USAGE_COLUMNS,
    )
    return Table("Live servers side by side (times in s)", columns, [_row(run) for run in result["runs"]])


def _row(run: dict[str, Any]) -> tuple[str, ...]:
    return (
        run["title"],
        str(run["streams"]),
        _p50_p95(run["word_seen_s"]),
        _p50_p95(run["word_shown_s"]),
        _of_all(run["word_shown_s"]),
        _p50_p95(run["word_stable_s"]),
        _never(run["word_shown_s"]),
        _never(run["word_stable_s"]),
        percent(run["wer"]),
        percent(run["revised_per_word"]),
        percent(run["taken_back_per_word"]),
        *_usage(run),
    )


_USAGE_COLUMNS = ("CPU s per\naudio s", "RSS\nMiB", "failed")


def _usage(run: dict[str, Any]) -> tuple[str, str, str]:
    server = run["server"]
    return number(server["cpu_s_per_audio_s"], 3), number(server["rss_mib"], 0), str(run["failed"])


def _of_all(latencies: dict[str, Any]) -> str:
    of_all = latencies["p95_of_all"]
    return "∞" if of_all is None else number(of_all)


def _p50_p95(latencies: dict[str, Any]) -> str:
    return f"{number(latencies['p50'])}/{number(latencies['p95'])}"


def _never(latencies: dict[str, Any]) -> str:
    n = latencies["n"] + latencies["never"]
    return percent(latencies["never"] / n if n else None)


def complain(result: dict[str, Any]) -> list[str]:
    """Warnings about servers that did not run, sessions that failed and figures that are not reliable."""
    found = [f"{name}: {why}" for name, why in result["failed"].items()]
    for run in result["runs"]:
        mark = f"{run['title']}, {run['streams']} streams: "
        found += [mark + each for each in run["problems"]]
        found += [f"{mark}no text came for any word"] if is_empty(run, result["model"]) else []
        found += [mark + each for each in late_text(run["generator"]["late_s"]["max"])]
        if (run["others_cores"] or 0.0) > MAX_OTHERS_CORES:
            found.append(f"{mark}other processes used {run['others_cores']:.2f} cores meanwhile")
    return found


def is_empty(run: dict[str, Any], model: str) -> bool:
    """Whether a server wrote nothing that could be measured."""
    return not run[judged_by(model)]["n"]


def _parse_peers(text: str | None, *, is_random: bool) -> dict[str, PeerServer]:
    known = {name: peer for name, peer in PEER_SERVERS.items() if peer.tells_times or not is_random}
    names = list(known) if text is None else text.split(",")
    if unknown := [name for name in names if name not in known]:
        raise click.BadParameter(f"expected some of {','.join(known)}, got {','.join(unknown)}", param_hint="--peers")
    return {name: known[name] for name in names}


def _checkpoints(model: str, ct2: Path | None, scratch: Path) -> tuple[str, str]:
    """The checkpoint as tutti and the peers that use PyTorch load it, and the one for CTranslate2.

    Raises:
        ClickException: the checkpoint cannot be converted for CTranslate2.
    """
    if model.startswith(PREFIX):
        return model, write_checkpoint(model, scratch)
    folder = find_checkpoint(model)
    if ct2 is not None:
        return str(folder), str(ct2)
    if not any(folder.glob("*.safetensors")):
        raise click.ClickException(f"{model}: expected --ct2 with it, as only folders of transformers are converted")
    return str(folder), convert_for_ctranslate2(str(folder), scratch / "ct2")


if __name__ == "__main__":
    main()
