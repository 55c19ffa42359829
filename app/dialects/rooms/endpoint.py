"""The addresses of a room for its readers: its page, its events as they come, and its subtitles.

Readers need no key: who knows the name of a room may read it, from a page of any origin.
"""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.types import Receive, Scope, Send

from tutti_server.app.background import unless, until_disconnect
from tutti_server.app.dialects.rooms.hls_wire import N_SERVED, TrackOptions, playlist, track_segment, whole_track
from tutti_server.app.errors import RETRY_AFTER_S, RequestError, shorten
from tutti_server.app.languages import NAMES, code_of
from tutti_server.app.numbers import read_integer
from tutti_server.app.publish.hls_lines import SEGMENT_S
from tutti_server.app.publish.room_follower import Followed
from tutti_server.app.publish.room_frames import sent_event
from tutti_server.app.publish.room_hub import UnknownRoom
from tutti_server.app.publish.server_sent_events import PING, PING_EVERY_S, EventStream
from tutti_server.app.service.client_connections import address_of, admit, cut_slow
from tutti_server.app.service.http_errors import error_response
from tutti_server.app.service.service import Service
from tutti_server.app.sharing.store import StoreAway

NAME = re.compile(r"[A-Za-z0-9_-]{3,64}", re.ASCII)
MAX_MPEGTS = 2**33 - 1
"""Clocks of MPEG-2 streams have 33 bits."""
RETRY_MS = (1000, 5000)
"""Between these times, readers come back that have lost the connection: each gets one of its own, so that they do not
come all at once. In milliseconds.
"""
PUBLIC_HEADERS = {"access-control-allow-origin": "*", "cache-control": "no-cache"}
PAGE_HEADERS = {"cache-control": "no-cache"}


async def room_page(file: Path, request: Request) -> Response:
    """The page of a room, with status 404 while there is no such room: the page waits for the speaker then."""
    try:
        async with _room(request):
            return FileResponse(file, headers=PAGE_HEADERS)
    except RequestError as error:
        if error.status != 404:
            raise
        return FileResponse(file, error.status, PAGE_HEADERS)


class RoomEvents:
    """Sends the events of a room: an ASGI application, as a response would wrap every event once more."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one reader."""
        request = Request(scope, receive)
        service: Service = request.app.state.service
        seen = request.headers.get("last-event-id") or request.query_params.get("after", "")
        try:
            async with _room(request) as followed:
                response = _response_without_events(request, followed, seen)
                if response is None:
                    with _reader_counted(service, address_of(scope), followed.room.name):
                        admit(scope)
                        await _serve_reader(request, followed, seen, send)
                    return
        except RequestError as error:
            response = _public(error_response(error))
        await response(scope, receive, send)


def _response_without_events(request: Request, followed: Followed, seen: str) -> Response | None:
    """The response to a request that needs no stream of events; `None` if it needs one."""
    frames = followed.room.frames
    if not followed.room.is_live and seen and frames.number_of(seen) >= frames.newest:
        # The reader has everything. With any other status it would come back again and again.
        return Response(status_code=204, headers=PUBLIC_HEADERS)
    if request.method == "HEAD":
        return Response(headers=PUBLIC_HEADERS, media_type="text/event-stream")
    return None


@contextmanager
def _reader_counted(service: Service, address: str, room: str) -> Iterator[None]:
    """Count one reader for as long as the context is open; raises like `RoomReaders.one_more`."""
    metrics = service.metrics.rooms
    with ExitStack() as admission:
        try:
            admission.enter_context(service.room_readers.one_more(address, room))
        except RequestError:
            metrics.refused_total.labels("readers").inc()
            raise
        with metrics.readers.track_inprogress():
            yield


async def _serve_reader(request: Request, followed: Followed, seen: str, send: Send) -> None:
    service: Service = request.app.state.service
    stream = EventStream(send, PUBLIC_HEADERS, service.settings.send_timeout_s)
    try:
        await unless(until_disconnect(request.receive), _send_events(service, followed, seen, stream))
    except ClientDisconnect:
        # What it has not received waits for it: the events have ids.
        service.metrics.rooms.refused_total.labels("slow").inc()
        if cut_slow(request.scope):
            await until_disconnect(request.receive)


