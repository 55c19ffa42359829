"""Reads audio for `tutti adapt`, holds some of it back, and shows how the training goes on."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

from tutti_server.app.cli.recordings import find_recordings
from tutti_server.app.cli.running import fetch_model
from tutti_server.app.errors import MediaError
from tutti_server.app.media.file_decoder import decode_pieces
from tutti_server.app.media.pcm import Samples
from tutti_server.engine.api import SAMPLE_RATE
from tutti_server.engine.errors import EngineError

if TYPE_CHECKING:
    from tutti_server.engine.adaptation.adaptation import Progress

REPORT_EVERY_S = 10.0
"""How often a line is printed where the output is no terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptOptions:
    """The options of the command."""

    model: str
    audio: str
    output: str
    device: str
    minutes: float
    steps: int | None
    batch: int
    learning_rate: float
    held_out: float
    held_out_audio: str | None
    transcripts: str | None
    languages: str
    seed: int
    resume: bool


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recording, and its transcript if there is one."""

    samples: Samples
    text: str | None = None


def run_adaptation(options: AdaptOptions) -> None:
    """Adapt a model, and say what became of it.

    Raises:
        click.ClickException: there is no audio, or the model is not better. It says why.
    """
    held_folder = options.held_out_audio
    if held_folder is not None:
        trained, held_back = Path(options.audio).resolve(), Path(held_folder).resolve()
        if held_back.is_relative_to(trained) or trained.is_relative_to(held_back):
            raise click.ClickException("--held-out-audio: expected a folder apart from --audio, got one with its files")
    texts = _read_transcripts(options.transcripts, options.audio, held_folder)
    for folder in (options.audio, held_folder):
        if folder is not None and not Path(folder).is_dir():
            raise click.ClickException(f"{folder}: expected a folder with recordings, found none of this name")
    fetch_model(options.model)
    from tutti_server.engine.adaptation.adaptation import Adaptation, Training, adapt, check

    training = Training(
        steps=options.steps,
        minutes=options.minutes,
        batch=options.batch,
        learning_rate=options.learning_rate,
        seed=options.seed,
    )
    adaptation = Adaptation(
        model=options.model,
        output=Path(options.output),
        training=training,
        device=options.device,
        languages=tuple(code.strip() for code in options.languages.split(",") if code.strip()),
        resumes=options.resume,
    )
    try:
        # Before hours of audio are read.
        check(adaptation)
        recordings = read_folder(options.audio, texts)
        if held_folder is not None:
            held = read_folder(held_folder, texts)
        else:
            recordings, held = hold_back(recordings, options.held_out, options.seed)
        if texts and not any(each.text is not None for each in held):
            raise click.ClickException("--transcripts: expected the text of a held-back recording, got none")
        click.echo(
            f"Training on {_minutes(recordings):.1f} minutes of audio; {_minutes(held):.1f} are held back.", err=True
        )
        result = adapt(
            adaptation,
            [each.samples for each in recordings],
            [(each.samples, each.text) for each in held],
            _reporter(),
            lambda line: click.echo(line[0].upper() + line[1:], err=True),
        )
    except EngineError as error:
        raise click.ClickException(str(error)) from None
    cut = result["held_back"]["adapted_cut"]
    click.echo(
        f"{options.output}: {result['steps']} steps in {result['seconds']:.0f} s. With cut windows "
        f"{cut['words_differing']} % of the words differ from the original's; adaptation.json holds more."
    )


def read_folder(folder: str, texts: Mapping[Path, str]) -> list[Recorded]:
    """The recordings below a folder. Files that cannot be decoded are counted, and left out.

    Raises:
        click.ClickException: there is none.
    """
    found, problems = find_recordings([folder])
    n_files = sum(len(files) for _, _, files in os.walk(folder))
    recordings: list[Recorded] = []
    for each in found:
        assert each.path is not None
        try:
            with each.opened() as file:
                samples = np.concatenate([np.zeros(0, np.float32), *decode_pieces(file, None)])
        except (MediaError, OSError):
            continue
        if len(samples):
            recordings.append(Recorded(samples, texts.get(each.path.resolve())))
    if n_skipped := n_files - len(recordings):
        click.echo(f"{folder}: {n_skipped} of {n_files} files are skipped, as they hold no audio", err=True)
    if not recordings:
        raise click.ClickException(f"{folder}: expected a folder with audio files, found none in it")
    for problem in problems:
        click.echo(problem, err=True)
    return recordings


def hold_back(recordings: list[Recorded], share: float, seed: int) -> tuple[list[Recorded], list[Recorded]]:
    """Part recordings into those to train on and those held back.

    Recordings with a transcript are held back first. Of one that is longer than needed, and has none, the end is.
    """
    n_missing = int(share * sum(len(each.samples) for each in recordings))
    order = sorted(np.random.default_rng(seed).permutation(len(recordings)), key=lambda i: recordings[i].text is None)
    trained: list[Recorded] = []
    held: list[Recorded] = []
    for recording in (recordings[index] for index in order):
        n_samples = len(recording.samples)
        if n_missing <= 0:
            trained.append(recording)
        elif recording.text is None and n_samples > n_missing:
            trained.append(Recorded(recording.samples[:-n_missing]))
            held.append(Recorded(recording.samples[-n_missing:]))
        else:
            held.append(recording)
        n_missing -= n_samples
    return trained, held


def _read_transcripts(manifest: str | None, *folders: str | None) -> dict[Path, str]:
    if manifest is None:
        return {}
    roots = [Path(manifest).parent, *(Path(folder) for folder in folders if folder is not None)]
    try:
        rows = [json.loads(line) for line in Path(manifest).read_text(encoding="utf-8").splitlines() if line.strip()]
        return {
            (root / row["file"]).resolve(): str(row["text"])
            for row in rows
            for root in roots
            if row.get("text") is not None
        }
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise click.ClickException(f"{manifest}: expected JSON lines with file and text, got: {error!r}") from None


def _minutes(recordings: Iterable[Recorded]) -> float:
    return sum(len(each.samples) for each in recordings) / SAMPLE_RATE / 60


def _reporter() -> Callable[["Progress"], None]:
    """Prints a line that is overwritten, or on what is no terminal a new one from time to time."""
    is_terminal = sys.stderr.isatty()
    last_s = -REPORT_EVERY_S

    def report(progress: "Progress") -> None:
        nonlocal last_s
        is_last = progress.seconds_left <= 0
        if not is_terminal and not is_last and time.monotonic() - last_s < REPORT_EVERY_S:
            return
        last_s = time.monotonic()
        line = f"step {progress.step}  loss {progress.loss:.4f}  {progress.seconds_left:.0f} s left"
        click.echo(f"\r{line:<60}" if is_terminal else line, nl=is_last or not is_terminal, err=True)

    return report
