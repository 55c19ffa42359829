"""The HTTP endpoints of OpenAI's API that transcribe and translate files."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import IO, Any, TypeVar

from starlette.datastructures import FormData, QueryParams, UploadFile
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tutti_server.app.dialects.http_answers import CLIENT_GONE, IGNORED_HEADER, WARNINGS_HEADER, header_value
from tutti_server.app.dialects.openai.files_wire import (
    MAX_TRACKS,
    FileOptions,
    TextStream,
    TrackTranscript,
    parse_options,
    response_body,
    sse_frame,
    tracks_body,
)
from tutti_server.app.dialects.openai.form import Form, text_fields
from tutti_server.app.dialects.openai.speakers_endpoint import ChannelSpeakers, FileSpeakers, TellsSpeakers
from tutti_server.app.dialects.openai.speakers_wire import Spoken
from tutti_server.app.errors import LimitExceeded, MediaError, RequestError, SessionError
from tutti_server.app.files.transcript import Transcript
from tutti_server.app.files.transcription import transcribe
from tutti_server.app.files.transcription_options import FLOAT_PCM
from tutti_server.app.files.uploads import Upload, refusing_without_resources
from tutti_server.app.jobs import JobResult
from tutti_server.app.publish.server_sent_events import PING, PING_EVERY_S, EventStream
from tutti_server.app.service.auth import Client, header_key
from tutti_server.app.service.client_connections import admit
from tutti_server.app.service.http_errors import authorized, error_body, error_response, no_room_for_upload
from tutti_server.app.service.request_ids import request_id
from tutti_server.app.service.service import Service
from tutti_server.app.session.engine_driver import SessionTrace
from tutti_server.app.session.messages import events
from tutti_server.engine import api

logger = logging.getLogger(__name__)

INVALID_FILE = "invalid_file"
"""The code of a file that cannot be decoded."""
MODEL_HEADER = "x-tutti-model"
"""Names the model that answered, whatever name the client sent."""

_Made = TypeVar("_Made")

Transcription = Callable[[Callable[[events.Event], None]], Awaitable[None]]
"""Transcribes a file, and passes each event to a callback."""


@dataclass(frozen=True, slots=True)
class FileEndpoint:
    """`POST /v1/audio/transcriptions` or `/v1/audio/translations`, as an ASGI application."""

    task: api.Task

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. The work is cancelled if the client disconnects."""
        request = Request(scope, receive)
        service: Service = request.app.state.service
        upload = Upload(request, service.settings)
        started = time.monotonic()
        status = 200
        try:
            client = self._check(service, request)
            model = service.transcriber.info.name
            uploader = service.access.holder(client)
            async with service.access.limits.upload(client.key) as on_progress:
                with (
                    service.admission.upload(uploader),
                    service.tracing.upload(scope, request_id(scope), model) as trace,
                ):
                    admit(scope)
                    form = await service.admission.drain_limit.unless_over(upload.form())
                    work = self._answer(form, on_progress, trace, scope, receive, send)
                    try:
                        end = await upload.until_disconnected(work)
                    finally:
                        await form.close()
            # A client that has its answer may send its next file at once, and this one does not count any more.
            await end()
        except ClientDisconnect:
            # The work was cancelled, and no answer can be delivered.
            status = CLIENT_GONE
        except (RequestError, LimitExceeded) as error:
            refusal = error if isinstance(error, RequestError) else no_room_for_upload(error)
            status = refusal.status
            await upload.discard(service.admission.drain_limit)
            await error_response(refusal)(scope, receive, send)
        took_s = time.monotonic() - started
        logger.info("[%s] %s: %d in %.2f s", request_id(scope), scope["path"], status, took_s)

    def _check(self, service: Service, request: Request) -> Client:
        client = authorized(service.access.client(header_key(request.headers), "files"))
        cards = service.models.cards
        if not any(self.task in card.tasks for card in cards):
            _check_task(cards[0], self.task)
        return client

    async def _answer(
        self,
        form: FormData,
        on_progress: Callable[[float], None],
        trace: SessionTrace | None,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> Callable[[], Awaitable[None]]:
        """Make the answer, and send it but for its end. Returns what sends that."""
        service: Service = scope["app"].state.service
        file, name = _file(form), request_id(scope)
        fields = text_fields(form.multi_items())
        card = service.models.requested(Form(fields).text("model"))
        _check_task(card, self.task)
        tells_speakers = service.speaker_model is not None
        options = replace(parse_options(fields, self.task, card.languages, tells_speakers), model=card.name)
        headers = {MODEL_HEADER: header_value(card.name)}
        # Options are fields of the form alone. Some clients write them into the address.
        if ignored := sorted({*options.ignored, *QueryParams(scope.get("query_string", b""))}):
            headers[IGNORED_HEADER] = header_value(", ".join(ignored))

        async def unless_draining(work: Coroutine[Any, Any, _Made]) -> _Made:
            try:
                return await service.admission.drain_limit.unless_over(work)
            except LimitExceeded as error:
                raise no_room_for_upload(error) from error

        if not options.is_streamed:
            answer = await unless_draining(whole_answer(service, file, options, name, on_progress, trace))
            if answer.warnings:
                headers[WARNINGS_HEADER] = answer.warnings
            return partial(Response(answer.content, 200, headers, answer.media_type), scope, receive, send)
        speakers = _speakers(service, options)

        async def transcription(on_event: Callable[[events.Event], None]) -> None:
            with refusing_without_resources():
                work = _transcribe(service, file, options, speakers, name, on_event, on_progress, trace)
                await unless_draining(work)

        stream = EventStream(send, headers, service.settings.send_timeout_s)
        await _stream(transcription, TextStream(options), stream, speakers)
        return stream.end


def _check_task(card: api.ModelCard, task: api.Task) -> None:
    if task not in card.tasks:
        message = f"model: expected one that can {task}; this server runs {card.name}, which cannot"
        raise RequestError(400, message, "model", "unsupported_task")


async def _stream(
    transcription: Transcription, text: TextStream, stream: EventStream, speakers: TellsSpeakers | None
) -> None:
    """Send text while the file is transcribed. Text by speaker follows, before the last event. The caller ends it.

    A failure before the first event is raised. A later failure becomes the last event.
    """
    # Not bounded: it holds no more than the text of the file. A client that does not read is disconnected.
    waiting: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    def on_event(event: events.Event) -> None:
        for message in text.push(event):
            waiting.put_nowait(message)

    async def whole() -> None:
        last: list[events.Stopped] = []
        await transcription(lambda event: last.append(event) if isinstance(event, events.Stopped) else on_event(event))
        if speakers:
            for segment in await asyncio.to_thread(text.by_speaker, await speakers.spoken()):
                waiting.put_nowait(segment)
        for event in last:
            on_event(event)

    work = asyncio.ensure_future(whole())
    work.add_done_callback(lambda _: waiting.put_nowait(None))
    try:
        while True:
            try:
                async with asyncio.timeout(PING_EVERY_S):
                    message = await waiting.get()
            except TimeoutError:
                await stream.send(PING)
                continue
            if message is None:
                break
            # The last one has the whole text, and may have every word.
            await stream.send((await asyncio.to_thread(sse_frame, message)).encode())
        try:
            work.result()
        except RequestError as error:
            if not stream.has_begun:
                raise
            await stream.send(sse_frame(error_body(error)).encode())
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def _transcribe(
    service: Service,
    file: IO[bytes],
    options: FileOptions,
    speakers: TellsSpeakers | None,
    name: str,
    on_event: Callable[[events.Event], None],
    on_progress: Callable[[float], None],
    trace: SessionTrace | None,
) -> None:
    """Transcribe a file, and pass on each event and the seconds that are done. Raises `RequestError`."""

    def count_and_pass_on(event: events.Event) -> None:
        if isinstance(event, events.Utterance):
            service.metrics.utterances.count(event)
        if speakers:
            speakers.add(event)
        on_event(event)

    if service.session_config.redact and (options.has_logprobs or options.decoding.carries_context):
        field_ = "include" if options.has_logprobs else "condition_on_previous_text"
        raise RequestError(400, f"{field_}: expected none, as this server redacts its text", field_)
    n_channels = speakers.n_channels if speakers else None
    audio_format = replace(FLOAT_PCM, channels=n_channels or 1)
    decoding = replace(options.decoding, words=options.needs_words, audio=audio_format)
    try:
        if speakers:
            await speakers.learn(service.decoders, file, options.track)
        name_of_model = options.model or service.transcriber.info.name
        async with (
            aclosing(service.decoders.decode(file, n_channels, on_event, options.track)) as audio,
            service.models.use(name_of_model) as transcriber,
        ):
            await transcribe(
                transcriber,
                speakers.listen(audio) if speakers else audio,
                count_and_pass_on,
                session_id=name,
                config=service.session_config,
                options=decoding,
                on_progress=on_progress,
                trace=trace,
            )
    except MediaError as error:
        param = "track" if str(error).startswith("track:") else "file"
        raise RequestError(400, str(error), param, INVALID_FILE) from error
    except SessionError as error:
        if error.code == "bad_start":
            raise RequestError(400, error.message, error.message.partition(":")[0]) from error
        logger.warning("[%s] failed with %s: %s", name, error.code, error.message)
        raise RequestError(503 if error.code == "overloaded" else 500, error.message, code=error.code) from error


async def _all_tracks(
    service: Service, file: IO[bytes], options: FileOptions, name: str, on_progress: Callable[[float], None]
) -> list[TrackTranscript]:
    """Transcribe the tracks of a file, one after another; raises like `_transcribe`.

    The progress is that of all of them together. A track that cannot be decoded has no text and a warning, unless none
    can be.
    """
    try:
        languages = await service.decoders.languages_of_tracks(file)
    except MediaError as error:
        raise RequestError(400, str(error), "file", INVALID_FILE) from error
    if len(languages) > MAX_TRACKS:
        message = f"tracks: expected a file with at most {MAX_TRACKS} audio tracks, got {len(languages)}"
        raise RequestError(400, message, "tracks")
    done: list[TrackTranscript] = []
    failures: list[RequestError] = []
    begin_s = reached_s = 0.0

    def note_progress(until_s: float) -> None:
        nonlocal reached_s
        reached_s = begin_s + until_s
        on_progress(reached_s)

    for number, language in enumerate(languages):
        transcript = Transcript()
        begin_s = reached_s
        chosen = replace(options, track=str(number))
        try:
            await _transcribe(service, file, chosen, None, f"{name}-{number}", transcript.add, note_progress, None)
        except RequestError as error:
            if error.code != INVALID_FILE:
                raise
            failures.append(error)
            transcript = Transcript()
            transcript.add(events.Notice("unreadable_track", error.message))
        done.append(TrackTranscript(number, language, transcript))
    if len(failures) == len(languages):
        raise failures[0]
    return done


def _speakers(service: Service, options: FileOptions) -> TellsSpeakers | None:
    """Make the object that tells the speakers of a file apart; `None` if the client did not ask for speakers."""
    model = service.speaker_model
    if model is None or not options.has_speakers:
        return None
    if options.channel_names:
        return ChannelSpeakers(options.channel_names)
    return FileSpeakers(model, options.known_speakers, options.max_speakers)


def _file(form: FormData) -> IO[bytes]:
    files = form.getlist("file")
    if len(files) == 1 and isinstance(files[0], UploadFile):
        return files[0].file
    got = "nothing" if not files else "text" if len(files) == 1 else f"{len(files)} values"
    raise RequestError(400, f"file: expected an audio file, got {got}", "file")


async def whole_answer(
    service: Service,
    file: IO[bytes],
    options: FileOptions,
    name: str,
    on_progress: Callable[[float], None] = lambda until_s: None,
    trace: SessionTrace | None = None,
) -> JobResult:
    """Transcribe a file, and make the answer for its end; raises like `_transcribe`."""
    with refusing_without_resources():
        if options.has_all_tracks:
            tracks = await _all_tracks(service, file, options, name, on_progress)
            content, media_type = await asyncio.to_thread(tracks_body, tracks, options)
            audio_s = sum(each.transcript.audio_s for each in tracks)
            warnings = [
                f"track {each.number}: {notice.message}" for each in tracks for notice in each.transcript.notices
            ]
        else:
            transcript, speakers = Transcript(), _speakers(service, options)
            await _transcribe(service, file, options, speakers, name, transcript.add, on_progress, trace)
            spoken = await speakers.spoken() if speakers else Spoken()
            content, media_type = await asyncio.to_thread(response_body, transcript, options, spoken)
            audio_s, warnings = transcript.audio_s, [notice.message for notice in transcript.notices]
    return JobResult(
        content=content.encode(), media_type=media_type, audio_s=audio_s, warnings=header_value(" ".join(warnings))
    )
