"""Deepgram's `/v1/listen`, over a WebSocket and over HTTP: who may use it, what is refused, and what becomes of it."""

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from importlib.metadata import version
from tempfile import SpooledTemporaryFile
from typing import IO

from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.websockets import WebSocket

from app.dialects.deepgram import live_wire
from app.dialects.deepgram.file_wire import Recording
from app.dialects.deepgram.options import Options, parse
from app.dialects.json_text import read_object
from app.dialects.openai.files_endpoint import GONE, IGNORED_HEADER, header_value
from app.errors import RETRY_AFTER_S, BadMessage, BadStart, LimitExceeded, MediaError, SessionError, shorten
from app.files.transcription import TranscriptionOptions, transcribe
from app.files.uploads import Upload
from app.live.accept import serve
from app.media import file_decoder
from app.media.pcm import AudioDecoder, AudioFormat
from app.service.http_errors import RequestError
from app.service.request_ids import request_id
from app.service.service import Service
from app.session import events

logger = logging.getLogger(__name__)

VERSION = version("tutti-server")
# Names the parameters whose value was replaced, and by what.
ADJUSTED_HEADER = "x-tutti-adjusted"
SLOW = 408
UPLOAD_CODES = {400: "Bad Request", SLOW: "SLOW_UPLOAD", 413: "PAYLOAD_TOO_LARGE"}
SPOOL_BYTES = 1_000_000
"""More of an upload than this is kept on disk."""
PIECE_S = 10
SCHEMES = ("token", "bearer")
TTL_S, MOST_TTL_S = 30, 3600
MAX_GRANT_BYTES = 10_000


