"""Sends a file of any format to the server over HTTP, and receives its text as events while it is transcribed.

The server decodes the file and transcribes it as fast as it can. A WebSocket takes audio only a little faster than real
time, and only raw audio. The request is one of OpenAI's API (docs/integrations/openai-files.md), and the answer is its
stream with segments, which become the events of a session here.
"""

from __future__ import annotations

import asyncio
import json
import ssl as tls
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import urlsplit, urlunsplit

import httpx

from tutti.audio import WavFile
from tutti.connection import CLOSE_CODE_ABNORMAL
from tutti.errors import (
    AudioError,
    BadOption,
    BadURL,
    ConnectionLost,
    ProtocolError,
    SessionError,
    TimedOut,
    TuttiError,
    Unreachable,
    read_refusal,
)
from tutti.handshake import STREAM_PATH, check_encrypted, key_headers, refusal, resolve_url
from tutti.messages import Event, Segment, ServerWarning, Stopped, Utterance, parse_event
from tutti.options import OPEN_TIMEOUT_S, STOP_TIMEOUT_S, FileProgress, OnProgress, SessionOptions, check_texts, texts

UPLOAD_PATHS: Mapping[str, str] = {
    "transcribe": "/v1/audio/transcriptions",
    "translate": "/v1/audio/translations",
}
"""The path of the endpoint for each task."""
IGNORED_HEADER = "x-tutti-ignored"
"""The header in which the server names the fields that had no effect."""
_OPTION_OF_FIELD = {
    "keywords": "hotwords",
    "timestamp_granularities": "words",
    "chunking_strategy[type]": "silence_ms",
    "chunking_strategy[silence_duration_ms]": "silence_ms",
}
"""The option that a field stands for, where it has another name."""

_UPLOAD_OPTIONS = {
    *("model", "language", "languages", "task", "words", "prompt", "hotwords", "beam_size", "silence_ms"),
    *("max_speakers", "channel_names"),
    *("api_key", "ssl", "proxy", "open_timeout_s", "stop_timeout_s"),
}


async def upload_file(
    url: str, path: str | Path, options: SessionOptions, on_progress: OnProgress | None = None
) -> AsyncGenerator[Event, None]:
    """Send a file, and yield its segments, an `Utterance` after the last segment of each, and `Stopped`.

    With `max_speakers` or `channel_names` all of them come at the end, and each stretch of one speaker is an utterance.

    Args:
        url: of the server, as for `connect`.
        path: of the file.
        options: those of the recognition and of the connection that an upload has.
        on_progress: see `OnProgress`.

    Raises:
        BadOption: an option has no meaning for an upload, or cannot work.
        AudioError: the server found no audio in the file that it can decode, or the file became shorter meanwhile.
        OSError: the file cannot be read.
        Unreachable, Refused, TimedOut: no connection, or the server refused the request.
        SessionError, ConnectionLost: the transcription ended early.
    """
    _check_options(options)
    address = upload_url(url, options.get("task", "transcribe"))
    check_encrypted(address, options.get("ssl"))
    file, audio_s = await asyncio.to_thread(_open, path)
    with file:
        progress = _Progress(file, audio_s, on_progress)
        answer = _Answer(str(path), address, options)
        try:
            async with (
                _open_client(options) as client,
                client.stream(
                    "POST",
                    address,
                    headers=key_headers(options.get("api_key")),
                    data=_form_fields(options),
                    # What is not UTF-8 in the name becomes question marks.
                    files={"file": (Path(path).name.encode(errors="replace").decode(), cast("BinaryIO", progress))},
                ) as response,
            ):
                await answer.begin(response)
                async for line in read_lines(response):
                    for event in answer.read(line):
                        progress.note(event)
                        yield event
        except httpx.InvalidURL as error:
            raise BadURL(url, str(error)) from error
        except httpx.HTTPError as error:
            raise _session_error(error, answer, options) from error
        if not answer.is_complete:
            raise ConnectionLost(CLOSE_CODE_ABNORMAL, "the answer breaks off", answer.final_until_s)


