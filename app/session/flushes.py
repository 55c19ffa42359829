"""The flushes of a session that are not answered yet."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from tutti_server.app.errors import LimitExceeded
from tutti_server.app.session.channel import Channel
from tutti_server.app.session.core.port import SessionPort
from tutti_server.app.session.decoding.finals import Finals
from tutti_server.app.session.messages import commands, events


@dataclass(frozen=True, slots=True)
class _PendingFlush:
    id: events.FlushId
    waits_for: list[tuple[Finals, int]]
    """The finals of the flushed channels, and how many windows of each must be done first."""

    @property
    def is_done(self) -> bool:
        return all(finals.n_done >= n_windows for finals, n_windows in self.waits_for)


class PendingFlushes:
    """A flush is answered when all text of the audio before it was sent; flushes are answered in order."""

    def __init__(self, session: SessionPort) -> None:
        self._session = session
        self._pending: deque[_PendingFlush] = deque()

    def __len__(self) -> int:
        return len(self._pending)

    def require_room(self) -> None:
        """Refuse one flush more than may wait.

        Raises:
            LimitExceeded: too many flushes wait already; the session goes on.
        """
        if len(self) >= commands.MAX_PENDING_FLUSHES:
            message = f"flush: {commands.MAX_PENDING_FLUSHES} flushes wait for their answers"
            raise LimitExceeded("too_many_flushes", message)

    def add(self, flush_id: events.FlushId, channels: Iterable[Channel]) -> None:
        """End the open utterances of these channels; the flush is answered when their text was sent."""
        flushed = list(channels)
        for channel in flushed:
            channel.flush(flush_id)
        waits_for = [(channel.finals, channel.finals.n_added) for channel in flushed]
        self._pending.append(_PendingFlush(flush_id, waits_for))

    def answer(self) -> None:
        """Answer the flushes that are done."""
        while self._pending and self._pending[0].is_done:
            self._session.send(events.Flushed(self._pending.popleft().id))
