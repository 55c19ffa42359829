"""The recordings that a command transcribes, and the files that it writes."""

import os
import shutil
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, BinaryIO

import click

from tutti_server.app.files.formats import Layout

STDIN = "-"
"""The name of the recording that comes from the standard input."""
SUFFIXES = frozenset(
    ".3gp .aac .ac3 .aif .aiff .amr .ape .au .avi .caf .flac .flv .m4a .m4b .m4v .mka .mkv .mov .mp2 .mp3 .mp4 .mpeg "
    ".mpg .mts .oga .ogg .ogv .opus .ra .spx .w64 .wav .weba .webm .wma .wmv .wv".split()
)
"""The files of a folder that are taken for recordings. A file that is named itself may have any suffix."""
MP4_MARK = slice(4, 8), b"ftyp"
"""The position and the bytes by which MP4 and its relatives are known. Their index is often at the end."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A file that holds audio, or the standard input."""

    name: str
    """What the user calls it; it can be written as UTF-8."""
    path: Path | None
    """The file of the recording; `None` for the standard input."""
    output_name: Path
    """The name of the file that is written for it, without the suffix of the format, below the output folder."""
    track: int | None = None
    """Which of its audio tracks this is, where all are transcribed."""

    def of_track(self, number: int, language: str | None) -> "Recording":
        """One track of this recording, as a recording of its own: `film.track-1.srt` is written for it."""
        named = f"{self.name}, track {number}" + (f" ({language})" if language else "")
        # The suffix of the output format replaces the last one, so that a name without a suffix gets one.
        suffix = self.output_name.suffix or ".film"
        output_name = self.output_name.with_name(f"{self.output_name.stem}.track-{number}{suffix}")
        return replace(self, name=named, output_name=output_name, track=number)

    @contextmanager
    def opened(self, *, is_searched: bool = False) -> Iterator[BinaryIO]:
        """Open it at its beginning. A pipe cannot go back, and is copied to a temporary file where that is needed.

        Args:
            is_searched: whether it must be possible to go back in it.

        Raises:
            OSError: it cannot be read.
        """
        with open(sys.stdin.fileno() if self.path is None else self.path, "rb", closefd=self.path is not None) as file:
            if file.seekable() or not (is_searched or file.peek(8)[MP4_MARK[0]] == MP4_MARK[1]):
                yield file
                return
            with tempfile.TemporaryFile() as copy:
                shutil.copyfileobj(file, copy)
                copy.seek(0)
                yield copy


def find_recordings(inputs: Sequence[str]) -> tuple[list[Recording], list[str]]:
    """The recordings that these names mean: files, `-`, and folders with all that is below them.

    Returns:
        the recordings, and a sentence for each name that means none, and for each folder and link that cannot be read.
    """
    found: list[Recording] = []
    problems: list[str] = []
    for name in inputs:
        path = Path(name)
        try:
            if name == STDIN and any(each.path is None for each in found):
                problems.append(f"{STDIN}: expected the standard input once, got it twice")
            elif name == STDIN:
                found.append(Recording(STDIN, None, Path("stdin")))
            elif not name:
                # A variable of a script was empty. As a path, an empty name means the present folder.
                problems.append("INPUT: expected a file or a folder, got an empty name")
            elif path.is_dir():
                inside, unreadable = _inside(path)
                problems += [f"{each.filename}: {each.strerror}" for each in unreadable]
                if not inside and not unreadable:
                    problems.append(f"{name}: expected a folder with audio or video files, found none in it")
                found += [Recording(_printable(str(each)), each, each.relative_to(path)) for each in inside]
            elif path.exists():
                found.append(Recording(_printable(name), path, Path(path.name)))
            else:
                problems.append(f"{name}: expected a file or a folder, found none of this name")
        except OSError as error:
            problems.append(f"{name}: {error.strerror}")
    return found, problems


def _printable(name: str) -> str:
    """The name of a file with a replacement character for what is not UTF-8."""
    return name.encode(errors="surrogateescape").decode(errors="replace")


