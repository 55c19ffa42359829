"""A reader of a room over server-sent events, cheap enough for hundreds in one process."""

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

READ_BYTES = 65_536
HEAD_TIMEOUT_S = 30.0
RETRY_S = 0.2
"""Seconds before a reader that was dropped connects again."""

Event = dict[str, Any]


class ReaderError(Exception):
    """The server refused the reader, or sent what is no stream of events."""


class EventStream:
    """Cuts the body of a response into server-sent events, chunked transfer encoding or not.

    Source: HTML, "Interpreting an event stream"; RFC 9112, 7.1.
    """

    def __init__(self, *, is_chunked: bool) -> None:
        self._is_chunked = is_chunked
        self._raw = b""
        self._body = b""

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The events that are complete now: the id, empty where there is none, and the data."""
        if self._is_chunked:
            self._raw += data
            while (chunk := self._next_chunk()) is not None:
                self._body += chunk
        else:
            self._body += data
        *events, self._body = self._body.replace(b"\r\n", b"\n").split(b"\n\n")
        return [found for event in events if (found := _fields(event))[1]]

    def _next_chunk(self) -> bytes | None:
        size, has_line, rest = self._raw.partition(b"\r\n")
        if not has_line:
            return None
        n_bytes = int(size.partition(b";")[0], 16)
        if len(rest) < n_bytes + 2:
            return None
        self._raw = rest[n_bytes + 2 :]
        return rest[:n_bytes] if n_bytes else None


def _fields(event: bytes) -> tuple[bytes, bytes]:
    identifier, data = b"", []
    for line in event.split(b"\n"):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
        elif name == b"id":
            identifier = value
    return identifier, b"\n".join(data)


@dataclass
class ParsedEvents:
    """Events by their bytes. The readers of a room get the same ones, so each is parsed once."""

    _by_data: dict[bytes, Event] = field(default_factory=dict)

    def parse(self, data: bytes) -> Event:
        """The event in this data."""
        event = self._by_data.get(data)
        if event is None:
            event = self._by_data[data] = json.loads(data)
        return event


class Reader:
    """One reader. Times are those of `time.perf_counter`."""

    def __init__(self, url: str, path: str, parsed: ParsedEvents) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._path = path
        self._parsed = parsed
        self._last_id = b""
        self.ended = asyncio.Event()
        self.connected_at = 0.0
        self.connected = asyncio.Event()
        self.n_reconnects = 0
        self.events: list[tuple[float, Event]] = []

    async def read(self) -> None:
        """Read until the speaker's session has ended. A lost connection is made again.

        Raises:
            ReaderError: the server refused the reader.
        """
        while True:
            await self._read_connection()
            if self.ended.is_set():
                return
            self.n_reconnects += 1
            await asyncio.sleep(RETRY_S)

    async def _read_connection(self) -> None:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            last = b"Last-Event-ID: %s\r\n" % self._last_id if self._last_id else b""
            head = f"GET {self._path}/events HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
            writer.write(head.encode() + b"Accept: text/event-stream\r\n" + last + b"\r\n")
            async with asyncio.timeout(HEAD_TIMEOUT_S):
                answer = await reader.readuntil(b"\r\n\r\n")
            status, _, headers = answer.partition(b"\r\n")
            if b" 200" not in status:
                raise ReaderError(f"expected status 200 at {self._path}/events, got {status.decode()}")
            stream = EventStream(is_chunked=b"transfer-encoding: chunked" in headers.lower())
            if not self.connected.is_set():
                self.connected_at = time.perf_counter()
                self.connected.set()
            while not self.ended.is_set() and (data := await reader.read(READ_BYTES)):
                at = time.perf_counter()
                for identifier, text in stream.feed(data):
                    self._take(at, identifier, text)
        except (ConnectionError, asyncio.IncompleteReadError):
            # The server has dropped the reader, who connects again.
            pass
        finally:
            writer.close()

    def _take(self, at: float, identifier: bytes, text: bytes) -> None:
        self._last_id = identifier or self._last_id
        event = self._parsed.parse(text)
        self.events.append((at, event))
        if event["type"] == "ended":
            self.ended.set()
