"""What every reader of a format gives: sizes and defaults in the words of transformers, a tokenizer, and weights."""

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from tutti_server.engine.checkpoint.tokenizer import Tokenizer
from tutti_server.engine.errors import CheckpointError

BLOCK_NUMBERS = 1 << 20
"""The most numbers of a weight that are read at a time, unless a row has more. They are 4 MB in float32."""
MAX_NAME_BYTES = 256
"""The longest name of a weight in a binary file. A longer one is a sign of damage, and an error would be full of it."""
_GIT_POINTER = b"version https://git-lfs"
"""The first bytes of the text that Git keeps in place of a large file."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight in a file. Its shape is known, and its numbers are read a block of rows at a time."""

    shape: tuple[int, ...]
    read: Callable[[int, int], Any]
    """Reads the rows from the first to before the second argument: floats, as an array or a tensor.

    The block may have another shape than the rows, but has their numbers in their order.
    """

    def blocks(self) -> Iterator[tuple[int, int, Any]]:
        """The blocks of the weight: first row, the row after the last, numbers."""
        n_rows = max(1, BLOCK_NUMBERS // max(1, prod(self.shape[1:])))
        for first in range(0, self.shape[0], n_rows):
            last = min(first + n_rows, self.shape[0])
            yield first, last, self.read(first, last)

    def split(self, n_parts: int) -> list["Weight"]:
        """The weights of which this one was joined, row after row."""
        n_rows = self.shape[0] // n_parts
        return [self._part(index * n_rows, n_rows) for index in range(n_parts)]

    def _part(self, start: int, n_rows: int) -> "Weight":
        return Weight((n_rows, *self.shape[1:]), lambda first, last: self.read(start + first, start + last))


@dataclass(frozen=True, slots=True)
class Contents:
    """What the files of a checkpoint hold, whatever their format is."""

    config: Mapping[str, Any]
    """Sizes, as in transformers' `config.json`."""
    defaults: Mapping[str, Any]
    """Decoding defaults, as in transformers' `generation_config.json`."""
    tokenizer: Tokenizer
    weights: Callable[[], dict[str, Weight]]
    """Finds the weights, by the names that transformers gives them."""


def refuse_git_pointer(file: Path) -> None:
    """Check that a file of weights is not the text that Git keeps in place of a large file that was not fetched.

    Raises:
        CheckpointError: it is.
    """
    with file.open("rb") as opened:
        if opened.read(len(_GIT_POINTER)) == _GIT_POINTER:
            raise CheckpointError(
                f"{file}: expected weights, got a pointer of Git LFS; run `git lfs pull` in its folder"
            )


class BinaryFile:
    """Reads the header of a binary file from front to back, and takes no more memory than the file has bytes."""

    def __init__(self, path: Path) -> None:
        """Open a file.

        Raises:
            CheckpointError: Git has not fetched it.
        """
        refuse_git_pointer(path)
        self.path = path
        self._n_bytes = path.stat().st_size
        self._file = path.open("rb")

    def __enter__(self) -> "BinaryFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def skip(self, n_bytes: int, what: str) -> int:
        """Go past bytes, and return the position of the first one.

        Raises:
            CheckpointError: the file ends before them.
        """
        start = self._file.tell()
        if not 0 <= n_bytes <= self._n_bytes - start:
            raise CheckpointError(
                f"{self.path}: expected {n_bytes} bytes of {what} at byte {start}, got {self._n_bytes - start}; the "
                "file is incomplete or broken: fetch it again"
            )
        self._file.seek(n_bytes, 1)
        return start

    def bytes(self, n_bytes: int, what: str) -> bytes:
        """Return the next bytes."""
        start = self.skip(n_bytes, what)
        self._file.seek(start)
        return self._file.read(n_bytes)

    def numbers(self, form: str, what: str) -> tuple[int, ...]:
        """The next numbers, which have the form that `struct` knows, little-endian."""
        return struct.unpack(f"<{form}", self.bytes(struct.calcsize(f"<{form}"), what))

    def number(self, form: str, what: str) -> int:
        """Return the next number."""
        return self.numbers(form, what)[0]

    def is_at_end(self) -> bool:
        """Whether all bytes were read."""
        return self._file.tell() == self._n_bytes
