"""Deepgram's live protocol, `/v1/listen`: its messages to commands, events to its results. See docs/compatibility.md.

Sources: the message types of deepgram-sdk 7.17 (`listen/v1/types`), and what clients were seen to read of them.
"""

import hashlib
import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, assert_never

from app.dialects.deepgram.options import Options, hotwords
from app.dialects.deepgram.words import mean_confidence, plain, wire_words
from app.dialects.json_text import read_object, write_object
from app.errors import CLOSE_OUR_FAULT, CLOSE_POLICY, BadMessage, shorten
from app.live.dialect import Read
from app.media.pcm import AudioFormat
from app.session import commands, events
from app.session.commands import MAX_PENDING_FLUSHES
from app.session.effects import Close
from engine.api import MAX_HOTWORD_BYTES, MAX_HOTWORDS, SAMPLE_RATE

IDLE_TIMEOUT_S = 10.0
MAX_TEXT_CHARS = 65_536
MAX_ECHO_CHARS = 1000
TYPES = "KeepAlive, Finalize, CloseStream or Configure"
# What Deepgram calls them, in the reason of the close frame.
CLOSES = {
    "idle": (CLOSE_OUR_FAULT, "NET-0001"),
    "bad_media": (CLOSE_POLICY, "DATA-0000"),
    "engine_failed": (CLOSE_OUR_FAULT, "NET-0000"),
    "engine_stalled": (CLOSE_OUR_FAULT, "NET-0000"),
    "internal_error": (CLOSE_OUR_FAULT, "NET-0000"),
}


@dataclass(frozen=True, slots=True)
class Request:
    """What every answer to a request says of it."""

    id: str
    model: str
    version: str
    """Of this server."""
    created: datetime

    @property
    def model_uuid(self) -> str:
        """The same for the same name, everywhere."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"tutti:{self.model}"))

    @property
    def model_info(self) -> dict[str, str]:
        return {"name": self.model, "version": self.version, "arch": "whisper"}

    def metadata(self, sha256: str, duration_s: float, channels: int, options: Options) -> dict[str, Any]:
        """Of all that was heard."""
        metadata: dict[str, Any] = {
            "transaction_key": "deprecated",
            "request_id": self.id,
            "sha256": sha256,
            "created": self.created.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "duration": round(duration_s, 3),
            "channels": channels,
            "models": [self.model_uuid],
            "model_info": {self.model_uuid: self.model_info},
        }
        if options.extra:
            metadata["extra"] = dict(options.extra)
        return metadata


@dataclass(slots=True)
class _Channel:
    """What the client has been told of one channel."""

    until_s: float = 0.0
    """Where the last final ended; the next one begins there."""
    held: dict[str, Any] | None = None
    """A final that may turn out to be its utterance's last."""
    open: dict[int, float] = field(default_factory=dict)
    """When utterances that have not ended began, by their numbers."""
    word_end_s: float | None = None
    """Where the last word ended, until the client is told that nothing followed it."""
    language: str | None = None
    flushed: set[int] = field(default_factory=set)
    """Utterances that a Finalize has ended, until their text is there."""


@dataclass(frozen=True, slots=True)
class _Finalize:
    channels: tuple[int, ...]
    at_s: float


