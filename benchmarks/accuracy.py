"""Word and character errors by kind of audio, for tutti (REST and live) and its peers on the same clips and checkpoint.

    python -m benchmarks.accuracy --audio ../shared/audio --kinds synth-call,human-read

Arguments after `--` go to `tutti serve`. The command exits with 1 when a clip failed.
"""

import asyncio
import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from benchmarks import machine, report
from benchmarks.files.labelled_clips import NOT_SUMMED, Clip, bundled_clips, load_clips
from benchmarks.files.transcribers import TRANSCRIBERS, ClipResult, ClipTranscriber, Setup
from benchmarks.files.word_normaliser import normalise
from benchmarks.options import (
    CONTEXT_SETTINGS,
    audio_option,
    json_option,
    markdown_option,
    serve_arguments_argument,
)
from benchmarks.peers.ctranslate2 import convert_for_ctranslate2
from benchmarks.report import NO_VALUE, Table, number, percent
from benchmarks.scoring import WordErrors, count_errors, edit_distance, words
from benchmarks.server import ADMIT_ALL, running_server
from engine.checkpoint.checkpoint import find_checkpoint

SCHEMA = 1
MAX_AHEAD_S = 36_000
"""How far live audio may run ahead of the clock, in seconds: ten hours, so that the server slows no client down."""
TARGET_POINTS = 0.3
"""The largest accepted difference between the word error rates of live and REST, in percentage points."""
ALL_SYNTHETIC = "all synthetic"
"""The group that sums all synthetic kinds, as tables and JSON name it."""
ALL_HUMAN = "all human"
"""The group that sums the human kinds, without `labelled_clips.NOT_SUMMED`."""
NO_SPEECH = "nobody speaks"
"""The group of the clips without speech."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The errors of one clip, or the sum over several clips."""

    files: int = 0
    audio_s: float = 0.0
    words: WordErrors = field(default_factory=WordErrors)
    character_errors: int = 0
    characters: int = 0
    """Characters of the reference, with one space between words."""
    made_up_files: int = 0
    """Files without speech for which the engine returned text."""
    made_up_words: int = 0
    """Words of those texts."""

    def __add__(self, other: "Score") -> "Score":
        return Score(
            files=self.files + other.files,
            audio_s=self.audio_s + other.audio_s,
            words=self.words + other.words,
            character_errors=self.character_errors + other.character_errors,
            characters=self.characters + other.characters,
            made_up_files=self.made_up_files + other.made_up_files,
            made_up_words=self.made_up_words + other.made_up_words,
        )

    @property
    def character_rate(self) -> float | None:
        """Character error rate as a fraction, or `None` without a reference."""
        return self.character_errors / self.characters if self.characters else None

    def to_json(self) -> dict[str, Any]:
        """The score and its two error rates, as the result file holds them."""
        return {**asdict(self), "words": asdict(self.words), "wer": self.words.rate, "cer": self.character_rate}


@click.command(context_settings=CONTEXT_SETTINGS)
@audio_option
@click.option("--kinds", default="", help="Kinds of the manifest to use, separated by commas. Default: all.")
@click.option("--limit", type=click.IntRange(min=1), help="Use at most this number of clips of each kind.")
@click.option("--model", default="tutti-demo", show_default=True, help="Checkpoint that every engine loads.")
@click.option(
    "--engines", default=",".join(TRANSCRIBERS), show_default=True, help="Engines to compare, separated by commas."
)
@click.option("--threads", default=2, show_default=True, help="CPU threads of each engine.")
@click.option("--sessions", default=4, show_default=True, help="Live sessions, or uploads, that run at the same time.")
@click.option("--speed", default=4.0, show_default=True, help="Speed of live audio, as a multiple of real time.")
@json_option("accuracy")
@markdown_option
@serve_arguments_argument
def main(
    folder: Path | None,
    kinds: str,
    limit: int | None,
    model: str,
    engines: str,
    threads: int,
    sessions: int,
    speed: float,
    path: Path,
    markdown: bool,
    serve_arguments: tuple[str, ...],
) -> None:
    """Transcribe clips with tutti (over REST and live) and with its peers, and count the errors for each kind."""
    names = parse_engines(engines)
    if kinds and not folder:
        raise click.UsageError("--kinds makes no sense without --audio: all bundled clips have the same kind")
    clips = load_clips(folder, [kind for kind in kinds.split(",") if kind], limit) if folder else bundled_clips(limit)
    present = [name for name in names if importlib.util.find_spec(TRANSCRIBERS[name].needs)]
    checkpoint = str(find_checkpoint(model))
    result: dict[str, Any] = {
        "benchmark": "accuracy",
        "schema": SCHEMA,
        **machine.describe(),
        "audio": str(folder or "bundled"),
        "model": model,
        "threads": threads,
        "sessions": sessions,
        "speed": speed,
        "serve_arguments": list(serve_arguments),
        "n_clips": len(clips),
        "audio_s": sum(clip.audio_s for clip in clips),
    }
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tutti-bench-")))
        wants_ct2 = any(TRANSCRIBERS[name].needs == "faster_whisper" for name in present)
        ct2_folder = convert_for_ctranslate2(checkpoint, scratch / "ct2") if wants_ct2 else ""
        url = ""
        if any(TRANSCRIBERS[name].is_service for name in present):
            own = ["--model", checkpoint, "--threads", str(threads), "--max-ahead-s", str(MAX_AHEAD_S)]
            # Twice the number: the server frees a session a moment after its client has started the next one.
            own += ["--max-sessions", str(2 * sessions), "--max-uploads", str(2 * sessions), *ADMIT_ALL]
            url = stack.enter_context(running_server([*own, *serve_arguments])).url
        setup = Setup(
            url=url,
            folder=checkpoint,
            ct2_folder=ct2_folder,
            scratch=scratch,
            n_threads=threads,
            n_sessions=sessions,
            speed=speed,
        )
        result["engines"] = {
            name: measure(TRANSCRIBERS[name], setup, clips)
            if name in present
            else {"title": TRANSCRIBERS[name].title, "state": "not installed", "needs": TRANSCRIBERS[name].needs}
            for name in names
        }
    result["live_minus_rest_points"] = live_minus_rest(result["engines"])
    report.show([errors_table(result), counts_table(result)], result, as_markdown=markdown, path=path)
    for line in remarks(result):
        print(line, file=sys.stderr)
    if any(each.get("failures") for each in result["engines"].values()):
        sys.exit(1)


