"""Twilio's media streams: the tracks of a call, as JSON messages with base64 audio.

Twilio ignores answers on this socket, so the events of a call go to a `Line` instead.
Source: Twilio's documentation, "Media Streams: WebSocket messages".
"""

import base64
import binascii
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, get_args

from app.dialects.json_text import read_object, write_object
from app.dialects.limits import MAX_PROMPT_CHARS, MAX_SILENCE_MS, MAX_TEXT_CHARS, MIN_SILENCE_MS
from app.dialects.twilio.track_sync import SAMPLE_RATE, TrackSync
from app.errors import CLOSE_POLICY, BadMessage, BadStart, SessionError, WrongState
from app.languages import LOCK
from app.live.dialect import ClientMessage
from app.media.pcm import AudioFormat
from app.session import commands, events
from app.session.effects import Close
from engine import api
from engine.api import MAX_HOTWORD_BYTES, MAX_HOTWORDS

START_TIMEOUT_S = 10.0
"""How long a connection may wait before its `start` message, which carries the key, in seconds."""
TASKS = get_args(api.Task)
TRACKS = ("inbound", "outbound")
"""The tracks of a call. The caller's comes first, whatever their order in `start`."""
MEDIA_FORMAT = {"encoding": "audio/x-mulaw", "sampleRate": SAMPLE_RATE, "channels": 1}
MAX_SID_CHARS = 100
MAX_TIMESTAMP_DIGITS = 15
OPTIONS = ("language", "languages", "task", "prompt", "hotwords", "words", "interim", "silence_ms")
"""Custom parameters that are options of the session. The server passes all others on to subscribers."""
TOKEN = "token"
"""The custom parameter that holds the API key."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call, as described when it begins."""

    sid: str
    stream_sid: str
    tracks: tuple[str, ...]
    """The tracks of the session's channels, in order."""
    parameters: dict[str, str]
    """The custom parameters, without options and key."""


class Line(Protocol):
    """Receives the events of one call. No method may block."""

    def begin(self, call: Call) -> None:
        """A call begins.

        Raises:
            SessionError: the call is refused.
        """
        ...

    def publish(self, event: events.Event | events.Reply) -> None:
        """Pass on an event of the call. An event before `begin` says why there is no call."""
        ...


