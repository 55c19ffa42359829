"""The table of routes, and the endpoints that belong to no dialect: the pages, health and metrics."""

import gzip
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from tutti_server.app.dialects.deepgram import endpoint as deepgram
from tutti_server.app.dialects.deepgram.flux_endpoint import listen_to_turns
from tutti_server.app.dialects.http_answers import CLIENT_GONE
from tutti_server.app.dialects.native import endpoint as native
from tutti_server.app.dialects.native.wire import messages
from tutti_server.app.dialects.openai import realtime_endpoint as openai_realtime
from tutti_server.app.dialects.openai.files_endpoint import FileEndpoint
from tutti_server.app.dialects.openai.models_endpoint import list_models, retrieve_model
from tutti_server.app.dialects.rooms import endpoint as rooms
from tutti_server.app.dialects.twilio.endpoint import TwilioEndpoint
from tutti_server.app.dialects.whisperlive.endpoint import whisperlive
from tutti_server.app.errors import RETRY_AFTER_S, LimitExceeded, RequestError
from tutti_server.app.languages import NAMES
from tutti_server.app.server.answer_headers import PAGE_POLICY
from tutti_server.app.server.asyncapi import asyncapi
from tutti_server.app.server.openapi import openapi
from tutti_server.app.service import metrics
from tutti_server.app.service.auth import header_key
from tutti_server.app.service.http_errors import authorized, error_response, no_room
from tutti_server.app.service.service import Service
from tutti_server.app.session.decoding.translations import languages_of

Endpoint = Callable[[Request], Awaitable[Response]]

STATIC = Path(__file__).parents[1] / "static"
CLIENT = STATIC / "tutti"
"""The JavaScript client, which an installation builds."""
NOT_BUILT = "the client of the pages is not built: run `make serve` or `pip install -e .` in the checkout\n"
VIEWER = STATIC / "docs" / "openapi-explorer.min.js.gz"
SAMPLE = Path(__file__).parents[1] / "assets" / "sample.flac"
REVALIDATE = {"cache-control": "no-cache"}
"""A browser may keep the file, and asks each time whether it is still the same."""
PAGE_HEADERS = {
    "permissions-policy": "microphone=(self), display-capture=(self)",
    **REVALIDATE,
}
CALLS_HEADERS = PAGE_HEADERS | {"permissions-policy": "microphone=(), display-capture=()"}
"""Headers of the page for call records, which uses no microphone and no screen."""

DOCS_HEADERS = REVALIDATE | {
    "content-security-policy": PAGE_POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")
}
"""Headers of the page that describes the service, whose viewer brings its styles with it."""


def routes() -> list[BaseRoute]:
    """Every path of the service, and its endpoint."""
    call = TwilioEndpoint(write_event=messages).serve
    return [
        Route("/", with_client(file_at(STATIC / "index.html", PAGE_HEADERS))),
        Route("/calls", with_client(file_at(STATIC / "calls.html", CALLS_HEADERS))),
        Route("/page/model", page_model),
        Route("/page/sample.flac", file_at(SAMPLE)),
        WebSocketRoute("/", whisperlive),
        # Not below /static, as it works only for paths below its own.
        Route("/service-worker.js", file_at(STATIC / "service_worker.js")),
        Mount("/static", PageFiles(directory=STATIC), name="static"),
        Route("/captions/{room}.vtt", rooms.room_track),
        Route("/captions/{room}.m3u8", rooms.room_playlist),
        Route("/captions/{room}", with_client(partial(rooms.room_page, STATIC / "room.html"))),
        Route("/captions/{room}/events", rooms.RoomEvents(), methods=["GET"]),
        Route("/captions/{room}/{number}.vtt", rooms.room_segment),
        WebSocketRoute("/v1/stream", native.stream),
        WebSocketRoute("/v1/listen", deepgram.listen_live),
        WebSocketRoute("/v2/listen", listen_to_turns),
        Route("/v1/listen", deepgram.listen, methods=["POST"]),
        Route("/v1/auth/grant", deepgram.grant_token, methods=["POST"]),
        WebSocketRoute("/v1/realtime", openai_realtime.realtime),
        Route("/v1/realtime/client_secrets", openai_realtime.create_client_secret, methods=["POST"]),
        Route("/v1/realtime/client_secrets/withdraw", openai_realtime.withdraw_client_secret, methods=["POST"]),
        Route("/v1/realtime/transcription_sessions", openai_realtime.create_transcription_session, methods=["POST"]),
        Route("/v1/audio/transcriptions", FileEndpoint("transcribe"), methods=["POST"]),
        Route("/v1/audio/translations", FileEndpoint("translate"), methods=["POST"]),
        WebSocketRoute("/v1/twilio", call),
        WebSocketRoute("/v1/twilio/{token}", call),
        WebSocketRoute("/v1/calls/{call_sid}", native.subscribe_to_call),
        Route("/v1/models", list_models),
        Route("/v1/models/{name:path}", retrieve_model),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", show_metrics),
        Route("/openapi.json", openapi),
        Route("/asyncapi.json", asyncapi),
        Route("/docs", file_at(STATIC / "docs" / "docs.html", DOCS_HEADERS)),
        Route("/docs/viewer.js", docs_viewer),
    ]


