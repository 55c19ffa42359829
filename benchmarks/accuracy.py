"""Word and character errors by kind of audio: tutti's two doors and its peers on the same clips and checkpoint.

    python -m benchmarks.accuracy --audio ../shared/audio --kinds synth-call,human-read

What follows `--` goes to `tutti serve`. Exits with 1 when a clip failed.
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
from benchmarks.files.labelled_clips import APART, Clip, bundled_clips, load_clips
from benchmarks.files.transcribers import LISTENERS, Heard, Listener, Setup
from benchmarks.files.word_normaliser import normalise
from benchmarks.offline import convert_for_ctranslate2
from benchmarks.report import NOTHING, Table, number, percent
from benchmarks.scoring import WordErrors, count_errors, edit_distance, words
from benchmarks.server import running_server
from engine.checkpoint.checkpoint import find_checkpoint

SCHEMA = 1
MAX_AHEAD_S = 36_000
"""Allowed to live clients, so that the server does not hold them to the pace of speech."""
TARGET_POINTS = 0.3
"""By how much live may differ from a file in word error rate."""
ALL_SYNTHETIC, ALL_HUMAN, NOBODY = "all synthetic", "all human", "nobody speaks"


@dataclass(frozen=True, slots=True)
class Score:
    """Scores add up over clips."""

    files: int = 0
    audio_s: float = 0.0
    words: WordErrors = field(default_factory=WordErrors)
    character_errors: int = 0
    characters: int = 0
    """In the reference, with one space between words."""
    made_up_files: int = 0
    """Files in which nobody speaks, and text."""
    made_up_words: int = 0
    """Words in them."""

    def __add__(self, other: "Score") -> "Score":
        return Score(
            self.files + other.files,
            self.audio_s + other.audio_s,
            self.words + other.words,
            self.character_errors + other.character_errors,
            self.characters + other.characters,
            self.made_up_files + other.made_up_files,
            self.made_up_words + other.made_up_words,
        )

    @property
    def character_rate(self) -> float | None:
        return self.character_errors / self.characters if self.characters else None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "words": asdict(self.words), "wer": self.words.rate, "cer": self.character_rate}


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--audio",
    "folder",
    type=click.Path(path_type=Path),
    help="Folder with a manifest.jsonl. Default: the bundled clips.",
)
@click.option("--kinds", default="", help="Kinds of the manifest to use, separated by commas. Default: all.")
@click.option("--limit", type=click.IntRange(min=1), help="Use at most so many clips of each kind.")
@click.option("--model", default="tutti-demo", show_default=True, help="The checkpoint that all of them load.")
@click.option("--engines", default=",".join(LISTENERS), show_default=True, help="Which to compare.")
@click.option("--threads", default=2, show_default=True, help="CPU threads of each engine.")
@click.option("--sessions", default=4, show_default=True, help="Live sessions, or uploads, at the same time.")
@click.option("--speed", default=4.0, show_default=True, help="How fast live audio is sent, in times real time.")
@click.option(
    "--json", "path", type=click.Path(path_type=Path), default=Path("build/bench/accuracy.json"), show_default=True
)
@click.option("--markdown", is_flag=True, help="Print the tables in Markdown.")
@click.argument("serve_arguments", nargs=-1, type=click.UNPROCESSED)
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
    """Transcribe clips with tutti, through REST and live, and with its peers, and count the errors of each kind."""
    names = engines.split(",")
    if unknown := sorted(set(names) - set(LISTENERS)):
        raise click.BadParameter(f"expected some of {', '.join(LISTENERS)}, got {', '.join(unknown)}")
    if kinds and not folder:
        raise click.UsageError("--kinds makes no sense without --audio: the bundled clips are of one kind")
    clips = load_clips(folder, [kind for kind in kinds.split(",") if kind], limit) if folder else bundled_clips(limit)
    present = [name for name in names if importlib.util.find_spec(LISTENERS[name].needs)]
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
        wants_ct2 = any(LISTENERS[name].needs == "faster_whisper" for name in present)
        ct2_folder = convert_for_ctranslate2(checkpoint, scratch / "ct2") if wants_ct2 else ""
        url = ""
        if any(LISTENERS[name].is_service for name in present):
            told = ["--model", checkpoint, "--threads", str(threads), "--max-ahead-s", str(MAX_AHEAD_S)]
            # A session gives its place back a moment after its client has gone on to the next.
            room = ["--max-sessions", str(2 * sessions), "--max-uploads", str(2 * sessions)]
            url = stack.enter_context(running_server([*told, *room, *serve_arguments])).url
        setup = Setup(url, checkpoint, ct2_folder, scratch, threads, sessions, speed)
        result["engines"] = {
            name: measure(LISTENERS[name], setup, clips)
            if name in present
            else {"title": LISTENERS[name].title, "state": "not installed", "needs": LISTENERS[name].needs}
            for name in names
        }
    result["live_minus_rest_points"] = live_minus_rest(result["engines"])
    report.show([errors_table(result), counts_table(result)], result, as_markdown=markdown, path=path)
    for line in remarks(result):
        print(line, file=sys.stderr)
    if any(each.get("failures") for each in result["engines"].values()):
        sys.exit(1)


def measure(listener: Listener, setup: Setup, clips: Sequence[Clip]) -> dict[str, Any]:
    """What one engine made of the clips. One that failed is scored with the text that there is, mostly none."""
    heard: list[Heard] = []
    begun = time.monotonic()
    with click.progressbar(length=len(clips), label=f"{listener.title:24}", file=sys.stderr) as bar:

        def note(each: Heard) -> None:
            heard.append(each)
            bar.update(1)

        asyncio.run(listener.listen(setup, clips, note))
    wall_s = time.monotonic() - begun
    scores = {each.clip.name: score(each) for each in heard}
    return {
        "title": listener.title,
        "state": "measured",
        "wall_s": wall_s,
        "n_interims": sum(each.n_interims for each in heard),
        "failures": {each.clip.name: each.failure for each in heard if each.failure},
        "kinds": {
            name: sum((scores[clip.name] for clip in members), Score()).to_json() for name, members in groups(clips)
        },
        "texts": {each.clip.name: each.texts for each in sorted(heard, key=lambda each: each.clip.name)},
    }


def score(heard: Heard) -> Score:
    total = Score(files=1, audio_s=heard.clip.audio_s)
    if not heard.clip.has_speech:
        made_up = sum(len(words(text)) for text in heard.texts)
        return total + Score(made_up_files=int(made_up > 0), made_up_words=made_up)
    for expected_text, text in zip(heard.clip.texts, heard.texts, strict=True):
        expected, said = (normalise(each, heard.clip.language) for each in (expected_text, text))
        total += Score(
            words=count_errors(expected, said),
            character_errors=edit_distance(" ".join(expected), " ".join(said)),
            characters=len(" ".join(expected)),
        )
    return total


def groups(clips: Sequence[Clip]) -> Iterator[tuple[str, list[Clip]]]:
    """The clips of each kind, each sum behind its kinds, and last those in which nobody speaks."""
    spoken = [clip for clip in clips if clip.has_speech]
    synthetic = [clip for clip in spoken if "synth" in clip.kind]
    human = [clip for clip in spoken if "synth" not in clip.kind]
    for members, name, added in (
        (synthetic, ALL_SYNTHETIC, synthetic),
        (human, ALL_HUMAN, [clip for clip in human if clip.kind not in APART]),
        ([], NOBODY, [clip for clip in clips if not clip.has_speech]),
    ):
        for kind in dict.fromkeys(clip.kind for clip in members):
            yield kind, [clip for clip in members if clip.kind == kind]
        if added:
            yield name, added


def live_minus_rest(engines: Mapping[str, Any]) -> dict[str, float]:
    """Points of word error rate by kind; empty if not both were measured.

    Live is always greedy; so is the REST that it is compared with, if that was asked too.
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
    """A row for each kind, a column for each engine."""
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
                f"{points[kind]:+.1f}" if kind in points else NOTHING,
            )
            for kind, of in _measured_kinds(result).items()
            if of["wer"] is not None
        ],
    )


