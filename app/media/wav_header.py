"""Reads the headers of WAV, RF64 and BW64 files, and corrects one that states less audio than follows it."""

import re
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass


class WavBeginning:
    """How a WAV begins: a pattern that is found by its end. `re` searches for one that begins with a choice slowly."""

    _PATTERN = re.compile(rb"(?:RIFF|RF64|BW64)....WAVE", re.DOTALL)
    _END = re.compile(rb"WAVE(?<=(?:RIFF|RF64|BW64)....WAVE)", re.DOTALL)
    _END_AT = 8

    def match(self, content: bytes) -> re.Match[bytes] | None:
        """See `re.Pattern.match`."""
        return self._PATTERN.match(content)

    def search(self, content: bytes, at: int = 0) -> re.Match[bytes] | None:
        """See `re.Pattern.search`."""
        found = self._END.search(content, at + self._END_AT)
        return self._PATTERN.match(content, found.start() - self._END_AT) if found else None


HEADER = WavBeginning()
"""No audio has these bytes by chance."""
HEADER_BYTES = 12
CHUNK = struct.Struct("<4sI")
"""The name of a chunk and its length in bytes."""
UNKNOWN = (range(1), range(0x7FFF0000, 0x80000001), range(0xFFFF0000, 1 << 32))
"""The lengths in headers that were written before the length was known: 0, and those near 2 and 4 GiB.

Recorders that write to a pipe state about the most that a header can say.
"""
IN_DS64 = 0xFFFFFFFF
"""The length of a chunk that the chunk `ds64` states, with as many bits as its name says."""
DS64_DATA_AT = 8
"""Where this chunk states the length of the audio, in bytes from its beginning."""
_N_SAMPLES = re.compile(rb"(?<=fact.\0\0\0)(?!\0{4}).{4}", re.DOTALL)
"""The number of samples in a chunk before audio that is not plain PCM. Without a length it is about the most, too."""
MAX_CHUNK_BYTES = 1 << 26
"""The longest chunk that is expected after the audio, in bytes."""
MAX_PADDING_BYTES = 4096
"""As much may follow the audio of a file without being audio or a chunk, such as a tag or the rest of a sector."""
APPENDED = (b"ID3", b"APETAGEX", b"LYRICS", b"TAG", b"\xff\xd8\xff")
"""How tags and pictures begin that players append to a file without a chunk."""
MAX_TAG_BYTES = max(map(len, APPENDED))
MAX_HEADER_BYTES = 1 << 24
"""The most bytes before the audio of a stream that are held, to see what they state."""

BytesAt = Callable[[int, int], bytes]
"""Called with a position and a number `n`: returns at most `n` bytes of a file from this position on."""


@dataclass(frozen=True, slots=True)
class WavHeader:
    """What stands before the audio of a WAV."""

    data_at: int
    """Where the audio begins."""
    stated: int | None
    """The length of the audio in bytes; `None` where none is stated, or one that stands for none."""


class HeaderReader:
    """Reads the header of a WAV that may still be coming: each chunk once, however often `read` is called."""

    def __init__(self) -> None:
        self._at = HEADER_BYTES
        """Where the next chunk begins."""
        self._ds64_at: int | None = None
        """Where the content of the chunk `ds64` begins."""

    def read(self, bytes_at: BytesAt) -> WavHeader | None:
        """The header; `None` if there is no audio, or if it has not come so far."""
        while len(head := bytes_at(self._at, CHUNK.size)) == CHUNK.size:
            name, length = CHUNK.unpack(head)
            at = self._at + CHUNK.size
            if name == b"ds64":
                self._ds64_at = at
            if name == b"data":
                ds64 = b"" if self._ds64_at is None else bytes_at(self._ds64_at + DS64_DATA_AT, 8)
                if length == IN_DS64 and (long_length := int.from_bytes(ds64, "little")):
                    return WavHeader(at, long_length)
                return WavHeader(at, None if any(length in each for each in UNKNOWN) else length)
            # Chunks begin at even positions.
            self._at = at + length + length % 2
        return None


def read_header(bytes_at: BytesAt) -> WavHeader | None:
    """The header of a WAV; `None` if there is no audio in it."""
    return HeaderReader().read(bytes_at)


