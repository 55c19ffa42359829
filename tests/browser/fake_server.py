"""A scripted server: it serves the page, measures the audio that it receives, and sends the messages of a test."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from tutti_server.app.server.answer_headers import ANSWER_HEADERS
from tutti_server.app.server.routes import PAGE_HEADERS, REVALIDATE, SAMPLE, STATIC, PageFiles

LOUD = 0.05
"""A message whose root mean square is at least this fraction of full scale counts as sound."""

ENGLISH = {"code": "en", "name": "English"}
MODEL: dict[str, Any] = {
    "name": "openai/whisper-small",
    "languages": [ENGLISH, {"code": "de", "name": "German"}, {"code": "ar", "name": "Arabic"}],
}
"""What a server with a multilingual model answers to `GET /page/model`."""
ENGLISH_MODEL = {"name": "a.en", "languages": [ENGLISH]}

LIMITS = {"max_message_bytes": 1 << 20, "max_ahead_s": 60.0, "idle_timeout_s": 60.0, "max_window_s": 30.0}

Message = dict[str, Any]


def speech_started(utterance: int = 0) -> Message:
    return {"type": "speech_started", "utterance": utterance, "channel": 0, "at_s": 0.2}


def interim(stable: str, tail: str, utterance: int = 0) -> Message:
    span = {"start_s": 0.2, "end_s": 0.4}
    return {"type": "interim", "utterance": utterance, "channel": 0, **span, "stable": stable, "tail": tail}


def final(text: str, utterance: int = 0, start_s: float = 0.2) -> list[Message]:
    place = {"utterance": utterance, "channel": 0, "start_s": start_s, "end_s": start_s + 0.9}
    segment = {"type": "segment", **place, "id": 0, "text": text, "words": [], "confidence": 0.9, "language": "en"}
    done = {"uncovered": [], "final_until_s": start_s + 1, "resume_from_s": [start_s + 1]}
    return [segment, {"type": "utterance", **place, "text": text, **done}]


def translation(text: str, utterance: int = 0, start_s: float = 0.2, end_s: float = 1.1) -> Message:
    span = {"start_s": start_s, "end_s": end_s, "translated_until_s": [start_s]}
    return {"type": "translation", "utterance": utterance, "channel": 0, **span, "language": "de", "text": text}


@dataclass
class Step:
    """Messages that the server sends when it has received a certain length of sound."""

    after_loud_s: float
    """Seconds of sound."""
    messages: Sequence[Message]


@dataclass
class FakeServer:
    """A server that follows `script` once for each connection. `send` and `close` use the last connection."""

    script: Sequence[Step] = ()
    api_key: str | None = None
    is_full: bool = False
    """Whether the server opens no session."""
    model: Message | None = field(default_factory=lambda: MODEL)
    """What the page learns of the model; `None`: the server fails to answer."""
    sample: Path = SAMPLE
    """The recording that the page plays."""
    room: Message | None = None
    """The room of a session that asks for one; `None`: the server gives none."""
    file_events: Sequence[Message] = ()
    """What the server answers to an uploaded file."""
    uploads: list[list[tuple[str, Any]]] = field(default_factory=list)
    """The fields of the forms of uploaded files; of the file itself the size."""
    url: str = ""
    starts: list[Message] = field(default_factory=list)
    n_bytes: int = 0
    bytes_at_stop: list[int] = field(default_factory=list)
    """`n_bytes` at the end of each session."""
    loud_s: float = 0.0
    """Seconds of sound that the server has received."""
    flushed: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    _connection: WebSocket | None = None

    async def send(self, *messages: Message) -> None:
        assert self._connection is not None, "no page is connected"
        for message in messages:
            await self._connection.send_text(json.dumps(message))

    async def close(self, code: int) -> None:
        assert self._connection is not None, "no page is connected"
        await self._connection.close(code)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/", self._page),
                Route("/page/model", self._model),
                Route("/page/sample.flac", self._sample),
                Route("/service-worker.js", self._service_worker),
                Route("/v1/models", self._models),
                Route("/v1/audio/transcriptions", self._transcribe, methods=["POST"]),
                WebSocketRoute("/v1/stream", self._stream),
                Mount("/static", PageFiles(directory=STATIC)),
            ]
        )

    async def _page(self, request: Request) -> Response:
        return FileResponse(STATIC / "index.html", headers=ANSWER_HEADERS | PAGE_HEADERS)

    async def _sample(self, request: Request) -> Response:
        return FileResponse(self.sample)

    async def _service_worker(self, request: Request) -> Response:
        return FileResponse(STATIC / "service_worker.js", headers=REVALIDATE)

    async def _model(self, request: Request) -> Response:
        return JSONResponse(self.model, status_code=500 if self.model is None else 200)

    async def _models(self, request: Request) -> Response:
        is_allowed = self.api_key is None or request.headers.get("authorization") == f"Bearer {self.api_key}"
        return JSONResponse({"data": []}, status_code=200 if is_allowed else 401)

    async def _transcribe(self, request: Request) -> Response:
        if self.api_key is not None and request.headers.get("authorization") != f"Bearer {self.api_key}":
            return JSONResponse({"error": {"code": "invalid_api_key", "message": "a wrong key"}}, status_code=401)
        async with request.form() as form:
            self.uploads.append(
                [(name, each if isinstance(each, str) else each.size) for name, each in form.multi_items()]
            )
        lines = "".join(f"data: {json.dumps(event)}\n\n" for event in self.file_events)
        return Response(lines, media_type="text/event-stream")

    async def _stream(self, websocket: WebSocket) -> None:
        protocols = websocket.scope["subprotocols"]
        assert protocols[0] == "tutti.v1"
        if self.api_key is not None and f"tutti.key.{self.api_key}" not in protocols:
            await websocket.send_denial_response(Response(status_code=401))
            return
        if self.is_full:
            await websocket.send_denial_response(Response(status_code=503))
            return
        await websocket.accept(subprotocol="tutti.v1")
        self._connection = websocket
        with suppress(WebSocketDisconnect):
            await self._converse(websocket)

    async def _converse(self, websocket: WebSocket) -> None:
        start = json.loads(await websocket.receive_text())
        assert start["type"] == "start"
        self.starts.append(start)
        rate = start["audio"]["sample_rate"]
        started = {"type": "started", "session_id": "s_01", "model": "fake", "limits": LIMITS, "warnings": []}
        is_shared = start.get("room") is not None and self.room is not None
        await self.send(started | {"room": self.room} if is_shared else started)
        steps = list(self.script)
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            if message.get("bytes") is not None:
                samples = np.frombuffer(message["bytes"], "<i2").astype(np.float64) / 32768
                self.n_bytes += len(message["bytes"])
                if np.sqrt(np.mean(samples**2)) > LOUD:
                    self.loud_s += len(samples) / rate
                while steps and self.loud_s >= steps[0].after_loud_s:
                    await self.send(*steps.pop(0).messages)
                continue
            command = json.loads(message["text"])
            if command["type"] == "flush":
                self.flushed.set()
            elif command["type"] == "stop":
                self.stopped.set()
                self.bytes_at_stop.append(self.n_bytes)
                audio_s = self.n_bytes / 2 / rate
                await self.send({"type": "stopped", "audio_s": audio_s, "speech_s": self.loud_s, "words": 0})
                await websocket.close(1000)
                return


Fake = TypeVar("Fake", bound=FakeServer)


@asynccontextmanager
async def serve(fake: Fake) -> AsyncIterator[Fake]:
    """Serve on a free port of the loopback interface. `fake.url` is the address.

    The server has ended at the end of the block, also of one that fails: no socket is left to a later test.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    fake.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    config = uvicorn.Config(
        fake.app(), log_level="critical", lifespan="off", ws="websockets-sansio", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(server.serve(sockets=[listener]))
        try:
            yield fake
        finally:
            server.should_exit = True
            # The group would cancel it if the block has failed.
            await serving
