"""Compares the offline throughput of engines on the same checkpoint and the same recordings.

    python -m benchmarks.offline --threads 1,2

Every engine runs in its own process. The engines of one thread setting stay loaded and take turns, so that other work
of the machine disturbs all of them equally. The command exits with 1 when an engine failed.
"""

import importlib.util
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks import machine, report
from benchmarks.files.engines import OFFLINE_ENGINES, Job, open_engine
from benchmarks.options import audio_option, benchmark_command, parse_numbers, result_options
from benchmarks.own_process import Turn, own_process
from benchmarks.peers.ctranslate2 import convert_for_ctranslate2
from benchmarks.recordings import Recording, first_seconds, load_bundled, load_folder
from benchmarks.report import NO_VALUE, Table, number, percent
from benchmarks.scoring import WordErrors, word_errors
from tutti_server.engine.checkpoint.checkpoint import find_checkpoint

BASELINE_PREFIX = "fw-batched-"
"""Engines whose names begin so are the baseline: others are compared with the fastest of them at the same threads."""


@benchmark_command(needs=("transformers",))
@click.option(
    "--threads",
    default="1,2",
    show_default=True,
    help="CPU threads of each engine. Each number is a comparison of its own.",
)
@click.option("--repeats", default=3, show_default=True, help="Passes of each engine. The median counts.")
@click.option("--seconds", default=240.0, show_default=True, help="Seconds of audio in one pass.")
@audio_option
@click.option("--model", default="tutti-base", show_default=True, help="Checkpoint that every engine loads.")
@click.option(
    "--engines", default=",".join(OFFLINE_ENGINES), show_default=True, help="Engines to compare, separated by commas."
)
@result_options("offline")
def main(
    threads: str,
    repeats: int,
    seconds: float,
    folder: Path | None,
    model: str,
    engines: str,
    path: Path,
    markdown: bool,
) -> None:
    """Transcribe the same recordings with several engines in turn, and compare their speed and their word errors."""
    names, thread_counts = engines.split(","), parse_numbers("--threads", threads)
    if unknown := sorted(set(names) - set(OFFLINE_ENGINES)):
        raise click.BadParameter(f"expected some of {', '.join(OFFLINE_ENGINES)}, got {', '.join(unknown)}")
    recordings = first_seconds(
        load_folder(folder) if folder else load_bundled(60.0, max(round(seconds / 60), 1)), seconds
    )
    audio_s = sum(each.audio_s for each in recordings)
    result: dict[str, Any] = {**machine.describe(), "audio_s": audio_s, "model": model, "repeats": repeats, "rows": []}
    present = [name for name in names if importlib.util.find_spec(OFFLINE_ENGINES[name].needs)]
    with tempfile.TemporaryDirectory(prefix="tutti-bench-") as scratch:
        checkpoint, audio = str(find_checkpoint(model)), str(Path(scratch) / "audio.npz")
        wants_ct2 = any(OFFLINE_ENGINES[name].needs == "faster_whisper" for name in present)
        ct2_folder = convert_for_ctranslate2(checkpoint, Path(scratch) / "ct2") if wants_ct2 else ""
        np.savez(audio, *(each.samples for each in recordings))
        for n in thread_counts:
            jobs = [
                Job(engine=name, n_threads=n, folder=checkpoint, ct2_folder=ct2_folder, audio=audio) for name in present
            ]
            turns = take_turns(jobs, repeats)
            result["rows"] += [row(name, n, turns.get(name), recordings) for name in names]
    report.show([table(result)], result, as_markdown=markdown, path=path)
    for missing in sorted({OFFLINE_ENGINES[name].needs for name in names if name not in present}):
        print(f"{missing} is not installed, so its engines were left out: pip install -e '.[bench]'", file=sys.stderr)
    if any(each["state"] == "failed" for each in result["rows"]):
        sys.exit(1)


def take_turns(jobs: Sequence[Job], repeats: int) -> dict[str, list[Turn]]:
    """Give all engines their turns, one after another. An engine that failed has an empty list."""
    turns: dict[str, list[Turn]] = {job.engine: [] for job in jobs}
    with ExitStack() as stack:
        running: dict[str, Callable[..., Turn]] = {}
        for job in jobs:
            try:
                running[job.engine] = stack.enter_context(own_process(open_engine, job))
            except click.ClickException as error:
                _print_progress(f"{job.engine} failed: {error.message}")
        for number_ in range(1, repeats + 1):
            for name, take_turn in list(running.items()):
                try:
                    turns[name].append(take_turn())
                except click.ClickException as error:
                    _print_progress(f"{name} failed: {error.message}")
                    turns[name] = []
                    del running[name]
                else:
                    _print_progress(f"pass {number_}, {name}: {turns[name][-1].wall_s:.2f} s")
    return turns


def row(name: str, n_threads: int, turns: list[Turn] | None, recordings: list[Recording]) -> dict[str, Any]:
    """The result of one engine. `turns` is `None` if the engine is not installed, and empty if it failed."""
    about = {"engine": name, "title": OFFLINE_ENGINES[name].title, "threads": n_threads}
    if not turns:
        return {**about, "state": "not installed" if turns is None else "failed"}
    audio_s, texts = sum(each.audio_s for each in recordings), turns[0].value
    errors = sum((word_errors(each.text, text) for each, text in zip(recordings, texts, strict=True)), WordErrors())
    return {
        **about,
        "state": "measured",
        "wall_s": [turn.wall_s for turn in turns],
        "audio_s_per_s": audio_s / statistics.median(turn.wall_s for turn in turns),
        "cpu_s_per_audio_s": statistics.median(turn.cpu_s for turn in turns) / audio_s,
        "wer": errors.rate,
        "words_lost": errors.missing,
        "words": errors.words,
        "texts": texts,
    }


def baseline_speed(rows: list[dict[str, Any]], n_threads: int) -> float | None:
    """Audio seconds per second of the fastest batched faster-whisper at this number of threads; `None` without one."""
    speeds = [
        each["audio_s_per_s"]
        for each in rows
        if each["threads"] == n_threads and each["engine"].startswith(BASELINE_PREFIX) and each["state"] == "measured"
    ]
    return max(speeds, default=None)


def table(result: dict[str, Any]) -> Table:
    """The table: one row for each engine and number of threads."""
    rows = []
    for each in result["rows"]:
        heading = (str(each["title"]), str(each["threads"]))
        if each["state"] != "measured":
            rows.append((*heading, each["state"], *[NO_VALUE] * 5))
            continue
        baseline = baseline_speed(result["rows"], each["threads"])
        fastest, slowest = (result["audio_s"] / pick(each["wall_s"]) for pick in (min, max))
        rows.append(
            (
                *heading,
                number(each["audio_s_per_s"], 1),
                f"{slowest:.1f} to {fastest:.1f}",
                number(each["audio_s_per_s"] / baseline if baseline else None),
                number(each["cpu_s_per_audio_s"], 4),
                percent(each["wer"]),
                f"{each['words_lost']} of {each['words']}",
            )
        )
    return Table(
        f"Offline: {result['audio_s']:.0f} s of audio, median of {result['repeats']}, checkpoint {result['model']}",
        (
            "engine",
            "threads",
            "audio s\nper s",
            "slowest to\nfastest",
            "× faster-whisper\nbatched",
            "CPU s per\naudio s",
            "WER\n%",
            "words\nlost",
        ),
        rows,
    )


def _print_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
