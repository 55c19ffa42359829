"""What the streams of all telephone systems have in common.

Most systems ignore answers on the socket, or play them to the caller. So the events of a call go to a `CallSink`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tutti_server.app.dialects.call_streams.wire import START_TIMEOUT_S, CallSink, passed_on, start_command
from tutti_server.app.dialects.json_text import read_object
from tutti_server.app.dialects.limits import MAX_TEXT_CHARS
from tutti_server.app.errors import CLOSE_POLICY, SessionError, WrongState
from tutti_server.app.live.dialect import ClientMessage, QuietDialect
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.messages import commands, events


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What is known of a stream before its first message."""

    parameters: Mapping[str, str] = field(default_factory=dict)
    """The parameters of the address. They win over what messages say: an operator writes them."""
    request: str = ""
    """The id of the request: the id of the stream, and of the call, where nothing else names them."""
    subprotocol: str | None = None
    """The WebSocket subprotocol that was selected."""
    write_event: Callable[[events.Event], Iterable[str]] = lambda event: ()
    """Writes an event as messages of the native protocol."""


NOTHING_KNOWN = Opening()
"""The opening of a stream whose messages say everything."""


class CallStream(QuietDialect):
    """One stream of a call, as a `Dialect`. A subclass knows the messages of one telephone system."""

    START: ClassVar[str] = "start"
    """The message that describes the call, as errors name it."""
    SUBPROTOCOL: ClassVar[str | None] = None
    """The WebSocket subprotocol that is selected if the system offers it."""
    KEY_HEADER: ClassVar[str | None] = None
    """A header in which the system may send the API key, beside the places where all of them may."""

    max_text_chars = MAX_TEXT_CHARS

    def __init__(self, sink: CallSink, opening: Opening = NOTHING_KNOWN) -> None:
        self._sink = sink
        self._opening = opening
        self._has_started = False
        self._is_stopped = False

    @property
    def idle_timeout_s(self) -> float | None:
        """A short time before the call is described; after it, the operator's setting."""
        return None if self._has_started else START_TIMEOUT_S

    def read(self, message: str | bytes) -> Iterable[ClientMessage]:
        """Translate a message. Every error before the call is described is fatal."""
        try:
            # Read to its end here: a subclass may yield, and its errors would come later.
            return tuple(self._audio(message) if isinstance(message, bytes) else self._text(message))
        except SessionError as error:
            if self._has_started or error.is_fatal:
                raise
            # Without this, a client without a key could hold a session for ever by sending bad messages.
            raise SessionError(error.code, error.message, CLOSE_POLICY) from error

    def write(self, event: events.Event) -> Iterable[str]:
        """Publish the event. Nothing goes to the telephone system itself."""
        self._sink.publish(event)
        return ()

    def leave(self) -> Iterable[ClientMessage]:
        """End the stream: all audio up to here becomes final. Also called when the system only disconnects."""
        if not self._has_started or self._is_stopped:
            return ()
        self._is_stopped = True
        return (*self._rest(), commands.Stop())

    def _audio(self, data: bytes) -> Iterable[ClientMessage]:
        """Translate a binary message: samples, unless a subclass knows better."""
        self._require_start("audio")
        return (commands.Audio(data),) if data else ()

    def _text(self, text: str) -> Iterable[ClientMessage]:
        """Translate a message of text: an object of JSON, unless a subclass knows better."""
        return self._read(read_object(text))

    def _read(self, fields: dict[str, Any]) -> Iterable[ClientMessage]:
        """Translate an object of JSON. A carrier that sends none overrides `_text`, and not this."""
        raise NotImplementedError

    def _rest(self) -> Iterable[ClientMessage]:
        return ()

    def _begin(self, parameters: Mapping[str, str], audio: AudioFormat) -> commands.Start:
        """The start of the session, with the options among these parameters. The sink has begun the call."""
        command = start_command(parameters, audio)
        self._has_started = True
        return command

    def _require_new(self) -> None:
        if self._has_started:
            raise WrongState("already_started", f"{self.START}: the call has started already")

    def _require_start(self, what: str) -> None:
        """Raise `WrongState` before the start of the call, naming the message that came."""
        if not self._has_started:
            raise WrongState("not_started", f"{what}: expected {self.START} first", CLOSE_POLICY)

    def _pass_on(self, kind: str, /, **fields: Any) -> None:
        """Publish something that happened on the call, which is no event of the session."""
        self._require_start(kind)
        self._sink.publish(passed_on(kind, **fields))