async def _send_events(service: Service, followed: Followed, seen: str, stream: EventStream) -> None:
    room, frames, sends_total = followed.room, followed.room.frames, service.metrics.rooms.sends_total
    number, n_returns = frames.number_of(seen), room.n_returns
    introduction = room.introduction() | {"resumed": number > 0}
    retry = f"retry: {random.randint(*RETRY_MS)}\n\n".encode()
    await stream.send(retry + sent_event(introduction))
    while True:
        # Before the look at the events: one that comes while they are sent is noticed then.
        changed = followed.changed
        if room.n_returns != n_returns:
            n_returns = room.n_returns
            await stream.send(sent_event(room.introduction() | {"resumed": True}))
        events, number = frames.after(number), frames.newest
        if events:
            await stream.send(events)
            sends_total.inc()
        elif not followed.room.is_live or service.rooms.is_draining:
            break
        else:
            await _wait_or_ping(changed, stream)
    await stream.end()


async def _wait_or_ping(changed: asyncio.Event, stream: EventStream) -> None:
    try:
        async with asyncio.timeout(PING_EVERY_S):
            await changed.wait()
    except TimeoutError:
        await stream.send(PING)


async def room_track(request: Request) -> Response:
    """The final text of a room so far, as WebVTT."""
    try:
        options = _track_options(request)
        async with _room(request) as followed:
            lines = list(followed.room.lines.current(options.language))
        # Hours of text take some time.
        return _vtt(await asyncio.to_thread(whole_track, lines))
    except RequestError as error:
        return _public(error_response(error))


async def room_playlist(request: Request) -> Response:
    """The playlist of a room for players of HLS."""
    try:
        options = _track_options(request)
        async with _room(request) as followed:
            room = followed.room
            if not room.lines.n_segments:
                message = f"the first {SEGMENT_S} s of the room are not complete yet"
                raise RequestError(503, message, code="no_segments", retry_after_s=SEGMENT_S)
            text = playlist(room.name, room.lines.n_segments, room.began_at, room.is_live, options)
        return Response(text, headers=PUBLIC_HEADERS, media_type="application/vnd.apple.mpegurl")
    except RequestError as error:
        return _public(error_response(error))


async def room_segment(request: Request) -> Response:
    """One segment of that playlist, as WebVTT."""
    wanted: str = request.path_params["number"]
    number = read_integer(wanted)
    try:
        options = _track_options(request)
        async with _room(request) as followed:
            lines = followed.room.lines
            if number is None or not lines.n_segments - N_SERVED <= number < lines.n_segments:
                kept = f"{max(lines.n_segments - N_SERVED, 0)} to {lines.n_segments - 1}"
                raise RequestError(404, f"segment: expected {kept}, got {shorten(wanted)}", code="unknown_segment")
            return _vtt(track_segment(number, lines.of_segment(number, options.language), options))
    except RequestError as error:
        return _public(error_response(error))


@asynccontextmanager
async def _room(request: Request) -> AsyncIterator[Followed]:
    """The room in the path of a request, which is followed while the context is open. Raises `RequestError`."""
    service: Service = request.app.state.service
    name: str = request.path_params["room"]
    if service.rooms.is_draining:
        raise RequestError(503, "the server is going down; try another", code="draining")
    if service.settings.max_room_readers and not service.is_known_everywhere:
        # The room may be at another gateway.
        raise RequestError(501, "with more than one gateway, rooms need TUTTI_REDIS_URL", code="not_supported")
    try:
        if not NAME.fullmatch(name):
            raise UnknownRoom(name)
        async with service.rooms.follow(name) as followed:
            yield followed
    except UnknownRoom:
        raise RequestError(404, f"there is no room {shorten(name)} at the moment", code="unknown_room") from None
    except StoreAway:
        message = f"rooms cannot be read while Redis cannot be reached; try again in {RETRY_AFTER_S} s"
        raise RequestError(503, message, code="redis_away") from None


def _track_options(request: Request) -> TrackOptions:
    language, mpegts = request.query_params.get("language"), request.query_params.get("mpegts") or "0"
    code = code_of(language) if language else None
    if language and code not in NAMES:
        raise RequestError(400, f"language: expected that of a translation, got {shorten(language)}", "language")
    ticks = read_integer(mpegts, 0, MAX_MPEGTS)
    if ticks is None:
        message = f"mpegts: expected an integer from 0 to {MAX_MPEGTS}, got {shorten(mpegts)}"
        raise RequestError(400, message, "mpegts")
    return TrackOptions(language=code, mpegts=ticks)


def _vtt(text: str) -> Response:
    return Response(text, headers=PUBLIC_HEADERS, media_type="text/vtt")


def _public(response: Response) -> Response:
    response.headers.update(PUBLIC_HEADERS)
    return response
