"""`/v1/realtime` in OpenAI's shape: who may open a session, what its URL says, and secrets for browsers."""

import json
import time
from collections.abc import Mapping, Sequence
from secrets import token_hex
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from app.dialects.openai import realtime_options as session
from app.dialects.openai.realtime_options import BadField, Remark, Settings
from app.dialects.openai.realtime_wire import BETA_SUBPROTOCOL, SUBPROTOCOL, OpenAIRealtime
from app.errors import LimitExceeded
from app.live.accept import serve
from app.service.client_secrets import ClientSecret
from app.service.http_errors import RequestError, bearer_key, unauthorized
from app.service.service import Service

# Browsers cannot set headers on a WebSocket; they offer the key as a subprotocol, which is never echoed.
KEY_SUBPROTOCOL = "openai-insecure-api-key."
# Clients keep idle sockets for ten minutes, to use them again.
LEAST_IDLE_TIMEOUT_S = 660.0
# An append event carries audio as base64, with its JSON around it. What is larger still is cut off by the protocol.
TEXT_PER_AUDIO = 4
SECRET_S = 600
LEAST_SECRET_S, MOST_SECRET_S = 10, 7200
MAX_BODY_BYTES = 65_536
MAX_NAME_CHARS = 80


def realtime_routes() -> list[BaseRoute]:
    return [
        WebSocketRoute("/v1/realtime", realtime),
        Route("/v1/realtime/client_secrets", create_client_secret, methods=["POST"]),
        Route("/v1/realtime/transcription_sessions", create_transcription_session, methods=["POST"]),
    ]


async def realtime(websocket: WebSocket) -> None:
    """A live session. Refusals are HTTP answers, given before the upgrade."""
    service: Service = websocket.app.state.service
    offered: list[str] = websocket.scope.get("subprotocols", [])
    try:
        secret = _admitted(service, websocket.headers, offered)
        if offered and SUBPROTOCOL not in offered:
            known = [each for each in offered if not each.startswith(KEY_SUBPROTOCOL)]
            raise RequestError(400, f"subprotocol: expected {SUBPROTOCOL}, got {', '.join(known) or 'a key alone'}")
        settings, remarks = _settings(service, websocket.query_params, secret)
    except RequestError as error:
        await websocket.send_denial_response(error.response())
        return
    limits = service.settings
    dialect = OpenAIRealtime(
        token_hex(8),
        service.transcriber.info,
        settings=settings,
        remarks=remarks,
        is_flat="openai-beta" in websocket.headers or BETA_SUBPROTOCOL in offered,
        idle_timeout_s=max(limits.idle_timeout_s, LEAST_IDLE_TIMEOUT_S),
        max_text_chars=limits.max_message_kb * 1024 * TEXT_PER_AUDIO,
    )
    await serve(websocket, dialect, SUBPROTOCOL if offered else None, _refuse)


async def create_client_secret(request: Request) -> Response:
    """A secret that opens sessions for a while, for clients that must not have the API key."""
    service: Service = request.app.state.service
    try:
        body = await _body(request)
        expires_after = body.get("expires_after")
        settings, secret = _signed(
            service, request, _mapping(body, "session"), _seconds(expires_after, "expires_after")
        )
    except RequestError as error:
        return error.response()
    described = session.described(settings, f"sess_{token_hex(8)}", service.transcriber.info)
    return JSONResponse({"value": secret.value, "expires_at": secret.expires_at, "session": described})


async def create_transcription_session(request: Request) -> Response:
    """The older way to such a secret, whose body is the session itself."""
    service: Service = request.app.state.service
    try:
        wanted = await _body(request)
        client_secret = _mapping(wanted, "client_secret")
        seconds = _seconds(client_secret.get("expires_at", client_secret.get("expires_after")), "client_secret")
        wanted.pop("client_secret", None)
        settings, secret = _signed(service, request, wanted, seconds)
    except RequestError as error:
        return error.response()
    described = session.described_flat(settings, f"sess_{token_hex(8)}", service.transcriber.info)
    return JSONResponse(described | {"client_secret": {"value": secret.value, "expires_at": secret.expires_at}})