def upload_url(url: str, task: str) -> str:
    """The address of the endpoint for files, from the URL of the server.

    Raises:
        BadURL: `url` is no URL of a server, or its path is not one that `connect` would use.
    """
    parts = urlsplit(resolve_url(url))
    if not parts.path.endswith(STREAM_PATH):
        raise BadURL(url, f"the path of a server ends in {STREAM_PATH}, or is left out")
    path = parts.path.removesuffix(STREAM_PATH) + UPLOAD_PATHS[task]
    return urlunsplit(({"ws": "http", "wss": "https"}[parts.scheme], parts.netloc, path, parts.query, ""))


def _check_options(options: SessionOptions) -> None:
    for name, value in options.items():
        # None, False and an empty list ask for nothing; 0 is a number that the upload has no use for.
        asks_nothing = value is None or value is False or (isinstance(value, Sequence) and not value)
        if name not in _UPLOAD_OPTIONS and not asks_nothing:
            raise BadOption(name, "no value for a file that is uploaded; `speed` streams it instead", value)
    task = options.get("task", "transcribe")
    if task not in UPLOAD_PATHS:
        raise BadOption("task", "transcribe or translate", task)
    if _has_speakers(options) and task != "transcribe":
        raise BadOption("task", "transcribe where speakers are told apart", task)


def _has_speakers(options: SessionOptions) -> bool:
    return bool(options.get("channel_names")) or options.get("max_speakers") is not None


def _open(path: str | Path) -> tuple[BinaryIO, float | None]:
    """Open a file, and find out how long its audio is if it is a WAV file."""
    try:
        with WavFile(path) as wav:
            audio_s = wav.duration_s
    except AudioError:
        audio_s = None
    return Path(path).open("rb"), audio_s


def _open_client(options: SessionOptions) -> httpx.AsyncClient:
    proxy = options.get("proxy", True)
    answer_s = options.get("stop_timeout_s", STOP_TIMEOUT_S)
    try:
        return httpx.AsyncClient(
            # Like the WebSocket: the certificates that the system trusts, not those of a Python package.
            verify=options.get("ssl") or tls.create_default_context(),
            proxy=proxy if isinstance(proxy, str) else None,
            trust_env=proxy is True,
            timeout=httpx.Timeout(answer_s, connect=options.get("open_timeout_s", OPEN_TIMEOUT_S)),
        )
    except (ImportError, ValueError) as error:
        # A proxy of an unknown kind, or one that needs a package which is not installed.
        raise BadOption("proxy", f"an HTTP proxy ({error})", proxy) from error


def _form_fields(options: SessionOptions) -> dict[str, str | list[str]]:
    silence_ms, max_speakers = options.get("silence_ms"), options.get("max_speakers")
    fields: dict[str, str | list[str]] = {
        "stream": "true",
        "response_format": "diarized_json" if _has_speakers(options) else "verbose_json",
        "max_speakers": "" if max_speakers is None else str(max_speakers),
        "channel_names": list(texts(options.get("channel_names"))),
        "model": options.get("model", ""),
        "language": options.get("language") or "",
        "languages": list(texts(options.get("languages"))),
        "prompt": options.get("prompt", ""),
        "keywords": list(texts(options.get("hotwords"))),
    }
    if (beam_size := options.get("beam_size")) is not None:
        fields["beam_size"] = str(beam_size)
    if options.get("words") or _has_speakers(options):
        fields["timestamp_granularities[]"] = "word"
    if silence_ms is not None:
        fields |= {"chunking_strategy[type]": "server_vad"}
        fields |= {"chunking_strategy[silence_duration_ms]": str(silence_ms)}
    check_texts({_OPTION_OF_FIELD.get(name, name): value for name, value in fields.items()})
    return {name: value for name, value in fields.items() if value}