def parse_engines(text: str) -> list[str]:
    """Parse a list of names of `TRANSCRIBERS`.

    Raises:
        BadParameter: a name is unknown.
    """
    names = text.split(",")
    if unknown := sorted(set(names) - set(TRANSCRIBERS)):
        raise click.BadParameter(f"expected some of {', '.join(TRANSCRIBERS)}, got {', '.join(unknown)}")
    return names


def measure(transcriber: ClipTranscriber, setup: Setup, clips: Sequence[Clip]) -> dict[str, Any]:
    """Transcribe the clips with one engine and score them.

    A clip that failed is scored with the text received so far, which is mostly empty.
    """
    results: list[ClipResult] = []
    started_at = time.monotonic()
    with click.progressbar(length=len(clips), label=f"{transcriber.title:24}", file=sys.stderr) as bar:

        def add(each: ClipResult) -> None:
            results.append(each)
            bar.update(1)

        asyncio.run(transcriber.transcribe(setup, clips, add))
    wall_s = time.monotonic() - started_at
    scores = {each.clip.name: score(each) for each in results}
    return {
        "title": transcriber.title,
        "state": "measured",
        "wall_s": wall_s,
        "n_interims": sum(each.n_interims for each in results),
        "failures": {each.clip.name: each.failure for each in results if each.failure},
        "kinds": {
            name: sum((scores[clip.name] for clip in members), Score()).to_json() for name, members in groups(clips)
        },
        "texts": {each.clip.name: each.texts for each in sorted(results, key=lambda each: each.clip.name)},
    }


def score(result: ClipResult) -> Score:
    """The errors of one clip, counted on each channel by itself."""
    total = Score(files=1, audio_s=result.clip.audio_s)
    if not result.clip.has_speech:
        made_up = sum(len(words(text)) for text in result.texts)
        return total + Score(made_up_files=int(made_up > 0), made_up_words=made_up)
    for expected_text, text in zip(result.clip.texts, result.texts, strict=True):
        expected, actual = (normalise(each, result.clip.language) for each in (expected_text, text))
        total += Score(
            words=count_errors(expected, actual),
            character_errors=edit_distance(" ".join(expected), " ".join(actual)),
            characters=len(" ".join(expected)),
        )
    return total


def groups(clips: Sequence[Clip]) -> Iterator[tuple[str, list[Clip]]]:
    """Group clips by kind: synthetic kinds and their sum, human kinds and their sum, then clips without speech."""
    spoken = [clip for clip in clips if clip.has_speech]
    synthetic = [clip for clip in spoken if "synth" in clip.kind]
    human = [clip for clip in spoken if "synth" not in clip.kind]
    for members, name, added in (
        (synthetic, ALL_SYNTHETIC, synthetic),
        (human, ALL_HUMAN, [clip for clip in human if clip.kind not in NOT_SUMMED]),
        ([], NO_SPEECH, [clip for clip in clips if not clip.has_speech]),
    ):
        for kind in dict.fromkeys(clip.kind for clip in members):
            yield kind, [clip for clip in members if clip.kind == kind]
        if added:
            yield name, added


