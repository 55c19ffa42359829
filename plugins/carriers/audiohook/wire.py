"""Genesys AudioHook, version 2: JSON messages with sequence numbers, and mu-law audio as binary messages.

Source: Genesys' documentation of AudioHook, "Protocol Reference" and "Session Walkthrough", and its reference
implementation.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tutti_server.app.dialects.call_streams.call_stream import CallStream
from tutti_server.app.dialects.call_streams.wire import (
    Call,
    CallSink,
    call_id,
    given,
    merged,
    own_parameters,
    parameters_in,
    start_command,
)
from tutti_server.app.dialects.checks import is_boolean, understood
from tutti_server.app.dialects.json_text import read_object, write_object
from tutti_server.app.errors import CLOSE_POLICY, BadMessage, BadStart, SessionError, WrongState
from tutti_server.app.languages import language_of
from tutti_server.app.live.dialect import ClientMessage
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.messages import commands, events
from tutti_server.plugins.carriers.audiohook.timeline import Timeline, read_duration
from tutti_server.plugins.carriers.audiohook.transcripts import Transcripts

VERSION = "2"
SAMPLE_RATE = 8000
NO_CONVERSATION = "00000000-0000-0000-0000-000000000000"
"""The id of the conversation of a probe, with which Genesys tests a connection. It sends no audio."""
CHANNELS = ("external", "internal")
"""The customer and the agent."""
PAUSE_ID = "pause"
"""The id of the flush at a pause: text before it does not go on after it."""
KNOWN = ("transcripts",)
"""Parameters that this dialect interprets."""
FORMAT = "PCMU"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """What is known of a client before its first message."""

    parameters: Mapping[str, str]
    """The parameters of the address."""
    organization: str | None
    """The id in the header `Audiohook-Organization-Id`, which the signature covers."""
    session: str | None
    """The id in the header `Audiohook-Session-Id`."""
    languages_of: Callable[[str | None], Sequence[str]]
    """The codes of the languages of the model with this name; raises `BadStart` if there is none."""


class AudioHook(CallStream):
    """Translates one session of AudioHook."""

    def __init__(self, sink: CallSink, client: Client) -> None:
        """Translate for one session; `sink` receives the events of the conversation."""
        super().__init__(sink)
        self._client = client
        self._messages = _Numbering(client.session)
        self._timeline = Timeline()
        self._transcripts: Transcripts | None = None
        self._sends_interims = False
        """Whether the client receives interims; subscribers do, unless `interim` is `false`.

        Genesys limits how many messages a server may send, so a client must ask for them.
        """
        self._opened: dict[str, Any] = {}
        """The parameters of `opened`."""
        self._start: commands.Start | None = None
        self._close_seq: int | None = None
        """The number of the client's `close`, which `closed` answers."""
        self._n_samples = 0
        """Samples of all channels that came. The session may hold some of them back until a pause."""

    def write(self, event: events.Event) -> Iterable[str]:
        """Publish the event, and write it for the client where AudioHook has a message for it."""
        if not isinstance(event, events.Flushed):
            # A flush is the dialect's own, at a pause.
            self._sink.publish(event)
        match event:
            case events.Started():
                return (self._messages.write("opened", self._opened),)
            case events.Failure(is_fatal=True):
                info = {"reason": "unauthorized" if event.code == "unauthorized" else "error", "info": event.message}
                return (self._messages.write("disconnect", info),)
            case events.Stopped():
                return (self._messages.write("closed", {}, self._close_seq),)
            case _:
                return self._texts(event)

    def leave(self) -> Iterable[ClientMessage]:
        """See `CallStream.leave`. The client's `close` is answered when everything is final."""
        if not self._is_stopped:
            self._close_seq = self._messages.client_seq
        return super().leave()

    def _texts(self, event: events.Event) -> Iterable[str]:
        if self._transcripts is None:
            return ()
        entity = None
        match event:
            case events.Interim() if self._sends_interims:
                entity = self._transcripts.interim(event)
            case events.Segment():
                entity = self._transcripts.final(event)
            case events.Utterance():
                self._transcripts.end(event)
        return (self._messages.write("event", {"entities": [entity]}),) if entity else ()

    def _audio(self, data: bytes) -> Iterable[ClientMessage]:
        if not self._has_started or self._is_stopped:
            raise WrongState("not_started", "audio: expected it between opened and close", CLOSE_POLICY)
        self._n_samples += len(data)
        return (commands.Audio(data),) if data else ()

    def _text(self, text: str) -> Iterable[ClientMessage]:
        kind, parameters = self._messages.read(text)
        seq = self._messages.client_seq
        items: Iterable[ClientMessage] = ()
        match kind:
            case "open":
                items = (self._open(parameters),)
            case "ping":
                items = (events.LateReply(lambda: (self._messages.write("pong", {}, seq),)),)
            case "error":
                items = (events.Notice("carrier_error", f"Genesys says: {str(parameters.get('message', ''))[:200]}"),)
            case _ if not self._has_started:
                raise WrongState("not_started", f"{kind[:40]}: expected open first", CLOSE_POLICY)
            case "close":
                items = self.leave()
            case "paused":
                items = () if self._is_stopped else (commands.Flush(PAUSE_ID),)
            case "discarded" | "resumed":
                start_s = read_duration("start", parameters.get("start"))
                gap_s = read_duration("discarded", parameters.get("discarded"))
                self._timeline.skip(self._received_s, start_s + gap_s)
            case "update":
                items = self._update(parameters, seq)
            case _:
                expected = "open, ping, update, paused, resumed, discarded, error or close"
                raise BadMessage("unknown_type", expected, kind)
        return items

    @property
    def _received_s(self) -> float:
        assert self._start
        return self._n_samples / self._start.audio.channels / SAMPLE_RATE

    def _open(self, parameters: Mapping[str, Any]) -> commands.Start:
        if self._has_started:
            raise WrongState("already_started", "open: the session is open already")
        organization = parameters.get("organizationId")
        if self._client.organization is not None and organization != self._client.organization:
            raise BadStart("organizationId", "that of the header Audiohook-Organization-Id", organization)
        conversation = call_id("conversationId", parameters.get("conversationId"))
        options = merged(_options(parameters), self._client.parameters)
        media = choose_media(parameters.get("media"))
        if conversation != NO_CONVERSATION:
            shown = own_parameters(merged(_participant(parameters), options), KNOWN)
            self._sink.begin(Call(conversation, self._messages.id, tuple(media["channels"]), shown))
        sends_transcripts = understood(given(options, "transcripts", "true"), is_boolean)
        if not is_boolean(sends_transcripts):
            raise BadStart("transcripts", "true or false", options["transcripts"])
        command = start_command(options, AudioFormat("mulaw", SAMPLE_RATE, len(media["channels"])))
        self._opened = {"media": [media], "startPaused": False}
        if parameters.get("supportedLanguages") is True:
            self._opened["supportedLanguages"] = list(self._client.languages_of(command.model))
        if sends_transcripts:
            self._transcripts = Transcripts(self._messages.id, media["channels"], self._timeline)
        self._sends_interims = bool(options.get("interim", "").strip()) and command.interim
        self._start = command
        self._has_started = True
        return command

    def _update(self, parameters: Mapping[str, Any], seq: int) -> Iterable[ClientMessage]:
        """Change the language for the utterances to come.

        Raises:
            BadMessage: the model does not know it. The session would refuse it too, but after `updated`.
        """
        assert self._start is not None
        language = parameters.get("language")
        if not isinstance(language, str) or not language:
            raise BadMessage("bad_message", "the code of a language as language", language)
        start = self._start
        known = self._client.languages_of(start.model)
        if (named := language_of(language, known)) is not None and named not in known:
            expected = f"one of the model's languages ({', '.join(known)}) as language"
            raise BadMessage("bad_message", expected, language)
        change = commands.Configure.of(replace(start, language=language, languages=(), locks_language=False))
        return (change, events.LateReply(lambda: (self._messages.write("updated", {}, seq),)))


