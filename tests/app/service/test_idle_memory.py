"""When a process that serves clients gives memory back."""

import asyncio

import pytest

from tests.app.service.test_reservations import gateways
from tests.fakes import FakeSession
from tutti_server.app.service.admission import Admission
from tutti_server.app.service.idle_memory import return_memory

A_DAY_S = 86_400.0


@pytest.fixture
def admission() -> Admission:
    (admission,) = gateways(1)
    return admission


class Returns:
    """Counts how often memory was given back."""

    def __init__(self, admission: Admission, **seconds: float) -> None:
        self.happened = asyncio.Semaphore(0)
        self.loop = asyncio.get_running_loop()
        self.task = asyncio.create_task(return_memory(admission, self._give_back, **seconds))

    def _give_back(self) -> None:
        self.loop.call_soon_threadsafe(self.happened.release)


async def test_memory_is_given_back_after_each_load(admission: Admission) -> None:
    """Of sessions and of uploads; not before the first load, and not again without another."""
    returns = Returns(admission, idle_s=0.0, every_s=A_DAY_S)
    for load in (admission.session(FakeSession()), admission.upload()):
        assert returns.happened.locked()
        with load:
            pass
        await returns.happened.acquire()
    returns.task.cancel()


async def test_memory_is_given_back_during_a_long_load(admission: Admission) -> None:
    """A gateway may not be without a session for days."""
    returns = Returns(admission, idle_s=A_DAY_S, every_s=0.0)
    with admission.upload():
        for _ in range(3):
            await returns.happened.acquire()
    returns.task.cancel()
