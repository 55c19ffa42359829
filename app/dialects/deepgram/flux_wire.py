"""Deepgram's Flux, `/v2/listen`: its messages to commands, events to messages. See docs/compatibility.md.

Sources: deepgram/deepgram-api-specs, `asyncapi.yml`; deepgram-sdk 7.17 (`listen/v2`), which knows the newer messages
`ForceEndTurn` and `Warning`; and Deepgram's description of the turn's states.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, assert_never

from tutti_server.app.dialects.deepgram.flux_options import FluxOptions, configured
from tutti_server.app.dialects.deepgram.flux_turns import Turns
from tutti_server.app.dialects.json_text import read_object, write_object
from tutti_server.app.dialects.limits import MAX_NAME_CHARS, MAX_NOTICES, MAX_TEXT_CHARS
from tutti_server.app.errors import CLOSE_POLICY, BadMessage, BadStart, SessionError, shorten
from tutti_server.app.live.dialect import ClientMessage, QuietDialect
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.messages import commands, events
from tutti_server.engine.api import MAX_HOTWORD_BYTES, MAX_HOTWORDS, SAMPLE_RATE

UPDATE_S = 0.25
"""Audio without news of a turn after which its state is sent again, in seconds, as Deepgram documents it."""
TYPES = "CloseStream, Configure or ForceEndTurn"
CONFIGURE_KEYS = {"type", "thresholds", "keyterms", "language_hints", "numerals", "profanity_filter"}
UNPARSABLE = "UNPARSABLE_CLIENT_MESSAGE"
"""Deepgram's code for a message that it does not know. It ends the stream."""
OUR_FAULT = "INTERNAL_SERVER_ERROR"
"""Deepgram's code for a fault of the server."""
OUR_FAULTS = ("engine_failed", "engine_stalled", "internal_error")


