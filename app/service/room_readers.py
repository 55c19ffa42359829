"""The places of readers of rooms: how many there may be in all, from one address and in one room."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from app.errors import RETRY_AFTER_S, RequestError
from app.service.shared_state import AdmissionCounter

PER_ADDRESS, PER_ROOM = 1, 4
"""An address may have as many readers as there are places left, and a room four times as many: a half, and four fifths,
of all places if it is alone. So no address and no room can take the last places of the others, and readers who have a
place keep it.
"""


class RoomReaders:
    """The readers at one gateway, which counts those of all others together with its own."""

    def __init__(self, counter: AdmissionCounter, limit: int, n_gateways: int) -> None:
        self._counter = counter
        self._limit = limit
        self._n_gateways = n_gateways
        self._of_address: Counter[str] = Counter()
        self._of_room: Counter[str] = Counter()

    @contextmanager
    def one_more(self, address: str, room: str) -> Iterator[None]:
        """Give a reader a place for as long as the context is open.

        Args:
            address: as strangers are counted by; empty for one that counts in all only.
            room: the name of its room.

        Raises:
            RequestError: there is none left for it.
        """
        with self._counter.one_more("readers") as n_others:
            n_left = self._limit - n_others
            if n_left <= 0:
                raise _refusal(f"{n_others} readers of {self._limit} are here")
            if address and self._all(self._of_address[address]) >= PER_ADDRESS * n_left:
                raise _refusal("your address has as many readers as there are places left for all others")
            if self._all(self._of_room[room]) >= PER_ROOM * n_left:
                raise _refusal("this room has nearly all readers, and the places left are kept for other rooms")
            with _counted(self._of_address, address), _counted(self._of_room, room):
                yield

    def _all(self, n_here: int) -> int:
        """About how many there are at all gateways, if connections are spread evenly.

        Gateways share how many readers there are in all, and not whose. A share is larger or smaller where connections
        are uneven, and where the number of gateways is not known, as on Ray. The limit of all readers is counted.
        """
        return n_here * self._n_gateways


@contextmanager
def _counted(counts: Counter[str], name: str) -> Iterator[None]:
    counts[name] += 1
    try:
        yield
    finally:
        counts[name] -= 1
        if not counts[name]:
            del counts[name]


def _refusal(reason: str) -> RequestError:
    return RequestError(503, f"no room: {reason}; try again in {RETRY_AFTER_S} s", code="overloaded")
