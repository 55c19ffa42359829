"""What a connection needs from a wire format: client messages become commands, session events become messages.

A dialect translates for one connection. It may keep the state that translation needs, such as ids. The session decides
what to do with audio, windows and text.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from tutti_server.app.session.core.effects import Close
from tutti_server.app.session.messages import commands, events


@dataclass(frozen=True, slots=True)
class Preparation:
    """Work that must be done before the items after it, such as asking other servers."""

    work: Callable[[], Awaitable[None]]
    """Raises `SessionError` if the items after it must not follow."""


ClientMessage = commands.Command | events.Notice | commands.Media | events.Reply | events.LateReply | Preparation
"""One parsed item of a client's message.

It is a command or media for the session, an answer that the dialect gives, or work to be done before the next item.
"""


class Dialect(Protocol):
    """Translates between one client's wire format and one session."""

    @property
    def idle_timeout_s(self) -> float | None:
        """How long a client may send nothing, in seconds; `None` applies the operator's setting."""
        ...

    @property
    def max_text_chars(self) -> int:
        """The longest text message that is accepted, in characters; a longer one ends the session."""
        ...

    def open(self) -> Iterable[ClientMessage]:
        """Items that follow from the connection itself, before any message.

        Examples are a greeting, or a start command where the URL holds all options.
        """
        ...

    def read(self, message: str | bytes) -> Iterable[ClientMessage]:
        """Translate one message of the client. Raw audio becomes `commands.Audio`, in whichever message it came.

        Bytes of a container, such as Ogg, become `commands.Media`.

        Raises:
            SessionError: the message cannot be parsed; the session reports the error to the client.
        """
        ...

    def write(self, event: events.Event) -> Iterable[str]:
        """Translate one event into text messages; into none where this wire format has no message for it."""
        ...

    def audio_received(self, until_s: float) -> Iterable[events.Reply | events.LateReply]:
        """Messages that are due because audio up to `until_s` on the session's timeline has been received."""
        ...

    def close(self, close: Close) -> Close:
        """The close code and reason that clients of this wire format understand."""
        ...


class QuietDialect:
    """What most dialects have in common: the client speaks first, and nothing depends on time alone."""

    def open(self) -> Iterable[ClientMessage]:
        """Sends nothing."""
        return ()

    def audio_received(self, until_s: float) -> Iterable[events.Reply | events.LateReply]:
        """Sends nothing."""
        return ()

    def close(self, close: Close) -> Close:
        """The session's own close code and reason."""
        return close
