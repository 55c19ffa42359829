"""jambonz's interface for custom speech recognition: audio comes in, and text goes back on the same socket.

Source: jambonz's documentation, "Adding custom speech vendors", read on 25 November 2026; what stands in `options`, by
the source of its feature server (jambonz/jambonz-feature-server, `lib/utils/transcription-utils.js`).
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, assert_never

from tutti_server.app.dialects.call_streams.call_stream import NOTHING_KNOWN, CallStream, Opening
from tutti_server.app.dialects.call_streams.wire import CallSink
from tutti_server.app.dialects.checks import HOTWORDS_EXPECTED, are_texts, usable_hotwords
from tutti_server.app.dialects.json_text import read_object, write_object
from tutti_server.app.errors import BadMessage, BadStart
from tutti_server.app.live.dialect import ClientMessage
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.messages import commands, events

RATES = (8000, 16_000, 24_000, 32_000, 44_100, 48_000)
"""The sample rates that jambonz may be told to send, in Hz; it sends 8000 unless `customOptions` say otherwise."""
CHANNEL = 1
"""The number of the channel in answers: jambonz counts from one, and streams one side of a call on a socket."""


class Jambonz(CallStream):
    """One recogniser of a call. Its text goes back to jambonz, so it publishes nothing."""

    def __init__(self, sink: CallSink, opening: Opening = NOTHING_KNOWN) -> None:
        super().__init__(sink, opening)
        self._tag = ""
        """The language as jambonz names it, such as `en-US`. Answers repeat it."""
        self._segments: dict[int, list[events.Segment]] = {}
        """The final parts of each open utterance."""

    def _audio(self, data: bytes) -> Iterable[ClientMessage]:
        # What is on its way when jambonz stops the recogniser is not part of it.
        return super()._audio(data) if not self._is_stopped else ()

    def write(self, event: events.Event) -> Iterable[str]:
        """Translate an event: text of an utterance that changes, its final text, and errors."""
        match event:
            case events.Interim():
                text = self._final_text(event.utterance) + event.stable + event.tail
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

    def _read(self, fields: dict[str, Any]) -> Iterable[ClientMessage]:
        match fields.get("type"):
            case "start":
                return self._start(fields)
            case "stop":
                self._require_start("stop")
                return self.leave()
            case other:
                raise BadMessage("unknown_type", "a type of start or stop", other)

    def _start(self, fields: dict[str, Any]) -> Iterable[ClientMessage]:
        self._require_new()
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
        hints = _hints(options.get("hints") or [])
        self._tag = tag
        self._has_started = True
        command = commands.Start(
            audio=AudioFormat("pcm_s16le", rate, 1),
            language=tag or None,
            interim=is_interim,
            endpointing=commands.Endpointing(mode=None),
            hotwords=usable_hotwords(hints),
        )
        ignored = [f"options.{name} is ignored" for name in options if name != "hints"]
        if len(command.hotwords) < len(hints):
            used = f"{len(command.hotwords)} of {len(hints)} are used"
            ignored.append(f"options.hints: expected {HOTWORDS_EXPECTED}; {used}")
        return (command, *(events.Notice("ignored", message) for message in ignored))

    def _final_text(self, utterance: int) -> str:
        return "".join(part.text for part in self._segments.get(utterance, ()))

    def _transcription(self, text: str, confidence: float, *, is_final: bool) -> Iterable[str]:
        if text.strip():
            alternative = {"confidence": round(confidence, 4), "transcript": text.strip()}
            answer = {"type": "transcription", "is_final": is_final, "alternatives": [alternative], "channel": CHANNEL}
            yield write_object(answer | ({"language": self._tag} if self._tag else {}))


def _hints(hints: object) -> list[str]:
    """The words to expect: texts, or objects with a `phrase`, of which jambonz writes the list as text."""
    if isinstance(hints, str):
        # jambonz writes texts as a list, and objects as JSON within a text.
        with suppress(BadMessage):
            hints = read_object(f'{{"hints":{hints}}}')["hints"]
    listed = hints if isinstance(hints, list) else [None]
    phrases: list[Any] = [each.get("phrase") if isinstance(each, dict) else each for each in listed]
    if not are_texts(phrases):
        raise BadStart("options.hints", "a list of texts, or of objects with a phrase", hints)
    return phrases
