"""Compares the offline throughput of engines on the same checkpoint and the same recordings.

    python -m benchmarks.offline --threads 1,2

Every engine runs in its own process. The engines of one thread setting stay loaded and take turns, so that other work
of the machine disturbs all of them equally. The command exits with 1 when an engine failed.
"""

import importlib.util
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks import machine, report
from benchmarks.files.engines import OFFLINE_ENGINES, Job
from benchmarks.options import (
    audio_option,
    benchmark_command,
    json_option,
    kind_option,
    markdown_option,
    match_option,
    parse_numbers,
)
from benchmarks.peers.ctranslate2 import convert_for_ctranslate2
from benchmarks.recordings import Recording, cut, first_seconds, load_bundled, load_folder
from benchmarks.report import NO_VALUE, Table, number, percent
from benchmarks.scoring import WordErrors, word_errors
from tutti_server.engine.checkpoint.checkpoint import find_checkpoint

SCHEMA = 1
ANSWER_TIMEOUT_S = 600.0
"""Longest time for loading, and for one pass, in seconds. An engine that takes longer has failed."""
STOP_TIMEOUT_S = 20.0
"""How long an engine may take to end before it is killed."""
BASELINE_PREFIX = "fw-batched-"
"""Engines whose names begin so are the baseline: others are compared with the fastest of them at the same threads."""


class EngineDied(Exception):
    """The process of an engine ended, or did not answer in time. Its output is on this process's error stream."""


