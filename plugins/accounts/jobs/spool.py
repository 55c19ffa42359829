"""The recordings of jobs: what keeps them, and the folder that does it where the operator names no other place.

All gateways that work on the jobs must see the same recordings.
"""

import io
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from typing import IO, Protocol

from tutti_server.app.errors import SettingsError
from tutti_server.plugins.accounts.database.private_files import keep_private, make_folder, new_file, take_from_others

S3 = "s3://"
"""How the address of a bucket begins."""
PIECE_BYTES = 1 << 20
PARTIAL = ".partial-"
"""Begins the name of a file that is being written, or of one that only tries the spool out."""
ABANDONED_S = 3600.0
"""A file that was not written to for so long, in seconds, belongs to a server that was stopped or killed meanwhile."""
MARK = ".tutti-recordings"
"""A file in the folder of the recordings, with the mark of this folder. Where it is missing, its disk is not mounted.

An operator makes it anew, empty, to go on with another folder. Older releases have made it empty, too.
"""
PROBE = b"tutti"
"""What is written to try a spool out."""
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class SpoolAway(OSError):
    """The store of the recordings does not answer, or refuses. The message is for the operator, not for clients."""


class AllAway(SpoolAway):
    """The store of all recordings is not there, which says nothing of one of them."""


class SpoolFull(SpoolAway):
    """The store of the recordings has no room."""


class FolderUnknown(SpoolAway):
    """Raised while the service cannot know which folder has the recordings."""


Recall = Callable[[str | None], str | None]
"""Gives the mark of the folder that has the recordings, `None` while none has it; raises `FolderUnknown`.

It gets the mark of the folder that is there, if it has one, and keeps that where it knows no other.
"""


def recall_nothing(found: str | None) -> str | None:
    """The `Recall` of one process, which takes the folder that it finds."""
    return None if found is None else found or token_hex(8)


def is_job_id(text: str) -> bool:
    """Whether a job may have this id. PostgreSQL cannot even be asked for some of the others."""
    return _ID.fullmatch(text) is not None


def is_ours(name: str) -> bool:
    """Whether a file with this name is the spool's: the place may hold other files, which are left alone."""
    return name.startswith(PARTIAL) or is_job_id(name)


class Spool(Protocol):
    """Keeps recordings by the ids of their jobs. Its methods block, so they are called in threads."""

    def put(self, id_: str, file: IO[bytes]) -> None:
        """Keep a recording, for good once this returns. Raises `OSError` if it cannot be kept."""
        ...

    def open(self, id_: str) -> IO[bytes]:
        """The recording of a job, which the caller closes. Raises `FileNotFoundError` if it is not there."""
        ...

    def delete(self, id_: str) -> None:
        """Delete a recording, if it is there."""
        ...

    def older_than(self, age_s: float) -> Iterator[str]:
        """The ids of recordings that were kept so long ago, in seconds."""
        ...


def try_out(spool: Spool) -> None:
    """Keep, read, list and delete something. Raises `OSError` if the spool cannot do one of them."""
    name = f"{PARTIAL}{token_hex(8)}"
    spool.put(name, io.BytesIO(PROBE))
    with spool.open(name) as file:
        content = file.read()
    if content != PROBE:
        raise SpoolAway(f"expected what was written, got {len(content)} bytes of something else")
    for _ in spool.older_than(0.0):
        break
    spool.delete(name)


