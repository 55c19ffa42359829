"""OpenAI's Realtime API for transcription: client events to commands, session events to server events, as JSON text.

Source: openai 3.54 on PyPI, `types/realtime` and `types/beta/realtime`.
"""

import base64
from collections.abc import Iterable
from typing import Any, assert_never

from tutti_server.app.dialects.json_text import read_object
from tutti_server.app.dialects.openai.realtime_fields import BadField, Warnings
from tutti_server.app.dialects.openai.realtime_items import BUFFER, ConversationItems, EventWriter
from tutti_server.app.dialects.openai.realtime_session import RealtimeSession
from tutti_server.app.errors import BadMessage, SessionError, WrongState
from tutti_server.app.live.dialect import ClientMessage, QuietDialect
from tutti_server.app.media.pcm import BYTES_PER_SAMPLE
from tutti_server.app.session.messages import commands, events

SUBPROTOCOL = "realtime"
BETA_SUBPROTOCOL = "openai-beta.realtime-v1"
MIN_COMMIT_MS = 100
"""The least audio in a commit, in milliseconds: OpenAI's own limit."""
MAX_EVENT_ID_CHARS = 512
CONVERSATION_PREFIXES = ("response.", "conversation.", "output_audio_buffer.")
"""The types of events for a model that answers begin with one of these."""
CLOSE_ONLY_CODES = frozenset(
    {"draining", "overloaded", "session_limit", "no_engine", "idle", "engine_failed", "engine_stalled"}
)
"""Failures that only the close code reports: many clients give up after any `error` event, but may reconnect here."""