async def read_lines(response: httpx.Response) -> AsyncGenerator[str, None]:
    """The lines of a stream of events. `aiter_lines` would also end them at line breaks of Unicode, in a text."""
    rest = ""
    async for piece in response.aiter_text():
        *lines, rest = (rest + piece).split("\n")
        for line in lines:
            yield line.removesuffix("\r")
    if rest:
        yield rest


class _Progress:
    """The file as the HTTP client reads it, at the size that it had at first; every read is reported."""

    def __init__(self, file: BinaryIO, audio_s: float | None, on_progress: OnProgress | None) -> None:
        self._file = file
        self._on_progress = on_progress
        size = file.seek(0, 2)
        file.seek(0)
        self._now = FileProgress(sent_bytes=0, total_bytes=size, audio_s=audio_s)

    def read(self, n: int = -1) -> bytes:
        left = self._now.total_bytes - self._file.tell()
        data = self._file.read(left if n < 0 else min(n, left))
        if left > 0 and n and not data:
            raise AudioError(str(self._file.name), "the file became shorter while it was sent")
        self._report(replace(self._now, sent_bytes=self._now.sent_bytes + len(data)))
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        if whence == 2:
            offset, whence = self._now.total_bytes + offset, 0
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def note(self, event: Event) -> None:
        """Report the progress that an event brings."""
        match event:
            case Segment():
                self._report(replace(self._now, final_until_s=max(event.end_s, self._now.final_until_s)))
            case Stopped():
                self._report(replace(self._now, final_until_s=event.audio_s, audio_s=event.audio_s))
            case _:
                pass

    def _report(self, now: FileProgress) -> None:
        if now != self._now:
            self._now = now
            if self._on_progress is not None:
                self._on_progress(now)


class _Answer:
    """Turns the answer of the server into events."""

    def __init__(self, path: str, url: str, options: SessionOptions) -> None:
        self.url = url
        self._options = options
        self.has_begun = False
        """The server has accepted the request."""
        self.is_complete = False
        self.final_until_s = 0.0
        self._path = path
        self._warnings: list[Event] = []
        self._utterance: Utterance | None = None
        """The utterance of the newest segment."""

    async def begin(self, response: httpx.Response) -> None:
        """Check the status and the headers of the response."""
        if response.status_code != 200:
            raise self._refused(response, await response.aread())
        self.has_begun = True
        fields = [name for name in response.headers.get(IGNORED_HEADER, "").split(", ") if name]
        if "response_format" in fields:
            raise ProtocolError(IGNORED_HEADER, "a server that streams segments", "one that streams text alone")
        for option in dict.fromkeys(_OPTION_OF_FIELD.get(name, name) for name in fields):
            self._warnings.append(ServerWarning("no_effect", f"{option}: has no effect on this server"))

    def read(self, line: str) -> list[Event]:
        """The events of one line of the response."""
        events, self._warnings = self._warnings, []
        if not line.startswith("data: "):
            return events
        try:
            message = json.loads(line.removeprefix("data: "))
        except ValueError as error:
            raise ProtocolError("message", "a JSON object", line[:80]) from error
        match message:
            case {"error": {"message": str(text)} as details}:
                code = details.get("code")
                raise self._audio_error(code, text) or SessionError(str(code or "error"), text, self.final_until_s)
            case {"type": "transcript.text.segment"}:
                events += self._segment(message)
            case {"type": "transcript.text.done"}:
                stopped = {
                    "audio_s": message.get("duration"),
                    "speech_s": message.get("speech_duration"),
                    "words": message.get("words"),
                }
                warnings = message.get("warnings", [])
                events += [parse_event({"type": "warning", **each}) for each in warnings]
                events += [*self._end_utterance(), parse_event({"type": "stopped", **stopped})]
                self.is_complete = True
            case _:
                # Text without times, which the segment after it repeats.
                pass
        return events

    def _segment(self, message: Mapping[str, object]) -> list[Event]:
        if "speaker" in message:
            message = self._spoken(message)
        number = message.get("utterance")
        ended = self._end_utterance() if self._utterance and self._utterance.utterance != number else []
        event = parse_event({"type": "segment", **_to_native(message)})
        assert isinstance(event, Segment)
        # Segments come in the order in which they begin. On another channel, the next one may begin during this one.
        final_until_s = event.start_s if self._options.get("channel_names") else event.end_s
        self.final_until_s = max(self.final_until_s, final_until_s)
        open_utterance = self._utterance or Utterance(
            utterance=event.utterance,
            channel=event.channel,
            start_s=event.start_s,
            end_s=event.end_s,
            text="",
            uncovered=(),
            final_until_s=0.0,
            speaker=event.speaker,
        )
        span = ((event.start_s, event.end_s),) if not event.text else ()
        self._utterance = replace(
            open_utterance,
            end_s=max(open_utterance.end_s, event.end_s),
            text=open_utterance.text + event.text,
            uncovered=open_utterance.uncovered + span,
            final_until_s=self.final_until_s,
            resume_from_s=(self.final_until_s,),
        )
        return [*ended, event] if event.text else [*ended]

    def _spoken(self, message: Mapping[str, object]) -> Mapping[str, object]:
        """A stretch of one speaker, as a segment that is an utterance of its own."""
        number = self._utterance.utterance + 1 if self._utterance else 0
        names = texts(self._options.get("channel_names"))
        speaker = str(message["speaker"])
        channel = names.index(speaker) if speaker in names else 0
        words = message.get("words", []) if self._options.get("words") else []
        letter = {} if names else {"speaker": speaker}
        own = [{**word, **letter} for word in words if isinstance(word, dict)] if isinstance(words, list) else []
        return {**message, "utterance": number, "id": number, "channel": channel, "words": own}

    def _end_utterance(self) -> list[Event]:
        ended: list[Event] = [] if self._utterance is None else [self._utterance]
        self._utterance = None
        return ended

    def _refused(self, response: httpx.Response, body: bytes) -> TuttiError:
        text = body.decode("utf-8", "replace")
        refused = refusal(self.url, response.status_code, dict(response.headers), text)
        return self._audio_error(*read_refusal(text)) or refused

    def _audio_error(self, code: object, message: str) -> AudioError | None:
        """The error for a file that the server cannot decode; None if the code means something else."""
        is_of_file = code in ("invalid_file", "too_large")
        return AudioError(self._path, message.removeprefix("file: ")) if is_of_file else None


