"""The endpoints of OpenAI's Realtime API: the socket, and client secrets for browsers."""

import time
from collections.abc import Mapping
from secrets import token_hex
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.websockets import WebSocket

from tutti_server.app.dialects.body_endpoint import json_body
from tutti_server.app.dialects.checks import integer_from, is_boolean, understood
from tutti_server.app.dialects.limits import MAX_NAME_CHARS, MAX_NOTICES
from tutti_server.app.dialects.openai.realtime_fields import NO_EFFECT, BadField, Warnings
from tutti_server.app.dialects.openai.realtime_options import ANSWERS_NOTHING, RealtimeSettings, named, updated
from tutti_server.app.dialects.openai.realtime_session import RealtimeSession, described, described_flat
from tutti_server.app.dialects.openai.realtime_wire import BETA_SUBPROTOCOL, SUBPROTOCOL, OpenAIRealtime
from tutti_server.app.errors import RETRY_AFTER_S, RequestError, shorten
from tutti_server.app.files.uploads import Upload
from tutti_server.app.live.accept import serve_session
from tutti_server.app.service.auth import header_key, prefixed_key
from tutti_server.app.service.client_secrets import ClientSecret
from tutti_server.app.service.http_errors import authorized
from tutti_server.app.service.service import Service
from tutti_server.app.sharing.store import StoreAway

KEY_PREFIX = "openai-insecure-api-key."
"""Starts the subprotocol in which a browser carries its key, beside `realtime`."""
MIN_IDLE_TIMEOUT_S = 660.0
"""The least idle timeout, in seconds: clients keep idle sockets for ten minutes, to use them again."""
TEXT_PER_AUDIO = 4
"""How much longer a text message may be than the audio in it, which is base64 in JSON.

The WebSocket library cuts off messages that are longer still.
"""
DEFAULT_SECRET_S = 600
MIN_SECRET_S, MAX_SECRET_S = 10, 7200
"""How long a client secret is valid, in seconds."""


async def realtime(websocket: WebSocket) -> None:
    """Serve a live session. A refusal is an HTTP answer before the upgrade."""
    service: Service = websocket.app.state.service
    offered: list[str] = websocket.scope.get("subprotocols", [])
    key = header_key(websocket.headers) or prefixed_key(offered, KEY_PREFIX)
    client = authorized(await service.access.live_client(key))
    if offered and SUBPROTOCOL not in offered:
        known = [each for each in offered if not each.startswith(KEY_PREFIX)]
        raise RequestError(400, f"subprotocol: expected {SUBPROTOCOL}, got {', '.join(known) or 'a key alone'}")
    settings, warnings = _settings(service, websocket.query_params, client.secret)
    limits = service.settings
    # The header may name other APIs in beta, such as assistants=v2.
    is_flat = "realtime=v1" in ",".join(websocket.headers.getlist("openai-beta")) or BETA_SUBPROTOCOL in offered
    dialect = OpenAIRealtime(
        RealtimeSession(
            token_hex(8), settings, is_flat, service.models.meant, lambda: service.speaker_model is not None
        ),
        warnings=warnings,
        idle_timeout_s=max(limits.idle_timeout_s, MIN_IDLE_TIMEOUT_S),
        max_text_chars=limits.max_message_kb * 1024 * TEXT_PER_AUDIO,
    )
    await serve_session(websocket, dialect, SUBPROTOCOL if offered else None, client=client)


async def create_client_secret(request: Request) -> Response:
    """Make a secret that opens sessions for a while, for clients that must not have the API key."""
    service: Service = request.app.state.service
    body = await json_body(Upload(request, service.settings))
    seconds = _seconds(body.get("expires_after"), "expires_after")
    rooms = understood(body.get("rooms", False), is_boolean)
    if not is_boolean(rooms):
        raise RequestError(400, f"rooms: expected true or false, got {shorten(rooms)}", "rooms")
    settings, secret = _sign(service, request, _object(body, "session"), seconds, rooms)
    session = described(settings, f"sess_{token_hex(8)}", service.transcriber.info)
    return JSONResponse({"value": secret.value, "expires_at": secret.expires_at, "session": session})


async def create_transcription_session(request: Request) -> Response:
    """Make such a secret at the older endpoint, where the body is the session itself."""
    service: Service = request.app.state.service
    fields = await json_body(Upload(request, service.settings))
    client_secret = _object(fields, "client_secret")
    seconds = _seconds(client_secret.get("expires_at", client_secret.get("expires_after")), "client_secret")
    fields.pop("client_secret", None)
    settings, secret = _sign(service, request, fields, seconds)
    session = described_flat(settings, f"sess_{token_hex(8)}", service.transcriber.info)
    return JSONResponse(session | {"client_secret": {"value": secret.value, "expires_at": secret.expires_at}})


