"""What is served where: the live stream, file transcription, models, health, metrics and the page."""

import logging
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket

from app.dialects.deepgram import endpoint as deepgram
from app.dialects.native import wire as native
from app.dialects.openai.files_endpoint import FileEndpoint
from app.dialects.openai.models_endpoint import list_models, retrieve_model
from app.dialects.openai.realtime_endpoint import realtime_routes
from app.dialects.twilio import endpoint as twilio
from app.dialects.whisperlive.endpoint import whisperlive
from app.errors import RETRY_AFTER_S, LimitExceeded
from app.live.accept import serve
from app.service import metrics
from app.service.http_errors import RequestError, bearer_key, unauthorized
from app.service.service import Service

logger = logging.getLogger(__name__)

STATIC = Path(__file__).parent / "static"
# Browsers cannot set headers on a WebSocket; they offer the key as a second subprotocol, which is never echoed.
KEY_SUBPROTOCOL = "tutti.key."
PAGE_HEADERS = {
    "content-security-policy": "default-src 'self'; connect-src 'self' ws: wss:; frame-ancestors 'none'",
    "permissions-policy": "microphone=(self)",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


def routes() -> list[BaseRoute]:
    return [
        Route("/", page),
        WebSocketRoute("/", whisperlive),
        Mount("/static", StaticFiles(directory=STATIC), name="static"),
        WebSocketRoute("/v1/stream", stream),
        WebSocketRoute("/v1/listen", deepgram.listen_live),
        Route("/v1/listen", deepgram.listen, methods=["POST"]),
        Route("/v1/auth/grant", deepgram.grant_token, methods=["POST"]),
        *realtime_routes(),
        Route("/v1/audio/transcriptions", FileEndpoint("transcribe"), methods=["POST"]),
        Route("/v1/audio/translations", FileEndpoint("translate"), methods=["POST"]),
        WebSocketRoute("/v1/twilio", twilio.call),
        WebSocketRoute("/v1/twilio/{token}", twilio.call),
        WebSocketRoute("/v1/calls/{call_sid}", twilio.listen),
        Route("/v1/models", list_models),
        Route("/v1/models/{name:path}", retrieve_model),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", show_metrics),
    ]


async def stream(websocket: WebSocket) -> None:
    """A live session in the native protocol. Refusals are HTTP answers, given before the upgrade."""
    service: Service = websocket.app.state.service
    offered = websocket.scope.get("subprotocols", [])
    if not service.is_allowed_live(_key(websocket.headers.get("authorization"), offered)):
        service.metrics.refused_total.labels("unauthorized").inc()
        await websocket.send_denial_response(unauthorized().response())
        return
    if offered and native.SUBPROTOCOL not in offered:
        error = RequestError(400, f"subprotocol: expected {native.SUBPROTOCOL}, got {', '.join(offered)}")
        await websocket.send_denial_response(error.response())
        return
    await serve(websocket, native.Native(), native.SUBPROTOCOL if offered else None, _refuse)


def _refuse(error: LimitExceeded) -> Response:
    return RequestError(503, error.message, code=error.code).response()


async def page(request: Request) -> Response:
    return FileResponse(STATIC / "index.html", headers=PAGE_HEADERS)


async def healthz(request: Request) -> Response:
    """200 while the process can answer at all."""
    return PlainTextResponse("ok\n")


async def readyz(request: Request) -> Response:
    """200 while new sessions are welcome: the model is loaded, the engine alive, and no drain under way."""
    service: Service = request.app.state.service
    if service.admission.is_draining:
        return PlainTextResponse("draining\n", 503, {"retry-after": str(RETRY_AFTER_S)})
    if not service.transcriber.is_alive:
        return PlainTextResponse("there is no engine\n", 503, {"retry-after": str(RETRY_AFTER_S)})
    return PlainTextResponse("ready\n")


async def show_metrics(request: Request) -> Response:
    service: Service = request.app.state.service
    return Response(service.metrics.render(), media_type=metrics.CONTENT_TYPE)


async def not_found(request: Request, error: Exception) -> Response:
    """What no route serves, or not with this method, told as OpenAI's clients read it."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail.lower()}"
    response = RequestError(error.status_code, message, code=error.detail.lower().replace(" ", "_")).response()
    response.headers.update(error.headers or {})
    return response


def _key(authorization: str | None, subprotocols: list[str]) -> str | None:
    if authorization:
        return bearer_key(authorization)
    offered = (each for each in subprotocols if each.startswith(KEY_SUBPROTOCOL))
    return next((each.removeprefix(KEY_SUBPROTOCOL) for each in offered), None)