class Refusal(Exception):
    """A request that is not served, in the terms of Deepgram's errors."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(status, code, message)
        self.status = status
        self.code = code
        self.message = message

    def response(self, id_: str) -> Response:
        headers = {"dg-request-id": id_, "dg-error": header_value(self.message)}
        if self.status in (429, 503):
            headers["retry-after"] = str(RETRY_AFTER_S)
        body = {"err_code": self.code, "err_msg": self.message, "request_id": id_}
        return JSONResponse(body, self.status, headers)


async def listen_live(websocket: WebSocket) -> None:
    """A live session. Refusals are HTTP answers, given before the upgrade."""
    service: Service = websocket.app.state.service
    id_ = request_id(websocket.scope)
    offered: list[str] = websocket.scope.get("subprotocols", [])
    subprotocol = offered[0] if offered and offered[0].lower() in SCHEMES else None
    try:
        _check_key(websocket, service.is_allowed_live, offered[1] if subprotocol and len(offered) > 1 else None)
        if offered and subprotocol is None:
            # A browser would close a socket that answers with none of its protocols, and say no more than that.
            raise Refusal(400, "Bad Request", "subprotocol: expected token or bearer first, with the key behind it")
        options = _options(websocket, is_live=True)
    except Refusal as refusal:
        await websocket.send_denial_response(refusal.response(id_))
        return
    dialect = live_wire.Deepgram(options, _request(service, id_))
    headers = _headers(id_, options)
    await serve(websocket, dialect, subprotocol, lambda error: _refusal(error).response(id_), headers)


async def listen(request: Request) -> Response:
    """Transcribe the body. A client that goes away ends the work."""
    id_ = request_id(request.scope)
    upload = Upload(request, request.app.state.service.settings)
    started = time.monotonic()
    response = await _listen(request, upload, id_)
    logger.info("[%s] %s: %d in %.2f s", id_, request.url.path, response.status_code, time.monotonic() - started)
    return response


async def _listen(request: Request, upload: Upload, id_: str) -> Response:
    service: Service = request.app.state.service
    try:
        _check_key(request, service.is_allowed)
        options = _options(request, is_live=False)
        _check_type(request)
        with service.admission.upload(), SpooledTemporaryFile(SPOOL_BYTES) as file:
            sha256 = await _spool(upload, file)
            return await upload.until_disconnected(_transcribe(service, options, id_, file, sha256))
    except ClientDisconnect:
        # Nobody is there to read it. The work was cancelled.
        return Response(status_code=GONE)
    except (Refusal, RequestError, LimitExceeded) as error:
        refusal = _refusal(error)
        if refusal.status != SLOW:
            await upload.discard()
        return refusal.response(id_)


async def grant_token(request: Request) -> Response:
    """A token that opens live streams for a while, for clients that must not have the API key."""
    service: Service = request.app.state.service
    id_ = request_id(request.scope)
    upload = Upload(request, service.settings)
    try:
        key = _check_key(request, service.is_allowed)
        ttl_s = _ttl_s(await _short_body(upload))
    except ClientDisconnect:
        return Response(status_code=GONE)
    except (Refusal, RequestError) as error:
        await upload.discard()
        return _refusal(error).response(id_)
    token = service.sign_client_secret(key, math.ceil(time.time() + ttl_s), {})
    return JSONResponse({"access_token": token.value, "expires_in": ttl_s}, headers={"dg-request-id": id_})


async def _short_body(upload: Upload) -> bytes:
    content = b""
    async with aclosing(upload.chunks()) as chunks:
        async for chunk in chunks:
            content += chunk
            if len(content) > MAX_GRANT_BYTES:
                raise Refusal(413, "PAYLOAD_TOO_LARGE", f"body: expected at most {MAX_GRANT_BYTES} bytes")
    return content


def _ttl_s(content: bytes) -> float:
    try:
        ttl_s = read_object(content.decode() or "{}").get("ttl_seconds")
    except (UnicodeDecodeError, BadMessage) as error:
        raise Refusal(400, "Bad Request", f"body: {error}") from error
    if ttl_s is None:
        return TTL_S
    if isinstance(ttl_s, bool) or not isinstance(ttl_s, int | float) or not 1 <= ttl_s <= MOST_TTL_S:
        got = shorten(ttl_s)
        raise Refusal(400, "Bad Request", f"ttl_seconds: expected a number from 1 to {MOST_TTL_S}, got {got}")
    return ttl_s


async def _transcribe(service: Service, options: Options, id_: str, file: IO[bytes], sha256: str) -> Response:
    audio_format, n_file_channels = options.audio, None
    if audio_format is None:
        if options.is_multichannel:
            n_file_channels = await asyncio.to_thread(file_decoder.n_channels, file)
        audio_format = AudioFormat("pcm_f32le", channels=n_file_channels or 1)
    recording = Recording(options, _request(service, id_), audio_format.n_transcribed)

    def take(event: events.Event) -> None:
        recording.take(event)
        if isinstance(event, events.Utterance):
            service.metrics.coverage.count(event)

    audio = _raw(file, audio_format) if options.audio else file_decoder.decode_file(file, n_file_channels)
    try:
        async with aclosing(audio):
            await transcribe(
                service.transcriber,
                audio,
                take,
                session_id=id_,
                config=service.session_config,
                options=TranscriptionOptions(
                    language=options.language, words=True, hotwords=options.hotwords, audio_format=audio_format
                ),
            )
    except MediaError as error:
        raise Refusal(400, "Bad Request", str(error)) from error
    except SessionError as error:
        status, code = (429, "TOO_MANY_REQUESTS") if error.code == "overloaded" else (500, "INTERNAL_SERVER_ERROR")
        raise Refusal(status, code, error.message) from error
    return JSONResponse(recording.response(sha256), headers=_headers(id_, options))


async def _raw(file: IO[bytes], audio: AudioFormat) -> AsyncGenerator[bytes, None]:
    n_bytes = AudioDecoder(audio).bytes_per_s * PIECE_S
    while piece := await asyncio.to_thread(file.read, n_bytes):
        yield piece


def _check_type(request: Request) -> None:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type == "application/json":
        raise Refusal(400, "Bad Request", "url: nothing is fetched by this server; send the audio itself as the body")


async def _spool(upload: Upload, file: IO[bytes]) -> str:
    """Put the body into the file, and say its SHA-256."""
    sha256 = hashlib.sha256()
    async with aclosing(upload.chunks()) as chunks:
        async for chunk in chunks:
            sha256.update(chunk)
            await asyncio.to_thread(file.write, chunk)
    if not file.tell():
        raise Refusal(400, "Bad Request", "body: expected audio, got nothing")
    file.seek(0)
    return sha256.hexdigest()


def _check_key(
    connection: HTTPConnection, is_allowed: Callable[[str | None], bool], offered: str | None = None
) -> str | None:
    """The key that the client shows, in a header or as it is offered otherwise; it is one that is allowed."""
    scheme, _, value = connection.headers.get("authorization", "").partition(" ")
    key = value.strip() if scheme.lower() in SCHEMES else offered
    if not is_allowed(key):
        service: Service = connection.app.state.service
        service.metrics.refused_total.labels("unauthorized").inc()
        message = "a valid API key is needed: Authorization: Token KEY, or Bearer"
        raise Refusal(401, "INVALID_AUTH", message)
    return key


def _options(connection: HTTPConnection, is_live: bool) -> Options:
    service: Service = connection.app.state.service
    try:
        return parse(connection.query_params.multi_items(), service.transcriber.info.languages, is_live)
    except BadStart as error:
        raise Refusal(400, "INVALID_QUERY_PARAMETER", error.message) from error


def _refusal(error: Refusal | RequestError | LimitExceeded) -> Refusal:
    match error:
        case Refusal():
            return error
        case RequestError():
            return Refusal(error.status, UPLOAD_CODES[error.status], error.message)
        case LimitExceeded(code="draining"):
            return Refusal(503, "SERVICE_UNAVAILABLE", error.message)
        case _:
            return Refusal(429, "TOO_MANY_REQUESTS", error.message)


def _request(service: Service, id_: str) -> live_wire.Request:
    return live_wire.Request(id_, service.transcriber.info.name, VERSION, datetime.now(UTC))


def _headers(id_: str, options: Options) -> Mapping[str, str]:
    """Of an answer: whose it is, and what of the request was not done as it was asked for."""
    headers = {"dg-request-id": id_}
    if options.ignored:
        headers[IGNORED_HEADER] = header_value(", ".join(options.ignored))
    if options.adjusted:
        headers[ADJUSTED_HEADER] = header_value(", ".join(options.adjusted))
    return headers
