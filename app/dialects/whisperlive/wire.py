"""WhisperLive's protocol: options as one JSON message, then raw audio. Each answer repeats the latest segments.

Source: whisper-live 0.10.0 on PyPI, `whisper_live/client.py` and `whisper_live/server.py`.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, assert_never

import numpy as np

from tutti_server.app.dialects.json_text import read_object, write_object
from tutti_server.app.dialects.whisperlive.options import MAX_SEGMENTS, parse, pop_uid
from tutti_server.app.errors import BadMessage, shorten
from tutti_server.app.languages import joint
from tutti_server.app.live.dialect import ClientMessage, QuietDialect
from tutti_server.app.session.messages import commands, events

END_OF_AUDIO = b"END_OF_AUDIO"
BACKEND = "faster_whisper"
"""The backend that the server claims to be. The client keeps completed segments with this one only."""
USUAL_MODEL = "small"
"""The model that the client asks for unless its user names another one: it means any."""
MAX_TEXT_CHARS = 1 << 20
"""The longest text message. Some clients send reference clips of speakers in their options, as base64."""
MIN_SEGMENT_S = 0.001
"""The shortest segment, in seconds.

The client keeps a completed segment if it starts where the previous one ended, or later. It compares each time that it
receives the segment, so a segment of no length would be kept again and again.
"""
RECONNECT_CODES = frozenset(
    {"draining", "overloaded", "session_limit", "no_engine", "engine_failed", "engine_stalled", "idle", "slow_reader"}
)
"""Failures after which the client may connect again. It receives them as warnings: an error makes it give up."""


class WhisperLive(QuietDialect):
    """Translates for one client. The protocol has no message for `Lag`."""

    idle_timeout_s = None
    max_text_chars = MAX_TEXT_CHARS

    def __init__(self, is_served: Callable[[str], bool] | None = None) -> None:
        """Begin before the client's options. `is_served` knows the names of models; `None` if there is one."""
        self._is_served = is_served
        self._uid: str | None = None
        self._is_started = False
        self._model: str | None = None
        self._is_uint8 = False
        self._wants_words = False
        self._language: str | None = None
        """The language that the client asked for, else the one that was detected last."""
        self._is_language_named = False
        self._completed: deque[dict[str, Any]] = deque(maxlen=MAX_SEGMENTS)
        self._until_s = 0.0
        """The time at which the last completed segment ends, in seconds."""
        self._interim: tuple[int, str] | None = None
        """The utterance and the text of the incomplete segment that the client received last."""

    def read(self, message: str | bytes) -> Iterable[ClientMessage]:
        """Translate the options, audio, or the end of the audio."""
        if isinstance(message, bytes):
            if message == END_OF_AUDIO:
                return (commands.Stop(),)
            return (commands.Audio(_widened(message) if self._is_uint8 else message),)
        if self._is_started:
            raise BadMessage("unexpected_text", "audio in binary messages behind the options", message)
        start = self._start(read_object(message))
        self._is_started = True
        return (start,)

    def write(self, event: events.Event) -> Iterable[str]:
        """Translate an event. Text becomes a message with the latest segments."""
        match event:
            case events.Started():
                yield from self._started(event)
            case events.Interim():
                yield from self._interim_segment(event)
            case events.Segment():
                yield from self._segment(event)
            case events.Utterance():
                yield from self._utterance(event)
            case events.Notice():
                yield self._message(status="WARNING", message=event.message)
            case events.Failure():
                may_reconnect = not event.is_fatal or event.code in RECONNECT_CODES
                yield self._message(status="WARNING" if may_reconnect else "ERROR", message=event.message)
                if event.is_fatal and may_reconnect:
                    yield self._message(message="DISCONNECT")
            case events.EagerEnd() | events.SpeechResumed():
                pass
            case (
                events.SpeechStarted()
                | events.Endpoint()
                | events.Flushed()
                | events.Lag()
                | events.Stopped()
                | events.Translation()
                | events.Speakers()
            ):
                pass
            case _:
                assert_never(event)

    def wait(self, minutes: float) -> str:
        """The message that the server is full, and for how many minutes the client should wait."""
        return self._message(status="WAIT", message=minutes)

    def _start(self, fields: dict[str, Any]) -> commands.Start:
        # Before all other options, because the answer to a wrong one carries it.
        self._uid = pop_uid(fields)
        options = parse(fields)
        self._model = options.model
        self._is_uint8 = options.is_uint8
        self._wants_words = options.start.words
        self._language = options.start.language
        self._is_language_named = self._language is not None
        self._completed = deque(maxlen=options.n_segments)
        if not self._model or not self._is_served or (self._model == USUAL_MODEL and not self._is_served(USUAL_MODEL)):
            return options.start
        return replace(options.start, model=self._model)

    def _started(self, event: events.Started) -> Iterable[str]:
        notes = [notice.message for notice in event.notices]
        is_served = self._is_served is not None and self._is_served(self._model or "")
        if self._model not in (None, event.model) and not is_served:
            notes.insert(0, f"model: {shorten(self._model)} is not served here; {event.model} is")
        yield self._message(message="SERVER_READY", backend=BACKEND)
        if notes:
            yield self._message(status="WARNING", message="; ".join(notes))

    def _interim_segment(self, event: events.Interim) -> Iterable[str]:
        text = self._spaced(event.stable + event.tail)
        if not text.strip() or self._interim == (event.utterance, text):
            return
        self._interim = (event.utterance, text)
        start_s = max(event.start_s, self._until_s)
        yield self._segments(_incomplete(start_s, max(event.end_s, start_s), text))

    def _segment(self, event: events.Segment) -> Iterable[str]:
        if event.language and event.language != self._language and not self._is_language_named:
            self._language = event.language
            probability = event.language_probability
            yield self._message(
                language=event.language, **({} if probability is None else {"language_prob": probability})
            )
        text = self._spaced(event.text)
        if not text.strip():
            return
        # Rounded as on the wire: two different times here may be the same millisecond there.
        start_s = round(max(event.start_s, self._until_s), 3)
        self._until_s = round(max(event.end_s, start_s + MIN_SEGMENT_S), 3)
        segment = _incomplete(start_s, self._until_s, text)
        if self._wants_words:
            segment["words"] = [
                {
                    "word": self._spaced(word.text),
                    "start": _time(word.start_s),
                    "end": _time(word.end_s),
                    "probability": word.confidence,
                }
                for word in event.words
            ]
        if self._interim is not None and self._interim[1] != text:
            # At the end, the client appends its last incomplete segment to its subtitles, unless they end with it.
            yield self._segments(segment)
        self._interim = None
        self._completed.append({**segment, "completed": True})
        yield self._segments()

    def _utterance(self, event: events.Utterance) -> Iterable[str]:
        """Clear an incomplete segment that no final text replaced."""
        if self._interim is None or self._interim[0] != event.utterance:
            return
        self._interim = None
        start_s = max(event.start_s, self._until_s)
        yield self._segments(_incomplete(start_s, max(event.end_s, start_s), ""))

    def _segments(self, incomplete: dict[str, Any] | None = None) -> str:
        # The list is never empty: the client fails on an empty list.
        return self._message(segments=[*self._completed, *([incomplete] if incomplete is not None else [])])

    def _spaced(self, text: str) -> str:
        """The text with a leading space, as Whisper writes it: the client joins texts without a separator."""
        return text if text.startswith(" ") else joint("", text) + text

    def _message(self, **fields: Any) -> str:
        return write_object({"uid": self._uid, **fields})


def _incomplete(start_s: float, end_s: float, text: str) -> dict[str, Any]:
    return {"start": _time(start_s), "end": _time(end_s), "text": text, "completed": False}


def _time(seconds: float) -> str:
    return f"{seconds:.3f}"


def _widened(data: bytes) -> bytes:
    samples = np.frombuffer(data, dtype=np.uint8).astype("<i2")
    return ((samples - 128) * 256).astype("<i2").tobytes()