class Twilio:
    """One stream of a call."""

    max_text_chars = MAX_TEXT_CHARS

    def __init__(self, line: Line) -> None:
        self._line = line
        self._is_connected = False
        self._tracks: TrackSync | None = None
        self._names: tuple[str, ...] = ()
        self._is_stopped = False
        self._has_reported_late_audio = False

    @property
    def idle_timeout_s(self) -> float | None:
        """A short time before `start`; after it, the operator's setting."""
        return START_TIMEOUT_S if self._tracks is None else None

    def open(self) -> Iterable[ClientMessage]:
        """Nothing: Twilio sends `connected` and `start` first."""
        return ()

    def read(self, message: str | bytes) -> Iterable[ClientMessage]:
        """Translate a message. Every error before `start` is fatal."""
        try:
            return self._read(message)
        except SessionError as error:
            if self._tracks is None and not error.is_fatal:
                # Without this, a client without a key could hold a session for ever by sending bad messages.
                raise SessionError(error.code, error.message, CLOSE_POLICY) from error
            raise

    def write(self, event: events.Event) -> Iterable[str]:
        """Publish the event on the line. Nothing goes to Twilio itself."""
        self._line.publish(event)
        return ()

    def audio_received(self, until_s: float) -> Iterable[events.Reply]:
        """Nothing: this dialect never answers."""
        return ()

    def close(self, close: Close) -> Close:
        """The session's own close code and reason."""
        return close

    def leave(self) -> Iterable[ClientMessage]:
        """End the stream: all audio up to here becomes final. Also called when Twilio disconnects without `stop`."""
        if self._tracks is None or self._is_stopped:
            return ()
        self._is_stopped = True
        return (*_audio(self._tracks.finish()), commands.Stop())

    def _read(self, message: str | bytes) -> Iterable[ClientMessage]:
        if isinstance(message, bytes):
            raise BadMessage("bad_message", "messages of text", message[:20])
        fields = read_object(message)
        items: Iterable[ClientMessage] = ()
        match fields.get("event"):
            case "connected":
                self._connect(fields)
            case "start":
                items = (self._start(_object(fields, "start")),)
            case "media":
                items = self._media(_object(fields, "media"))
            case "dtmf":
                dtmf = _object(fields, "dtmf")
                track = str(dtmf.get("track", "")).removesuffix("_track")
                self._pass_on({"type": "dtmf", "digit": dtmf.get("digit"), "track": track})
            case "mark":
                self._pass_on({"type": "mark", "name": _object(fields, "mark").get("name")})
            case "stop":
                items = self.leave()
            case other:
                raise BadMessage("unknown_type", "an event of connected, start, media, dtmf, mark or stop", other)
        return items

    def _connect(self, fields: dict[str, Any]) -> None:
        if self._is_connected:
            raise WrongState("already_connected", "connected: expected one such message, got another")
        if fields.get("protocol") not in (None, "Call"):
            raise BadStart("protocol", "Call", fields.get("protocol"))
        self._is_connected = True

    def _start(self, start: dict[str, Any]) -> commands.Start:
        if self._tracks is not None:
            raise WrongState("already_started", "start: the call has started already")
        names = start.get("tracks")
        if not isinstance(names, list) or not names or any(name not in TRACKS for name in names):
            raise BadStart("tracks", f"a list of {' and '.join(TRACKS)}", names)
        parameters = start.get("customParameters") or {}
        if not isinstance(parameters, dict) or not all(isinstance(value, str) for value in parameters.values()):
            raise BadStart("customParameters", "an object with values of text", parameters)
        self._names = tuple(name for name in TRACKS if name in names)
        own = {name: value for name, value in parameters.items() if name not in (*OPTIONS, TOKEN)}
        call = Call(_sid(start, "callSid"), _sid(start, "streamSid"), self._names, own)
        self._line.begin(call)
        media_format = start.get("mediaFormat")
        if not isinstance(media_format, dict) or not MEDIA_FORMAT.items() <= media_format.items():
            raise BadStart("mediaFormat", str(MEDIA_FORMAT), media_format)
        command = _start_command(parameters, len(self._names))
        self._tracks = TrackSync(self._names)
        return command

    def _media(self, media: dict[str, Any]) -> Iterable[ClientMessage]:
        if self._tracks is None:
            raise WrongState("not_started", "media: expected start first", CLOSE_POLICY)
        if self._is_stopped:
            raise WrongState("audio_after_stop", "media: expected no audio after stop")
        # A call with one track need not name it.
        name = media.get("track", self._names[0])
        if name not in self._names:
            raise BadMessage("bad_message", f"{' or '.join(self._names)} as media.track", name)
        payload = media.get("payload")
        start_ms = _timestamp(media)
        try:
            data = base64.b64decode(payload if isinstance(payload, str) else "?", validate=True)
        except (binascii.Error, ValueError):
            raise BadMessage("bad_message", "base64 as media.payload", payload) from None
        return (*_audio(self._tracks.add(name, start_ms, data)), *self._late_audio(self._tracks))

    def _late_audio(self, tracks: TrackSync) -> Iterable[ClientMessage]:
        """A notice about the first chunk that came too late."""
        if not tracks.n_late_samples or self._has_reported_late_audio:
            return ()
        self._has_reported_late_audio = True
        message = "media: a chunk arrived after silence was used in its place; it is dropped, and others may be"
        return (events.Notice("late_audio", message),)

    def _pass_on(self, message: dict[str, Any]) -> None:
        """Publish something that happened on the call, which is no event of the session."""
        if self._tracks is None:
            raise WrongState("not_started", f"{message['type']}: expected start first", CLOSE_POLICY)
        self._line.publish(events.Reply(write_object(message)))


