"""Conversation items of the Realtime API: each utterance is an item, and its text becomes events about the item."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from tutti_server.app.dialects.json_text import write_object
from tutti_server.app.dialects.openai.realtime_session import RealtimeSession
from tutti_server.app.dialects.speaker_names import letters
from tutti_server.app.languages import joined, joint
from tutti_server.app.session.messages import events

MIN_PROBABILITY = 1e-9
"""A lower probability counts as this one, since 0 has no logarithm."""
ITEM = "conversation.item"
TRANSCRIPTION = f"{ITEM}.input_audio_transcription"
BUFFER = "input_audio_buffer"


class EventWriter:
    """Writes server events, each with an id of its own."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._n_events = 0

    def write(self, kind: str, **fields: Any) -> str:
        """Write an event of this type as JSON text."""
        self._n_events += 1
        return write_object({"type": kind, "event_id": f"event_{self._session_id}_{self._n_events}", **fields})


@dataclass(slots=True, kw_only=True)
class _Item:
    id: str
    start_s: float
    """The time at which the audio of the utterance begins, in seconds."""
    is_detected: bool
    """The speech detector found the utterance. False without turn detection."""
    duration_s: float = 0.0
    final: str = ""
    """The text of the segments that were sent."""
    sent: str = ""
    """The text of the deltas that were sent: `final`, and the stable text after it."""
    words: list[events.Word] = field(default_factory=list)
    languages: list[str] = field(default_factory=list)
    is_discarded: bool = False
    """The client cleared the audio, so nothing more is sent about the item."""


