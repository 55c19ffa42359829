"""File transcription over HTTP in the shape of OpenAI's `POST /v1/audio/transcriptions`."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from secrets import token_hex
from typing import Any

from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Message

from app import events
from app.envelope import RequestError
from app.errors import LimitExceeded, MediaError, SessionError
from app.languages import NAMES
from app.media import decode_file
from app.service import Service
from app.settings import Settings
from app.transcription import Transcript, transcribe
from engine.api import MAX_BEST_OF, MAX_HOTWORD_BYTES, MAX_HOTWORDS

RESPONSE_FORMATS = ("json", "text", "verbose_json")
KNOWN_FIELDS = {
    "file",
    "model",
    "language",
    "prompt",
    "response_format",
    "stream",
    "timestamp_granularities",
    "timestamp_granularities[]",
    "temperature",
    # Ours, named as other servers of Whisper name them.
    "best_of",
    "condition_on_previous_text",
    "hotwords",
}
# Names the fields of a request that changed nothing, so that none is ignored in silence.
IGNORED_HEADER = "x-tutti-ignored"
MAX_HEADER_CHARS = 500
MAX_FIELDS = 100


async def create_transcription(request: Request) -> Response:
    """Transcribe the uploaded file. A client that goes away ends the work."""
    service: Service = request.app.state.service
    try:
        with service.admitted_upload():
            form = await _read_form(request, service.settings)
            try:
                return await _until_disconnected(request, _transcribe(service, form))
            finally:
                await form.close()
    except RequestError as error:
        return error.response()
    except ClientDisconnect:
        # Nobody is there to read it.
        return Response(status_code=499)
    except LimitExceeded as error:
        return RequestError(503, error.message, code=error.code).response()


async def _transcribe(service: Service, form: FormData) -> Response:
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise RequestError(400, f"file: expected an audio file, got {'nothing' if file is None else 'text'}", "file")
    response_format = _text(form, "response_format") or "json"
    if response_format not in RESPONSE_FORMATS:
        expected = f"one of {', '.join(RESPONSE_FORMATS)}"
        raise RequestError(400, f"response_format: expected {expected}, got {response_format!r}", "response_format")
    if (_text(form, "stream") or "false").lower() not in ("false", "0"):
        raise RequestError(400, "stream: not offered by this server yet", "stream", "unsupported")
    granularities = _granularities(form, response_format)
    carries_context = _boolean(form, "condition_on_previous_text")
    temperature = _number(form, "temperature", 0.0, 0.0, 1.0)
    best_of = int(_number(form, "best_of", 1, 1, MAX_BEST_OF))
    hotwords = _hotwords(form)
    transcript = Transcript()

    def take(event: events.Event) -> None:
        transcript.take(event)
        if isinstance(event, events.Utterance):
            service.metrics.count_coverage(event)

    try:
        async with aclosing(decode_file(file.file)) as audio:
            await transcribe(
                service.transcriber,
                audio,
                take,
                session_id=f"file_{token_hex(8)}",
                config=service.session_config,
                language=_text(form, "language") or None,
                prompt=_text(form, "prompt") or "",
                words="word" in granularities,
                hotwords=hotwords,
                temperature=temperature,
                best_of=best_of,
                carries_context=carries_context,
            )
    except MediaError as error:
        raise RequestError(400, str(error), "file", "invalid_file") from error
    except SessionError as error:
        if error.code == "bad_start":
            raise RequestError(400, error.message, error.message.partition(":")[0]) from error
        raise RequestError(503 if error.code == "overloaded" else 500, error.message, code=error.code) from error
    ignored = ", ".join(sorted(form.keys() - KNOWN_FIELDS))[:MAX_HEADER_CHARS]
    ignored = "".join(character if character.isprintable() and character.isascii() else "?" for character in ignored)
    return _response(transcript, response_format, granularities, {IGNORED_HEADER: ignored} if ignored else {})


def _granularities(form: FormData, response_format: str) -> set[str]:
    """What gets times: segments unless only words were asked for."""
    asked = {*form.getlist("timestamp_granularities[]"), *form.getlist("timestamp_granularities")}
    granularities = {each for each in asked if isinstance(each, str)}
    name = "timestamp_granularities"
    if unknown := granularities - {"segment", "word"}:
        got = ", ".join(sorted(unknown))[:MAX_HEADER_CHARS]
        raise RequestError(400, f"{name}: expected segment or word, got {got!r}", name)
    if granularities and response_format != "verbose_json":
        raise RequestError(400, f"{name}: expected response_format verbose_json, got {response_format}", name)
    return granularities or {"segment"}


def _response(
    transcript: Transcript, response_format: str, granularities: set[str], headers: dict[str, str]
) -> Response:
    usage = {"type": "duration", "seconds": round(transcript.audio_s)}
    match response_format:
        case "text":
            return PlainTextResponse(transcript.text + "\n", headers=headers)
        case "json":
            return JSONResponse({"text": transcript.text, "usage": usage}, headers=headers)
        case _:
            language = transcript.language
            body: dict[str, Any] = {
                "task": "transcribe",
                "language": NAMES.get(language, language) if language else "",
                "duration": transcript.audio_s,
                "text": transcript.text,
                "usage": usage,
            }
            if "segment" in granularities:
                body["segments"] = [_segment(segment) for segment in transcript.segments]
            if "word" in granularities:
                body["words"] = [
                    {"word": word.text, "start": word.start_s, "end": word.end_s}
                    for segment in transcript.segments
                    for word in segment.words
                ]
            return JSONResponse(body, headers=headers)


def _segment(segment: events.Segment) -> dict[str, Any]:
    source = segment.source
    return {
        "id": segment.id,
        # Mel frames of 10 ms before the window that the segment was read from.
        "seek": round(segment.window_start_s * 100),
        "start": segment.start_s,
        "end": segment.end_s,
        "text": segment.text,
        "tokens": list(source.tokens),
        "temperature": source.temperature,
        "avg_logprob": source.avg_logprob,
        "compression_ratio": source.compression_ratio,
        "no_speech_prob": source.no_speech_prob,
    }


async def _read_form(request: Request, settings: Settings) -> FormData:
    """The multipart form, its file spooled to disk; one that is too large or too slow is refused while it arrives."""
    content_type = request.headers.get("content-type", "")
    if not content_type.startswith("multipart/form-data"):
        raise RequestError(400, f"body: expected multipart/form-data, got {content_type or 'no content type'}")
    n_received = 0

    async def receive() -> Message:
        nonlocal n_received
        try:
            async with asyncio.timeout(settings.idle_timeout_s):
                message = await request.receive()
        except TimeoutError:
            raise RequestError(408, f"body: nothing came for {settings.idle_timeout_s:g} s") from None
        n_received += len(message.get("body", b""))
        if n_received > settings.max_upload_mb * 1_000_000:
            raise RequestError(413, f"file: expected at most {settings.max_upload_mb} MB", "file", "too_large")
        return message

    try:
        return await Request(request.scope, receive).form(max_files=1, max_fields=MAX_FIELDS)
    except (MultiPartException, HTTPException) as error:
        message = error.message if isinstance(error, MultiPartException) else error.detail
        raise RequestError(400, f"body: expected a multipart form ({message})") from error


async def _until_disconnected(request: Request, work: Awaitable[Response]) -> Response:
    """Await the work, or cancel it when the client goes away."""
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_disconnected(request.receive))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        for each in (task, watch):
            each.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _disconnected(receive: Callable[[], Awaitable[Message]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _text(form: FormData, name: str) -> str | None:
    value = form.get(name)
    return value if isinstance(value, str) else None


def _boolean(form: FormData, name: str) -> bool:
    """False if the field is missing."""
    value = _text(form, name)
    if value is None or value.lower() in ("true", "false"):
        return value is not None and value.lower() == "true"
    raise RequestError(400, f"{name}: expected true or false, got {value[:MAX_HEADER_CHARS]!r}", name)


def _number(form: FormData, name: str, default: float, least: float, most: float) -> float:
    """A number of the kind that `default` is."""
    value = _text(form, name)
    if value is None:
        return default
    try:
        number = type(default)(value)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        kind = "whole number" if isinstance(default, int) else "number"
        expected = f"a {kind} from {least:g} to {most:g}"
        raise RequestError(400, f"{name}: expected {expected}, got {value[:MAX_HEADER_CHARS]!r}", name)
    return number


def _hotwords(form: FormData) -> tuple[str, ...]:
    """Names and terms, separated by commas."""
    hotwords = tuple(word for each in (_text(form, "hotwords") or "").split(",") if (word := each.strip()))
    if len(hotwords) > MAX_HOTWORDS or any(len(word.encode()) > MAX_HOTWORD_BYTES for word in hotwords):
        expected = f"at most {MAX_HOTWORDS} of at most {MAX_HOTWORD_BYTES} bytes, separated by commas"
        longest = max(len(word.encode()) for word in hotwords)
        raise RequestError(
            400, f"hotwords: expected {expected}, got {len(hotwords)}, the longest of {longest} bytes", "hotwords"
        )
    return hotwords
