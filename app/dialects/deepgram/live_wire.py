"""Deepgram's live protocol, `/v1/listen`: its messages to commands, events to messages. See docs/compatibility.md.

Sources: the message types of deepgram-sdk 7.17 (`listen/v1/types`), and which fields its clients were seen to use.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, assert_never

from tutti_server.app.dialects.checks import are_texts, is_boolean, understood, usable_hotwords
from tutti_server.app.dialects.deepgram.live_results import LiveResults
from tutti_server.app.dialects.deepgram.metadata import Request, warning
from tutti_server.app.dialects.deepgram.options import Options
from tutti_server.app.dialects.json_text import read_object, write_object
from tutti_server.app.dialects.limits import MAX_NAME_CHARS, MAX_NOTICES, MAX_TEXT_CHARS
from tutti_server.app.errors import CLOSE_OUR_FAULT, CLOSE_POLICY, BadMessage, shorten
from tutti_server.app.live.dialect import ClientMessage
from tutti_server.app.session.core.effects import Close
from tutti_server.app.session.messages import commands, events
from tutti_server.engine.api import MAX_HOTWORD_BYTES, MAX_HOTWORDS

IDLE_TIMEOUT_S = 10.0
"""How long a client may send nothing, in seconds, as Deepgram documents it."""
MAX_ECHO_CHARS = 1000
"""An error repeats at most this many characters of a client's message."""
TYPES = "KeepAlive, Finalize, CloseStream or Configure"
CLOSES = {
    "idle": (CLOSE_OUR_FAULT, "NET-0001"),
    "bad_media": (CLOSE_POLICY, "DATA-0000"),
    "engine_failed": (CLOSE_OUR_FAULT, "NET-0000"),
    "engine_stalled": (CLOSE_OUR_FAULT, "NET-0000"),
    "internal_error": (CLOSE_OUR_FAULT, "NET-0000"),
}
"""The close code and Deepgram's reason for each of our error codes."""


