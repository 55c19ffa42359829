"""Offline throughput: engines side by side on the same checkpoint and the same recordings.

    python -m benchmarks.offline --threads 1,2

Every engine is a process of its own. All those of one thread setting stay loaded and take turns, so that whatever else
the machine does meets all of them alike. Exits with 1 when an engine failed.
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
from benchmarks.files.engines import CONTENDERS, Job
from benchmarks.live.streams import parse_numbers
from benchmarks.recordings import Recording, cut, load_bundled, load_folder, take
from benchmarks.report import NOTHING, Table, number, percent
from benchmarks.scoring import WordErrors, word_errors
from engine.checkpoint.checkpoint import find_checkpoint

SCHEMA = 1
ANSWER_TIMEOUT_S = 600.0
"""For loading and for one pass; an engine that takes longer has failed."""
STOP_TIMEOUT_S = 20.0
ANCHOR = "fw-batched-"
"""What others are compared with: the faster of the engines so named, at the same number of threads."""


class EngineDied(Exception):
    """An engine's process ended, or did not answer in time. Its output is on our error stream."""


class EngineProcess:
    """One engine in a process of its own."""

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
        """The next answer: the first one when it is ready, then one for each `ask`.

        Raises:
            EngineDied: there is none.
        """
        assert self._process.stdout
        ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_TIMEOUT_S)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            raise EngineDied
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self) -> dict[str, Any]:
        assert self._process.stdin
        try:
            self._process.stdin.write("run\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise EngineDied from None
        return self.answer()

    def stop(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--threads", default="1,2", show_default=True, help="CPU threads of each engine, one comparison for each."
)
@click.option("--repeats", default=3, show_default=True, help="ForwardPass of each engine; the median counts.")
@click.option("--seconds", default=240.0, show_default=True, help="Audio in one pass.")
@click.option(
    "--audio",
    "folder",
    type=click.Path(path_type=Path),
    help="Folder with a manifest.jsonl. Default: the bundled clips.",
)
@click.option("--cut-s", default=0.0, help="Cut recordings between utterances, into files of at most so many seconds.")
@click.option("--kind", default="synth-dialogue", show_default=True, help="Lines of the manifest to use.")
@click.option("--match", default="", help="Use only files with this in their name.")
@click.option("--model", default="tutti-demo", show_default=True, help="The checkpoint that all of them load.")
@click.option("--language", default="en", show_default=True)
@click.option("--engines", default=",".join(CONTENDERS), show_default=True, help="Which to compare.")
@click.option(
    "--json", "path", type=click.Path(path_type=Path), default=Path("build/bench/offline.json"), show_default=True
)
@click.option("--markdown", is_flag=True, help="Print the table in Markdown.")
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
    """Transcribe the same recordings with several engines, in turns, and compare speed and words."""
    names = engines.split(",")
    if unknown := sorted(set(names) - set(CONTENDERS)):
        raise click.BadParameter(f"expected some of {', '.join(CONTENDERS)}, got {', '.join(unknown)}")
    thread_counts = parse_numbers("--threads", threads)
    recordings = take(
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
        present = [name for name in names if importlib.util.find_spec(CONTENDERS[name].needs)]
        wants_ct2 = any(CONTENDERS[name].needs == "faster_whisper" for name in present)
        ct2_folder = convert_for_ctranslate2(checkpoint, Path(scratch) / "ct2") if wants_ct2 else ""
        clips = str(Path(scratch) / "audio.npz")
        np.savez(clips, *(each.samples for each in recordings))
        for n_threads in thread_counts:
            jobs = [Job(name, n_threads, checkpoint, ct2_folder, clips, language) for name in present]
            passes = run_interleaved(jobs, repeats)
            for name in names:
                result["rows"].append(row(name, n_threads, passes.get(name), recordings))
    result["same_text_as_transformers"] = {str(n): is_same_as_transformers(result["rows"], n) for n in thread_counts}
    report.show([table(result)], result, as_markdown=markdown, path=path)
    for n, is_same in result["same_text_as_transformers"].items():
        if is_same is False:
            print(f"{n} threads: the text of tutti's windows differs from that of transformers", file=sys.stderr)
    for missing in sorted({CONTENDERS[name].needs for name in names if name not in present}):
        print(f"{missing} is not installed, so its engines were left out: pip install -e '.[bench]'", file=sys.stderr)
    if any(each["state"] == "failed" for each in result["rows"]):
        sys.exit(1)


def run_interleaved(jobs: Sequence[Job], repeats: int) -> dict[str, list[dict[str, Any]]]:
    """The passes of every engine, in turns; an empty list for one that failed."""
    passes: dict[str, list[dict[str, Any]]] = {job.engine: [] for job in jobs}
    with ExitStack() as stack:
        running: dict[str, EngineProcess] = {}
        for job in jobs:
            _say(f"{job.n_threads} threads: loading {job.engine} …")
            process = stack.enter_context(_stopping(EngineProcess(job)))
            try:
                process.answer()
            except EngineDied:
                _say(f"{job.engine} failed")
            else:
                running[job.engine] = process
        for repeat in range(repeats):
            for name, process in list(running.items()):
                try:
                    passes[name].append(process.ask())
                except EngineDied:
                    _say(f"{name} failed")
                    passes[name] = []
                    del running[name]
                else:
                    _say(f"pass {repeat + 1}, {name}: {passes[name][-1]['wall_s']:.2f} s")
    return passes


def row(name: str, n_threads: int, passes: list[dict[str, Any]] | None, recordings: list[Recording]) -> dict[str, Any]:
    """One line of the result. `passes` is `None` for an engine that is not installed, empty for one that failed."""
    about = {"engine": name, "title": CONTENDERS[name].title, "threads": n_threads}
    if not passes:
        return {**about, "state": "not installed" if passes is None else "failed"}
    audio_s = sum(each.audio_s for each in recordings)
    errors = [
        sum((word_errors(each.text, text) for each, text in zip(recordings, one["texts"], strict=True)), WordErrors())
        for one in passes
    ]
    return {
        **about,
        "state": "measured",
        "wall_s": [one["wall_s"] for one in passes],
        "cpu_s": [one["cpu_s"] for one in passes],
        "audio_s_per_s": audio_s / statistics.median(one["wall_s"] for one in passes),
        "cpu_s_per_audio_s": statistics.median(one["cpu_s"] for one in passes) / audio_s,
        "rss_max_mib": max(one["rss_max_mib"] for one in passes),
        "wer": errors[0].rate,
        "words_lost": errors[0].missing,
        "words": errors[0].words,
        "same_text_each_pass": all(one["texts"] == passes[0]["texts"] for one in passes),
        "texts": passes[0]["texts"],
    }


def anchor_speed(rows: list[dict[str, Any]], n_threads: int) -> float | None:
    """Audio seconds per second of the faster batched faster-whisper at this number of threads."""
    speeds = [
        each["audio_s_per_s"]
        for each in rows
        if each["threads"] == n_threads and each["engine"].startswith(ANCHOR) and each["state"] == "measured"
    ]
    return max(speeds, default=None)


def is_same_as_transformers(rows: list[dict[str, Any]], n_threads: int) -> bool | None:
    """Whether tutti made of its windows, letter by letter, what transformers made of them; `None` if not both ran."""
    texts = {each["engine"]: each.get("texts") for each in rows if each["threads"] == n_threads}
    ours, theirs = texts.get("tutti-16"), texts.get("transformers")
    return None if ours is None or theirs is None else ours == theirs


def table(result: dict[str, Any]) -> Table:
    rows = []
    for each in result["rows"]:
        heading = (str(each["title"]), str(each["threads"]))
        if each["state"] != "measured":
            rows.append((*heading, each["state"], *[NOTHING] * 7))
            continue
        anchor = anchor_speed(result["rows"], each["threads"])
        fastest, slowest = (result["audio_s"] / pick(each["wall_s"]) for pick in (min, max))
        rows.append(
            (
                *heading,
                number(each["audio_s_per_s"], 1),
                f"{slowest:.1f} to {fastest:.1f}",
                number(each["audio_s_per_s"] / anchor if anchor else None),
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


def convert_for_ctranslate2(folder: str, target: Path) -> str:
    """The checkpoint as CTranslate2 reads it, in float32; it is quantised as it is loaded."""
    from ctranslate2.converters import TransformersConverter

    copied = [name for name in ("tokenizer.json", "preprocessor_config.json") if (Path(folder) / name).is_file()]
    TransformersConverter(folder, copy_files=copied).convert(str(target), quantization="float32")
    return str(target)


@contextmanager
def _stopping(process: EngineProcess) -> Iterator[EngineProcess]:
    try:
        yield process
    finally:
        process.stop()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
