"""Finds files after files that were joined byte by byte, and streams with a header on each chunk.

FFmpeg stops where the first header of a WAV says that its audio ends, or takes the next header for samples. Of MP4 it
reads the first. Of Matroska it reads two, and of FLAC and Ogg all, as if the others had the format of the first.
"""

import os
import re
import struct
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice, pairwise
from typing import IO, NamedTuple, Protocol, TypeGuard

from tutti_server.app.media.wav_header import (
    CHUNK,
    HEADER,
    HEADER_BYTES,
    BytesAt,
    WavBeginning,
    flowing,
    is_misleading,
    read_header,
)

Beginning = re.Pattern[bytes] | WavBeginning

MATROSKA = re.compile(rb"\x1aE\xdf\xa3.{1,80}?\x42\x82.{1,8}?(?:webm|matroska)", re.DOTALL)
"""How WebM and Matroska begin: the identity of their header, and in it the kind of the document."""
MATROSKA_BYTES = 110
"""The length of the longest such beginning, at least."""
MATROSKA_ID = b"\x1aE\xdf\xa3"
"""The first bytes of WebM and Matroska."""
MP4 = re.compile(rb"\0{3}[\x10-\xff]ftyp", re.DOTALL)
"""How an MP4 begins: with a short box that names its kinds."""
MP4_BYTES = 8
BOX = struct.Struct(">I4s")
"""The length of a box of an MP4, its header included, and its name."""
FRAGMENT = re.compile(rb"\0.{3}moof\0\0\0\x10mfhd", re.DOTALL)
"""How a fragment of an MP4 begins."""
FRAGMENT_BYTES = 16
MAX_HEAD_BYTES = 1 << 20
"""The most bytes before the first fragment."""
LONG_BOX = 1
"""In the place of its length: that it follows, with 64 bits. Another one that is too short ends the file."""
FLAC = re.compile(rb"fLaC[\0\x80]\0\0\x22", re.DOTALL)
"""How a FLAC begins: with its name, and the header of a block of 34 bytes."""
FLAC_BYTES = 8
OGG = re.compile(rb"OggS\0[\x02\x06]\0{8}", re.DOTALL)
"""How the first page of each stream of an Ogg begins. Those of all its streams come first."""
OGG_BYTES = 14
PAGE_HEAD_BYTES = 27
"""What is before the lengths of a page of Ogg. Its last byte says how many these are, of a byte each."""
READ_BYTES = 1 << 15
"""How much of a source is asked for at once, as FFmpeg does. A pipe of raw speech has it within seconds."""
SCAN_BYTES = 1 << 20
"""How much of a file is searched at once."""


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


def parts(source: Source) -> Iterator[Part]:
    """The files in a source, each as a source of its own.

    Those of Ogg with several streams are not parted in a source that is read once.
    """
    if _is_seekable(source):
        for start, end in _spans(source):
            part = FilePart(source, start, end)
            is_wav = HEADER.match(part.bytes_at(0, HEADER_BYTES))
            yield _WavPart(part) if is_wav and is_misleading(part.bytes_at, end - start) else part
        return
    stream = _Stream(source)
    yield stream
    while stream.skip():
        yield stream


def is_plain(file: IO[bytes]) -> bool:
    """Whether a file is one WAV alone, whose header states its length twice alike. Leaves it at its beginning."""
    head = _bytes_at(file, 0, HEADER_BYTES)
    first = list(islice(parts(file), 2)) if HEADER.match(head) else []
    is_alone = len(first) == 1 and isinstance(first[0], FilePart)
    header = read_header(partial(_bytes_at, file)) if is_alone else None
    file.seek(0)
    if header is None or header.stated is None:
        return False
    return header.data_at + header.stated <= CHUNK.size + int.from_bytes(head[4:8], "little")


def _is_seekable(source: Source) -> TypeGuard[IO[bytes]]:
    seekable = getattr(source, "seekable", None)
    return seekable is not None and bool(seekable())


def _spans(file: IO[bytes]) -> list[tuple[int, int]]:
    """Find where each file of a file begins and ends, in bytes. Leaves it at its beginning."""
    n_bytes = file.seek(0, os.SEEK_END)
    starts = [0]
    head = _bytes_at(file, 0, MATROSKA_BYTES)
    for header, begins in _BEGINNINGS:
        if header.match(head):
            starts += begins(file)
    file.seek(0)
    return list(pairwise([*starts, n_bytes]))


