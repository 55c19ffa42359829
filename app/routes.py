"""What is served where: the live stream, file transcription, models, health, metrics and the page."""

import logging
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket

from app import metrics
from app.dialects import native
from app.errors import LimitExceeded
from app.live import serve
from app.rest import RequestError, create_transcription
from app.service import RETRY_AFTER_S, Service

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
        Mount("/static", StaticFiles(directory=STATIC), name="static"),
        WebSocketRoute("/v1/stream", stream),
        Route("/v1/audio/transcriptions", transcriptions, methods=["POST"]),
        Route("/v1/models", models),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", show_metrics),
    ]


async def stream(websocket: WebSocket) -> None:
    """A live session in the native protocol. Refusals are HTTP answers, given before the upgrade."""
    service: Service = websocket.app.state.service
    offered = websocket.scope.get("subprotocols", [])
    if not service.is_allowed(_key(websocket.headers.get("authorization"), offered)):
        service.metrics.refused_total.labels("unauthorized").inc()
        await websocket.send_denial_response(_unauthorized().response())
        return
    if offered and native.SUBPROTOCOL not in offered:
        error = RequestError(400, f"subprotocol: expected {native.SUBPROTOCOL}, got {', '.join(offered)}")
        await websocket.send_denial_response(error.response())
        return
    await serve(websocket, native.Native(), native.SUBPROTOCOL if offered else None, _refuse)


def _refuse(error: LimitExceeded) -> Response:
    return RequestError(503, error.message, code=error.code).response()


async def transcriptions(request: Request) -> Response:
    service: Service = request.app.state.service
    if not service.is_allowed(_key(request.headers.get("authorization"))):
        service.metrics.refused_total.labels("unauthorized").inc()
        return _unauthorized().response()
    return await create_transcription(request)


async def models(request: Request) -> Response:
    """The one model served, in the shape of OpenAI's list."""
    service: Service = request.app.state.service
    if not service.is_allowed(_key(request.headers.get("authorization"))):
        return _unauthorized().response()
    info = service.transcriber.info
    model = {
        "id": info.name,
        "object": "model",
        "created": service.started,
        "owned_by": "tutti",
        "languages": list(info.languages),
        "tasks": list(info.tasks),
    }
    return JSONResponse({"object": "list", "data": [model]})


async def page(request: Request) -> Response:
    return FileResponse(STATIC / "index.html", headers=PAGE_HEADERS)


async def healthz(request: Request) -> Response:
    """200 while the process can answer at all."""
    return PlainTextResponse("ok\n")


async def readyz(request: Request) -> Response:
    """200 while new sessions are welcome: the model is loaded, the engine alive, and no drain under way."""
    service: Service = request.app.state.service
    if service.is_draining:
        return PlainTextResponse("draining\n", 503, {"retry-after": str(RETRY_AFTER_S)})
    if not service.transcriber.is_alive:
        return PlainTextResponse("the engine has failed\n", 503)
    return PlainTextResponse("ready\n")


async def show_metrics(request: Request) -> Response:
    service: Service = request.app.state.service
    return Response(service.metrics.render(), media_type=metrics.CONTENT_TYPE)


def _key(authorization: str | None, subprotocols: list[str] | None = None) -> str | None:
    if authorization:
        scheme, _, value = authorization.partition(" ")
        return value.strip() if scheme.lower() == "bearer" else None
    offered = (each for each in subprotocols or () if each.startswith(KEY_SUBPROTOCOL))
    return next((each.removeprefix(KEY_SUBPROTOCOL) for each in offered), None)


def _unauthorized() -> RequestError:
    return RequestError(401, "a valid API key is needed: Authorization: Bearer KEY", code="invalid_api_key")
