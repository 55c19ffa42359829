"""Finds WAV after WAV: files that were joined byte by byte, and streams with a header on each chunk.

FFmpeg stops where the first header says that its audio ends, or takes the next header for samples. Of joined files of
Matroska it reads two, so each one of a stream, and the third of a file, is found here as well.
"""

import os
import re
import struct
from collections.abc import Iterator
from typing import IO, NamedTuple, Protocol, TypeGuard

HEADER = re.compile(rb"RIFF....WAVE", re.DOTALL)
"""How a WAV begins. No audio has these bytes by chance."""
HEADER_BYTES = 12
MATROSKA = re.compile(rb"\x1aE\xdf\xa3.{1,80}?\x42\x82.{1,8}?(?:webm|matroska)", re.DOTALL)
"""How WebM and Matroska begin: the identity of their header, and in it the kind of the document."""
MATROSKA_BYTES = 110
"""The length of the longest such beginning, at least."""
MATROSKA_ID = b"\x1aE\xdf\xa3"
"""The first bytes of WebM and Matroska."""
CHUNK = struct.Struct("<4sI")
"""The name of a chunk and its length in bytes."""
SCAN_BYTES = 1 << 20
"""How much of a file is searched at once."""
UNKNOWN = (range(1), range(0x7FFF0000, 0x80000001), range(0xFFFF0000, 1 << 32))
"""The lengths in headers that were written before the length was known: 0, and those near 2 and 4 GiB.

Recorders that write to a pipe state about the most that a header can say.
"""


class Source(Protocol):
    """A source of the bytes of a container. One without a method `seek` is read once, from beginning to end."""

    def read(self, n: int, /) -> bytes:
        """Read up to `n` bytes; returns no bytes at the end."""
        ...


class Part(Source, Protocol):
    """A part of a source, which may be all of it."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no bytes at all."""
        ...

    def stated_share(self) -> float:
        """How many times as much audio as there is the header of a WAV states; 1 where it states no more."""
        ...


def parts(source: Source) -> Iterator[Part]:
    """The WAVs in a source, each as a source of its own; all of it if it does not begin with a WAV.

    Of a source that is read once, the same for WebM and Matroska.
    """
    if _is_seekable(source):
        for start, end in list(_spans(source)) or [(0, source.seek(0, os.SEEK_END))]:
            yield FilePart(source, start, end)
        return
    stream = _Stream(source)
    yield stream
    while stream.may_be_joined and stream.skip():
        yield stream


def are_joined(file: IO[bytes]) -> bool:
    """Whether a file is WAV after WAV. Leaves it at its beginning."""
    spans = _spans(file)
    next(spans, None)
    is_joined = next(spans, None) is not None
    file.seek(0)
    return is_joined


def _is_seekable(source: Source) -> TypeGuard[IO[bytes]]:
    seekable = getattr(source, "seekable", None)
    return seekable is not None and bool(seekable())


def _spans(file: IO[bytes]) -> Iterator[tuple[int, int]]:
    """Find where each WAV of a file begins and ends, in bytes."""
    n_bytes = file.seek(0, os.SEEK_END)
    start: int | None = 0
    while start is not None and HEADER.match(_bytes_at(file, start, HEADER_BYTES)):
        following = _find_header(file, _audio_start(file, start))
        yield start, n_bytes if following is None else following
        start = following
    file.seek(0)


def _audio_start(file: IO[bytes], start: int) -> int:
    """Return where this WAV's audio begins. It may end before its header says so, if it was cut off."""
    at = start + HEADER_BYTES
    while len(head := _bytes_at(file, at, CHUNK.size)) == CHUNK.size:
        name, length = CHUNK.unpack(head)
        at += CHUNK.size
        if name == b"data":
            return at
        # Chunks begin at even positions.
        at += length + length % 2
    return start + HEADER_BYTES


def _is_unknown(length: int) -> bool:
    return any(length in each for each in UNKNOWN)


def _find_header(
    file: IO[bytes], at: int, header: re.Pattern[bytes] = HEADER, n_header: int = HEADER_BYTES
) -> int | None:
    """Find the next WAV, or another file with such a header, from this position on."""
    while len(piece := _bytes_at(file, at, SCAN_BYTES)) >= HEADER_BYTES:
        if found := header.search(piece):
            return at + found.start()
        if len(piece) < SCAN_BYTES:
            return None
        # A header may lie across the end of the piece.
        at += len(piece) - n_header + 1
    return None


def _bytes_at(file: IO[bytes], at: int, n: int) -> bytes:
    file.seek(at)
    return file.read(n)


