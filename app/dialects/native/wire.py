"""The native protocol, `tutti.v1`: JSON text to commands, events to JSON text. See docs/protocol.md."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from tutti import messages as v1
from tutti.fields import (
    Field,
    Write,
    Wrong,
    each_by,
    is_message,
    item_of,
    length_of,
    message_fields,
    reader_of,
    writer_from,
)
from tutti_server.app.dialects.checks import HOTWORDS_EXPECTED, are_hotwords, understood
from tutti_server.app.dialects.json_text import read_object, write_object
from tutti_server.app.dialects.limits import MAX_NAME_CHARS, MAX_NOTICES, MAX_SPEAKERS, MAX_TEXT_CHARS
from tutti_server.app.dialects.speaker_names import letters
from tutti_server.app.dialects.text_rules import parse_text_rules
from tutti_server.app.errors import BadMessage, BadStart, SessionError
from tutti_server.app.languages import LOCK
from tutti_server.app.live.dialect import ClientMessage, Preparation, QuietDialect
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.messages import commands, events

T = TypeVar("T")

SUBPROTOCOL = "tutti.v1"

EAGER_CONFIDENCE = 0.4
"""With `turns`, a pause is reported from this confidence on that the speaker has finished, unless the client names one.

Low enough that most turns are reported before they end. The client learns it when the speaker goes on after all.
"""
TURN_OPTIONS = ("min_silence_ms", "max_silence_ms", "end_confidence")
"""The options of endpointing that have an effect in mode adaptive only."""


class Publisher(Protocol):
    """Publishes the session of one connection in a room."""

    async def open(self, start: commands.Start) -> None:
        """Open the room that the client wants.

        Raises:
            SessionError: the client may not, the room belongs to another owner, or there is no room for one more.
        """
        ...

    def begin(self) -> dict[str, str] | None:
        """Publish what comes from now on. Returns the fields of `started.room`; `None` if no room is open."""
        ...

    def publish(self, event: events.Event, message: str) -> None:
        """Publish an event, which the client is sent as this message, if a room is open."""
        ...

    def notices(self) -> Iterable[events.Notice]:
        """What the client must know of its room now. Each notice is returned once."""
        ...


class Native(QuietDialect):
    """The native protocol on one connection."""

    idle_timeout_s = None
    max_text_chars = MAX_TEXT_CHARS

    def __init__(self, publisher: Publisher) -> None:
        """Begin without `turn` messages; the client asks for them in `start`."""
        self._publisher = publisher
        self._sends_turns: bool | None = None
        """Whether the client asked for `turn` messages; `None` before its `start`."""
        self._channel_names: tuple[str, ...] = ()
        self._early: tuple[events.Notice, ...] = ()
        """Notices about messages before `start`. They come with `started`, which is the first event."""

    def read(self, message: str | bytes) -> Iterable[ClientMessage]:
        """A binary message is audio; a text message is a command, preceded by notices about ignored keys."""
        if isinstance(message, bytes):
            return (commands.Audio(message),)
        command, notices = decode(message)
        if self._sends_turns is not None:
            return (*notices, command)
        if not isinstance(command, commands.Start):
            self._early = (*self._early, *notices)[:MAX_NOTICES]
            return (command,)
        command = replace(command, notices=(*self._early, *command.notices)[:MAX_NOTICES])
        self._sends_turns = command.endpointing.eager_confidence is not None
        self._channel_names = command.channel_names
        opening = [Preparation(partial(self._publisher.open, command))] if command.room else []
        return (*opening, command)

    def write(self, event: events.Event) -> Iterable[str]:
        """One message for each event; those about turns have one only if the client asked for them."""
        if isinstance(event, TurnEvent) and self._sends_turns:
            return (write_object(v1.event_to_wire(_turn(event))),)
        if isinstance(event, events.Started) and (room := self._publisher.begin()) is not None:
            return (write_object(_WRITERS[events.Started](event) | {"room": room}),)
        written = messages(event, self._channel_names)
        for message in written:
            self._publisher.publish(event, message)
        return written

    def audio_received(self, until_s: float) -> Iterable[events.Reply]:
        """What the client of a room must know of it: while it speaks, it learns that within a moment."""
        return [events.Reply(text) for notice in self._publisher.notices() for text in messages(notice)]


TurnEvent = events.EagerEnd | events.SpeechResumed | events.Endpoint
"""The events that become `turn` messages."""


def messages(
    event: events.Event | events.Reply | events.LateReply, channel_names: Sequence[str] = ()
) -> tuple[str, ...]:
    """An event as text messages: one, or none for what a client must ask for. A dialect makes its replies itself.

    `channel_names` are those of the channels, if they have any: text then names its speaker.
    """
    match event:
        case events.Endpoint() | events.EagerEnd() | events.SpeechResumed():
            return ()
        case events.Reply(text):
            return (text,)
        case events.LateReply(make):
            return tuple(make())
        case _:
            return (encode(event, channel_names),)


# Client messages.


def decode(text: str) -> tuple[commands.Command, tuple[events.Notice, ...]]:
    """Parse a text message into a command, and notices about the keys that were ignored.

    Raises:
        BadMessage: the message cannot be parsed.
        BadStart: the message is a `start` with a wrong value.
    """
    message = read_object(text)
    match message.pop("type", None):
        case "start":
            return _start(message), ()
        case "flush":
            fields = _Fields(message, "flush", _bad_field)
            return commands.Flush(fields.read(v1.Flush).id), fields.unknown()
        case "keepalive":
            return commands.Keepalive(), _Fields(message, "keepalive", _bad_field).unknown()
        case "stop":
            return commands.Stop(), _Fields(message, "stop", _bad_field).unknown()
        case other:
            raise BadMessage("unknown_type", "a type of start, flush, keepalive or stop", other)


def _start(message: dict[str, Any]) -> commands.Start:
    fields = _Fields(message, "", BadStart)
    text_rules = parse_text_rules(fields.object("text_rules"), BadStart)
    start = fields.read(v1.Start)
    audio_format = AudioFormat(**_given(start.audio))
    endpointing, notices = _endpointing(start.endpointing or v1.Endpointing(), bool(start.turns))
    hotwords = list(start.hotwords or ())
    if not are_hotwords(hotwords):
        raise BadStart("hotwords", HOTWORDS_EXPECTED, hotwords)
    return commands.Start(
        audio=audio_format,
        language=None if start.language == LOCK else start.language,
        locks_language=start.language == LOCK,
        endpointing=endpointing,
        hotwords=tuple(hotword.strip() for hotword in hotwords),
        resume=_resume(start.resume),
        room=_room(start.room),
        max_speakers=None if start.speakers is None else start.speakers.max or MAX_SPEAKERS,
        channel_names=_channel_names(start, audio_format.channels),
        text_rules=text_rules,
        notices=(*notices, *fields.unknown()),
        **_given(start, *"model languages translate task interim prompt beam_size words interim_words resumes".split()),
    )


def _given(message: Any, *names: str) -> dict[str, Any]:
    """The fields that the client has sent, or those of them that are named. The server has defaults for the others."""
    if message is None:
        return {}
    names = names or tuple(each.name for each in fields(message))
    return {name: value for name in names if (value := getattr(message, name)) is not None}


def _endpointing(sent: v1.Endpointing, wants_turns: bool) -> tuple[commands.Endpointing, tuple[events.Notice, ...]]:
    """The endpointing of a `start`, and notices about options that have no effect."""
    given = _given(sent)
    # A client that chooses a silence and no mode means a silence that is always the same.
    usual = commands.Endpointing().mode if given.keys() & {"silence_ms", *TURN_OPTIONS} else None
    given["mode"] = mode = given.get("mode", usual)
    notices = _without_effect(given, mode, wants_turns)
    given["eager_confidence"] = given.get("eager_confidence", EAGER_CONFIDENCE) if wants_turns else None
    endpointing = commands.Endpointing(**given)
    if mode == "adaptive" and endpointing.min_silence_ms > endpointing.max_silence_ms:
        expected = f"at most max_silence_ms, {endpointing.max_silence_ms}"
        raise BadStart("endpointing.min_silence_ms", expected, endpointing.min_silence_ms)
    return endpointing, notices


def _without_effect(given: dict[str, Any], mode: str | None, wants_turns: bool) -> tuple[events.Notice, ...]:
    reasons: dict[str, str] = {}
    if mode == "manual":
        silences = ("silence_ms", "min_utterance_s", "eager_confidence")
        reasons |= dict.fromkeys(silences, "in mode manual, where silence ends no utterance")
        reasons["padding_ms"] = "in mode manual, where an utterance begins with the first audio"
    if mode != "adaptive":
        reasons |= dict.fromkeys(TURN_OPTIONS, f"in mode {mode}; it belongs to mode adaptive")
    if not wants_turns:
        reasons["eager_confidence"] = "without turns"
    message = "endpointing.{}: has no effect {}"
    return tuple(
        events.Notice("no_effect", message.format(name, why)) for name, why in reasons.items() if name in given
    )


def _resume(resume: v1.Resume | None) -> commands.Resume | None:
    if resume is None:
        return None
    from_s, language = resume.from_s, resume.language
    return commands.Resume(
        from_s if isinstance(from_s, tuple) else (from_s,),
        language=language if isinstance(language, tuple) else (language,) if language else (),
        untranslated=tuple(map(_untranslated, resume.untranslated or ())),
        **_given(resume, "prompt", "audio_from_s", "detector_from_s", "voices"),
    )


def _untranslated(text: v1.Untranslated) -> commands.Untranslated:
    targets = tuple(dict.fromkeys(text.targets))
    return commands.Untranslated(**{"language": None} | _given(text) | {"targets": targets})


def _room(room: v1.Room | None) -> commands.RoomRequest | None:
    if room is None:
        return None
    if room.token and not room.name:
        raise BadStart("room.name", "the name of the room beside its token", None)
    return commands.RoomRequest(**_given(room))


def _channel_names(start: v1.Start, n_channels: int) -> tuple[str, ...]:
    names = start.channel_names or ()
    if names and (len(names) != n_channels or len(set(names)) != n_channels):
        raise BadStart("channel_names", f"a list of {n_channels} that differ, one for each channel", list(names))
    if names and start.speakers is not None:
        raise BadStart("channel_names", "none with speakers", list(names))
    return names


def _bad_field(field: str, expected: str, got: object) -> BadMessage:
    return BadMessage("bad_message", f"{expected} as {field}", got)


class _Fields:
    """A JSON object whose known keys are taken one by one. The keys that remain at the end are unknown."""

    def __init__(self, values: dict[str, Any], path: str, error: Callable[[str, str, object], SessionError]) -> None:
        self._values = dict(values)
        self._path = path
        self._error = error
        self._nested: list[_Fields] = []

    def object(self, key: str) -> dict[str, Any]:
        """Take a key whose value is an object and return it; an empty object if it is absent or an empty text."""
        value = self._values.pop(key, "")
        return {} if value == "" else self._object(self._name(key), value)

    def read(self, kind: type[T]) -> T:
        """Read a message, or an object in one. An absent field has its default."""
        message: type = kind
        found: dict[str, Any] = {}
        for field in message_fields(message):
            if field.name in self._values:
                value = self._values.pop(field.name)
                if value is not None or not field.takes_null:
                    found |= self._read(field, value)
            elif field.is_required:
                raise self._error(self._name(field.name), reader_of(field.hint).expected, None)
        return kind(**found)

    def _read(self, field: Field, value: Any) -> dict[str, Any]:
        """The value of a field by its name. A text may spell a boolean or a number, and an empty one no value."""
        name, reader, item = self._name(field.name), reader_of(field.hint), item_of(field.hint)
        if is_message(field.hint):
            if value == "" and not field.is_required:
                return {}
            return {field.name: self._nest(name, value).read(field.hint)}
        if is_message(item):
            length = length_of(field.hint)
            if not isinstance(value, list) or len(value) > length.most:
                raise self._error(name, f"a list {length} objects", value)
            nested = (self._nest(f"{name}[{index}]", each) for index, each in enumerate(value))
            return {field.name: tuple(each.read(item) for each in nested)}
        value = understood(value, reader.takes)
        if value == "" and not field.is_required and not reader.takes(value):
            return {}
        try:
            return {field.name: reader.read(value)}
        except Wrong as wrong:
            raise self._error(name + wrong.path, wrong.expected, wrong.value) from None

    def _nest(self, name: str, value: Any) -> "_Fields":
        nested = _Fields(self._object(name, value), name, self._error)
        self._nested.append(nested)
        return nested

    def _object(self, name: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._error(name, "an object", value)
        return value

    def unknown(self) -> tuple[events.Notice, ...]:
        """A notice for each key that was not taken, here and in nested objects."""
        names = [self._name(key) for key in self._values]
        own = [events.Notice("unknown_key", f"{name[:MAX_NAME_CHARS]}: unknown key; ignored") for name in names]
        return (*own, *(notice for nested in self._nested for notice in nested.unknown()))[:MAX_NOTICES]

    def _name(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key


# Server messages.


_WORD = writer_from(v1.Word, events.Word, word="text", speaker=letters)
_SPAN = writer_from(v1.SpeakerSpan, events.SpeakerSpan, speaker=letters)
_WRITERS: dict[type, Write] = {
    events.Started: writer_from(v1.Started, events.Started, warnings="notices", room=None),
    events.SpeechStarted: writer_from(v1.SpeechStarted, events.SpeechStarted),
    events.Interim: writer_from(v1.Interim, events.Interim, stable_words=each_by(_WORD), speaker=None),
    events.Segment: writer_from(v1.Segment, events.Segment, words=each_by(_WORD), speaker=letters),
    events.Utterance: writer_from(v1.Utterance, events.Utterance, speaker=None),
    events.Translation: writer_from(v1.Translation, events.Translation, earlier="is_earlier"),
    events.Speakers: writer_from(v1.Speakers, events.Speakers, spans=each_by(_SPAN)),
    events.Flushed: writer_from(v1.Flushed, events.Flushed),
    events.Lag: writer_from(v1.Lag, events.Lag),
    events.Notice: writer_from(v1.ServerWarning, events.Notice),
    events.Failure: writer_from(v1.ErrorEvent, events.Failure, fatal="is_fatal"),
    events.Stopped: writer_from(v1.Stopped, events.Stopped),
}
"""Writes the message of each event, whose fields are those of the classes of `tutti.messages`."""


def encode(event: events.Event, channel_names: Sequence[str] = ()) -> str:
    """Write an event that is not about turns as a text message; `channel_names` as for `messages`."""
    message = _WRITERS[type(event)](event)
    if channel_names and isinstance(event, events.Interim | events.Segment | events.Utterance):
        message["speaker"] = channel_names[event.channel]
    return write_object(message)


def _turn(event: TurnEvent) -> v1.Turn:
    """What is known about the end of a turn; `confidence` and `text` are None where there is none."""
    turn = partial(v1.Turn, utterance=event.utterance, channel=event.channel, confidence=None, text=None)
    match event:
        case events.EagerEnd(at_s=at_s, confidence=confidence, text=text):
            return turn(event="eager_end", at_s=at_s, confidence=confidence, text=text)
        case events.SpeechResumed(at_s=at_s):
            return turn(event="resumed", at_s=at_s)
        case events.Endpoint(end_s=at_s, confidence=end_confidence):
            return turn(event="end", at_s=at_s, confidence=end_confidence)
