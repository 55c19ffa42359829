"""Scripted servers on loopback, the messages that they send, and events with default values."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

import tutti
from tutti.messages import Interim, Segment, Utterance

WIRE = Path(__file__).parents[2] / "wire"
Wire = dict[str, Any]

LIMITS = {"max_message_bytes": 1_048_576, "max_ahead_s": 60.0, "idle_timeout_s": 60.0, "max_window_s": 30.0}
SPEECH = {"type": "speech_started", "utterance": 0, "channel": 0, "at_s": 0.1}
INTERIM = {
    "type": "interim",
    "utterance": 0,
    "channel": 0,
    "start_s": 0.1,
    "end_s": 1.0,
    "stable": "Hello",
    "tail": " th",
}
SEGMENT = {
    "type": "segment", "utterance": 0, "id": 0, "channel": 0, "start_s": 0.12, "end_s": 1.5,
    "text": "Hello there.", "words": [], "confidence": 0.9, "language": "en",
}  # fmt: skip
UTTERANCE = {
    "type": "utterance", "utterance": 0, "channel": 0, "start_s": 0.12, "end_s": 1.5,
    "text": "Hello there.", "uncovered": [], "final_until_s": 1.6, "resume_from_s": [1.6],
    "detector_from_s": [0.0],
}  # fmt: skip
STOPPED = {"type": "stopped", "audio_s": 2.0, "speech_s": 1.4, "words": 2}


def read_golden(name: str) -> list[Wire]:
    messages: list[Wire] = json.loads((WIRE / name).read_text())
    return messages


def make_started(**limits: float) -> Wire:
    return {"type": "started", "session_id": "s_01", "model": "fake", "limits": LIMITS | limits, "warnings": []}


def make_interim(stable: str, tail: str, **fields: Any) -> Interim:
    usual: Wire = {"utterance": 0, "channel": 0, "start_s": 0.1, "end_s": 1.0}
    return Interim(**usual | fields, stable=stable, tail=tail)


def make_segment(text: str, **fields: Any) -> Segment:
    usual: Wire = {"utterance": 0, "id": 0, "channel": 0, "start_s": 0.12, "end_s": 1.5, "words": (), "confidence": 1.0}
    return Segment(**usual | {"language": None} | fields, text=text)


def make_utterance(text: str, **fields: Any) -> Utterance:
    usual: Wire = {"utterance": 0, "channel": 0, "start_s": 0.1, "end_s": 1.5, "uncovered": (), "final_until_s": 1.6}
    return Utterance(**usual | fields, text=text)


class Peer:
    """The server's end of one session: what it has received, and ways to answer."""

    def __init__(self, socket: ServerConnection) -> None:
        self.socket = socket
        self.messages: list[Wire] = []
        self.audio: list[bytes] = []

    async def send(self, *wires: Wire) -> None:
        for wire in wires:
            await self.socket.send(json.dumps(wire))

    async def receive(self) -> Wire | bytes:
        data = await self.socket.recv()
        if isinstance(data, bytes):
            self.audio.append(data)
            return data
        self.messages.append(json.loads(data))
        return self.messages[-1]

    async def receive_until(self, kind: str) -> Wire:
        while True:
            message = await self.receive()
            if isinstance(message, dict) and message["type"] == kind:
                return message

    async def begin(self, **limits: float) -> None:
        await self.receive_until("start")
        await self.send(make_started(**limits))

    async def finish(self) -> None:
        await self.receive_until("stop")
        await self.send(STOPPED)


Script = Callable[[Peer], Awaitable[None]]


def play(*wires: Wire, close: int | None = None, reason: str = "", **limits: float) -> Script:
    """Begin a session and send these; then end it when the client does, or at once, with this code."""

    async def script(peer: Peer) -> None:
        await peer.begin(**limits)
        await peer.send(*wires)
        if close is None:
            await peer.finish()
        else:
            await peer.socket.close(close, reason)

    return script


def answer_start(*wires: Wire, close: int | None = None) -> Script:
    """Answer `start` with these; then wait until the client leaves, or close with this code."""

    async def script(peer: Peer) -> None:
        await peer.receive_until("start")
        await peer.send(*wires)
        if close is not None:
            await peer.socket.close(close)
        await peer.socket.wait_closed()

    return script


def each(*scripts: Script) -> Script:
    """One script for each connection, in order."""
    remaining = iter(scripts)

    async def script(peer: Peer) -> None:
        await next(remaining)(peer)

    return script