def _inside(folder: Path) -> tuple[list[Path], list[OSError]]:
    """The recordings below a folder, in the order of their names, and why folders and links below it cannot be read.

    Hidden files and folders are left out, and so are pipes and sockets, which may have no writer.
    """
    found: list[Path] = []
    unreadable: list[OSError] = []
    for parent, folders, files in os.walk(folder, onerror=unreadable.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        names = (name for name in sorted(files) if not name.startswith("."))
        for path in (Path(parent, name) for name in names if Path(name).suffix.lower() in SUFFIXES):
            try:
                if stat.S_ISREG(path.stat().st_mode):
                    found.append(path)
            except OSError as error:
                unreadable.append(error)
    return found, unreadable


@dataclass(frozen=True, slots=True)
class Destination:
    """Says to which files transcripts are written."""

    output: str | None = None
    """A file, or a folder for a file of each recording; `None` for the standard output."""
    is_beside: bool = False
    """Whether a file is written beside each recording."""

    @property
    def is_folder(self) -> bool:
        """Whether `output` is a folder: one that exists, or a name that ends with a slash."""
        return self.output is not None and (self.output.endswith("/") or Path(self.output).is_dir())

    def paths(self, recordings: Sequence[Recording], layout: Layout) -> list[Path | None]:
        """The file of each recording; `None` for the standard output.

        Raises:
            click.UsageError: there is no place for each of the transcripts, or one would overwrite a recording.
            OSError: a file cannot be looked at.
        """
        if self.output == "":
            raise click.UsageError("--output: expected a file or a folder, got an empty name")
        if not recordings:
            return []
        if self.output is None and not self.is_beside:
            if len(recordings) > 1 and not layout.may_follow:
                raise click.UsageError(
                    f"--format {layout.format}: expected --beside or --output with a folder, as {len(recordings)} "
                    "recordings make as many files"
                )
            return [None] * len(recordings)
        if self.output is not None and not self.is_folder:
            if len(recordings) > 1:
                raise click.UsageError(
                    f"--output: expected a folder for the transcripts of {len(recordings)} recordings, got "
                    f"{self.output!r}; end its name with / to make one"
                )
            paths = [Path(self.output)]
        else:
            paths = self._beside_or_below(recordings, layout.suffix)
        _refuse_overwriting(recordings, paths)
        return list(paths)

    def _beside_or_below(self, recordings: Sequence[Recording], suffix: str) -> list[Path]:
        if self.is_beside and any(recording.path is None for recording in recordings):
            raise click.UsageError("--beside: expected files, got - (the standard input), which lies in no folder")
        below = Path(self.output or ".")
        bases = [
            each.path.with_name(each.output_name.name) if self.is_beside and each.path else below / each.output_name
            for each in recordings
        ]
        plain = [base.with_suffix(suffix) for base in bases]
        # talk.mp3 and talk.mp4 get talk.mp3.srt and talk.mp4.srt.
        counts = Counter(plain)
        return [
            base.with_name(base.name + suffix) if counts[path] > 1 else path
            for base, path in zip(bases, plain, strict=True)
        ]


def _refuse_overwriting(recordings: Iterable[Recording], paths: Sequence[Path]) -> None:
    twice = [str(path) for path, count in Counter(paths).items() if count > 1]
    if twice:
        raise click.UsageError(f"--output: expected a file for each recording, got two or more for {twice[0]}")
    existing = {_identity(path): path for path in paths if path.exists()}
    for recording in recordings if existing else ():
        if recording.path and (path := existing.get(_identity(recording.path))):
            raise click.UsageError(f"--output: expected another file than the recording, got {path}")


def _identity(path: Path) -> tuple[int, int]:
    """What a file has under each of its names."""
    status = path.stat()
    return status.st_dev, status.st_ino


@contextmanager
def opened_output(path: Path) -> Iterator[IO[str]]:
    """Open a file for a transcript. It has its name only once it is complete; then it replaces an older one.

    A link stays, and what it names is replaced.

    Raises:
        OSError: it cannot be written.
    """
    if path.exists() and not path.is_file():
        # A device or a pipe.
        with path.open("w", encoding="utf-8") as file:
            yield file
        return
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    try:
        with part.open("w", encoding="utf-8") as file:
            yield file
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