class FilePart:
    """A part of a file, as a file of its own."""

    def __init__(self, file: IO[bytes], start: int, end: int) -> None:
        self._file = file
        self._start = start
        self._n_bytes = end - start
        self._at = 0

    @property
    def is_empty(self) -> bool:
        """See `Part`."""
        return self._n_bytes == 0

    def stated_share(self) -> float:
        """See `Part`. What another WAV follows is a chunk of a stream, whose header cannot know its length."""
        if self._start + self._n_bytes < self._file.seek(0, os.SEEK_END):
            return 1.0
        at = HEADER_BYTES
        while len(head := _bytes_at(self._file, self._start + at, CHUNK.size)) == CHUNK.size:
            name, length = CHUNK.unpack(head)
            at += CHUNK.size
            if name == b"data":
                n_left = self._n_bytes - at
                return length / n_left if length > n_left > 0 and not _is_unknown(length) else 1.0
            at += length + length % 2
        return 1.0

    def matroska_after(self, at: int) -> "FilePart | None":
        """The WebM or Matroska that begins behind this position; `None` for none. FFmpeg reads two that are joined."""
        start = _find_header(self._file, self._start + at, MATROSKA, MATROSKA_BYTES)
        end = self._start + self._n_bytes
        return None if start is None or start >= end else FilePart(self._file, start, end)

    def bytes_at(self, at: int, n: int) -> bytes:
        """Bytes from this position on, wherever `read` is."""
        return _bytes_at(self._file, self._start + at, max(min(n, self._n_bytes - at), 0))

    def read(self, n: int, /) -> bytes:
        """See `Source`."""
        content = self.bytes_at(self._at, n)
        self._at += len(content)
        return content

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to a position, as a file does, but return -1 for one before the beginning.

        FFmpeg looks for tags at the end of a file, also of one that is too short for them. PyAV prints exceptions.
        """
        at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._n_bytes}[whence]
        if at < 0:
            return -1
        self._at = at
        return at

    def tell(self) -> int:
        """Return the position, as a file does."""
        return self._at


class _Kind(NamedTuple):
    """A kind of containers that follow one another in a stream."""

    header: re.Pattern[bytes]
    """How each of them begins."""
    n_header: int
    """The bytes after which it is known whether they are a header."""
    identity: bytes
    """The first bytes of a header."""
    form: bytes = b""
    """What follows the next four bytes."""

    def may_begin(self, content: bytes) -> bool:
        """Whether these bytes, fewer than a header has, may be the beginning of one."""
        at = len(self.identity) + 4
        return self.identity.startswith(content[: len(self.identity)]) and self.form.startswith(
            content[at : at + len(self.form)]
        )


_KINDS = (
    _Kind(HEADER, HEADER_BYTES, b"RIFF", b"WAVE"),
    _Kind(MATROSKA, MATROSKA_BYTES, MATROSKA_ID),
)


class _Stream:
    """A source that is read once. If it begins with a WAV, or with Matroska, `read` ends where the next one begins."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._held = b""
        """Bytes that were read, and that the caller has not received."""
        self._is_at_start = True
        """Whether the caller has received no byte of the present container."""
        while len(self._held) < HEADER_BYTES and (data := source.read(HEADER_BYTES - len(self._held))):
            self._held += data
        self._kind = next((each for each in _KINDS if self._held and each.may_begin(self._held)), None)
        self.is_empty = not self._held

    @property
    def may_be_joined(self) -> bool:
        """Whether another container may follow the first one."""
        return self._kind is not None

    def stated_share(self) -> float:
        """Nothing that is read once can be shorter than its header says before it ends."""
        return 1.0

    def read(self, n: int, /) -> bytes:
        """See `Source`."""
        while not (n_own := self._n_own()) and not (self._has_next() and not self._is_at_start):
            data = self._source.read(n)
            if not data:
                n_own = len(self._held)
                break
            self._held += data
        content, self._held = self._held[: min(n, n_own)], self._held[min(n, n_own) :]
        self._is_at_start &= not content
        return content

    def skip(self) -> bool:
        """Leave out what follows the audio of the present container. Returns whether another one begins then."""
        while self.read(SCAN_BYTES):
            pass
        self._is_at_start = True
        return self._has_next()

    def _has_next(self) -> bool:
        return self._kind is not None and self._kind.header.match(self._held) is not None

    def _n_own(self) -> int:
        """How many of the bytes that are held belong to the present container."""
        if self._kind is None:
            return len(self._held)
        first = int(self._is_at_start)
        if found := self._kind.header.search(self._held, first):
            return found.start()
        for at in range(max(first, len(self._held) - self._kind.n_header + 1), len(self._held)):
            if self._kind.may_begin(self._held[at:]):
                return at
        return len(self._held)
