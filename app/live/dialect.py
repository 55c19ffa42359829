"""What a connection needs of a wire format: messages to commands, events to messages.

A dialect translates for one connection. It may keep what translation needs, such as ids; what to do with audio, windows
and text is the session's.
"""

from collections.abc import Iterable
from typing import Protocol

from app.session import commands, events
from app.session.effects import Close

Read = commands.Command | events.Notice | commands.Media | events.Reply
"""What a message comes to: something for the session, or something that the dialect itself answers."""


class Dialect(Protocol):
    @property
    def idle_timeout_s(self) -> float | None:
        """How long a client may say nothing; `None` for as long as the operator lets it."""
        ...

    @property
    def max_text_chars(self) -> int:
        """Of one text message; more ends the session."""
        ...

    def open(self) -> Iterable[Read]:
        """What follows from the connection alone, before any message: a greeting, or a start if the URL says it all."""
        ...

    def read(self, message: str | bytes) -> Iterable[Read]:
        """Translate a message of the client's. Audio comes as `commands.Audio`, however it was wrapped.

        Raises:
            SessionError: it cannot be read; what was wrong with it is told through the session.
        """
        ...

    def write(self, event: events.Event) -> Iterable[str]:
        """An event as text messages: none where this dialect has no word for it."""
        ...

    def heard(self, until_s: float) -> Iterable[events.Reply]:
        """What the time alone brings about, once audio up to `until_s` on the session's timeline has been taken in."""
        ...

    def close(self, close: Close) -> Close:
        """The close code and reason that clients of this dialect understand."""
        ...