class ConversationItems:
    """Makes the events about the items of one session.

    An item gets its id when its utterance begins, and is announced when its audio is committed.
    """

    def __init__(self, session: RealtimeSession, writer: EventWriter) -> None:
        self._session = session
        self._write = writer.write
        self._items: dict[int, _Item] = {}
        """The items whose utterance is not complete, by the number of the utterance."""
        self._last_item_id: str | None = None
        """The item that was announced last."""
        self._effective_commits: set[events.FlushId] = set()
        """Commits that ended an utterance and whose flush is not complete; bounded, as pending flushes are."""

    def speech_started(self, event: events.SpeechStarted) -> Iterable[str]:
        """An utterance begins."""
        item = self._new_item(str(event.utterance), event.from_s, event.is_detected)
        self._items[event.utterance] = item
        if item.is_detected:
            yield self._write(f"{BUFFER}.speech_started", audio_start_ms=_ms(event.from_s), item_id=item.id)

    def endpoint(self, event: events.Endpoint) -> Iterable[str]:
        """An utterance ends, which commits its audio."""
        item = self._items[event.utterance]
        item.duration_s = max(event.end_s - item.start_s, 0.0)
        item.is_discarded = event.is_discarded
        if event.flush is not None:
            self._effective_commits.add(event.flush)
        if item.is_discarded:
            return
        if item.is_detected:
            yield self._write(f"{BUFFER}.speech_stopped", audio_end_ms=_ms(event.end_s), item_id=item.id)
        yield from self._announce(item.id)

    def interim(self, event: events.Interim) -> Iterable[str]:
        """Text that is stable becomes a delta. The tail, which may change, is not sent."""
        item = self._items[event.utterance]
        return self._delta(item, item.final + event.stable)

    def segment(self, event: events.Segment) -> Iterable[str]:
        """Final text becomes a delta and a segment."""
        item = self._items[event.utterance]
        item.final += event.text
        item.words += event.words
        if event.language and event.language not in item.languages:
            item.languages.append(event.language)
        yield from self._delta(item, item.final)
        # Clients of the older shape know no segments, and mistake events that they do not know for others.
        if item.is_discarded or self._session.is_flat:
            return
        for number, part in enumerate(parts_by_speaker(event)):
            fields: dict[str, Any] = {
                "item_id": item.id,
                "content_index": 0,
                "id": f"segment_{self._session.id}_{event.id}" + (f"_{number}" if number else ""),
                "text": part.text,
                # The typed clients require it. It is empty where no speaker is known, or the client did not ask.
                "speaker": "" if part.speaker is None else letters(part.speaker),
                "start": part.start_s,
                "end": part.end_s,
            }
            if self._session.settings.has_words:
                fields["words"] = [
                    {"word": word.text, "start": word.start_s, "end": word.end_s, "confidence": word.confidence}
                    for word in part.words
                ]
            yield self._write(f"{TRANSCRIPTION}.segment", **fields)

    def utterance(self, event: events.Utterance) -> Iterable[str]:
        """An utterance is complete."""
        item = self._items.pop(event.utterance)
        if item.is_discarded:
            return
        if event.is_complete:
            yield self._completed(item, event.text)
            return
        message = "the session ended before all of this audio was transcribed"
        error = {"type": "server_error", "code": "incomplete", "message": message, "param": None}
        yield self._write(f"{TRANSCRIPTION}.failed", item_id=item.id, content_index=0, error=error)

    def flushed(self, event: events.Flushed) -> Iterable[str]:
        """A commit is complete. A commit without speech gets an empty item.

        The client expects an item for each commit, and the speech detector may have ended the turn just before.
        """
        if event.id in self._effective_commits:
            self._effective_commits.discard(event.id)
            return
        item = self._new_item(f"c{event.id}", 0.0, is_detected=False)
        yield from self._announce(item.id)
        yield self._completed(item, "")

    def _new_item(self, name: str, start_s: float, is_detected: bool) -> _Item:
        return _Item(id=f"item_{self._session.id}_{name}", start_s=start_s, is_detected=is_detected)

    def _announce(self, item_id: str) -> Iterable[str]:
        previous, self._last_item_id = self._last_item_id, item_id
        yield self._write(f"{BUFFER}.committed", item_id=item_id, previous_item_id=previous)
        item = {
            "id": item_id,
            "object": "realtime.item",
            "type": "message",
            "status": "completed",
            "role": "user",
            "content": [{"type": "input_audio", "transcript": None}],
        }
        for name in ("created",) if self._session.is_flat else ("added", "done"):
            yield self._write(f"{ITEM}.{name}", item=item, previous_item_id=previous)

    def _delta(self, item: _Item, text: str) -> Iterable[str]:
        delta, item.sent = text[len(item.sent) :], max(item.sent, text, key=len)
        if delta and not item.is_discarded:
            yield self._write(f"{TRANSCRIPTION}.delta", item_id=item.id, content_index=0, delta=delta)

    def _completed(self, item: _Item, text: str) -> str:
        fields: dict[str, Any] = {
            "item_id": item.id,
            "content_index": 0,
            "transcript": text,
            "usage": {"type": "duration", "seconds": round(item.duration_s, 3)},
            "languages": [{"code": code} for code in item.languages],
        }
        if self._session.settings.has_logprobs:
            fields["logprobs"] = [_logprob(word) for word in item.words]
        return self._write(f"{TRANSCRIPTION}.completed", **fields)


def parts_by_speaker(segment: events.Segment) -> Iterator[events.Segment]:
    """The segment, split where its speaker changes between two words."""
    runs = [list(run) for _, run in groupby(segment.words, key=lambda word: word.speaker)]
    if len(runs) < 2:
        yield segment
        return
    for number, words in enumerate(runs):
        text = joined(each.text for each in words)
        gap = joint(runs[number - 1][-1].text, text) if number else " " * segment.text.startswith(" ")
        yield replace(
            segment,
            start_s=words[0].start_s if number else segment.start_s,
            end_s=words[-1].end_s if number < len(runs) - 1 else segment.end_s,
            text=gap + text,
            words=tuple(words),
            speaker=words[0].speaker,
        )


def _logprob(word: events.Word) -> dict[str, Any]:
    """The entry of a word. OpenAI's API has one for each token."""
    logprob = round(math.log(max(word.confidence, MIN_PROBABILITY)), 4)
    return {"token": word.text, "logprob": logprob, "bytes": list(word.text.encode())}


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
