"""The endpoints of Deepgram's API: `/v1/listen` over a WebSocket and over HTTP, and `/v1/auth/grant`."""

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.websockets import WebSocket

from tutti_server.app.dialects.body_endpoint import json_body
from tutti_server.app.dialects.checks import number_from
from tutti_server.app.dialects.deepgram.common_endpoint import (
    SLOW_UPLOAD,
    Refusal,
    admit_live,
    answer_headers,
    invalid_key,
    refusal_of,
    request_key,
)
from tutti_server.app.dialects.deepgram.file_wire import Recording
from tutti_server.app.dialects.deepgram.live_wire import Deepgram
from tutti_server.app.dialects.deepgram.metadata import Request as RequestMetadata
from tutti_server.app.dialects.deepgram.options import Options, parse
from tutti_server.app.dialects.deepgram.query import Query
from tutti_server.app.dialects.deepgram.recordings_endpoint import SPOOL_BYTES, receive_recording, take_job
from tutti_server.app.dialects.deepgram.speakers_endpoint import RecordingSpeakers
from tutti_server.app.dialects.http_answers import CLIENT_GONE
from tutti_server.app.dialects.json_text import write_large
from tutti_server.app.errors import (
    BadStart,
    LimitExceeded,
    MediaError,
    RequestError,
    SessionError,
    shorten,
)
from tutti_server.app.files.transcription import transcribe
from tutti_server.app.files.transcription_options import FLOAT_PCM, TranscriptionOptions
from tutti_server.app.files.uploads import Upload, refusing_without_resources
from tutti_server.app.live.accept import serve_session
from tutti_server.app.media.format_check import FormatCheck
from tutti_server.app.media.notices import Notice, OnNotice
from tutti_server.app.media.pcm import AudioDecoder, AudioFormat
from tutti_server.app.service.client_connections import admit
from tutti_server.app.service.request_ids import request_id
from tutti_server.app.service.service import Service
from tutti_server.app.session.engine_driver import SessionTrace
from tutti_server.app.session.messages import events
from tutti_server.app.version import VERSION

logger = logging.getLogger(__name__)

PIECE_S = 10
"""Raw audio is read from the file in pieces of this length, in seconds."""
DEFAULT_TOKEN_S, MAX_TOKEN_S = 30, 3600
"""How long a token is valid, in seconds."""


async def listen_live(websocket: WebSocket) -> None:
    """Serve a live session. A refusal is an HTTP answer before the upgrade."""
    service: Service = websocket.app.state.service
    id_ = request_id(websocket.scope)
    try:
        client, subprotocol = await admit_live(websocket)
        options = options_of(service, websocket.query_params.multi_items(), is_live=True)
        dialect = Deepgram(options, _request_metadata(options, service, id_))
        headers = answer_headers(id_, options.ignored, options.adjusted)
        await serve_session(websocket, dialect, subprotocol, headers, client=client)
    except (Refusal, RequestError, BadStart, LimitExceeded) as error:
        await websocket.send_denial_response(refusal_of(error).response(id_))


async def listen(request: Request) -> Response:
    """Transcribe the body of a request. The work is cancelled if the client disconnects."""
    id_ = request_id(request.scope)
    upload = Upload(request, request.app.state.service.settings)
    started = time.monotonic()
    response = await _listen(request, upload, id_)
    logger.info("[%s] %s: %d in %.2f s", id_, request.url.path, response.status_code, time.monotonic() - started)
    return response


async def _listen(request: Request, upload: Upload, id_: str) -> Response:
    service: Service = request.app.state.service
    try:
        # Read as the options are: else a key without this scope could have a callback under another spelling.
        callback = Query(request.query_params.multi_items()).text("callback")
        client = service.access.client(request_key(request), "jobs" if callback else "files")
        if client is None:
            raise invalid_key()
        options = options_of(service, request.query_params.multi_items())
        if options.callback:
            return await take_job(request, upload, options, client)
        model = _model_name(options, service)
        async with service.access.limits.upload(client.key) as on_progress:
            with (
                service.admission.upload(service.access.holder(client)),
                service.tracing.upload(request.scope, id_, model) as trace,
                refusing_without_resources(),
                SpooledTemporaryFile(SPOOL_BYTES) as file,
            ):
                admit(request.scope)
                drain_limit = service.admission.drain_limit
                sha256 = await drain_limit.unless_over(receive_recording(request, upload, file))
                work = transcribe_recording(service, options, id_, file, sha256, on_progress, trace)
                content = await drain_limit.unless_over(upload.until_disconnected(work))
                headers = answer_headers(id_, options.ignored, options.adjusted)
                return Response(content, headers=headers, media_type="application/json")
    except ClientDisconnect:
        # The work was cancelled, and no answer can be delivered.
        return Response(status_code=CLIENT_GONE)
    except (Refusal, RequestError, BadStart, LimitExceeded) as error:
        refusal = refusal_of(error)
        if refusal.status != SLOW_UPLOAD:
            await upload.discard(service.admission.drain_limit)
        return refusal.response(id_)


