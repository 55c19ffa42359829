"""A small server with rooms that speaks the protocol of speakers and readers: its texts follow the audio's length."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

Event = dict[str, Any]
BYTES_PER_S = 32_000
UTTERANCE_S = 0.5
"""An interim comes in the middle of each such stretch of audio, and final text at its end."""


def interim(number: int) -> Event:
    """The interim of the utterance with this number."""
    place = {"start_s": number * UTTERANCE_S, "end_s": (number + 0.5) * UTTERANCE_S}
    return {"type": "interim", "utterance": number, "channel": 0, **place, "stable": "Text", "tail": f" {number}"}


def final(number: int) -> list[Event]:
    """The final events of the utterance with this number."""
    place = {"utterance": number, "channel": 0, "start_s": number * UTTERANCE_S, "end_s": (number + 1) * UTTERANCE_S}
    text = f"Text {number}."
    return [{"type": "segment", **place, "text": text}, {"type": "utterance", **place, "text": text}]


class StandInRooms:
    """One room, which is empty again when a session begins. A reader who names an event gets what follows it."""

    def __init__(self, *, drops_after: int | None = None, has_rooms: bool = True) -> None:
        self.url = ""
        self.last_ids: list[str] = []
        """What readers who connected again had got last."""
        self._drops_after = drops_after
        """The first connection of a reader is closed after this many events."""
        self._has_rooms = has_rooms
        self._events: list[Event] = []
        self._changed = asyncio.Condition()

    def app(self) -> Starlette:
        """The application."""
        return Starlette(
            routes=[WebSocketRoute("/v1/stream", self._stream), Route("/captions/room/events", self._read)]
        )

    async def _publish(self, events: Iterable[Event]) -> None:
        async with self._changed:
            self._events += events
            self._changed.notify_all()

    async def _stream(self, websocket: WebSocket) -> None:
        await websocket.accept(subprotocol="tutti.v1")
        assert json.loads(await websocket.receive_text())["room"] == {}
        room = {"name": "room", "path": "/captions/room", "token": "t"} if self._has_rooms else None
        await websocket.send_json({"type": "started", "room": room})
        if room is None:
            return
        self._events.clear()
        n_bytes, n_halves = 0, 0
        while (message := await websocket.receive()).get("bytes") is not None:
            n_bytes += len(message["bytes"])
            while n_bytes >= (n_halves + 1) * UTTERANCE_S / 2 * BYTES_PER_S:
                events = final(n_halves // 2) if n_halves % 2 else [interim(n_halves // 2)]
                n_halves += 1
                await self._publish(events)
                for event in events:
                    await websocket.send_json(event)
        await self._publish([{"type": "ended"}])
        await websocket.send_json({"type": "stopped"})
        await websocket.close()

    async def _read(self, request: Request) -> Response:
        last_id = request.headers.get("last-event-id")
        if last_id is not None:
            self.last_ids.append(last_id)
        return StreamingResponse(self._event_stream(last_id), media_type="text/event-stream")

    async def _event_stream(self, last_id: str | None) -> AsyncIterator[str]:
        yield 'data: {"type": "room", "name": "room", "title": "", "live": true}\n\n: comment\n\n'
        index = 0 if last_id is None else int(last_id) + 1
        left = self._drops_after if last_id is None else None
        while True:
            async with self._changed:
                while index == len(self._events):
                    await self._changed.wait()
            event = self._events[index]
            yield f"id: {index}\ndata: {json.dumps(event)}\n\n"
            index += 1
            left = None if left is None else left - 1
            if event["type"] == "ended" or left == 0:
                return


@asynccontextmanager
async def serve(rooms: StandInRooms) -> AsyncIterator[StandInRooms]:
    """Serve on a free loopback port until the block is left."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        rooms.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = uvicorn.Server(
            uvicorn.Config(rooms.app(), log_level="critical", lifespan="off", ws="websockets-sansio")
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.serve(sockets=[listener]))
            try:
                yield rooms
            finally:
                server.should_exit = True