def live_minus_rest(engines: Mapping[str, Any]) -> dict[str, float]:
    """The word error rate of live minus that of REST, by kind, in points; empty if only one was measured.

    Live decoding is always greedy, so it is compared with greedy REST if that was measured.
    """
    live, rest = (engines.get(name, {}).get("kinds", {}) for name in ("live", _offline(engines)))
    return {
        kind: 100 * (live[kind]["wer"] - rest[kind]["wer"])
        for kind in live
        if kind in rest and live[kind]["wer"] is not None
    }


def _offline(engines: Mapping[str, Any]) -> str:
    return "rest-greedy" if "kinds" in engines.get("rest-greedy", {}) else "rest"


def errors_table(result: dict[str, Any]) -> Table:
    """The table of error rates: one row for each kind, one column for each engine."""
    engines, points = result["engines"].values(), result["live_minus_rest_points"]
    return Table(
        f"Word/character errors in %, checkpoint {result['model']}",
        ("", "files", "words", *map(_heading, engines), "live − REST,\nWER points"),
        [
            (
                kind,
                str(of["files"]),
                str(of["words"]["words"]),
                *(
                    _cell(each, kind, lambda found: f"{percent(found['wer'])}/{percent(found['cer'])}")
                    for each in engines
                ),
                f"{points[kind]:+.1f}" if kind in points else NO_VALUE,
            )
            for kind, of in _measured_kinds(result).items()
            if of["wer"] is not None
        ],
    )


def counts_table(result: dict[str, Any]) -> Table:
    """The table of missing and inserted words in speech, and of words made up where there is no speech."""
    engines = result["engines"].values()
    rows: list[tuple[str, ...]] = []

    def add(what: str, kind: str, read: Callable[[dict[str, Any]], object]) -> None:
        rows.append((what, *(_cell(each, kind, read) for each in engines)))

    for kind, of in _measured_kinds(result).items():
        if kind in (ALL_SYNTHETIC, ALL_HUMAN):
            add(f"{kind}: missing of {of['words']['words']} words", kind, lambda found: found["words"]["missing"])
            add(f"{kind}: inserted words", kind, lambda found: found["words"]["inserted"])
        elif kind == NO_SPEECH:
            amount = f"{of['files']} files, {of['audio_s'] / 60:.1f} min"
            add(f"{kind}, {amount}: words made up", kind, lambda found: found["made_up_words"])
            add(f"{kind}: files with such words", kind, lambda found: found["made_up_files"])
    for what, read in RUN_ROWS.items():
        rows.append((what, *(read(each, result["audio_s"]) if _is_measured(each) else NO_VALUE for each in engines)))
    return Table(
        f"Words missing, inserted and made up; {result['audio_s'] / 60:.0f} min of audio",
        ("", *map(_heading, engines)),
        rows,
    )


RUN_ROWS: dict[str, Callable[[dict[str, Any], float], str]] = {
    "files failed": lambda each, audio_s: str(len(each["failures"])),
    "interims per s of audio": lambda each, audio_s: (
        number(each["n_interims"] / audio_s) if each["n_interims"] else NO_VALUE
    ),
    "s taken": lambda each, audio_s: number(each["wall_s"], 0),
}


def remarks(result: dict[str, Any]) -> list[str]:
    """Remarks below the tables: live compared with REST, engines that are not installed, and clips that failed."""
    found = []
    for kind in (ALL_SYNTHETIC, ALL_HUMAN):
        if kind in result["live_minus_rest_points"]:
            points = result["live_minus_rest_points"][kind]
            verdict = "within" if abs(points) <= TARGET_POINTS else "not within"
            offline = result["engines"][_offline(result["engines"])]["title"].removeprefix("tutti ")
            found.append(f"{kind}: live differs from {offline} by {points:+.2f} points, {verdict} {TARGET_POINTS}")
    for each in result["engines"].values():
        if not _is_measured(each):
            found.append(f"{each['title']} was left out: {each['needs']} is not installed: pip install -e '.[bench]'")
            continue
        found += [f"{each['title']}: {name}: {failure}" for name, failure in each["failures"].items()]
    return found


def _measured_kinds(result: dict[str, Any]) -> dict[str, Any]:
    """The kinds of any measured engine: the reference is the same for all engines."""
    return next((each["kinds"] for each in result["engines"].values() if _is_measured(each)), {})


def _is_measured(engine: dict[str, Any]) -> bool:
    return bool(engine["state"] == "measured")


def _heading(engine: dict[str, Any]) -> str:
    return str(engine["title"]).replace(" ", "\n", 1)


def _cell(engine: dict[str, Any], kind: str, read: Callable[[dict[str, Any]], object]) -> str:
    return str(read(engine["kinds"][kind])) if _is_measured(engine) else str(engine["state"])


if __name__ == "__main__":
    main()