def counts_table(result: dict[str, Any]) -> Table:
    """What is missing and what is too much, where somebody speaks and where nobody does."""
    engines = result["engines"].values()
    rows: list[tuple[str, ...]] = []

    def add(what: str, kind: str, read: Callable[[dict[str, Any]], object]) -> None:
        rows.append((what, *(_cell(each, kind, read) for each in engines)))

    for kind, of in _measured_kinds(result).items():
        if kind in (ALL_SYNTHETIC, ALL_HUMAN):
            add(f"{kind}: missing of {of['words']['words']} words", kind, lambda found: found["words"]["missing"])
            add(f"{kind}: inserted words", kind, lambda found: found["words"]["inserted"])
        elif kind == NOBODY:
            amount = f"{of['files']} files, {of['audio_s'] / 60:.1f} min"
            add(f"{kind}, {amount}: words made up", kind, lambda found: found["made_up_words"])
            add(f"{kind}: files with such words", kind, lambda found: found["made_up_files"])
    for what, read in RUN_ROWS.items():
        rows.append((what, *(read(each, result["audio_s"]) if _is_measured(each) else NOTHING for each in engines)))
    return Table(
        f"Words missing, inserted and made up; {result['audio_s'] / 60:.0f} min of audio",
        ("", *map(_heading, engines)),
        rows,
    )


RUN_ROWS: dict[str, Callable[[dict[str, Any], float], str]] = {
    "files failed": lambda each, audio_s: str(len(each["failures"])),
    "interims per s of audio": lambda each, audio_s: (
        number(each["n_interims"] / audio_s) if each["n_interims"] else NOTHING
    ),
    "s taken": lambda each, audio_s: number(each["wall_s"], 0),
}


def remarks(result: dict[str, Any]) -> list[str]:
    """How far live is from a file, engines that are not there, and what failed."""
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
    """Of any engine: what is in the reference is the same for all."""
    return next((each["kinds"] for each in result["engines"].values() if _is_measured(each)), {})


def _is_measured(engine: dict[str, Any]) -> bool:
    return bool(engine["state"] == "measured")


def _heading(engine: dict[str, Any]) -> str:
    return str(engine["title"]).replace(" ", "\n", 1)


def _cell(engine: dict[str, Any], kind: str, read: Callable[[dict[str, Any]], object]) -> str:
    return str(read(engine["kinds"][kind])) if _is_measured(engine) else str(engine["state"])


if __name__ == "__main__":
    main()
