"""OpenAI's Realtime API for transcription: its events to commands, ours to its events, as JSON text.

An utterance is an item of the conversation, reserved when it begins and announced when it is committed. What a session
is set to is read in `openai_realtime_session.py`.
Source: openai 3.54 on PyPI, `types/realtime` and `types/beta/realtime`.
"""

import base64
import binascii
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never

from app.dialects.json_text import read_object, write_object
from app.dialects.openai import realtime_options as session
from app.dialects.openai.realtime_options import BadField, Remark, Settings
from app.errors import BadMessage, SessionError, WrongState
from app.live.dialect import Read
from app.session import commands, events
from app.session.effects import Close
from engine import api

SUBPROTOCOL = "realtime"
BETA_SUBPROTOCOL = "openai-beta.realtime-v1"
# OpenAI's own limit.
LEAST_COMMIT_MS = 100
MAX_EVENT_ID_CHARS = 512
LEAST_PROBABILITY = 1e-9
# What clients say to a model that answers.
CONVERSATION = ("response.", "conversation.", "output_audio_buffer.")
ITEM = "conversation.item"
TRANSCRIPTION = f"{ITEM}.input_audio_transcription"
# Many clients give up at the first `error`. After these they may come back, which the close code alone says.
SAID_BY_CLOSING = frozenset({"draining", "overloaded", "idle", "engine_failed", "engine_stalled"})


@dataclass(slots=True)
class _Item:
    """An utterance as its client sees it."""

    id: str
    start_s: float
    """Where its audio begins."""
    is_detected: bool
    duration_s: float = 0.0
    final: str = ""
    """The text of its segments."""
    sent: str = ""
    """The text of its deltas: `final`, and what is stable behind it."""
    words: list[events.Word] = field(default_factory=list)
    languages: list[str] = field(default_factory=list)
    is_discarded: bool = False