def _next_wavs(file: IO[bytes]) -> Iterator[int]:
    start = _find_header(file, _audio_start(file, 0))
    while start is not None:
        yield start
        start = _find_header(file, _audio_start(file, start))


def _next_headers(file: IO[bytes], header: Beginning, n_header: int) -> Iterator[int]:
    start = _find_header(file, 1, header, n_header)
    while start is not None:
        yield start
        start = _find_header(file, start + 1, header, n_header)


def _next_oggs(file: IO[bytes]) -> Iterator[int]:
    """Where each Ogg but the first begins. The first pages of its streams follow one another."""
    bytes_at = partial(_bytes_at, file)
    end = _page_end(bytes_at, 0)
    while (start := _find_header(file, end, OGG, OGG_BYTES)) is not None:
        if start > end:
            yield start
        end = _page_end(bytes_at, start)


def _page_end(bytes_at: BytesAt, start: int) -> int:
    head = bytes_at(start, PAGE_HEAD_BYTES)
    n_lengths = head[-1] if len(head) == PAGE_HEAD_BYTES else 0
    return start + PAGE_HEAD_BYTES + n_lengths + sum(bytes_at(start + PAGE_HEAD_BYTES, n_lengths))


def _next_mp4s(file: IO[bytes]) -> Iterator[int]:
    at = 0
    while len(head := _bytes_at(file, at, BOX.size)) == BOX.size:
        length, name = BOX.unpack(head)
        if name == b"ftyp" and at:
            yield at
        if length == LONG_BOX:
            length = int.from_bytes(_bytes_at(file, at + BOX.size, 8))
        if length < BOX.size:
            return
        at += length


_BEGINNINGS: tuple[tuple[Beginning, Callable[[IO[bytes]], Iterator[int]]], ...] = (
    (HEADER, _next_wavs),
    (MP4, _next_mp4s),
    (OGG, _next_oggs),
    (MATROSKA, partial(_next_headers, header=MATROSKA, n_header=MATROSKA_BYTES)),
    (FLAC, partial(_next_headers, header=FLAC, n_header=FLAC_BYTES)),
)
"""How files begin, and what finds where those begin that follow the first one."""


def _audio_start(file: IO[bytes], start: int) -> int:
    """Return where this WAV's audio begins. It may end before its header says so, if it was cut off."""
    header = read_header(lambda at, n: _bytes_at(file, start + at, n))
    return start + (HEADER_BYTES if header is None else header.data_at)


def _find_header(file: IO[bytes], at: int, header: Beginning = HEADER, n_header: int = HEADER_BYTES) -> int | None:
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

    def __init__(self, file: IO[bytes], start: int, end: int, head: bytes = b"") -> None:
        self._file = file
        self._head = head
        self._start = start - len(head)
        self._n_bytes = end - self._start
        self._at = 0

    @property
    def is_empty(self) -> bool:
        """See `Part`."""
        return self._n_bytes == 0

    def stated_share(self) -> float:
        """How many times as much audio as there is the header of a WAV states; 1 where it states no more.

        What another WAV follows is a chunk of a stream, whose header cannot know its length.
        """
        if self._start + self._n_bytes < self._file.seek(0, os.SEEK_END):
            return 1.0
        header = read_header(self.bytes_at)
        if header is None or header.stated is None:
            return 1.0
        n_left = self._n_bytes - header.data_at
        return header.stated / n_left if header.stated > n_left > 0 else 1.0

    def fragments_after(self, at: int) -> "FilePart | None":
        """The fragments of an MP4 behind this position, with what is before the first one; `None` for none.

        FFmpeg stops at a fragment whose header is damaged.
        """
        n_head = len(self._head)
        if not n_head:
            first = FRAGMENT.search(self.bytes_at(0, MAX_HEAD_BYTES))
            n_head = first.start() if first else 0
        # The first fragment has been tried.
        start = max(at, n_head + 1)
        while n_head and len(piece := self.bytes_at(start, SCAN_BYTES)) >= FRAGMENT_BYTES:
            if found := FRAGMENT.search(piece):
                begin = self._start + start + found.start()
                return FilePart(self._file, begin, self._start + self._n_bytes, self.bytes_at(0, n_head))
            start += len(piece) - FRAGMENT_BYTES + 1
        return None

    def bytes_at(self, at: int, n: int) -> bytes:
        """Bytes from this position on, wherever `read` is."""
        n = max(min(n, self._n_bytes - at), 0)
        own = self._head[at : at + n]
        return own + _bytes_at(self._file, self._start + at + len(own), n - len(own))

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