def is_misleading(bytes_at: BytesAt, n_bytes: int) -> bool:
    """Whether a WAV has more audio than its header states, behind what it states.

    Args:
        bytes_at: gives its bytes.
        n_bytes: its length.
    """
    header = read_header(bytes_at)
    if header is None:
        return False
    if header.stated is None:
        # FFmpeg believes an RF64 that states no audio, and a number of samples.
        return bytes_at(0, 4) != b"RIFF" or _N_SAMPLES.search(bytes_at(0, header.data_at)) is not None
    at, is_odd = header.data_at + header.stated, header.stated % 2
    while n_bytes - at > MAX_PADDING_BYTES:
        n_filled = _filling(bytes_at(at, CHUNK.size + 1), is_odd)
        if n_filled is None:
            return True
        name, length = CHUNK.unpack(bytes_at(at + n_filled, CHUNK.size))
        if name == b"data":
            return True
        at, is_odd = at + n_filled + CHUNK.size + length, length % 2
    return False


def _filling(head: bytes, is_odd: int) -> int | None:
    """How many bytes are before the next chunk, as chunks begin at even positions; `None` where there is no chunk."""
    return next((at for at in range(is_odd + 1) if _is_chunk(head[at : at + CHUNK.size])), None)


def _is_chunk(head: bytes) -> bool:
    """Whether these bytes may be the beginning of a chunk: four characters, and a length that is not too long."""
    if len(head) < CHUNK.size:
        return False
    name, length = CHUNK.unpack(head)
    return all(32 <= each < 127 for each in name) and length <= MAX_CHUNK_BYTES


def flowing(read: Callable[[], bytes]) -> Iterator[bytes]:
    """The bytes of a WAV as `read` gives them, as one that states no length and has nothing behind its audio."""
    source, reader = _Source(read), HeaderReader()
    while (header := reader.read(source.bytes_at)) is None and len(source.held) < MAX_HEADER_BYTES:
        if not source.receive():
            break
    if header is None or header.stated is None:
        yield from [] if header is None else [_without_length(b"".join(source.pieces(header.data_at)))]
        yield from source.pieces()
        return
    yield _without_length(b"".join(source.pieces(header.data_at)))
    yield from source.pieces(header.stated)
    is_odd = header.stated % 2
    while (n_filled := _filling(source.ahead(CHUNK.size + 1), is_odd)) is not None:
        name, length = CHUNK.unpack(b"".join(source.pieces(n_filled + CHUNK.size))[n_filled:])
        is_odd = length % 2
        for piece in source.pieces(length):
            yield from [piece] if name == b"data" else []
    is_tag = source.ahead(MAX_TAG_BYTES).startswith(APPENDED)
    for piece in source.pieces():
        yield from [] if is_tag else [piece]


def _without_length(head: bytes) -> bytes:
    """All bytes of a WAV before its audio, changed to state no length: FFmpeg then reads the audio to its end."""
    return b"RIFF" + _N_SAMPLES.sub(bytes(4), head[4:-4]) + bytes(4)


class _Source:
    def __init__(self, read: Callable[[], bytes]) -> None:
        self._read = read
        self.held = bytearray()
        """What has come, and was not taken."""

    def receive(self) -> bool:
        """Wait for the next bytes; false if none come any more."""
        content = self._read()
        self.held += content
        return bool(content)

    def bytes_at(self, at: int, n: int) -> bytes:
        """At most `n` of the held bytes, from the position `at` on."""
        return bytes(self.held[at : at + n])

    def ahead(self, n: int) -> bytes:
        """The next bytes, fewer only at the end. They are not taken."""
        while len(self.held) < n and self.receive():
            pass
        return bytes(self.held[:n])

    def pieces(self, n: int | None = None) -> Iterator[bytes]:
        """Take `n` bytes in the pieces in which they come; without `n`, take all."""
        n_left = sys.maxsize if n is None else n
        while n_left and (self.held or self.receive()):
            piece = bytes(self.held[:n_left])
            del self.held[:n_left]
            n_left -= len(piece)
            yield piece