class OpenAIRealtime(QuietDialect):
    """The Realtime API on one connection."""

    def __init__(
        self,
        session: RealtimeSession,
        *,
        warnings: Warnings,
        idle_timeout_s: float | None = None,
        max_text_chars: int,
    ) -> None:
        """Begin before the first message of the client. `warnings` say what had no effect in the URL."""
        self.idle_timeout_s = idle_timeout_s
        self.max_text_chars = max_text_chars
        self._session = session
        self._warnings = warnings
        self._writer = EventWriter(session.id)
        self._items = ConversationItems(session, self._writer)
        self._uncommitted_s = 0.0
        """Audio that was received since the last commit."""
        self._n_sample_bytes = 0
        """How many bytes of a sample have come whose other bytes have not."""
        self._n_commits = 0

    def open(self) -> Iterable[ClientMessage]:
        """Greet the client with `session.created`."""
        return (events.Reply(self._session_event("session.created", self._warnings)),)

    # Client events.

    def read(self, message: str | bytes) -> Iterable[ClientMessage]:
        """Translate a client event. An error becomes an `error` event, and the session goes on."""
        event_id = None
        try:
            # Clients in some languages send text in binary messages.
            text = message if isinstance(message, str) else message.decode(errors="replace")
            fields = read_object(text)
            event_id = _event_id(fields)
            return list(self._read(fields))
        except SessionError as error:
            param = error.param if isinstance(error, BadField) else None
            return (events.Reply(self._error(error.code, error.message, param, event_id)),)

    def _read(self, fields: dict[str, Any]) -> Iterable[ClientMessage]:
        match fields.get("type"):
            case "session.update" | "transcription_session.update" as kind:
                return self._update(fields, kind)
            case "input_audio_buffer.append":
                return self._append(fields)
            case "input_audio_buffer.commit":
                return self._commit()
            case "input_audio_buffer.clear":
                return self._clear()
            case str(kind) if kind.startswith(CONVERSATION_PREFIXES):
                raise BadMessage(
                    "unsupported_event", "events of a transcription session: nothing is answered here", kind
                )
            case other:
                raise BadMessage("unknown_event", "a type such as input_audio_buffer.append", other)

    def _update(self, fields: dict[str, Any], kind: str) -> Iterable[ClientMessage]:
        before = self._session.settings.configure()
        warnings = self._session.update(fields.get("session"), kind == "transcription_session.update")
        configure = self._session.settings.configure()
        if self._session.is_started and configure != before:
            if configure.audio != before.audio:
                self._n_sample_bytes = 0
            yield configure
        yield events.Reply(self._session_event(f"{kind}d", warnings))

    def _append(self, fields: dict[str, Any]) -> Iterable[ClientMessage]:
        audio = fields.get("audio")
        if not isinstance(audio, str):
            raise BadField("audio", "base64 text", audio)
        try:
            data = base64.b64decode(audio, validate=True)
        except ValueError:
            raise BadField("audio", "base64 text", audio) from None
        self._uncommitted_s += len(data) / self._session.settings.bytes_per_s
        self._n_sample_bytes = (self._n_sample_bytes + len(data)) % self._bytes_per_sample
        yield from self._started()
        yield commands.Audio(data)

    def _commit(self) -> Iterable[ClientMessage]:
        # Rounded, as the sum of many pieces is a little off.
        uncommitted_ms = round(self._uncommitted_s * 1000, 3)
        if self._session.settings.is_manual and uncommitted_ms < MIN_COMMIT_MS:
            expected = f"at least {MIN_COMMIT_MS} ms of audio to commit"
            raise WrongState(
                "input_audio_buffer_commit_empty", f"expected {expected}, the buffer holds {uncommitted_ms:g} ms"
            )
        self._uncommitted_s = 0.0
        self._n_commits += 1
        yield from self._started()
        if self._session.settings.is_manual:
            yield from self._end_sample()
        yield commands.Flush(self._n_commits)

    def _clear(self) -> Iterable[ClientMessage]:
        self._uncommitted_s = 0.0
        if self._session.is_started:
            yield from self._end_sample()
            yield commands.Discard()
        yield events.Reply(self._writer.write(f"{BUFFER}.cleared"))

    @property
    def _bytes_per_sample(self) -> int:
        return BYTES_PER_SAMPLE[self._session.settings.audio.encoding]

    def _end_sample(self) -> Iterable[ClientMessage]:
        """Fill up a sample that has come in part, so that the next audio begins with a whole sample."""
        if self._n_sample_bytes:
            yield commands.Audio(bytes(self._bytes_per_sample - self._n_sample_bytes))
            self._n_sample_bytes = 0

    def _started(self) -> Iterable[ClientMessage]:
        """Start the session, unless it has started. It starts with the first audio, after the client's settings."""
        if not self._session.is_started:
            yield self._session.start()

    # Server events.

    def write(self, event: events.Event) -> Iterable[str]:
        """Translate an event of the session into server events."""
        messages: Iterable[str] = ()
        match event:
            case events.SpeechStarted():
                messages = self._items.speech_started(event)
            case events.Endpoint():
                messages = self._items.endpoint(event)
            case events.Interim():
                messages = self._items.interim(event)
            case events.Segment():
                messages = self._items.segment(event)
            case events.Utterance():
                messages = self._items.utterance(event)
            case events.Flushed():
                messages = self._items.flushed(event)
            case events.Failure():
                if not event.is_fatal or event.code not in CLOSE_ONLY_CODES:
                    messages = (self._error(event.code, event.message),)
            case events.EagerEnd() | events.SpeechResumed() | events.Speakers():
                pass
            case events.Notice(code="unlikely_format"):
                # No `error`: the audio is transcribed all the same, and many clients give up after one.
                kind = "transcription_session.updated" if self._session.is_flat else "session.updated"
                warning = {"param": "audio", "code": event.code, "message": event.message}
                messages = (self._session_event(kind, [warning]),)
            case events.Started() | events.Lag() | events.Notice() | events.Stopped() | events.Translation():
                pass
            case _:
                assert_never(event)
        return messages

    def _session_event(self, kind: str, warnings: Warnings) -> str:
        """An event that describes the session. Warnings are an extra field, which typed clients ignore."""
        extra = {"warnings": warnings} if warnings else {}
        return self._writer.write(kind, session=self._session.describe(), **extra)

    def _error(self, code: str, message: str, param: str | None = None, event_id: str | None = None) -> str:
        error = {"type": "invalid_request_error", "code": code, "message": message}
        return self._writer.write("error", error=error | {"param": param, "event_id": event_id})


def _event_id(fields: dict[str, Any]) -> str | None:
    """The client's own id of an event, which the answer to an error repeats. Raises `BadField`."""
    event_id = fields.get("event_id")
    if event_id is None or (isinstance(event_id, str) and len(event_id) <= MAX_EVENT_ID_CHARS):
        return event_id
    raise BadField("event_id", f"text of at most {MAX_EVENT_ID_CHARS} characters", event_id)