class _Pieces:
    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._held = b""

    def read(self, n: int, /) -> bytes:
        while not self._held and (piece := next(self._pieces, None)) is not None:
            self._held = piece
        content, self._held = self._held[:n], self._held[n:]
        return content


class _WavPart:
    """A WAV in a file that has more audio than its header states. It is read once."""

    is_empty = False

    def __init__(self, part: FilePart) -> None:
        self._pieces = _Pieces(flowing(partial(part.read, SCAN_BYTES)))

    def read(self, n: int, /) -> bytes:
        return self._pieces.read(n)


class _Kind(NamedTuple):
    """A kind of containers that follow one another in a stream."""

    header: Beginning
    """How each of them begins."""
    n_header: int
    """The bytes after which it is known whether they are a header."""
    marks: tuple[tuple[int, tuple[bytes, ...]], ...]
    """Positions in a header, and what may be there."""

    def may_begin(self, content: bytes) -> bool:
        """Whether these bytes, fewer than a header has, may be the beginning of one."""
        return all(any(each.startswith(content[at : at + len(each)]) for each in known) for at, known in self.marks)


_OGG = _Kind(OGG, OGG_BYTES, ((0, (b"OggS\0",)), (5, (b"\x02", b"\x06")), (6, (bytes(8),))))
_KINDS = (
    _OGG,
    _Kind(HEADER, HEADER_BYTES, ((0, (b"RIFF", b"RF64", b"BW64")), (8, (b"WAVE",)))),
    _Kind(MATROSKA, MATROSKA_BYTES, ((0, (MATROSKA_ID,)),)),
    _Kind(FLAC, FLAC_BYTES, ((0, (b"fLaC",)), (4, (bytes(1), b"\x80")), (5, (b"\0\0\x22",)))),
    _Kind(MP4, MP4_BYTES, ((0, (bytes(3),)), (4, (b"ftyp",)))),
)


class _Stream:
    """A source that is read once. If its kind is one of `_KINDS`, `read` ends where the next one begins."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._held = b""
        """Bytes that were read, and that the caller has not received."""
        self._is_at_start = True
        """Whether the caller has received no byte of the present container."""
        self._ahead(0, HEADER_BYTES)
        self._kind = next((each for each in _KINDS if self._held and each.may_begin(self._held)), None)
        if self._kind is _OGG and OGG.match(self._ahead(_page_end(self._ahead, 0), OGG_BYTES)):
            # The first pages of several streams cannot be told from those of the next Ogg.
            self._kind = None
        self.is_empty = not self._held
        self._pieces = self._flow()

    def _ahead(self, at: int, n: int) -> bytes:
        """At most `n` bytes from the position `at` on. They stay held, for the caller to read later."""
        while len(self._held) < at + n and (data := self._source.read(at + n - len(self._held))):
            self._held += data
        return self._held[at : at + n]

    def read(self, n: int, /) -> bytes:
        return self._pieces.read(n)

    def skip(self) -> bool:
        """Leave out what follows the audio of the present container. Returns whether another one begins then."""
        if self._kind is None:
            return False
        while self.read(SCAN_BYTES):
            pass
        self._is_at_start = True
        self._pieces = self._flow()
        return self._has_next()

    def _flow(self) -> _Pieces:
        read = partial(self._read_own, READ_BYTES)
        is_wav = self._kind is not None and self._kind.header is HEADER
        return _Pieces(flowing(read) if is_wav else iter(read, b""))

    def _read_own(self, n: int) -> bytes:
        while not (n_own := self._n_own()) and not (self._has_next() and not self._is_at_start):
            data = self._source.read(n)
            if not data:
                n_own = len(self._held)
                break
            self._held += data
        content, self._held = self._held[: min(n, n_own)], self._held[min(n, n_own) :]
        self._is_at_start &= not content
        return content

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