class Deepgram:
    """The live protocol on one connection."""

    idle_timeout_s = IDLE_TIMEOUT_S
    max_text_chars = MAX_TEXT_CHARS

    def __init__(self, options: Options, request: Request) -> None:
        self._options = options
        self._request = request
        self._results = LiveResults(options, options.start.audio.n_transcribed, request.result_metadata)
        self._n_finalizes = 0
        self._is_closing = False
        self._has_reported_late_audio = False
        self._sha256 = hashlib.sha256()
        self._warnings: list[dict[str, str]] = []

    # Client messages.

    def open(self) -> Iterable[ClientMessage]:
        """The start of the session: the URL holds all options."""
        return (self._options.start,)

    def read(self, message: str | bytes) -> Iterable[ClientMessage]:
        """A binary message is audio, and an empty one ends the stream; a text message is a command."""
        if isinstance(message, bytes):
            return self._read_audio(message) if message else self._close_stream()
        try:
            fields = read_object(message)
        except BadMessage as error:
            return (_schema_error(error.message, message),)
        return self._read_fields(fields, message)

    def _read_fields(self, fields: dict[str, Any], message: str) -> Iterable[ClientMessage]:
        match fields.get("type"):
            case "KeepAlive":
                return (commands.Keepalive(),)
            case "Finalize":
                return self._finalize(fields, message)
            case "CloseStream":
                return self._close_stream()
            case "Configure":
                return self._configure(fields)
            case other:
                return (_schema_error(f"type: expected {TYPES}, got {shorten(other)}", message),)

    def _read_audio(self, data: bytes) -> Iterable[ClientMessage]:
        if self._is_closing:
            # Another part of the client's program may not know about CloseStream yet. One error is enough.
            is_repeated, self._has_reported_late_audio = self._has_reported_late_audio, True
            return () if is_repeated else (_schema_error("audio: expected none after CloseStream", ""),)
        self._sha256.update(data)
        return (commands.Audio(data) if self._options.audio else commands.Media(data),)

    def _finalize(self, fields: dict[str, Any], message: str) -> Iterable[ClientMessage]:
        channel = fields.get("channel")
        n_channels = self._results.n_channels
        if channel is not None and (type(channel) is not int or not 0 <= channel < n_channels):
            expected = f"channel: expected an integer from 0 to {n_channels - 1}, got {shorten(channel)}"
            return (_schema_error(expected, message),)
        if self._is_closing:
            # CloseStream makes all text final anyway.
            return ()
        # The session would refuse the flush as well, but not in Deepgram's words.
        if self._results.n_finalizes >= commands.MAX_PENDING_FLUSHES:
            expected = f"expected at most {commands.MAX_PENDING_FLUSHES} Finalize that wait for their answers"
            return (_schema_error(expected, message),)
        self._results.add_finalize(channel)
        self._n_finalizes += 1
        return (commands.Flush(self._n_finalizes, channel),)

    def _close_stream(self) -> Iterable[ClientMessage]:
        if self._is_closing:
            return ()
        self._is_closing = True
        return (commands.Stop(),)

    def _configure(self, fields: dict[str, Any]) -> Iterable[ClientMessage]:
        """Change the key terms from the next utterance on, and the formatting from the next result on."""
        keyterms, features = fields.get("keyterms"), fields.get("features")
        if problem := self._configure_problem(keyterms, features):
            code, description = problem
            return (
                _reply(
                    type="ConfigureFailure",
                    request_id=self._request.id,
                    code=f"CONFIGURE_{code}",
                    description=description,
                ),
            )
        chosen = {name: understood(value, is_boolean) for name, value in (features or {}).items()}
        self._results.features |= chosen
        for name in sorted(fields.keys() - {"type", "keyterms", "features"}):
            notice = events.Notice("unknown_key", f"Configure.{name[:MAX_NAME_CHARS]}: unknown key; ignored")
            if len(self._warnings) < MAX_NOTICES and warning(notice) not in self._warnings:
                self._warnings.append(warning(notice))
        success = {"type": "ConfigureSuccess", "request_id": self._request.id}
        if keyterms is None:
            return (_reply(**success),)
        configure = commands.Configure.of(replace(self._options.start, hotwords=usable_hotwords(keyterms)))
        return (configure, _reply(**success, keyterms=configure.hotwords))

    def _configure_problem(self, keyterms: Any, features: Any) -> tuple[str, str] | None:
        """Why a `Configure` is refused: Deepgram's code without its prefix, and a description."""
        if keyterms is not None and not are_texts(keyterms):
            return "INTERNAL_ERROR", "keyterms: expected a list of strings"
        if features is not None and not isinstance(features, dict):
            return "INTERNAL_ERROR", f"features: expected an object, got {shorten(features)}"
        known = self._results.features
        for name, value in (features or {}).items():
            if name not in known or not is_boolean(understood(value, is_boolean)):
                got = f"{shorten(value)} for {name}" if name in known else shorten(name)
                expected = f"features: expected true or false for {' or '.join(known)}, got {got}"
                return "FEATURES_NOT_SUPPORTED", expected
        if self._is_closing:
            return "INTERNAL_ERROR", "the stream is closing"
        if len(usable_hotwords(keyterms or ())) < len(keyterms or ()):
            expected = f"keyterms: expected at most {MAX_HOTWORDS} of at most {MAX_HOTWORD_BYTES} bytes"
            return "KEYTERM_LIMIT_EXCEEDED", expected
        return None

    # Server messages.

    def write(self, event: events.Event) -> Iterable[str]:
        """Translate an event into messages."""
        return map(write_object, self._messages(event))

    def audio_received(self, until_s: float) -> Iterable[events.Reply]:
        """The `UtteranceEnd` messages that are due because audio up to this time has been received."""
        return [events.Reply(write_object(message)) for message in self._results.audio_received(until_s)]

    def close(self, close: Close) -> Close:
        """The close code and reason that Deepgram uses."""
        if close.reason in CLOSES:
            return Close(*CLOSES[close.reason])
        return close

    def _messages(self, event: events.Event) -> Iterator[dict[str, Any]]:
        results = self._results
        match event:
            case events.SpeechStarted():
                yield from results.speech_started(event)
            case events.Interim():
                yield from results.interim(event)
            case events.Segment():
                yield from results.segment(event)
            case events.Endpoint():
                results.endpoint(event)
            case events.Utterance():
                yield from results.utterance(event)
            case events.Flushed():
                yield from results.flushed()
            case events.Stopped():
                yield from results.release_all()
                yield self._stream_metadata(event.audio_s)
            case events.Failure():
                if event.is_fatal:
                    yield from results.release_all()
                code = CLOSES.get(event.code, (0, event.code))[1]
                yield {"type": "Error", "variant": code, "description": event.message, "code": code}
            case events.Notice():
                self._warnings.append(warning(event))
            case (
                events.Started()
                | events.EagerEnd()
                | events.SpeechResumed()
                | events.Lag()
                | events.Translation()
                | events.Speakers()
            ):
                pass
            case _:
                assert_never(event)

    def _stream_metadata(self, audio_s: float) -> dict[str, Any]:
        sha256 = self._sha256.hexdigest()
        metadata = self._request.metadata(sha256, audio_s, self._results.n_channels, self._options)
        return {"type": "Metadata", **metadata} | ({"warnings": self._warnings} if self._warnings else {})


def _schema_error(description: str, message: str) -> events.Reply:
    return _reply(type="Error", variant="SchemaError", description=description, message=message[:MAX_ECHO_CHARS])


def _reply(**message: object) -> events.Reply:
    return events.Reply(write_object(message))