class _Numbering:
    """The frame of all messages of a session: its id, and the sequence numbers of both sides."""

    def __init__(self, session: str | None) -> None:
        self.id = session or ""
        """The id of the session; empty until it is known."""
        self.client_seq = 0
        """The number of the last message of the client."""
        self._seq = 0

    def read(self, text: str) -> tuple[str, Mapping[str, Any]]:
        """The type and the parameters of a message. Raises a fatal `SessionError` for a wrong form, number or id."""
        try:
            fields = read_object(text)
        except BadMessage as error:
            raise SessionError(error.code, error.message, CLOSE_POLICY) from error
        kind, parameters = fields.get("type"), fields.get("parameters")
        if fields.get("version") != VERSION or not isinstance(kind, str) or not isinstance(parameters, dict):
            raise _out_of_form(f'a message of version "{VERSION}" with a type and parameters', text)
        if fields.get("seq") != self.client_seq + 1 or isinstance(fields["seq"], bool):
            raise _out_of_form(f"{self.client_seq + 1} as seq", fields.get("seq"))
        server_seq = fields.get("serverseq")
        if not isinstance(server_seq, int) or not 0 <= server_seq <= self._seq:
            raise _out_of_form(f"0 to {self._seq} as serverseq", server_seq)
        id_ = call_id("id", fields.get("id"))
        if self.id and id_ != self.id:
            raise _out_of_form(f"{self.id} as id", id_)
        self.id = id_
        self.client_seq += 1
        return kind, parameters

    def write(self, kind: str, parameters: Mapping[str, Any], client_seq: int | None = None) -> str:
        """Write the next message, to be sent before another is written. By default it answers the client's last."""
        self._seq += 1
        return write_object(
            {
                "version": VERSION,
                "type": kind,
                "seq": self._seq,
                "clientseq": self.client_seq if client_seq is None else client_seq,
                "id": self.id,
                "parameters": parameters,
            }
        )