class FolderSpool:
    """Recordings as files of a folder, which only this user may read."""

    def __init__(self, folder: Path, recall: Recall = recall_nothing) -> None:
        """The folder is made when the first recording comes."""
        self.folder = folder
        self._recall = recall
        self._marking = threading.RLock()
        """Held while the mark is looked for or made, as recordings come in several threads."""
        self._found = self._mark()
        """The mark at the start."""
        self._expected: str | None = None
        """The mark of the folder that has the recordings, once it is known."""

    def keep_private(self) -> None:
        """Take the recordings of an older release, which let others read them, from others.

        Of a folder that cannot be listed `try_out` says so.
        """
        with suppress(OSError):
            for path in self.folder.iterdir():
                if is_ours(path.name) and not path.is_symlink():
                    take_from_others(path)

    def put(self, id_: str, file: IO[bytes]) -> None:
        """See `Spool`. A loss of power leaves the whole recording or none."""
        with self._marking:
            self._check_mark()
            if self._expected is None:
                make_folder(self.folder)
                keep_private(self.folder / MARK)
                self._check_mark()
        try:
            self._write(id_, file)
        except FileNotFoundError as error:
            raise SpoolAway(f"the folder has gone meanwhile: {error}") from error

    def _write(self, id_: str, file: IO[bytes]) -> None:
        partial = self.folder / f"{PARTIAL}{token_hex(8)}"
        try:
            with new_file(partial) as copy:
                shutil.copyfileobj(file, copy, PIECE_BYTES)
                copy.flush()
                os.fsync(copy.fileno())
            partial.rename(self.folder / id_)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def open(self, id_: str) -> IO[bytes]:
        """See `Spool`."""
        try:
            return (self.folder / id_).open("rb")
        except FileNotFoundError:
            self._check_mark()
            raise

    def delete(self, id_: str) -> None:
        """See `Spool`."""
        self._check_mark()
        (self.folder / id_).unlink(missing_ok=True)

    def _check_mark(self) -> None:
        """Raise `AllAway` where another folder is in the place of the one that has the recordings."""
        with self._marking:
            mark = self._mark()
            if self._expected is None:
                self._expected = self._recall(self._found if mark is None else mark)
            if self._expected is None or mark == self._expected:
                return
            path = self.folder / MARK
            if mark == "":
                path.write_text(self._expected)
                return
            expected = f"expected the file {MARK} in {self.folder}"
            got = "got none" if mark is None else f"got {mark} in it, not {self._expected}, the mark of the recordings"
            advice = "mount its disk, or make this file, empty, to go on without the recordings that are not there"
            raise AllAway(f"{expected}, {got}: {advice}")

    def _mark(self) -> str | None:
        """The mark of the folder that is there; `None` for one without."""
        try:
            return (self.folder / MARK).read_text().strip()
        except (OSError, UnicodeDecodeError):
            # The folder may not be entered, or its disk has failed.
            return None

    def older_than(self, age_s: float) -> Iterator[str]:
        """See `Spool`. Files that were never finished are among them, from `ABANDONED_S` on."""
        self._check_mark()
        if not self.folder.is_dir():
            return
        for path in self.folder.iterdir():
            with suppress(FileNotFoundError):
                least_s = min(age_s, ABANDONED_S) if path.name.startswith(PARTIAL) else age_s
                # The file system has the time of day, too.
                if is_ours(path.name) and path.is_file() and time.time() - path.stat().st_mtime >= least_s:
                    yield path.name


def check_place(text: str) -> None:
    """Check the setting `job_spool`.

    Raises:
        SettingsError: it is no such place, or the client of object stores is not installed.
    """
    if "://" not in text:
        return
    if not text.startswith(S3) or not bucket_of(text)[0]:
        raise SettingsError(f"job_spool: expected a folder or s3://bucket/folder, got {text!r}")
    if find_spec("obstore") is None:
        raise SettingsError("job_spool: needs obstore: pip install 'tutti-asr[s3]'")


def bucket_of(address: str) -> tuple[str, str]:
    """The bucket and the folder of an address; no bucket if it has more than these."""
    bucket, _, folder = address.removeprefix(S3).partition("/")
    folder = folder.strip("/")
    are_names = address.isprintable() and not (folder and {"", ".", ".."} & set(folder.split("/")))
    is_valid = are_names and not set(address) & set("?#@%") and not set(bucket) & set(":")
    return (bucket, folder) if is_valid else ("", "")