class FakeServer:
    """The connections and requests that a scripted server has had."""

    def __init__(self) -> None:
        self.url = ""
        self.peers: list[Peer] = []
        self.requests: list[Request] = []
        self.errors: list[BaseException] = []

    @property
    def peer(self) -> Peer:
        return self.peers[-1]


@asynccontextmanager
async def serve_script(script: Script, **options: Any) -> AsyncIterator[FakeServer]:
    """Run `script` for every connection. An error in it is raised when the block is left."""
    server = FakeServer()

    async def handle(socket: ServerConnection) -> None:
        server.peers.append(Peer(socket))
        try:
            await script(server.peer)
        except ConnectionClosed:
            # A client may leave at any time.
            pass
        except Exception as error:
            server.errors.append(error)

    def note_request(socket: ServerConnection, request: Request) -> None:
        server.requests.append(request)

    settings: dict[str, Any] = {"subprotocols": ["tutti.v1"], "process_request": note_request} | options
    async with serve(handle, "127.0.0.1", 0, close_timeout=0.2, **settings) as listening:
        port = listening.sockets[0].getsockname()[1]
        server.url = f"ws://127.0.0.1:{port}"
        yield server
    for error in server.errors:
        raise error


def refuse_with(
    status: HTTPStatus, headers: dict[str, str] | None = None, body: bytes = b""
) -> Callable[..., Response]:
    def process_request(socket: ServerConnection, request: Request) -> Response:
        return Response(status.value, status.phrase, Headers(headers or {}), body)

    return process_request


async def open_briefly(url: str, **options: Any) -> None:
    """Open a session, and leave it."""
    async with tutti.connect(url, **options):
        pass


async def wait_for_other_tasks() -> None:
    """Wait until only the present task is left; an error if another one does not end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    async with asyncio.timeout(5):
        await asyncio.gather(*others, return_exceptions=True)


@dataclass
class FakeUploads:
    """What a scripted server for files has received."""

    url: str = ""
    requests: list[bytes] = field(default_factory=list)
    """The head and the body of each request."""


def sse(*messages: Wire) -> bytes:
    """The body of a streamed answer."""
    return b"".join(b"data: " + json.dumps(message, ensure_ascii=False).encode() + b"\n\n" for message in messages)


SPOKEN = sse(
    {"type": "transcript.text.delta", "delta": "Hello there."},
    {
        "type": "transcript.text.segment", "utterance": 0, "id": 0, "start": 0.12, "end": 1.5, "text": "Hello there.",
        "confidence": 0.9, "language": "en",
    },
    {"type": "transcript.text.done", "duration": 2.0, "speech_duration": 1.4, "words": 2},
)  # fmt: skip
"""The answer to a file in which `SEGMENT` is spoken."""


@asynccontextmanager
async def serve_answer(
    body: bytes = SPOKEN, *, head: str = "200 OK", is_cut: bool = False
) -> AsyncIterator[FakeUploads]:
    """Answer every upload with `body`. `head` is the status, and further headers after a line break.

    Args:
        body: of the answer.
        head: of the answer.
        is_cut: the connection ends before the body is complete.
    """
    server = FakeUploads()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head_of_request = await reader.readuntil(b"\r\n\r\n")
        (n_bytes,) = re.findall(rb"(?i)content-length: (\d+)", head_of_request)
        server.requests.append(head_of_request + await reader.readexactly(int(n_bytes)))
        n_promised = len(body) + is_cut
        writer.write(f"HTTP/1.1 {head}\r\nContent-Length: {n_promised}\r\n\r\n".encode() + body)
        writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as listening:
        host, port = listening.sockets[0].getsockname()
        server.url = f"http://{host}:{port}"
        yield server


@asynccontextmanager
async def serve_nothing(greeting: bytes = b"") -> AsyncIterator[tuple[str, asyncio.Event]]:
    """The address of a server that accepts connections, greets, and answers nothing; and whether anything has come."""
    has_come = asyncio.Event()
    handlers: list[asyncio.Task[None]] = []

    async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        if await reader.read(1):
            has_come.set()
        await reader.read()
        writer.close()
        await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.append(asyncio.create_task(ignore(reader, writer)))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as listening:
        host, port = listening.sockets[0].getsockname()
        yield f"{host}:{port}", has_come
        await asyncio.gather(*handlers, return_exceptions=True)