class EngineProcess:
    """One engine that runs in its own process."""

    def __init__(self, job: Job) -> None:
        n = str(job.n_threads)
        environment = {**os.environ, "OMP_NUM_THREADS": n, "MKL_NUM_THREADS": n, "OPENBLAS_NUM_THREADS": n}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.files.engines", json.dumps(asdict(job))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**environment, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"},
        )

    def answer(self) -> dict[str, Any]:
        """Wait for the next answer: the first one when the engine is ready, then one for each pass.

        Raises:
            EngineDied: the process ended or timed out.
        """
        assert self._process.stdout
        ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_TIMEOUT_S)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            raise EngineDied
        answer: dict[str, Any] = json.loads(line)
        return answer

    def run_pass(self) -> dict[str, Any]:
        """Run one pass over the recordings and return its figures.

        Raises:
            EngineDied: the process ended or timed out.
        """
        assert self._process.stdin
        try:
            self._process.stdin.write("run\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise EngineDied from None
        return self.answer()

    def stop(self) -> None:
        """End the process, by force if it does not end by itself."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


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
@click.option(
    "--cut-s",
    default=0.0,
    help="Cut recordings between utterances into files of at most this many seconds. 0: do not cut.",
)
@kind_option
@match_option
@click.option("--model", default="tutti-base", show_default=True, help="Checkpoint that every engine loads.")
@click.option("--language", default="en", show_default=True)
@click.option(
    "--engines", default=",".join(OFFLINE_ENGINES), show_default=True, help="Engines to compare, separated by commas."
)
@json_option("offline")
@markdown_option
def main(
    threads: str,
    repeats: int,
    seconds: float,
    folder: Path | None,
    kind: str,
    cut_s: float,
    match: str,
    model: str,
    language: str,
    engines: str,
    path: Path,
    markdown: bool,
) -> None:
    """Transcribe the same recordings with several engines in turn, and compare their speed and their word errors."""
    names = parse_engines(engines)
    thread_counts = parse_numbers("--threads", threads)
    recordings = first_seconds(
        load_folder(folder, kind, match) if folder else load_bundled(60.0, max(round(seconds / 60), 1)),
        seconds,
    )
    if cut_s:
        recordings = [piece for each in recordings for piece in cut(each, cut_s)]
    result: dict[str, Any] = {
        "benchmark": "offline",
        "schema": SCHEMA,
        **machine.describe(),
        "audio": str(folder or "bundled"),
        "recordings": [each.name for each in recordings],
        "audio_s": sum(each.audio_s for each in recordings),
        "model": model,
        "repeats": repeats,
        "rows": [],
    }
    with tempfile.TemporaryDirectory(prefix="tutti-bench-") as scratch:
        checkpoint = str(find_checkpoint(model))
        present = [name for name in names if importlib.util.find_spec(OFFLINE_ENGINES[name].needs)]
        wants_ct2 = any(OFFLINE_ENGINES[name].needs == "faster_whisper" for name in present)
        ct2_folder = convert_for_ctranslate2(checkpoint, Path(scratch) / "ct2") if wants_ct2 else ""
        clips = str(Path(scratch) / "audio.npz")
        np.savez(clips, *(each.samples for each in recordings))
        for n_threads in thread_counts:
            jobs = [
                Job(
                    engine=name,
                    n_threads=n_threads,
                    folder=checkpoint,
                    ct2_folder=ct2_folder,
                    audio=clips,
                    language=language,
                )
                for name in present
            ]
            runs = run_interleaved(jobs, repeats)
            for name in names:
                result["rows"].append(row(name, n_threads, runs.get(name), recordings))
    result["same_text_as_transformers"] = {str(n): is_same_as_transformers(result["rows"], n) for n in thread_counts}
    report.show([table(result)], result, as_markdown=markdown, path=path)
    for n, is_same in result["same_text_as_transformers"].items():
        if is_same is False:
            print(f"{n} threads: the text of tutti's windows differs from that of transformers", file=sys.stderr)
    for missing in sorted({OFFLINE_ENGINES[name].needs for name in names if name not in present}):
        print(f"{missing} is not installed, so its engines were left out: pip install -e '.[bench]'", file=sys.stderr)
    if any(each["state"] == "failed" for each in result["rows"]):
        sys.exit(1)


def parse_engines(text: str) -> list[str]:
    """Parse a list of names of `OFFLINE_ENGINES`.

    Raises:
        BadParameter: a name is unknown.
    """
    names = text.split(",")
    if unknown := sorted(set(names) - set(OFFLINE_ENGINES)):
        raise click.BadParameter(f"expected some of {', '.join(OFFLINE_ENGINES)}, got {', '.join(unknown)}")
    return names


def run_interleaved(jobs: Sequence[Job], repeats: int) -> dict[str, list[dict[str, Any]]]:
    """Run the runs of all engines in turn. An engine that failed has an empty list."""
    runs: dict[str, list[dict[str, Any]]] = {job.engine: [] for job in jobs}
    with ExitStack() as stack:
        running: dict[str, EngineProcess] = {}
        for job in jobs:
            _print_progress(f"{job.n_threads} threads: loading {job.engine} …")
            process = stack.enter_context(_stopping(EngineProcess(job)))
            try:
                process.answer()
            except EngineDied:
                _print_progress(f"{job.engine} failed")
            else:
                running[job.engine] = process
        for repeat in range(repeats):
            for name, process in list(running.items()):
                try:
                    runs[name].append(process.run_pass())
                except EngineDied:
                    _print_progress(f"{name} failed")
                    runs[name] = []
                    del running[name]
                else:
                    _print_progress(f"pass {repeat + 1}, {name}: {runs[name][-1]['wall_s']:.2f} s")
    return runs


def row(name: str, n_threads: int, runs: list[dict[str, Any]] | None, recordings: list[Recording]) -> dict[str, Any]:
    """The result of one engine. `runs` is `None` if the engine is not installed, and empty if it failed."""
    about = {"engine": name, "title": OFFLINE_ENGINES[name].title, "threads": n_threads}
    if not runs:
        return {**about, "state": "not installed" if runs is None else "failed"}
    audio_s = sum(each.audio_s for each in recordings)
    errors = [
        sum((word_errors(each.text, text) for each, text in zip(recordings, one["texts"], strict=True)), WordErrors())
        for one in runs
    ]
    return {
        **about,
        "state": "measured",
        "wall_s": [one["wall_s"] for one in runs],
        "cpu_s": [one["cpu_s"] for one in runs],
        "audio_s_per_s": audio_s / statistics.median(one["wall_s"] for one in runs),
        "cpu_s_per_audio_s": statistics.median(one["cpu_s"] for one in runs) / audio_s,
        "rss_max_mib": max(one["rss_max_mib"] for one in runs),
        "wer": errors[0].rate,
        "words_lost": errors[0].missing,
        "words": errors[0].words,
        "same_text_each_pass": all(one["texts"] == runs[0]["texts"] for one in runs),
        "texts": runs[0]["texts"],
    }


def baseline_speed(rows: list[dict[str, Any]], n_threads: int) -> float | None:
    """Audio seconds per second of the fastest batched faster-whisper at this number of threads; `None` without one."""
    speeds = [
        each["audio_s_per_s"]
        for each in rows
        if each["threads"] == n_threads and each["engine"].startswith(BASELINE_PREFIX) and each["state"] == "measured"
    ]
    return max(speeds, default=None)


def is_same_as_transformers(rows: list[dict[str, Any]], n_threads: int) -> bool | None:
    """Whether tutti and transformers returned identical texts for the same windows; `None` if only one of them ran."""
    texts = {each["engine"]: each.get("texts") for each in rows if each["threads"] == n_threads}
    ours, theirs = texts.get("tutti-16"), texts.get("transformers")
    return None if ours is None or theirs is None else ours == theirs


def table(result: dict[str, Any]) -> Table:
    """The table: one row for each engine and number of threads."""
    rows = []
    for each in result["rows"]:
        heading = (str(each["title"]), str(each["threads"]))
        if each["state"] != "measured":
            rows.append((*heading, each["state"], *[NO_VALUE] * 7))
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
                number(each["rss_max_mib"], 0),
                percent(each["wer"]),
                f"{each['words_lost']} of {each['words']}",
                "yes" if each["same_text_each_pass"] else "no",
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
            "peak RSS\nMiB",
            "WER\n%",
            "words\nlost",
            "same text\neach pass",
        ),
        rows,
    )


@contextmanager
def _stopping(process: EngineProcess) -> Iterator[EngineProcess]:
    try:
        yield process
    finally:
        process.stop()


def _print_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
