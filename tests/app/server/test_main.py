"""The end of a server."""

import asyncio

import numpy as np
import pytest

from tests.app.conftest import Running, Serve
from tests.fakes import FakeSession
from tutti_server.app.service.shared_state import N_COUNTS, AdmissionCounter, SharedState


class Faulty(FakeSession):
    """A connection with a defect: it cannot be drained."""

    def drain(self) -> None:
        raise RuntimeError("no such session")


async def test_a_server_whose_drain_fails_ends_all_the_same(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    """Else it would refuse everything and stay until a second signal. The log has the traceback."""
    with server.service.admission.guest(Faulty()):
        server.server.stop()
        await server.task
    assert "the drain has failed" in caplog.text and "RuntimeError: no such session" in caplog.text


async def test_no_gateway_gives_way_to_one_that_drains(serve: Serve) -> None:
    """It would refuse all clients of the service, as it has the fewest: here none beside five."""
    counts = np.zeros((2, N_COUNTS), np.int64)
    one, other = AdmissionCounter(counts, 0), AdmissionCounter(counts, 1)
    server = await serve(shared=SharedState(counter=one))
    while not one.n_with("connections"):  # noqa: ASYNC110
        await asyncio.sleep(0)
    other.change("connections", 5)
    assert (one.surplus("connections"), other.surplus("connections")) == (0, 4)
    with server.service.admission.upload():
        server.server.stop()
        while not server.service.admission.is_draining:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert other.surplus("connections") == 0
    await server.task
    assert other.surplus("connections") == 0