def choose_media(offered: object) -> dict[str, Any]:
    """The format among those that a client offers that has most channels.

    Raises:
        BadStart: none of them is mu-law at 8 kHz.
    """
    usable: list[dict[str, Any]] = []
    for each in offered if isinstance(offered, list) else ():
        match each:
            case {"type": "audio", "format": str(name), "rate": rate, "channels": [*channels]} if (
                name == FORMAT and rate == SAMPLE_RATE and _are_channels(channels)
            ):
                usable.append({"type": "audio", "format": FORMAT, "channels": channels, "rate": SAMPLE_RATE})
    if not usable:
        raise BadStart("media", f"audio in {FORMAT} at {SAMPLE_RATE} Hz of {' and '.join(CHANNELS)}", offered)
    return max(usable, key=lambda media: len(media["channels"]))


def _are_channels(channels: Sequence[object]) -> bool:
    return bool(channels) and all(each in CHANNELS for each in channels) and len(set(channels)) == len(channels)


def _options(parameters: Mapping[str, Any]) -> dict[str, str]:
    """The options that a client sends in `open`: the language, and texts in the configuration of the integration."""
    language = parameters.get("language")
    named = {"language": language} if isinstance(language, str) else {}
    return merged(named, parameters_in("customConfig", parameters.get("customConfig") or {}))


def _participant(parameters: Mapping[str, Any]) -> dict[str, str]:
    participant = parameters.get("participant")
    if not isinstance(participant, dict):
        return {}
    return {
        name: value for name in ("ani", "aniName", "dnis") if isinstance(value := participant.get(name), str) and value
    }


def _out_of_form(expected: str, got: object) -> SessionError:
    error = BadMessage("bad_message", expected, got)
    return SessionError(error.code, error.message, CLOSE_POLICY)
