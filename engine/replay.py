"""Recognises the events of a window that come again when it is decoded again after a failure.

Decoding is deterministic. After a failure the window is decoded from the beginning, by the same engine or by the next
one, and gives the same events again. The session must receive each event once, and text that it has received must not
change.
"""

from collections.abc import Hashable

from tutti_server.engine.api import EngineEvent, SegmentEvent
from tutti_server.engine.errors import EngineFailed


class Replay:
    """The events of one window that the session has received, and how many of them the present decoding repeated."""

    __slots__ = ("_delivered", "_n_repeated", "n_restarts")

    def __init__(self) -> None:
        self.n_restarts = 0
        """How often the window has been decoded again."""
        self._delivered: list[Hashable] = []
        """The replay key of each event that the session has received."""
        self._n_repeated = 0

    def restart(self) -> None:
        """Expect the events from the first one on: the window is decoded again."""
        self.n_restarts += 1
        self._n_repeated = 0

    def is_new(self, event: EngineEvent) -> bool:
        """Whether the session has not received `event` yet; if so, it counts as received from now on.

        Raises:
            EngineFailed: the event differs from the one that the session received in its place.
        """
        is_new = self._n_repeated == len(self._delivered)
        if is_new:
            self._delivered.append(_replay_key(event))
        elif self._delivered[self._n_repeated] != _replay_key(event):
            raise EngineFailed("the engine has failed, and the window is decoded differently after that")
        self._n_repeated += 1
        return is_new


def _replay_key(event: EngineEvent) -> Hashable:
    """The part of an event that must be the same when it is repeated: the part that clients may have seen."""
    match event:
        case SegmentEvent(segment=segment):
            return (segment.start_s, segment.end_s, segment.text)
        case _:
            return type(event).__name__
