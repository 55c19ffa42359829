"""Recordings as they are sent to an endpoint: whole files with their transcripts, from a manifest or a data set."""

import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import av
import click

from benchmarks.files.labelled_clips import chosen, read_manifest


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    """Its ending says what the format is, to endpoints that go by that."""
    audio: bytes
    """The file as it is."""
    text: str
    audio_s: float


def from_manifest(path: Path, kinds: Sequence[str] = ()) -> Iterator[Sample]:
    """The files that a JSON Lines manifest lists, each with `file` and `text`; paths are relative to it.

    Files in which nobody speaks are left out: there is nothing to be right about.
    """
    for line in chosen(read_manifest(path), kinds):
        if line["text"].strip():
            try:
                audio = (path.parent / line["file"]).read_bytes()
            except OSError as error:
                raise click.ClickException(f"{line['file']}: {error.strerror}") from error
            yield Sample(Path(line["file"]).name, audio, line["text"], audio_seconds(line["file"], audio))


def from_dataset(name: str, config: str | None, split: str, audio_column: str, text_column: str) -> Iterator[Sample]:
    """The rows of a data set of the Hugging Face hub, or of a local folder of that layout; its files are not decoded.

    Raises:
        ClickException: the package `datasets` is not installed, or the data set or a column is not there.
    """
    try:
        import datasets
    except ImportError as error:
        raise click.ClickException("--dataset needs the package datasets: pip install datasets") from error
    try:
        rows = datasets.load_dataset(name, config, split=split)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"--dataset {name}: {error}") from error
    if missing := [column for column in (audio_column, text_column) if column not in rows.column_names]:
        raise click.ClickException(f"columns of {name}: {', '.join(rows.column_names)}; got {', '.join(missing)}")
    for i, row in enumerate(rows.cast_column(audio_column, datasets.Audio(decode=False))):
        file, text = row[audio_column], row[text_column]
        if text.strip():
            audio = file["bytes"] or Path(file["path"]).read_bytes()
            sample_name = Path(file["path"] or f"{i}.wav").name
            yield Sample(sample_name, audio, text, audio_seconds(sample_name, audio))


def take(samples: Iterable[Sample], *, max_seconds: float | None, limit: int | None) -> list[Sample]:
    """The first `limit` samples shorter than `max_seconds`.

    Raises:
        ClickException: there is none.
    """
    short = (sample for sample in samples if max_seconds is None or sample.audio_s < max_seconds)
    if not (taken := list(itertools.islice(short, limit))):
        raise click.ClickException("there is no recording with a transcript, or none that is short enough")
    return taken


def audio_seconds(name: str, audio: bytes) -> float:
    """By decoding it: not every container says how long it is, and not every one is right.

    Raises:
        ClickException: it holds no audio.
    """
    try:
        with av.open(io.BytesIO(audio), mode="r") as container:
            lengths_s = [frame.samples / frame.sample_rate for frame in container.decode(container.streams.audio[0])]
    except (av.FFmpegError, IndexError) as error:
        raise click.ClickException(f"{name}: expected audio: {error}") from error
    return sum(lengths_s)
