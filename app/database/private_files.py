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
        mode = path.stat().st_mode
        if stat.S_ISREG(mode) and mode & OTHERS:
            path.chmod(FILE_MODE)
