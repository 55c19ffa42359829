"""Admission of readers of rooms: how many there may be in all, from one address and in one room."""

from collections.abc import Iterator
from contextlib import contextmanager

from tutti_server.app.errors import RETRY_AFTER_S, RequestError
from tutti_server.app.fair_shares import Share
from tutti_server.app.service.shared_state import AdmissionCounter

PER_ADDRESS, PER_ROOM = 1, 4
"""An address may have as many readers as remain for all others, and a room four times as many: a half, and four fifths,
of the limit if it is alone. So no address and no room can use up what remains for others, and readers who are admitted
stay so.
"""


class RoomReaders:
    """The readers at one gateway, which counts those of all others together with its own."""

    def __init__(self, counter: AdmissionCounter, limit: int, n_gateways: int) -> None:
        self._counter = counter
        self._limit = limit
        self._of_address = Share(PER_ADDRESS, n_gateways)
        self._of_room = Share(PER_ROOM, n_gateways)

    @contextmanager
    def one_more(self, address: str, room: str) -> Iterator[None]:
        """Admit a reader for as long as the context is open.

        Args:
            address: as unauthenticated connections are counted by; empty for one that counts in all only.

        Raises:
            RequestError: the reader is refused.
        """
        with self._counter.one_more("readers") as n_others:
            n_left = self._limit - n_others
            if n_left <= 0:
                raise _refusal(f"{n_others} readers of {self._limit} are here")
            if self._of_address.is_used(address, n_left):
                raise _refusal("your address has as many readers as there are places left for all others")
            if self._of_room.is_used(room, n_left):
                raise _refusal("this room has nearly all readers, and the places left are kept for other rooms")
            with self._of_address.one_more(address), self._of_room.one_more(room):
                yield


def _refusal(reason: str) -> RequestError:
    return RequestError(503, f"no room: {reason}; try again in {RETRY_AFTER_S} s", code="overloaded")