async def grant_token(request: Request) -> Response:
    """Answer a request for a token: a client without the API key opens live sessions with it, until it expires.

    The request needs the API key. It may name the lifetime of the token.
    """
    service: Service = request.app.state.service
    id_ = request_id(request.scope)
    upload = Upload(request, service.settings)
    key = request_key(request)
    try:
        if service.access.client(key) is None:
            raise invalid_key()
        token_s = _token_s(await json_body(upload))
    except (Refusal, RequestError) as error:
        await upload.discard(service.admission.drain_limit)
        return refusal_of(error).response(id_)
    token = service.access.sign_client_secret(key, math.ceil(time.time() + token_s), {})
    return JSONResponse({"access_token": token.value, "expires_in": token_s}, headers={"dg-request-id": id_})


def _token_s(body: dict[str, Any]) -> float:
    """How long a token is to be valid, in seconds, from the body of its request."""
    token_s = body.get("ttl_seconds")
    if token_s is None:
        return DEFAULT_TOKEN_S
    if not number_from(1, MAX_TOKEN_S)(token_s):
        got = shorten(token_s)
        raise Refusal(400, "Bad Request", f"ttl_seconds: expected a number from 1 to {MAX_TOKEN_S}, got {got}")
    seconds: float = token_s
    return seconds


async def transcribe_recording(
    service: Service,
    options: Options,
    id_: str,
    file: IO[bytes],
    sha256: str,
    on_progress: Callable[[float], None] | None = None,
    trace: SessionTrace | None = None,
) -> str:
    """Transcribe a recording, whose content has this SHA-256. Returns the body of the answer.

    Raises:
        Refusal: it is no audio, or the engine failed.
    """
    assert isinstance(options.start, TranscriptionOptions), "options of a recording"
    audio_format, n_file_channels = options.audio, None
    if audio_format is None:
        if options.is_multichannel:
            n_file_channels = await _n_channels(service, file, options.track)
        audio_format = AudioFormat("pcm_f32le", channels=n_file_channels or 1)
    recording = Recording(options, _request_metadata(options, service, id_), audio_format.n_transcribed)
    model = service.speaker_model
    speakers = RecordingSpeakers(model, audio_format, options.max_speakers) if model and options.max_speakers else None

    def push(event: events.Event) -> None:
        recording.push(event)
        if isinstance(event, events.Utterance):
            service.metrics.utterances.count(event)

    audio = (
        _raw(file, audio_format, push)
        if options.audio
        else service.decoders.decode(file, n_file_channels, push, options.track)
    )
    try:
        async with aclosing(audio), service.models.use(_model_name(options, service)) as transcriber:
            await transcribe(
                transcriber,
                speakers.listen(audio) if speakers else audio,
                push,
                session_id=id_,
                config=service.session_config,
                options=replace(options.start, audio=FLOAT_PCM if speakers else audio_format),
                on_progress=on_progress,
                trace=trace,
            )
    except MediaError as error:
        raise Refusal(400, "Bad Request", str(error)) from error
    except SessionError as error:
        logger.warning("[%s] failed with %s: %s", id_, error.code, error.message)
        status, code = (429, "TOO_MANY_REQUESTS") if error.code == "overloaded" else (500, "INTERNAL_SERVER_ERROR")
        raise Refusal(status, code, error.message) from error
    if speakers:
        recording.label(await speakers.labels(recording.words))
    return await asyncio.to_thread(lambda: write_large(recording.response(sha256)))


async def _n_channels(service: Service, file: IO[bytes], track: str | None) -> int:
    try:
        return await service.decoders.n_channels(file, track)
    except MediaError as error:
        raise Refusal(400, "Bad Request", str(error)) from error


async def _raw(file: IO[bytes], audio: AudioFormat, on_notice: OnNotice) -> AsyncGenerator[bytes, None]:
    """A file of raw audio in pieces. A notice says if it does not look like this format."""
    n_bytes = AudioDecoder(audio).bytes_per_s * PIECE_S
    check = FormatCheck(audio)
    while piece := await asyncio.to_thread(file.read, n_bytes):
        _report(check.add(piece), on_notice)
        yield piece
    _report(check.finish(), on_notice)


def _report(notice: Notice | None, on_notice: OnNotice) -> None:
    if notice:
        logger.warning("%s", notice.message)
        on_notice(notice)


def options_of(service: Service, query: Sequence[tuple[str, str]], is_live: bool = False) -> Options:
    """The options in a query, with the model that it means.

    Raises:
        BadStart: this service cannot follow them.
    """
    card = service.models.meant(Query(query).text("model"))
    options = parse(query, card.languages, is_live, service.speaker_model is not None)
    if not service.models.are_several:
        return options
    return replace(options, start=replace(options.start, model=card.name))


def _model_name(options: Options, service: Service) -> str:
    return options.start.model or service.transcriber.info.name


def _request_metadata(options: Options, service: Service, id_: str) -> RequestMetadata:
    return RequestMetadata(id_, _model_name(options, service), VERSION, datetime.now(UTC))