def shown_key(message: str | bytes) -> str | None:
    """The key in the first messages of a stream: `None` in `connected`, empty in a `start` without a key.

    Raises:
        BadMessage: it is neither of these messages.
    """
    fields = read_object(message) if isinstance(message, str) and len(message) <= MAX_TEXT_CHARS else {}
    match fields:
        case {"event": "connected"}:
            return None
        case {"event": "start", "start": {"customParameters": {"token": str(token)}}}:
            return token
        case {"event": "start"}:
            return ""
        case _:
            raise BadMessage("bad_message", "connected or start", message[:20])


def _start_command(parameters: dict[str, str], n_channels: int) -> commands.Start:
    """The session's start, with the options in the custom parameters."""
    default = commands.Start()

    def option(name: str, expected: str, is_valid: Callable[[str], bool], default: str) -> str:
        value = parameters.get(name, default)
        if name in parameters and not is_valid(value):
            raise BadStart(name, expected, value)
        return value

    def boolean(name: str, default: bool) -> bool:
        return option(name, "true or false", lambda value: value in ("true", "false"), str(default).lower()) == "true"

    hotwords = tuple(word for each in parameters.get("hotwords", "").split(",") if (word := each.strip()))
    if len(hotwords) > MAX_HOTWORDS or any(len(word.encode()) > MAX_HOTWORD_BYTES for word in hotwords):
        expected = f"at most {MAX_HOTWORDS} of at most {MAX_HOTWORD_BYTES} bytes, separated by commas"
        raise BadStart("hotwords", expected, parameters["hotwords"])
    silence_expected = f"a whole number from {MIN_SILENCE_MS} to {MAX_SILENCE_MS}"
    prompt_expected = f"at most {MAX_PROMPT_CHARS} characters"
    language = parameters.get("language") or None
    task = option("task", " or ".join(TASKS), TASKS.__contains__, default.task)
    return commands.Start(
        audio=AudioFormat("mulaw", SAMPLE_RATE, n_channels),
        language=None if language == LOCK else language,
        languages=tuple(each.strip() for each in parameters.get("languages", "").split(",") if each.strip()),
        locks_language=language == LOCK,
        task="translate" if task == "translate" else "transcribe",
        interim=boolean("interim", default.interim),
        endpointing=commands.Endpointing(
            silence_ms=int(option("silence_ms", silence_expected, _is_silence_ms, str(default.endpointing.silence_ms)))
        ),
        prompt=option("prompt", prompt_expected, lambda value: len(value) <= MAX_PROMPT_CHARS, ""),
        hotwords=hotwords,
        words=boolean("words", default.words),
    )


def _is_silence_ms(value: str) -> bool:
    return value.isdecimal() and len(value) <= 4 and MIN_SILENCE_MS <= int(value) <= MAX_SILENCE_MS


def _timestamp(media: dict[str, Any]) -> int:
    """The time at which a chunk begins, in milliseconds since the start of the call."""
    timestamp = media.get("timestamp")
    # The number of digits is limited, because parsing a very long number is slow.
    if (
        not isinstance(timestamp, str | int)
        or not (digits := str(timestamp)).isdecimal()
        or len(digits) > MAX_TIMESTAMP_DIGITS
    ):
        raise BadMessage("bad_message", "milliseconds since the start as media.timestamp", timestamp)
    return int(digits)


def _audio(data: bytes) -> Iterable[ClientMessage]:
    return (commands.Audio(data),) if data else ()


def _object(fields: dict[str, Any], name: str) -> dict[str, Any]:
    value = fields.get(name)
    if not isinstance(value, dict):
        raise BadMessage("bad_message", f"an object as {name}", value)
    return value


def _sid(start: dict[str, Any], name: str) -> str:
    sid = start.get(name)
    # They stand in lines of the log, of which a client must not make two.
    if not isinstance(sid, str) or not 0 < len(sid) <= MAX_SID_CHARS or not (sid.isascii() and sid.isprintable()):
        raise BadStart(name, f"1 to {MAX_SID_CHARS} printable ASCII characters", sid)
    return sid