class PageFiles(StaticFiles):
    """The files of the page. Without a word from the server, a browser would use old ones for hours after an update."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """The file, or that it has not changed."""
        response = super().file_response(*args, **kwargs)
        response.headers.update(REVALIDATE)
        return response


def with_client(page: Endpoint) -> Endpoint:
    """An endpoint that answers with a page that loads the client, or says that there is no client."""

    async def serve(request: Request) -> Response:
        return await page(request) if CLIENT.is_dir() else PlainTextResponse(NOT_BUILT, 500)

    return serve


def file_at(path: Path, headers: Mapping[str, str] = REVALIDATE) -> Endpoint:
    """An endpoint that answers with a file."""

    async def serve(request: Request) -> Response:
        return FileResponse(path, headers=headers)

    return serve


async def docs_viewer(request: Request) -> Response:
    """The program of that page, which is stored compressed."""
    headers = REVALIDATE | {"vary": "accept-encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return FileResponse(VIEWER, media_type="text/javascript", headers=headers | {"content-encoding": "gzip"})
    return Response(gzip.decompress(VIEWER.read_bytes()), media_type="text/javascript", headers=headers)


async def page_model(request: Request) -> Response:
    """What the page shows of the model before a session. It needs no key, as the page itself needs none."""
    service: Service = request.app.state.service
    model = service.transcriber.info
    # A checkpoint may know a language that Whisper does not.
    languages = [{"code": code, "name": NAMES.get(code, code).title()} for code in model.languages]
    description = {
        "name": model.name,
        "languages": languages,
        "translations": languages_of(model, service.session_config.translator),
        "rooms": service.has_rooms,
    }
    if service.models.are_several:
        description["models"] = [each.name for each in service.models.cards]
    return JSONResponse(description, headers=PAGE_HEADERS)


async def healthz(request: Request) -> Response:
    """200 while the process can do its work; 503 once its engine has ended for good and it must be started again."""
    service: Service = request.app.state.service
    if service.transcriber.is_lost:
        return PlainTextResponse("the engine has died\n", 503)
    return PlainTextResponse("ok\n")


async def readyz(request: Request) -> Response:
    """200 while the server accepts new sessions: the engine runs, and the server is not draining."""
    service: Service = request.app.state.service
    if service.admission.is_draining:
        return PlainTextResponse("draining\n", 503, {"retry-after": str(RETRY_AFTER_S)})
    if not service.transcriber.is_alive:
        return PlainTextResponse("there is no engine\n", 503, {"retry-after": str(RETRY_AFTER_S)})
    problems = [*service.transcriber.problems]
    if not service.store.is_up:
        problems.append("without Redis: limits of keys are not checked, calls cannot be followed")
    problems += service.accounts.problems
    return PlainTextResponse("; ".join(["ready", *problems]) + "\n")


async def show_metrics(request: Request) -> Response:
    """The metrics in Prometheus's text format."""
    service: Service = request.app.state.service
    if service.settings.metrics_need_key:
        authorized(service.access.client(header_key(request.headers), "metrics"))
    return Response(await service.metrics.page(), media_type=metrics.CONTENT_TYPE)


async def refused(connection: HTTPConnection, error: Exception) -> Response:
    """The answer to a request that an endpoint refuses without answering it by itself."""
    assert isinstance(error, RequestError | LimitExceeded)
    return error_response(no_room(error) if isinstance(error, LimitExceeded) else error)


async def client_gone(request: Request, error: Exception) -> Response:
    """Make the answer for a request whose client has disconnected. It is only logged."""
    return Response(status_code=CLIENT_GONE)


async def unknown_path(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer 404 for an unknown path, also to a WebSocket, which Starlette would refuse with 403."""
    raise HTTPException(404)


def _is_websocket(connection: HTTPConnection) -> bool:
    routes = (route for route in connection.app.routes if isinstance(route, WebSocketRoute))
    return any(route.path_regex.match(connection.url.path) for route in routes)


async def not_found(connection: HTTPConnection, error: Exception) -> Response:
    """The answer for an unknown path, or an unknown method of a path, as OpenAI's clients expect it."""
    assert isinstance(error, HTTPException)
    message = f"{connection.scope.get('method', 'WebSocket')} {connection.url.path}: {error.detail.lower()}"
    if connection.scope["type"] == "http" and _is_websocket(connection):
        message += "; expected a WebSocket here, with the header Upgrade, which a proxy may have taken away"
    code = error.detail.lower().replace(" ", "_")
    response = error_response(RequestError(error.status_code, message, code=code))
    response.headers.update(error.headers or {})
    return response
