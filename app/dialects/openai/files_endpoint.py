"""File transcription and translation over HTTP, as OpenAI's clients ask for it."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import IO

from starlette.datastructures import FormData, UploadFile
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.delivery.server_sent_events import PING, PING_EVERY_S, EventStream
from app.dialects.openai.files_wire import Options, TextStream, body, frame, read_options
from app.errors import LimitExceeded, MediaError, SessionError
from app.files.transcript import Transcript
from app.files.transcription import FILE_ENDPOINTING, TranscriptionOptions, transcribe
from app.files.uploads import Upload
from app.media.file_decoder import decode_file
from app.service.http_errors import RequestError, bearer_key, unauthorized
from app.service.request_ids import request_id
from app.service.service import Service
from app.session import events
from engine import api

logger = logging.getLogger(__name__)

MODEL_HEADER = "x-tutti-model"
# Names the fields of a request that changed nothing, so that none is ignored in silence.
IGNORED_HEADER = "x-tutti-ignored"
MAX_HEADER_CHARS = 500
GONE = 499

Run = Callable[[Callable[[events.Event], None]], Awaitable[None]]
"""Transcribes a file, and hands out the events."""


@dataclass(frozen=True, slots=True)
class FileEndpoint:
    """`POST /v1/audio/transcriptions`, or `/v1/audio/translations`, as an ASGI application."""

    task: api.Task

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        service: Service = request.app.state.service
        upload = Upload(request, service.settings)
        started = time.monotonic()
        status = 200
        try:
            self._check(service, request)
            with service.admission.upload():
                form = await upload.form()
                try:
                    await upload.until_disconnected(self._answer(service, form, scope, receive, send))
                finally:
                    await form.close()
        except ClientDisconnect:
            # Nobody is there to read an answer. The work was cancelled.
            status = GONE
        except (RequestError, LimitExceeded) as error:
            refusal = error if isinstance(error, RequestError) else _no_room(error)
            status = refusal.status
            await upload.discard()
            await refusal.response()(scope, receive, send)
        took_s = time.monotonic() - started
        logger.info("[%s] %s: %d in %.2f s", request_id(scope), scope["path"], status, took_s)

    def _check(self, service: Service, request: Request) -> None:
        """What can be told without the body."""
        if not service.is_allowed(bearer_key(request.headers.get("authorization"))):
            service.metrics.refused_total.labels("unauthorized").inc()
            raise unauthorized()
        info = service.transcriber.info
        if self.task not in info.tasks:
            message = f"model: expected one that can {self.task}; this server runs {info.name}, which cannot"
            raise RequestError(400, message, "model", "unsupported_task")

    async def _answer(self, service: Service, form: FormData, scope: Scope, receive: Receive, send: Send) -> None:
        file = _file(form)
        fields = [(name, value) for name, value in form.multi_items() if isinstance(value, str) and name != "file"]
        options = read_options(fields, self.task)
        headers = {MODEL_HEADER: header_value(service.transcriber.info.name)}
        if options.ignored:
            headers[IGNORED_HEADER] = header_value(", ".join(options.ignored))

        async def run(take: Callable[[events.Event], None]) -> None:
            await _transcribe(service, file, options, request_id(scope), take)

        if options.is_streamed:
            stream = EventStream(send, headers, service.settings.send_timeout_s)
            await _stream(run, TextStream(options), stream)
            return
        transcript = Transcript()
        await run(transcript.add)
        content, media_type = body(transcript, options)
        await Response(content, 200, headers, media_type)(scope, receive, send)


async def _stream(run: Run, text: TextStream, stream: EventStream) -> None:
    """Send text while it is being transcribed. A failure before the first event is raised, a later one is the last."""
    # Not bounded: it holds no more than the text of the file. A client that does not read is cut off.
    waiting: asyncio.Queue[str | None] = asyncio.Queue()

    def take(event: events.Event) -> None:
        if message := text.take(event):
            waiting.put_nowait(frame(message))

    work = asyncio.ensure_future(run(take))
    work.add_done_callback(lambda _: waiting.put_nowait(None))
    try:
        while True:
            try:
                async with asyncio.timeout(PING_EVERY_S):
                    said = await waiting.get()
            except TimeoutError:
                said = PING
            if said is None:
                break
            await stream.send(said)
        try:
            work.result()
        except RequestError as error:
            if not stream.has_begun:
                raise
            await stream.send(frame(error.body))
        await stream.end()
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def _transcribe(
    service: Service, file: IO[bytes], options: Options, name: str, on_event: Callable[[events.Event], None]
) -> None:
    """Raises `RequestError` for a file that is no audio, an option that the model cannot honour, a failing engine."""

    def take(event: events.Event) -> None:
        if isinstance(event, events.Utterance):
            service.metrics.coverage.count(event)
        on_event(event)

    endpointing = FILE_ENDPOINTING
    if options.silence_ms is not None:
        endpointing = replace(endpointing, silence_ms=options.silence_ms)
    try:
        async with aclosing(decode_file(file)) as audio:
            await transcribe(
                service.transcriber,
                audio,
                take,
                session_id=name,
                config=service.session_config,
                options=TranscriptionOptions(
                    language=options.language,
                    task=options.task,
                    prompt=options.prompt,
                    words=options.needs_words,
                    hotwords=options.hotwords,
                    temperature=options.temperature,
                    best_of=options.best_of,
                    falls_back=options.falls_back,
                    carries_context=options.carries_context,
                    endpointing=endpointing,
                ),
            )
    except MediaError as error:
        raise RequestError(400, str(error), "file", "invalid_file") from error
    except SessionError as error:
        if error.code == "bad_start":
            raise RequestError(400, error.message, error.message.partition(":")[0]) from error
        raise RequestError(503 if error.code == "overloaded" else 500, error.message, code=error.code) from error


def _file(form: FormData) -> IO[bytes]:
    files = form.getlist("file")
    if len(files) == 1 and isinstance(files[0], UploadFile):
        return files[0].file
    got = "nothing" if not files else "text" if len(files) == 1 else f"{len(files)} values"
    raise RequestError(400, f"file: expected an audio file, got {got}", "file")


def _no_room(error: LimitExceeded) -> RequestError:
    """Too many uploads are the clients' matter, and 429; a server that is going down should be left at once."""
    return RequestError(429 if error.code == "overloaded" else 503, error.message, code=error.code)


def header_value(value: str) -> str:
    value = value[:MAX_HEADER_CHARS]
    return "".join(character if character.isprintable() and character.isascii() else "?" for character in value)
