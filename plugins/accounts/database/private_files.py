"""Files and folders that only the user of this process may read: they hold text, recordings and signing keys."""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import IO

FOLDER_MODE = 0o700
FILE_MODE = 0o600
OTHERS = 0o077
"""What a mode allows to everyone else."""
EVERYONE = 0o007
"""What a mode allows to those who are neither its owner nor of its group."""


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing. One that is there keeps the mode that its owner gave it."""
    for each in reversed((folder, *folder.parents)):
        each.mkdir(mode=FOLDER_MODE, exist_ok=True)


def new_file(path: Path) -> IO[bytes]:
    """A new file, open for writing. Raises `FileExistsError` if there is one."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "wb")


def keep_private(path: Path) -> None:
    """Make a file if there is none, and take it from others if an older release has made it."""
    with suppress(FileExistsError):
        new_file(path).close()
    take_from_others(path)


def take_from_others(path: Path) -> None:
    """Let only its owner read a file, if it is there. Another user's file keeps its mode, and so does a folder."""
    with suppress(FileNotFoundError, PermissionError):
        found = path.stat()
        if stat.S_ISREG(found.st_mode) and found.st_mode & OTHERS and found.st_uid == os.geteuid():
            path.chmod(FILE_MODE)


def close_folder(folder: Path) -> None:
    """Let only its owner into a folder that is for nothing else, if it is there and this user's."""
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        found = folder.stat()
        if found.st_mode & OTHERS and found.st_uid == os.geteuid():
            folder.chmod(FOLDER_MODE)


def is_open_to_everyone(folder: Path) -> bool:
    """Whether users of the machine who are not in its group may look into a folder, if it is there."""
    try:
        return bool(folder.stat().st_mode & EVERYONE)
    except OSError:
        return False