def _to_native(message: Mapping[str, object]) -> dict[str, object]:
    """A segment of OpenAI's stream with the names of a native one. Speech without text has no confidence and no id."""
    words = message.get("words", [])
    return {
        "utterance": message.get("utterance"),
        "id": message.get("id", 0),
        "channel": message.get("channel", 0),
        "start_s": message.get("start"),
        "end_s": message.get("end"),
        "text": message.get("text"),
        "words": [
            {"word": word.get("word"), "start_s": word.get("start"), "end_s": word.get("end")}
            | {"confidence": word.get("confidence")}
            | ({"speaker": word["speaker"]} if "speaker" in word else {})
            for word in (words if isinstance(words, list) else [])
            if isinstance(word, dict)
        ],
        "confidence": message.get("confidence", 0.0),
        "language": message.get("language"),
    } | ({"speaker": message["speaker"]} if "speaker" in message else {})


def _session_error(error: httpx.HTTPError, answer: _Answer, options: SessionOptions) -> TuttiError:
    reason = str(error) or type(error).__name__
    if isinstance(error, httpx.ConnectTimeout):
        limit_s = options.get("open_timeout_s", OPEN_TIMEOUT_S)
        return TimedOut("open_timeout_s", limit_s, f"connection to {answer.url}")
    if isinstance(error, httpx.TimeoutException):
        return TimedOut("stop_timeout_s", options.get("stop_timeout_s", STOP_TIMEOUT_S), f"answer of {answer.url}")
    if answer.has_begun:
        return ConnectionLost(CLOSE_CODE_ABNORMAL, reason, answer.final_until_s)
    return Unreachable(answer.url, reason)
