"""Twilio's media streams: a call's tracks as JSON messages with base64. Nobody reads answers on that socket.

What is said of the call goes to a `Line` instead. Source: Twilio's documentation, "Media Streams: WebSocket messages".
"""

import base64
import binascii
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from app.dialects.json_text import read_object, write_object
from app.dialects.native.wire import MAX_PROMPT_CHARS, TASKS
from app.dialects.twilio.track_sync import SAMPLE_RATE, TrackSync
from app.errors import CLOSE_POLICY, BadMessage, BadStart, SessionError, WrongState
from app.live.dialect import Read
from app.media.pcm import AudioFormat
from app.session import commands, events
from app.session.effects import Close
from engine.api import MAX_HOTWORD_BYTES, MAX_HOTWORDS

# From the connection to the start of the call, which brings the key.
START_TIMEOUT_S = 10.0
MAX_TEXT_CHARS = 65_536
TRACKS = ("inbound", "outbound")
MEDIA_FORMAT = {"encoding": "audio/x-mulaw", "sampleRate": SAMPLE_RATE, "channels": 1}
MAX_SID_CHARS = 100
# Parameters that say how the call is to be heard; all others are the caller's own, and are passed on.
OPTIONS = ("language", "task", "prompt", "hotwords", "words", "interim", "silence_ms")
TOKEN = "token"


@dataclass(frozen=True, slots=True)
class Call:
    """What is known of a call when it begins."""

    sid: str
    stream_sid: str
    tracks: tuple[str, ...]
    """Those of its channels, in order."""
    parameters: dict[str, str]
    """The caller's own."""


class Line(Protocol):
    """Where that is told which is said of a call. Nothing here may wait."""

    def begin(self, call: Call, token: str | None) -> None:
        """A call begins, whose stream showed this key or none.

        Raises:
            SessionError: it is not taken.
        """
        ...

    def say(self, said: events.Event | events.Reply) -> None:
        """Something is said of the call; before `begin` it is why there is none."""
        ...


class Twilio:
    """One stream of a call. `leave` says what follows from its end if nobody has said so."""

    max_text_chars = MAX_TEXT_CHARS

    def __init__(self, line: Line) -> None:
        self._line = line
        self._is_connected = False
        self._tracks: TrackSync | None = None
        self._names: tuple[str, ...] = ()
        self._is_stopped = False
        self._told_of_late = False

    @property
    def idle_timeout_s(self) -> float | None:
        return START_TIMEOUT_S if self._tracks is None else None

    def open(self) -> Iterable[Read]:
        return ()

    def read(self, message: str | bytes) -> Iterable[Read]:
        try:
            return self._read(message)
        except SessionError as error:
            if self._tracks is None and not error.is_fatal:
                # Who has shown no key could keep a place for ever with messages that say nothing.
                raise SessionError(error.code, error.message, CLOSE_POLICY) from error
            raise

    def _read(self, message: str | bytes) -> Iterable[Read]:
        if isinstance(message, bytes):
            raise BadMessage("bad_message", "messages of text", message[:20])
        fields = read_object(message)
        match fields.get("event"):
            case "connected":
                return self._connected(fields)
            case "start":
                return (self._start(_object(fields, "start")),)
            case "media":
                return self._media(_object(fields, "media"))
            case "dtmf":
                dtmf = _object(fields, "dtmf")
                track = str(dtmf.get("track", "")).removesuffix("_track")
                return self._pass_on({"type": "dtmf", "digit": dtmf.get("digit"), "track": track})
            case "mark":
                return self._pass_on({"type": "mark", "name": _object(fields, "mark").get("name")})
            case "stop":
                return self.leave()
            case other:
                raise BadMessage("unknown_type", "an event of connected, start, media, dtmf, mark or stop", other)

    def write(self, event: events.Event) -> Iterable[str]:
        self._line.say(event)
        return ()

    def heard(self, until_s: float) -> Iterable[events.Reply]:
        return ()

    def close(self, close: Close) -> Close:
        return close

    def leave(self) -> Iterable[Read]:
        """No more audio comes; what was heard is to be made final."""
        if self._tracks is None or self._is_stopped:
            return ()
        self._is_stopped = True
        return (*_audio(self._tracks.finish()), commands.Stop())

    def _connected(self, fields: dict[str, Any]) -> Iterable[Read]:
        if self._is_connected:
            raise WrongState("already_connected", "connected: it has been said already")
        if fields.get("protocol") not in (None, "Call"):
            raise BadStart("protocol", "Call", fields.get("protocol"))
        self._is_connected = True
        return ()

    def _start(self, start: dict[str, Any]) -> commands.Start:
        if self._tracks is not None:
            raise WrongState("already_started", "start: the call has started already")
        names = start.get("tracks")
        if not isinstance(names, list) or not names or any(name not in TRACKS for name in names):
            raise BadStart("tracks", f"a list of {' and '.join(TRACKS)}", names)
        parameters = start.get("customParameters") or {}
        if not isinstance(parameters, dict) or not all(isinstance(value, str) for value in parameters.values()):
            raise BadStart("customParameters", "an object with values of text", parameters)
        # The one who called comes first, whatever their order.
        self._names = tuple(name for name in TRACKS if name in names)
        own = {name: value for name, value in parameters.items() if name not in (*OPTIONS, TOKEN)}
        call = Call(_sid(start, "callSid"), _sid(start, "streamSid"), self._names, own)
        self._line.begin(call, parameters.get(TOKEN))
        media_format = start.get("mediaFormat")
        if not isinstance(media_format, dict) or not MEDIA_FORMAT.items() <= media_format.items():
            raise BadStart("mediaFormat", str(MEDIA_FORMAT), media_format)
        options = _options(parameters, len(self._names))
        self._tracks = TrackSync(self._names)
        return options

    def _media(self, media: dict[str, Any]) -> Iterable[Read]:
        if self._tracks is None:
            raise WrongState("not_started", "media: expected start first", CLOSE_POLICY)
        if self._is_stopped:
            raise WrongState("audio_after_stop", "media: nothing is taken after stop")
        # With one track only, the message need not say which.
        name = media.get("track", self._names[0])
        if name not in self._names:
            raise BadMessage("bad_message", f"{' or '.join(self._names)} as media.track", name)
        timestamp = media.get("timestamp")
        # Of at most 15 digits, so that no number is too long to read.
        if not isinstance(timestamp, str | int) or not (digits := str(timestamp)).isdecimal() or len(digits) > 15:
            raise BadMessage("bad_message", "milliseconds since the start as media.timestamp", timestamp)
        payload = media.get("payload")
        try:
            data = base64.b64decode(payload if isinstance(payload, str) else "?", validate=True)
        except (binascii.Error, ValueError):
            raise BadMessage("bad_message", "base64 as media.payload", payload) from None
        return (*_audio(self._tracks.add(name, int(digits), data)), *self._late())

    def _late(self) -> Iterable[Read]:
        assert self._tracks
        if not self._tracks.n_late_samples or self._told_of_late:
            return ()
        self._told_of_late = True
        message = "media: a chunk came after its place had been taken for silence, and is left out; others may follow"
        return (events.Notice("late_audio", message),)

    def _pass_on(self, said: dict[str, Any]) -> Iterable[Read]:
        if self._tracks is None:
            raise WrongState("not_started", f"{said['type']}: expected start first", CLOSE_POLICY)
        self._line.say(events.Reply(write_object(said)))
        return ()