class OpenAIRealtime:
    """One client."""

    def __init__(
        self,
        session_id: str,
        model: api.ModelInfo,
        *,
        settings: Settings,
        remarks: Iterable[Remark] = (),
        is_flat: bool = False,
        idle_timeout_s: float | None = None,
        max_text_chars: int,
    ) -> None:
        """Args:
        session_id: makes the ids of items and events unique.
        settings: before the client says anything.
        remarks: what of the connection's URL had no effect.
        is_flat: the client is known to speak the older shape.
        """
        self.idle_timeout_s = idle_timeout_s
        self.max_text_chars = max_text_chars
        self._id = session_id
        self._model = model
        self._settings = settings
        self._remarks = list(remarks)
        self._is_flat = is_flat
        self._is_started = False
        self._uncommitted_s = 0.0
        self._n_events = 0
        self._n_commits = 0
        self._items: dict[int, _Item] = {}
        self._last_item: str | None = None
        self._ended_by: set[events.FlushId] = set()
        """Commits that ended an utterance and are not answered yet; bounded, as pending flushes are."""

    def open(self) -> Iterable[Read]:
        return (self._reply("session.created", session=self._described(), **self._with_remarks(self._remarks)),)

    def heard(self, until_s: float) -> Iterable[events.Reply]:
        return ()

    def close(self, close: Close) -> Close:
        return close

    # Client events.

    def read(self, message: str | bytes) -> Iterable[Read]:
        event_id = None
        try:
            # Clients in some languages send text as bytes.
            text = message if isinstance(message, str) else message.decode(errors="replace")
            said = read_object(text)
            event_id = _event_id(said)
            return list(self._read(said))
        except SessionError as error:
            return (self._error(error, event_id),)

    def _read(self, said: dict[str, Any]) -> Iterable[Read]:
        match said.get("type"):
            case "session.update" | "transcription_session.update" as kind:
                return self._update(said, kind)
            case "input_audio_buffer.append":
                return self._append(said)
            case "input_audio_buffer.commit":
                return self._commit()
            case "input_audio_buffer.clear":
                return self._clear()
            case str(kind) if kind.startswith(CONVERSATION):
                raise BadMessage(
                    "unsupported_event", "events of a transcription session: nothing is answered here", kind
                )
            case other:
                raise BadMessage("unknown_event", "a type such as input_audio_buffer.append", other)

    def _update(self, said: dict[str, Any], kind: str) -> Iterable[Read]:
        wanted = said.get("session")
        settings, remarks = session.updated(self._settings, wanted, self._model)
        if kind == "transcription_session.update":
            self._is_flat = True
        elif (is_flat := session.is_flat(wanted)) is not None:
            self._is_flat = is_flat
        has_changed = settings.configure() != self._settings.configure()
        self._settings = settings
        if self._is_started and has_changed:
            yield settings.configure()
        answer = f"{kind}d"
        yield self._reply(answer, session=self._described(), **self._with_remarks(remarks))

    def _append(self, said: dict[str, Any]) -> Iterable[Read]:
        audio = said.get("audio")
        if not isinstance(audio, str):
            raise BadField("audio", "base64 text", audio)
        try:
            data = base64.b64decode(audio, validate=True)
        except (binascii.Error, ValueError):
            raise BadField("audio", "base64 text", audio) from None
        self._uncommitted_s += len(data) / self._settings.bytes_per_s
        yield from self._started()
        yield commands.Audio(data)

    def _commit(self) -> Iterable[Read]:
        held_ms = self._uncommitted_s * 1000
        if self._settings.is_manual and held_ms < LEAST_COMMIT_MS:
            expected = f"at least {LEAST_COMMIT_MS} ms of audio to commit"
            raise WrongState(
                "input_audio_buffer_commit_empty", f"expected {expected}, the buffer holds {held_ms:.0f} ms"
            )
        self._uncommitted_s = 0.0
        self._n_commits += 1
        yield from self._started()
        yield commands.Flush(self._n_commits)

    def _clear(self) -> Iterable[Read]:
        self._uncommitted_s = 0.0
        if self._is_started:
            yield commands.Discard()
        yield self._reply("input_audio_buffer.cleared")

    def _started(self) -> Iterable[Read]:
        """The session starts with its first audio, when the client has said how it is to be heard."""
        if not self._is_started:
            self._is_started = True
            yield self._settings.start()

    # Server events.

    def write(self, event: events.Event) -> Iterable[str]:
        match event:
            case events.SpeechStarted():
                return self._begin(event)
            case events.Endpoint():
                return self._end(event)
            case events.Interim(utterance=number, stable=stable):
                item = self._items[number]
                return self._delta(item, item.final + stable)
            case events.Segment():
                return self._segment(self._items[event.utterance], event)
            case events.Utterance():
                return self._complete(self._items.pop(event.utterance), event)
            case events.Flushed(flush_id):
                return self._flushed(flush_id)
            case events.Failure():
                return self._failure(event)
            case events.Started() | events.Lag() | events.Notice() | events.Stopped():
                return ()
            case _:
                assert_never(event)

    def _begin(self, event: events.SpeechStarted) -> Iterable[str]:
        item = _Item(f"item_{self._id}_{event.utterance}", event.from_s, event.is_detected)
        self._items[event.utterance] = item
        if item.is_detected:
            yield self._event("input_audio_buffer.speech_started", audio_start_ms=_ms(event.from_s), item_id=item.id)

    def _end(self, event: events.Endpoint) -> Iterable[str]:
        item = self._items[event.utterance]
        item.duration_s = max(event.end_s - item.start_s, 0.0)
        item.is_discarded = event.is_discarded
        if event.flush is not None:
            self._ended_by.add(event.flush)
        if item.is_discarded:
            return
        if item.is_detected:
            yield self._event("input_audio_buffer.speech_stopped", audio_end_ms=_ms(event.end_s), item_id=item.id)
        yield from self._announce(item.id)

    def _announce(self, item_id: str) -> Iterable[str]:
        previous, self._last_item = self._last_item, item_id
        yield self._event("input_audio_buffer.committed", item_id=item_id, previous_item_id=previous)
        item = {
            "id": item_id,
            "object": "realtime.item",
            "type": "message",
            "status": "completed",
            "role": "user",
            "content": [{"type": "input_audio", "transcript": None}],
        }
        for name in ("created",) if self._is_flat else ("added", "done"):
            yield self._event(f"{ITEM}.{name}", item=item, previous_item_id=previous)

    def _delta(self, item: _Item, text: str) -> Iterable[str]:
        delta, item.sent = text[len(item.sent) :], max(item.sent, text, key=len)
        if delta and not item.is_discarded:
            yield self._event(f"{TRANSCRIPTION}.delta", item_id=item.id, content_index=0, delta=delta)

    def _segment(self, item: _Item, event: events.Segment) -> Iterable[str]:
        item.final += event.text
        item.words += event.words
        if event.language and event.language not in item.languages:
            item.languages.append(event.language)
        yield from self._delta(item, item.final)
        # Clients of the older shape know no segments, and take events that they do not know for others.
        if item.is_discarded or self._is_flat:
            return
        fields: dict[str, Any] = {
            "item_id": item.id,
            "content_index": 0,
            "id": f"segment_{self._id}_{event.id}",
            "text": event.text,
            # Required by the typed models; speakers are not told apart.
            "speaker": "",
            "start": event.start_s,
            "end": event.end_s,
        }
        if self._settings.has_words:
            fields["words"] = [
                {"word": word.text, "start": word.start_s, "end": word.end_s, "confidence": word.confidence}
                for word in event.words
            ]
        yield self._event(f"{TRANSCRIPTION}.segment", **fields)

    def _complete(self, item: _Item, event: events.Utterance) -> Iterable[str]:
        if item.is_discarded:
            return
        if not event.is_complete:
            message = "the session had to end before all of this was read"
            error = {"type": "server_error", "code": "incomplete", "message": message, "param": None}
            yield self._event(f"{TRANSCRIPTION}.failed", item_id=item.id, content_index=0, error=error)
            return
        yield self._completed(item, event.text)

    def _completed(self, item: _Item, text: str) -> str:
        fields: dict[str, Any] = {
            "item_id": item.id,
            "content_index": 0,
            "transcript": text,
            "usage": {"type": "duration", "seconds": round(item.duration_s, 3)},
            "languages": [{"code": code} for code in item.languages],
        }
        if self._settings.has_logprobs:
            fields["logprobs"] = [_logprob(word) for word in item.words]
        return self._event(f"{TRANSCRIPTION}.completed", **fields)

    def _flushed(self, flush_id: events.FlushId) -> Iterable[str]:
        """A commit without speech is answered too, by an empty item: the turn may have ended by itself just before."""
        if flush_id in self._ended_by:
            self._ended_by.discard(flush_id)
            return
        item = _Item(f"item_{self._id}_c{flush_id}", 0.0, is_detected=False)
        yield from self._announce(item.id)
        yield self._completed(item, "")

    def _failure(self, event: events.Failure) -> Iterable[str]:
        if not event.is_fatal or event.code not in SAID_BY_CLOSING:
            yield self._failed(event.code, event.message)

    # Messages.

    def _described(self) -> dict[str, Any]:
        describe = session.described_flat if self._is_flat else session.described
        return describe(self._settings, f"sess_{self._id}", self._model)

    def _with_remarks(self, remarks: list[Remark]) -> Mapping[str, list[Remark]]:
        """An extra field, which typed clients ignore and people see."""
        return {"warnings": remarks} if remarks else {}

    def _error(self, error: SessionError, event_id: str | None) -> events.Reply:
        param = error.param if isinstance(error, BadField) else None
        return events.Reply(self._failed(error.code, error.message, param, event_id))

    def _failed(self, code: str, message: str, param: str | None = None, event_id: str | None = None) -> str:
        error = {
            "type": "invalid_request_error",
            "code": code,
            "message": message,
            "param": param,
            "event_id": event_id,
        }
        return self._event("error", error=error)

    def _reply(self, kind: str, **fields: Any) -> events.Reply:
        return events.Reply(self._event(kind, **fields))

    def _event(self, kind: str, **fields: Any) -> str:
        self._n_events += 1
        return write_object({"type": kind, "event_id": f"event_{self._id}_{self._n_events}", **fields})


def _event_id(said: dict[str, Any]) -> str | None:
    """The client's own id of an event, which errors repeat.

    Raises:
        BadField: it is none.
    """
    event_id = said.get("event_id")
    if event_id is None or (isinstance(event_id, str) and len(event_id) <= MAX_EVENT_ID_CHARS):
        return event_id
    raise BadField("event_id", f"text of at most {MAX_EVENT_ID_CHARS} characters", event_id)


def _logprob(word: events.Word) -> dict[str, Any]:
    """Of a word, where OpenAI has tokens."""
    logprob = round(math.log(max(word.confidence, LEAST_PROBABILITY)), 4)
    return {"token": word.text, "logprob": logprob, "bytes": list(word.text.encode())}


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
