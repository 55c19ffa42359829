"""jambonz's interface for custom speech recognition: audio comes in, and text goes back on the same socket.

Source: jambonz's documentation, "Adding custom speech vendors", read on 25 November 2026; what stands in `options`, by
the source of its feature server (jambonz/jambonz-feature-server, `lib/utils/transcription-utils.js`).
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, assert_never

from app.dialects.call_streams.wire import START_TIMEOUT_S
from app.dialects.json_text import read_object, write_object
from app.dialects.limits import MAX_TEXT_CHARS
from app.errors import CLOSE_POLICY, BadMessage, BadStart, SessionError, WrongState
from app.live.dialect import ClientMessage
from app.media.pcm import AudioFormat
from app.session import commands, events
from app.session.effects import Close
from engine.api import MAX_HOTWORD_BYTES, MAX_HOTWORDS

RATES = (8000, 16_000, 24_000, 32_000, 44_100, 48_000)
"""The sample rates that jambonz may be told to send, in Hz; it sends 8000 unless `customOptions` say otherwise."""
CHANNEL = 1
"""The number of the channel in answers: jambonz counts from one, and streams one side of a call on a socket."""


class Jambonz:
    """One recogniser of a call."""

    max_text_chars = MAX_TEXT_CHARS

    def __init__(self) -> None:
        """Translate for one socket."""
        self._tag = ""
        """The language as jambonz names it, such as `en-US`. Answers repeat it."""
        self._has_started = False
        self._is_stopped = False
        self._segments: dict[int, list[events.Segment]] = {}
        """The final parts of each open utterance."""

    @property
    def idle_timeout_s(self) -> float | None:
        """A short time before `start`; after it, the operator's setting."""
        return None if self._has_started else START_TIMEOUT_S

    def open(self) -> Iterable[ClientMessage]:
        """Nothing: jambonz sends `start` first."""
        return ()

    def read(self, message: str | bytes) -> Iterable[ClientMessage]:
        """Translate a message. Every error before `start` is fatal."""
        if isinstance(message, bytes):
            if not self._has_started:
                raise WrongState("not_started", "audio: expected start first", CLOSE_POLICY)
            # What is on its way when jambonz stops the recogniser is not part of it.
            return (commands.Audio(message),) if message and not self._is_stopped else ()
        try:
            return self._read(read_object(message))
        except SessionError as error:
            if self._has_started or error.is_fatal:
                raise
            raise SessionError(error.code, error.message, CLOSE_POLICY) from error

    def write(self, event: events.Event) -> Iterable[str]:
        """Translate an event: text of an utterance that changes, its final text, and errors."""
        match event:
            case events.Interim():
                text = self._text(event.utterance) + event.stable + event.tail
                yield from self._transcription(text, 0.0, is_final=False)
            case events.Segment():
                self._segments.setdefault(event.utterance, []).append(event)
            case events.Utterance():
                parts = self._segments.pop(event.utterance, [])
                confidence = sum(part.confidence for part in parts) / max(len(parts), 1)
                yield from self._transcription(event.text, confidence, is_final=True)
            case events.Failure():
                yield write_object({"type": "error", "error": event.message})
            case (
                events.Started()
                | events.SpeechStarted()
                | events.EagerEnd()
                | events.SpeechResumed()
                | events.Endpoint()
                | events.Flushed()
                | events.Lag()
                | events.Notice()
                | events.Stopped()
                | events.Translation()
                | events.Speakers()
            ):
                pass
            case _:
                assert_never(event)

    def audio_received(self, until_s: float) -> Iterable[events.Reply]:
        """Nothing: no message of this protocol depends on time alone."""
        return ()

    def close(self, close: Close) -> Close:
        """The session's own close code and reason: after `stop`, jambonz waits for it."""
        return close

    def leave(self) -> Iterable[ClientMessage]:
        """End the session once."""
        if not self._has_started or self._is_stopped:
            return ()
        self._is_stopped = True
        return (commands.Stop(),)

    def _read(self, fields: dict[str, Any]) -> Iterable[ClientMessage]:
        match fields.get("type"):
            case "start":
                return self._start(fields)
            case "stop" if not self._has_started:
                raise WrongState("not_started", "stop: expected start first", CLOSE_POLICY)
            case "stop":
                return self.leave()
            case other:
                raise BadMessage("unknown_type", "a type of start or stop", other)

    def _start(self, fields: dict[str, Any]) -> Iterable[ClientMessage]:
        if self._has_started:
            raise WrongState("already_started", "start: expected one such message, got another")
        if fields.get("format", "raw") != "raw" or fields.get("encoding", "LINEAR16") != "LINEAR16":
            got = {name: fields.get(name) for name in ("format", "encoding")}
            raise BadStart("encoding", "format raw and encoding LINEAR16", got)
        rate = fields.get("sampleRateHz", RATES[0])
        if rate not in RATES:
            raise BadStart("sampleRateHz", " or ".join(map(str, RATES)), rate)
        tag = fields.get("language") or ""
        if not isinstance(tag, str):
            raise BadStart("language", "a tag such as en-US", tag)
        is_interim = fields.get("interimResults", False)
        if not isinstance(is_interim, bool):
            raise BadStart("interimResults", "true or false", is_interim)
        options = fields.get("options") or {}
        if not isinstance(options, dict):
            raise BadStart("options", "an object", options)
        self._tag = tag
        self._has_started = True
        command = commands.Start(
            audio=AudioFormat("pcm_s16le", rate, 1),
            language=tag.split("-")[0].lower() or None,
            interim=is_interim,
            hotwords=_hints(options.get("hints") or ()),
        )
        ignored = [name for name in options if name != "hints"]
        return (command, *(events.Notice("ignored", f"options.{name} is ignored") for name in ignored))

    def _text(self, utterance: int) -> str:
        return "".join(part.text for part in self._segments.get(utterance, ()))

    def _transcription(self, text: str, confidence: float, *, is_final: bool) -> Iterable[str]:
        if text.strip():
            alternative = {"confidence": round(confidence, 4), "transcript": text.strip()}
            answer = {"type": "transcription", "is_final": is_final, "alternatives": [alternative], "channel": CHANNEL}
            yield write_object(answer | ({"language": self._tag} if self._tag else {}))


def _hints(hints: object) -> tuple[str, ...]:
    """The words to expect: texts, or objects with a `phrase`, of which jambonz writes the list as text."""
    if isinstance(hints, str):
        # jambonz writes texts as a list, and objects as JSON within a text.
        with suppress(BadMessage):
            hints = read_object(f'{{"hints":{hints}}}')["hints"]
    listed = hints if isinstance(hints, list | tuple) else (None,)
    phrases = tuple(each.get("phrase") if isinstance(each, dict) else each for each in listed)
    words = tuple(phrase.strip() for phrase in phrases if isinstance(phrase, str) and phrase.strip())
    if (
        len(words) < len(phrases)
        or len(words) > MAX_HOTWORDS
        or any(len(w.encode()) > MAX_HOTWORD_BYTES for w in words)
    ):
        expected = f"at most {MAX_HOTWORDS} phrases of at most {MAX_HOTWORD_BYTES} bytes"
        raise BadStart("options.hints", expected, hints)
    return words