def _options(parameters: dict[str, str], n_channels: int) -> commands.Start:
    default = commands.Start()

    def take(name: str, expected: str, is_valid: Callable[[str], bool], default: str) -> str:
        value = parameters.get(name, default)
        if name in parameters and not is_valid(value):
            raise BadStart(name, expected, value)
        return value

    def boolean(name: str, default: bool) -> bool:
        return take(name, "true or false", lambda value: value in ("true", "false"), str(default).lower()) == "true"

    hotwords = tuple(word for each in parameters.get("hotwords", "").split(",") if (word := each.strip()))
    if len(hotwords) > MAX_HOTWORDS or any(len(word.encode()) > MAX_HOTWORD_BYTES for word in hotwords):
        expected = f"at most {MAX_HOTWORDS} of at most {MAX_HOTWORD_BYTES} bytes, separated by commas"
        raise BadStart("hotwords", expected, parameters["hotwords"])
    silence_ms = str(default.endpointing.silence_ms)
    task = take("task", " or ".join(TASKS), TASKS.__contains__, default.task)
    return commands.Start(
        audio=AudioFormat("mulaw", SAMPLE_RATE, n_channels),
        language=parameters.get("language") or None,
        task="translate" if task == "translate" else "transcribe",
        interim=boolean("interim", default.interim),
        endpointing=commands.Endpointing(
            silence_ms=int(take("silence_ms", "a whole number from 100 to 5000", _is_silence_ms, silence_ms))
        ),
        prompt=take(
            "prompt", f"at most {MAX_PROMPT_CHARS} characters", lambda value: len(value) <= MAX_PROMPT_CHARS, ""
        ),
        hotwords=hotwords,
        words=boolean("words", default.words),
    )


def _is_silence_ms(value: str) -> bool:
    return value.isdecimal() and len(value) <= 4 and 100 <= int(value) <= 5000


def _audio(data: bytes) -> Iterable[Read]:
    return (commands.Audio(data),) if data else ()


def _object(fields: dict[str, Any], name: str) -> dict[str, Any]:
    value = fields.get(name)
    if not isinstance(value, dict):
        raise BadMessage("bad_message", f"an object as {name}", value)
    return value


def _sid(start: dict[str, Any], name: str) -> str:
    sid = start.get(name)
    if not isinstance(sid, str) or not 0 < len(sid) <= MAX_SID_CHARS:
        raise BadStart(name, f"text of 1 to {MAX_SID_CHARS} characters", sid)
    return sid