class Deepgram:
    """The protocol as one connection speaks it."""

    idle_timeout_s = IDLE_TIMEOUT_S
    max_text_chars = MAX_TEXT_CHARS

    def __init__(self, options: Options, request: Request) -> None:
        self._options = options
        self._request = request
        self._metadata = {
            "request_id": request.id,
            "model_info": request.model_info,
            "model_uuid": request.model_uuid,
        }
        self._audio = options.audio or AudioFormat("pcm_f32le", SAMPLE_RATE, options.channels or 1)
        self._endpointing = commands.Endpointing(silence_ms=options.silence_ms)
        self._features = {"punctuate": options.punctuate, "smart_format": options.smart_format}
        self._channels = [_Channel() for _ in range(self._audio.n_transcribed)]
        self._finalizes: deque[_Finalize] = deque()
        """Those that have not been answered, oldest first; bounded as in the session."""
        self._n_finalizes = 0
        self._is_closing = False
        self._has_told_late = False
        self._heard_s = 0.0
        self._sha256 = hashlib.sha256()

    # What the client says.

    def open(self) -> Iterable[Read]:
        options = self._options
        return (
            commands.Start(
                audio=self._audio,
                language=options.language,
                interim=options.interim,
                endpointing=self._endpointing,
                hotwords=options.hotwords,
                words=True,
            ),
        )

    def read(self, message: str | bytes) -> Iterable[Read]:
        if isinstance(message, bytes):
            return self._read_audio(message) if message else self._close_stream()
        try:
            content = read_object(message)
        except BadMessage as error:
            return (_unreadable(error.message, message),)
        match content.get("type"):
            case "KeepAlive":
                return (commands.Keepalive(),)
            case "Finalize":
                return self._finalize(content, message)
            case "CloseStream":
                return self._close_stream()
            case "Configure":
                return self._configure(content)
            case _:
                return (_unreadable(f"type: expected {TYPES}, got {shorten(content.get('type'))}", message),)

    def _read_audio(self, data: bytes) -> Iterable[Read]:
        if self._is_closing:
            # A sender may not know yet what another part of its program has said; it is told once.
            told, self._has_told_late = self._has_told_late, True
            return () if told else (_unreadable("audio: nothing is taken after CloseStream", ""),)
        self._sha256.update(data)
        return (commands.Audio(data) if self._options.audio else commands.Media(data),)

    def _finalize(self, content: dict[str, Any], message: str) -> Iterable[Read]:
        channel = content.get("channel")
        n_channels = len(self._channels)
        if channel is not None and (type(channel) is not int or not 0 <= channel < n_channels):
            expected = f"channel: expected an integer from 0 to {n_channels - 1}, got {shorten(channel)}"
            return (_unreadable(expected, message),)
        if self._is_closing:
            # All of it becomes final anyway.
            return ()
        if len(self._finalizes) >= MAX_PENDING_FLUSHES:
            return (
                _unreadable(f"expected at most {MAX_PENDING_FLUSHES} Finalize that wait for their answers", message),
            )
        channels = tuple(range(n_channels)) if channel is None else (channel,)
        self._finalizes.append(_Finalize(channels, self._heard_s))
        self._n_finalizes += 1
        return (commands.Flush(self._n_finalizes, channel),)

    def _close_stream(self) -> Iterable[Read]:
        if self._is_closing:
            return ()
        self._is_closing = True
        return (commands.Stop(),)

    def _configure(self, content: dict[str, Any]) -> Iterable[Read]:
        """Other key terms from the next utterance on, or other formatting from the next result on."""
        keyterms, features = content.get("keyterms"), content.get("features")
        if keyterms is not None and not (
            isinstance(keyterms, list) and all(isinstance(each, str) for each in keyterms)
        ):
            return (self._not_configured("INTERNAL_ERROR", "keyterms: expected a list of strings"),)
        if features is not None and not isinstance(features, dict):
            return (self._not_configured("INTERNAL_ERROR", "features: expected an object"),)
        for name, value in (features or {}).items():
            if name not in self._features or not isinstance(value, bool):
                expected = f"features: expected true or false for {' or '.join(self._features)}, got {shorten(name)}"
                return (self._not_configured("FEATURES_NOT_SUPPORTED", expected),)
        if self._is_closing:
            return (self._not_configured("INTERNAL_ERROR", "the stream is closing"),)
        taken = hotwords(keyterms or ())
        if len(taken) < len(keyterms or ()):
            expected = f"keyterms: expected at most {MAX_HOTWORDS} of at most {MAX_HOTWORD_BYTES} bytes"
            return (self._not_configured("KEYTERM_LIMIT_EXCEEDED", expected),)
        self._features |= features or {}
        success = _reply(type="ConfigureSuccess", request_id=self._request.id)
        if keyterms is None:
            return (success,)
        language = self._options.language
        return (
            commands.Configure(
                audio=self._audio,
                language=language,
                endpointing=self._endpointing,
                prompt="",
                hotwords=taken,
                words=True,
            ),
            success,
        )

    def _not_configured(self, code: str, description: str) -> events.Reply:
        return _reply(
            type="ConfigureFailure", request_id=self._request.id, code=f"CONFIGURE_{code}", description=description
        )

    @property
    def _is_formatted(self) -> bool:
        return any(self._features.values())

    # What the client is told.

    def write(self, event: events.Event) -> Iterable[str]:
        return map(write_object, self._messages(event))

    def heard(self, until_s: float) -> Iterable[events.Reply]:
        self._heard_s = until_s
        return [
            events.Reply(write_object(message))
            for number, channel in enumerate(self._channels)
            if not channel.open and channel.held is None
            for message in self._quiet_until(number, until_s)
        ]

    def close(self, close: Close) -> Close:
        if close.reason in CLOSES:
            return Close(*CLOSES[close.reason])
        return close

    def _messages(self, event: events.Event) -> Iterator[dict[str, Any]]:
        match event:
            case events.SpeechStarted(utterance=utterance, channel=number, at_s=at_s):
                yield from self._speech_started(utterance, number, at_s)
            case events.Interim():
                yield from self._interim(event)
            case events.Segment():
                yield from self._segment(event)
            case events.Endpoint():
                if event.flush is not None:
                    self._channels[event.channel].flushed.add(event.utterance)
            case events.Utterance():
                yield from self._utterance(event)
            case events.Flushed():
                yield from self._flushed()
            case events.Stopped():
                for number in range(len(self._channels)):
                    yield from self._release(number)
                yield {
                    "type": "Metadata",
                    **self._request.metadata(
                        self._sha256.hexdigest(), event.audio_s, len(self._channels), self._options
                    ),
                }
            case events.Failure():
                if event.is_fatal:
                    for number in range(len(self._channels)):
                        yield from self._release(number)
                code = CLOSES.get(event.code, (0, event.code))[1]
                yield {"type": "Error", "variant": code, "description": event.message, "code": code}
            case events.Started() | events.Lag() | events.Notice():
                pass
            case _:
                assert_never(event)

    def _speech_started(self, utterance: int, number: int, at_s: float) -> Iterator[dict[str, Any]]:
        channel = self._channels[number]
        if not channel.open and channel.held is None:
            yield from self._quiet_until(number, at_s)
        channel.open[utterance] = at_s
        if self._options.vad_events:
            yield {"type": "SpeechStarted", "channel": self._index(number), "timestamp": at_s}

    def _interim(self, event: events.Interim) -> Iterator[dict[str, Any]]:
        yield from self._release(event.channel)
        if not self._options.interim:
            return
        text = (event.stable + event.tail).strip()
        transcript = text if self._is_formatted else plain(text)
        alternative = self._alternative(event.channel, transcript, events.confidence(event.avg_logprob), [])
        yield self._results(event.channel, event.end_s, alternative, is_final=False)

    def _segment(self, event: events.Segment) -> Iterator[dict[str, Any]]:
        yield from self._release(event.channel)
        channel = self._channels[event.channel]
        channel.language = event.language or channel.language
        is_formatted = self._is_formatted
        language = channel.language if self._options.is_multilingual else None
        words = wire_words(event.words, is_formatted, language)
        if words:
            yield from self._quiet_until(event.channel, words[0]["start"])
        channel.word_end_s = words[-1]["end"] if words else event.end_s
        transcript = event.text.strip() if is_formatted else plain(event.text)
        confidence = mean_confidence(words) if words else event.confidence
        alternative = self._alternative(event.channel, transcript, confidence, words)
        channel.held = self._results(event.channel, event.end_s, alternative, is_final=True)
        channel.until_s = max(channel.until_s, event.end_s)
        if event.goes_on:
            yield from self._release(event.channel)

    def _utterance(self, event: events.Utterance) -> Iterator[dict[str, Any]]:
        """The last final of an utterance says that it has ended; an empty one does where there is none."""
        channel = self._channels[event.channel]
        channel.open.pop(event.utterance, None)
        if channel.held is None:
            channel.held = self._empty(event.channel, event.end_s)
        channel.held["speech_final"] = self._options.tells_endpoints
        if event.utterance in channel.flushed:
            # The answer to Finalize follows, and it says so of this final.
            channel.flushed.discard(event.utterance)
        else:
            yield from self._release(event.channel)
            until_s = min(channel.open.values(), default=self._heard_s)
            yield from self._quiet_until(event.channel, until_s)

    def _flushed(self) -> Iterator[dict[str, Any]]:
        """The last final that came of it says so; an empty one does where there is none."""
        finalize = self._finalizes.popleft()
        for number in finalize.channels:
            channel = self._channels[number]
            if channel.held is None:
                channel.held = self._empty(number, finalize.at_s)
            channel.held["from_finalize"] = True
            yield from self._release(number)

    def _release(self, number: int) -> Iterator[dict[str, Any]]:
        channel = self._channels[number]
        if channel.held is not None:
            held, channel.held = channel.held, None
            yield held

    def _quiet_until(self, number: int, until_s: float) -> Iterator[dict[str, Any]]:
        """Tell that nothing has followed the last word for as long as the client wanted to wait."""
        channel, after_s = self._channels[number], self._options.utterance_end_s
        if after_s is None or channel.word_end_s is None or until_s - channel.word_end_s < after_s:
            return
        yield {"type": "UtteranceEnd", "channel": self._index(number), "last_word_end": channel.word_end_s}
        channel.word_end_s = None

    def _empty(self, number: int, end_s: float) -> dict[str, Any]:
        results = self._results(number, end_s, self._alternative(number, "", 0.0, []), is_final=True)
        self._channels[number].until_s = max(self._channels[number].until_s, end_s)
        return results

    def _alternative(
        self, number: int, transcript: str, confidence: float, words: list[dict[str, Any]]
    ) -> dict[str, Any]:
        alternative: dict[str, Any] = {"transcript": transcript, "confidence": confidence, "words": words}
        language = self._channels[number].language
        if self._options.is_multilingual and language:
            alternative["languages"] = [language]
        return alternative

    def _results(self, number: int, end_s: float, alternative: dict[str, Any], is_final: bool) -> dict[str, Any]:
        """From where the last final ended."""
        start_s = self._channels[number].until_s
        return {
            "type": "Results",
            "channel_index": self._index(number),
            "duration": round(max(end_s - start_s, 0.0), 3),
            "start": start_s,
            "is_final": is_final,
            "speech_final": False,
            "from_finalize": False,
            "channel": {"alternatives": [alternative]},
            "metadata": self._metadata,
        }

    def _index(self, number: int) -> list[int]:
        return [number, len(self._channels)]


def _unreadable(description: str, message: str) -> events.Reply:
    return _reply(type="Error", variant="SchemaError", description=description, message=message[:MAX_ECHO_CHARS])


def _reply(**message: object) -> events.Reply:
    return events.Reply(write_object(message))
