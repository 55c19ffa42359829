"""Audio files with transcripts, as they are sent to an endpoint: from a manifest or from a data set."""

import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import av
import click

from benchmarks.files.labelled_clips import read_manifest, select_kinds


@dataclass(frozen=True, slots=True)
class AudioFile:
    """An encoded audio file and its transcript."""

    name: str
    """The file name. Some endpoints take the format from its ending."""
    audio: bytes
    """The content of the file."""
    text: str
    audio_s: float


def from_manifest(path: Path, kinds: Sequence[str] = ()) -> Iterator[AudioFile]:
    """The files in a JSON Lines manifest, whose lines hold `file` (a path relative to the manifest) and `text`.

    Files without speech are left out, because a word error rate needs a reference.
    """
    for line in select_kinds(read_manifest(path), kinds):
        if line["text"].strip():
            try:
                audio = (path.parent / line["file"]).read_bytes()
            except OSError as error:
                raise click.ClickException(f"{line['file']}: {error.strerror}") from error
            yield AudioFile(Path(line["file"]).name, audio, line["text"], audio_seconds(line["file"], audio))


def from_dataset(name: str, config: str | None, split: str, audio_column: str, text_column: str) -> Iterator[AudioFile]:
    """The files of a data set on the Hugging Face hub, or in a local folder of that layout. They are not decoded.

    Raises:
        ClickException: the package `datasets` is not installed, or the data set or a column does not exist.
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
            file_name = Path(file["path"] or f"{i}.wav").name
            yield AudioFile(file_name, audio, text, audio_seconds(file_name, audio))


def select_files(files: Iterable[AudioFile], *, max_seconds: float | None, limit: int | None) -> list[AudioFile]:
    """The first `limit` files that are shorter than `max_seconds`.

    Raises:
        ClickException: there is none.
    """
    short = (each for each in files if max_seconds is None or each.audio_s < max_seconds)
    if not (selected := list(itertools.islice(short, limit))):
        raise click.ClickException("there is no recording with a transcript, or none that is short enough")
    return selected


def audio_seconds(name: str, audio: bytes) -> float:
    """The length of an audio file. It is decoded, because containers may give no length or a wrong one.

    Raises:
        ClickException: the file holds no audio.
    """
    try:
        with av.open(io.BytesIO(audio), mode="r") as container:
            lengths_s = [frame.samples / frame.sample_rate for frame in container.decode(container.streams.audio[0])]
    except (av.FFmpegError, IndexError) as error:
        raise click.ClickException(f"{name}: expected audio: {error}") from error
    return sum(lengths_s)