def _refuse(error: LimitExceeded) -> Response:
    return RequestError(503, error.message, code=error.code).response()


def _admitted(service: Service, headers: Mapping[str, str], offered: Sequence[str]) -> ClientSecret | None:
    """The secret of a client that brought one; `None` for one that brought a key, or was not asked for any.

    Raises:
        RequestError: it is not allowed in.
    """
    keys = (each.removeprefix(KEY_SUBPROTOCOL) for each in offered if each.startswith(KEY_SUBPROTOCOL))
    key = bearer_key(headers.get("authorization")) or next(keys, None)
    secret = service.client_secret(key)
    if secret is None and not service.is_allowed(key):
        service.metrics.refused_total.labels("unauthorized").inc()
        raise unauthorized()
    return secret


def _settings(service: Service, query: Mapping[str, str], secret: ClientSecret | None) -> tuple[Settings, list[Remark]]:
    """What a session is set to by its URL, and by the secret that opened it."""
    model = service.transcriber.info
    settings, remarks = session.named(Settings(), query.get("model"), model)
    if query.get("intent", "transcription") != "transcription":
        remarks.append({"param": "intent", "message": "this server transcribes, and does not answer"})
    unknown = [name[:MAX_NAME_CHARS] for name in query if name not in ("intent", "model")]
    remarks += [{"param": name, "message": "has no effect on this server"} for name in unknown[: session.MAX_REMARKS]]
    if secret is None:
        return settings, remarks
    settings, more = _updated(service, settings, secret.session)
    return settings, remarks + more


def _updated(service: Service, settings: Settings, wanted: object) -> tuple[Settings, list[Remark]]:
    try:
        return session.updated(settings, wanted, service.transcriber.info)
    except BadField as error:
        raise RequestError(400, error.message, error.param, error.code) from error


def _signed(service: Service, request: Request, wanted: dict[str, Any], seconds: int) -> tuple[Settings, ClientSecret]:
    """A secret for sessions that are set to what is wanted, for whoever has an API key: a secret makes no others."""
    key = bearer_key(request.headers.get("authorization"))
    if not service.is_allowed(key):
        service.metrics.refused_total.labels("unauthorized").inc()
        raise unauthorized()
    settings, _ = _updated(service, Settings(), wanted)
    try:
        return settings, service.sign_client_secret(key, int(time.time()) + seconds, wanted)
    except ValueError as error:
        raise RequestError(400, f"session: {error}", "session") from error


async def _body(request: Request) -> dict[str, Any]:
    """The request's JSON object; none at all is an empty one."""
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > MAX_BODY_BYTES:
            raise RequestError(413, f"body: expected at most {MAX_BODY_BYTES} bytes")
    try:
        body = json.loads(content or b"{}")
    except (ValueError, RecursionError) as error:
        raise RequestError(400, "body: expected a JSON object") from error
    if not isinstance(body, dict):
        raise RequestError(400, f"body: expected a JSON object, got {type(body).__name__}")
    return body


def _mapping(body: dict[str, Any], name: str) -> dict[str, Any]:
    value = body.get(name)
    if value is None or isinstance(value, dict):
        return value or {}
    raise RequestError(400, f"{name}: expected an object, got {type(value).__name__}", name)


def _seconds(expires_after: object, name: str) -> int:
    """How long a secret is to be good for, as `{"anchor": "created_at", "seconds": …}` says it."""
    if expires_after is None:
        return SECRET_S
    expected = f"an object with anchor created_at and seconds from {LEAST_SECRET_S} to {MOST_SECRET_S}"
    if not isinstance(expires_after, dict) or expires_after.get("anchor", "created_at") != "created_at":
        raise RequestError(400, f"{name}: expected {expected}", name)
    seconds = expires_after.get("seconds", SECRET_S)
    if not isinstance(seconds, int) or isinstance(seconds, bool) or not LEAST_SECRET_S <= seconds <= MOST_SECRET_S:
        raise RequestError(400, f"{name}.seconds: expected {expected}", f"{name}.seconds")
    return seconds
