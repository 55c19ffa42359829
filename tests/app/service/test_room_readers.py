"""Admission of readers: those who are admitted stay so, and no address or room uses up the limit."""

from contextlib import ExitStack

from hypothesis import given
from hypothesis import strategies as st

from tutti_server.app.errors import RequestError
from tutti_server.app.service.room_readers import RoomReaders
from tutti_server.app.service.shared_state import AdmissionCounter

PROXY = ""
"""The address of a reader whose own is not known."""


class Gateway:
    """Readers of one gateway, and how many of them are admitted."""

    def __init__(self, limit: int, n_gateways: int = 1) -> None:
        self.readers = RoomReaders(AdmissionCounter(), limit, n_gateways)
        self.admissions = ExitStack()

    def comes(self, address: str, room: str = "choir") -> bool:
        try:
            self.admissions.enter_context(self.readers.one_more(address, room))
        except RequestError as error:
            assert (error.status, error.code) == (503, "overloaded")
            return False
        return True

    def come(self, n: int, address: str, room: str = "choir") -> int:
        """How many of these are admitted."""
        return sum(self.comes(address, room) for _ in range(n))


def test_one_address_leaves_half_of_the_limit() -> None:
    gateway = Gateway(1000)
    assert gateway.come(1000, "10.0.0.1") == 500
    assert gateway.come(50, "10.0.0.2", "other") == 50
    assert gateway.comes("10.0.0.3")


def test_one_room_leaves_a_part_of_the_limit_for_others() -> None:
    """Though its readers come from as many addresses, or from a proxy."""
    gateway = Gateway(1000)
    assert gateway.come(1000, PROXY, "attacked") == 800
    assert gateway.come(100, PROXY, "other") == 100


def test_gateways_estimate_the_readers_of_the_others() -> None:
    """An address has half of the limit at all of them together, not at each."""
    counter = AdmissionCounter()
    gateways = [Gateway(1000, 4) for _ in range(4)]
    for gateway in gateways:
        gateway.readers = RoomReaders(counter, 1000, 4)
    assert sum(gateway.comes("10.0.0.1") for _ in range(250) for gateway in gateways) <= 500


def test_readers_that_have_left_do_not_count() -> None:
    gateway = Gateway(2)
    assert gateway.come(3, PROXY) == 2
    gateway.admissions.close()
    assert gateway.come(3, PROXY) == 2
    assert gateway.come(1, PROXY, "other") == 0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), max_size=60), st.integers(1, 30))
def test_a_newcomer_is_let_in_while_few_are_here(readers: list[tuple[str, str]], limit: int) -> None:
    """Whatever others have done, unless the limit is reached; and there are never more than the limit."""
    gateway = Gateway(limit)
    n = sum(gateway.comes(address, room) for address, room in readers)
    assert n <= limit
    assert gateway.comes("newcomer", "new room") == (n < limit)