class Flux(QuietDialect):
    """Translates one connection of Flux.

    Every message has a number. Messages are numbered when they are sent, so an answer to the client waits for its turn.
    """

    idle_timeout_s = None
    max_text_chars = MAX_TEXT_CHARS

    def __init__(self, options: FluxOptions, request_id: str) -> None:
        self._options = options
        """The options of the last message that was read. Those of `_turns` are in force for what is sent."""
        self._request_id = request_id
        self._audio = options.audio or AudioFormat("pcm_f32le", SAMPLE_RATE)
        self._turns = Turns(options)
        self._sequence_id = 0
        self._n_flushes = 0
        self._n_flushed = 0
        self._is_closing = False
        self._has_reported_late_audio = False
        self._received_s = 0.0
        self._reported_s = 0.0
        """How much audio had been received when the last news of a turn was sent or queued, in seconds."""

    # Client messages.

    def open(self) -> Iterable[ClientMessage]:
        """The start of the session: the URL holds all options."""
        return (self._start(),)

    def read(self, message: str | bytes) -> Iterable[ClientMessage]:
        """A binary message is audio; a text message is a command.

        Raises:
            SessionError: the text is not a message of this protocol; the stream ends, as Deepgram's does.
        """
        if isinstance(message, bytes):
            return self._read_audio(message)
        try:
            fields = read_object(message)
        except BadMessage as error:
            raise SessionError(UNPARSABLE, error.message, CLOSE_POLICY) from error
        match fields.get("type"):
            case "CloseStream":
                return self._close_stream()
            case "Configure":
                return self._configure(fields)
            case "ForceEndTurn":
                return self._force_end_turn()
            case "KeepAlive":
                # Flux has none, but clients of the older protocol keep their habit.
                return (commands.Keepalive(),)
            case other:
                raise SessionError(UNPARSABLE, f"type: expected {TYPES}, got {shorten(other)}", CLOSE_POLICY)

    def _start(self) -> commands.Start:
        options = self._options
        return commands.Start(
            audio=self._audio,
            language=options.language,
            languages=options.candidates,
            endpointing=options.thresholds.endpointing,
            hotwords=options.keyterms,
            words=True,
            interim_words=True,
            text_rules=options.text_rules,
        )

    def _read_audio(self, data: bytes) -> Iterable[ClientMessage]:
        if self._is_closing:
            # Another part of the client's program may not know about CloseStream yet. One warning is enough.
            is_repeated, self._has_reported_late_audio = self._has_reported_late_audio, True
            warning = self._warning("audio_after_close", "audio: expected none after CloseStream")
            return () if is_repeated else (self._reply(warning),)
        return (commands.Audio(data) if self._options.audio else commands.Media(data),)

    def _close_stream(self) -> Iterable[ClientMessage]:
        if self._is_closing:
            return ()
        self._is_closing = self._turns.is_closing = True
        return (commands.Stop(),)

    def _force_end_turn(self) -> Iterable[ClientMessage]:
        if self._is_closing:
            # CloseStream ends the turn anyway.
            return ()
        if self._n_flushes - self._n_flushed >= commands.MAX_PENDING_FLUSHES:
            expected = f"expected at most {commands.MAX_PENDING_FLUSHES} ForceEndTurn before the turns end"
            raise SessionError("too_many_flushes", expected, CLOSE_POLICY)
        self._n_flushes += 1
        return (commands.Flush(self._n_flushes),)

    def _configure(self, fields: dict[str, Any]) -> Iterable[ClientMessage]:
        """Change the thresholds at once, and the key terms and language hints from the next turn on."""
        if self._is_closing:
            return (self._reply(_configure_failure("the stream is closing")),)
        try:
            self._options = options = configured(self._options, fields)
        except BadStart as error:
            return (self._reply(_configure_failure(error.message)),)
        configure = commands.Configure.of(self._start())
        success = events.LateReply(partial(self._configured, options))
        warnings = [
            self._warning("unknown_key", f"Configure.{name[:MAX_NAME_CHARS]}: unknown key; ignored")
            for name in sorted(fields.keys() - CONFIGURE_KEYS)[:MAX_NOTICES]
        ]
        wanted = fields.get("keyterms") or ()
        n_wanted = 1 if isinstance(wanted, str) else len(wanted)
        if len(options.keyterms) < n_wanted:
            expected = f"at most {MAX_HOTWORDS} texts of at most {MAX_HOTWORD_BYTES} bytes"
            message = f"keyterms: expected {expected}; {len(options.keyterms)} of {n_wanted} are used"
            warnings.append(self._warning("keyterms", message))
        return (configure, success, *map(self._reply, warnings))

    # Server messages.

    def write(self, event: events.Event) -> Iterable[str]:
        """Translate an event into messages."""
        return map(self._numbered, self._messages(event))

    def audio_received(self, until_s: float) -> Iterable[events.LateReply]:
        """The state of the present turn, if no news of it was sent for a while of audio."""
        self._received_s = until_s
        if until_s - self._reported_s < UPDATE_S:
            return ()
        self._reported_s = until_s
        return (events.LateReply(lambda: map(self._numbered, self._turns.update())),)

    def _messages(self, event: events.Event) -> Iterator[dict[str, Any]]:
        turns = self._turns
        match event:
            case events.Started():
                yield {"type": "Connected"}
                for notice in event.notices:
                    yield self._warning(notice.code, notice.message)
            case events.SpeechStarted():
                turns.speech_started(event)
            case events.Segment():
                turns.segment(event)
            case events.Endpoint():
                turns.endpoint(event)
            case events.Interim() | events.EagerEnd() | events.SpeechResumed() | events.Utterance():
                yield from self._turn_infos(event)
            case events.Notice(code, message):
                yield self._warning(code, message)
            case events.Failure():
                yield self._failure(event)
            case events.Flushed():
                self._n_flushed += 1
            case events.Lag() | events.Stopped() | events.Translation() | events.Speakers():
                pass
            case _:
                assert_never(event)

    def _turn_infos(
        self, event: events.Interim | events.EagerEnd | events.SpeechResumed | events.Utterance
    ) -> Iterator[dict[str, Any]]:
        match event:
            case events.Interim():
                infos = self._turns.interim(event)
            case events.EagerEnd():
                infos = self._turns.eager_end(event)
            case events.SpeechResumed():
                infos = self._turns.resumed(event)
            case events.Utterance():
                infos = self._turns.utterance(event)
            case _:
                assert_never(event)
        for info in infos:
            self._reported_s = self._received_s
            yield info

    def _configured(self, options: FluxOptions) -> Iterator[str]:
        self._turns.options = options
        success: dict[str, Any] = {
            "type": "ConfigureSuccess",
            "thresholds": options.thresholds.wire,
            "keyterms": list(options.keyterms),
        }
        if options.is_multilingual:
            success["language_hints"] = list(options.language_hints)
        yield self._numbered(success)

    def _failure(self, event: events.Failure) -> dict[str, Any]:
        if not event.is_fatal:
            return self._warning(event.code, event.message)
        code = OUR_FAULT if event.code in OUR_FAULTS else event.code.upper()
        return {"type": "Error", "code": code, "description": event.message}

    def _warning(self, code: str, description: str) -> dict[str, Any]:
        return {"type": "Warning", "code": code.upper(), "description": description}

    def _reply(self, message: dict[str, Any]) -> events.LateReply:
        return events.LateReply(lambda: (self._numbered(message),))

    def _numbered(self, message: dict[str, Any]) -> str:
        """A message as it is sent. Only the fatal error does not name the request, as Deepgram's does not."""
        head: dict[str, Any] = {"type": message["type"]}
        if message["type"] != "Error":
            head["request_id"] = self._request_id
        head["sequence_id"] = self._sequence_id
        self._sequence_id += 1
        return write_object(head | message)


def _configure_failure(description: str) -> dict[str, Any]:
    return {"type": "ConfigureFailure", "code": "INVALID_CONFIGURATION", "description": description}
