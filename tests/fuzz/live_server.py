"""A server in a thread of its own, with a log of what went wrong in it, and a client that sends any bytes."""

import asyncio
import logging
import socket
import struct
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from tests.app.conftest import Running, running
from tests.fakes import FakeTranscriber
from tutti_server.app.service.service import Service
from tutti_server.app.service.settings import Settings

ANSWER_TIMEOUT_S = 20.0
"""How long the server may take to end a connection whose client has stopped to send, in seconds."""
CLOSE_INTERNAL_ERROR = 1011
OPCODE_TEXT, OPCODE_BINARY, OPCODE_CLOSE = 1, 2, 8
_MASK = b"\x01\x02\x03\x04"


class ErrorLog(logging.Handler):
    """Collects records from ERROR on: no bytes of a client may cause one."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        self.lines.append(self.format(record))


@dataclass
class LiveServer:
    """A running server."""

    port: int
    errors: ErrorLog
    service: Service

    @property
    def n_sessions(self) -> float:
        """How many live sessions have begun."""
        return self.service.metrics.registry.get_sample_value("tutti_sessions_total") or 0.0

    def send(self, data: bytes, frames: bytes = b"", until: bytes = b"") -> bytes:
        """Send bytes on a connection of their own, and return the answer.

        Args:
            data: the bytes.
            frames: what follows when the head of the answer has come: a client of a WebSocket must wait for that.
            until: what the answer must contain before the client ends its side; the server then waits for nothing more,
                and abandons a request that it still works on.
        """
        with socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_TIMEOUT_S) as connection:
            answer = bytearray()
            try:
                connection.sendall(data)
                while frames and b"\r\n\r\n" not in answer and (received := connection.recv(1 << 16)):
                    answer += received
                connection.sendall(frames)
                while until not in answer and (received := connection.recv(1 << 16)):
                    answer += received
                connection.shutdown(socket.SHUT_WR)
                while received := connection.recv(1 << 16):
                    answer += received
            except (BrokenPipeError, ConnectionResetError):
                pass  # the server has closed before it has read everything, as it may
            return bytes(answer)


def _described(context: dict[str, Any]) -> str:
    """What asyncio says of an error that no one has caught, with its traceback."""
    error = context.get("exception")
    trace = traceback.format_exception(error) if isinstance(error, BaseException) else []
    return "".join([f"{context['message']}\n", *trace])


@contextmanager
def live_server() -> Iterator[LiveServer]:
    """Run a server around a fake engine. Everyone may use it, so that what follows a key is reached too."""
    errors = ErrorLog()
    started: list[Running] = []
    is_started, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        loop.set_exception_handler(lambda _, context: errors.lines.append(_described(context)))
        async with running(Settings(port=0, drain_timeout_s=1.0), FakeTranscriber()) as server:
            started.append(server)
            is_started.set()
            await stop.wait()

    def work() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=work, name="fuzzed-server")
    logging.getLogger().addHandler(errors)
    thread.start()
    try:
        assert is_started.wait(ANSWER_TIMEOUT_S), errors.lines
        yield LiveServer(int(started[0].address.rpartition(":")[2]), errors, started[0].service)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        logging.getLogger().removeHandler(errors)


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A WebSocket frame, which may break the rules of the protocol. Source: RFC 6455, section 5.2."""

    payload: bytes
    opcode: int = OPCODE_BINARY
    is_last: bool = True
    reserved_bits: int = 0
    is_masked: bool = True
    stated_length: int | None = None
    """The length in the header, if it is not that of the payload."""

    def encode(self) -> bytes:
        """The bytes of the frame."""
        length = len(self.payload) if self.stated_length is None else self.stated_length
        first = self.is_last << 7 | self.reserved_bits << 4 | self.opcode
        mask_bit = self.is_masked << 7
        if length < 126:
            head = struct.pack("!BB", first, mask_bit | length)
        elif length < 1 << 16:
            head = struct.pack("!BBH", first, mask_bit | 126, length)
        else:
            head = struct.pack("!BBQ", first, mask_bit | 127, length)
        if not self.is_masked:
            return head + self.payload
        repeated = _MASK * (len(self.payload) // 4 + 1)
        masked = bytes(byte ^ mask for byte, mask in zip(self.payload, repeated, strict=False))
        return head + _MASK + masked


def upgrade(path: str, headers: str = "") -> bytes:
    """The request that opens a WebSocket."""
    return (
        f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        f"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-version: 13\r\n{headers}\r\n"
    ).encode()


@dataclass
class Answer:
    """What the server has answered."""

    status: int | None
    """The status of the first response; `None` if there was none."""
    texts: list[str] = field(default_factory=list)
    """The text messages on the WebSocket."""
    close_code: int | None = None

    @classmethod
    def parse(cls, data: bytes) -> "Answer":
        """Take an answer apart. It may end anywhere, as the connection may have been reset."""
        head, _, rest = data.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 "):
            assert not data, data[:200]
            return cls(None)
        answer = cls(int(head[9:12]))
        while answer.status == 101 and len(rest) >= 2:
            opcode, length, start = rest[0] & 15, rest[1], 2
            if length >= 126:
                n_bytes = 2 if length == 126 else 8
                length, start = int.from_bytes(rest[2 : 2 + n_bytes], "big"), 2 + n_bytes
            payload, rest = rest[start : start + length], rest[start + length :]
            if len(payload) < length:
                break
            if opcode == OPCODE_TEXT:
                answer.texts.append(payload.decode())
            elif opcode == OPCODE_CLOSE and payload:
                answer.close_code = int.from_bytes(payload[:2], "big")
        return answer


def check_answer(server: LiveServer, data: bytes, frames: bytes = b"", until: bytes = b"") -> Answer:
    """Send bytes, as in `LiveServer.send`.

    The server ends the connection in order: no fault of its own is answered or logged.
    """
    answer = Answer.parse(server.send(data, frames, until))
    assert answer.status != HTTPStatus.INTERNAL_SERVER_ERROR, answer
    assert answer.close_code != CLOSE_INTERNAL_ERROR, answer
    errors, server.errors.lines = server.errors.lines, []
    assert errors == [], errors
    return answer