async def withdraw_client_secret(request: Request) -> Response:
    """Let a secret open no more sessions, for the owner of the key that made it. Sessions that are open go on."""
    service: Service = request.app.state.service
    key = header_key(request.headers)
    authorized(service.access.client(key))
    value = (await json_body(Upload(request, service.settings))).get("value")
    if not isinstance(value, str):
        raise RequestError(400, "value: expected the client secret as text", "value")
    if not service.is_known_everywhere:
        message = "with more than one gateway, withdrawals of client secrets need TUTTI_REDIS_URL"
        raise RequestError(501, message, code="not_supported")
    secret = service.access.own_client_secret(key, value)
    if secret is None:
        message = "value: expected a client secret that this API key has made and that has not expired"
        raise RequestError(404, message, "value", "unknown_client_secret")
    try:
        await service.access.withdrawals.withdraw(secret)
    except StoreAway as error:
        message = f"the secret is not withdrawn, as Redis cannot be reached; try again in {RETRY_AFTER_S} s"
        raise RequestError(503, message, code="redis_away") from error
    return JSONResponse({"withdrawn": True, "expires_at": secret.expires_at})


def _settings(
    service: Service, query: Mapping[str, str], secret: ClientSecret | None
) -> tuple[RealtimeSettings, Warnings]:
    """The settings in the URL of a connection, and in the secret that opened it."""
    query = {name: value for name, value in query.items() if value.strip()}
    name = query.get("model")
    service.models.requested(name)
    settings, warnings = named(RealtimeSettings(), name, service.models.meant)
    if query.get("intent", "transcription") != "transcription":
        warnings.append({"param": "intent", "message": ANSWERS_NOTHING})
    unknown = [name[:MAX_NAME_CHARS] for name in query if name not in ("intent", "model")]
    warnings += [{"param": name, "message": NO_EFFECT} for name in unknown[:MAX_NOTICES]]
    if secret is None:
        return settings, warnings
    settings, secret_warnings = _updated(service, settings, secret.session)
    return settings, warnings + secret_warnings


def _updated(service: Service, settings: RealtimeSettings, session: object) -> tuple[RealtimeSettings, Warnings]:
    try:
        return updated(settings, session, service.models.meant)
    except BadField as error:
        raise RequestError(400, error.message, error.param, error.code) from error


def _sign(
    service: Service, request: Request, session: dict[str, Any], seconds: int, rooms: bool = False
) -> tuple[RealtimeSettings, ClientSecret]:
    """Make a secret. The client must have an API key, as a secret is not enough. Raises `RequestError`."""
    key = header_key(request.headers)
    client = authorized(service.access.client(key))
    if rooms and not client.may_open_rooms:
        raise RequestError(400, "rooms: expected false, as this API key may publish no rooms", "rooms")
    settings, _ = _updated(service, RealtimeSettings(), session)
    try:
        return settings, service.access.sign_client_secret(key, int(time.time()) + seconds, session, rooms)
    except ValueError as error:
        raise RequestError(400, f"session: {error}", "session") from error


def _object(body: dict[str, Any], name: str) -> dict[str, Any]:
    value = body.get(name)
    if value is None or isinstance(value, dict):
        return value or {}
    raise RequestError(400, f"{name}: expected an object, got {type(value).__name__}", name)


def _seconds(expires_after: object, name: str) -> int:
    """How long a secret is to be valid, from an object `{"anchor": "created_at", "seconds": 600}`."""
    if expires_after is None:
        return DEFAULT_SECRET_S
    expected = f"an object with anchor created_at and seconds from {MIN_SECRET_S} to {MAX_SECRET_S}"
    if not isinstance(expires_after, dict) or expires_after.get("anchor", "created_at") != "created_at":
        raise RequestError(400, f"{name}: expected {expected}, got {shorten(expires_after)}", name)
    is_valid = integer_from(MIN_SECRET_S, MAX_SECRET_S)
    seconds: int = understood(expires_after.get("seconds", DEFAULT_SECRET_S), is_valid)
    if not is_valid(seconds):
        message = f"{name}.seconds: expected {expected}, got {shorten(seconds)}"
        raise RequestError(400, message, f"{name}.seconds")
    return seconds
