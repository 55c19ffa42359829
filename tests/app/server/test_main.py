"""The end of a server."""

import pytest

from tests.app.conftest import Serve
from tests.fakes import FakeSession


class Faulty(FakeSession):
    """A connection with a defect: it cannot be drained."""

    def drain(self) -> None:
        raise RuntimeError("no such session")


async def test_a_server_whose_drain_fails_ends_all_the_same(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """Else it would refuse everything and stay until a second signal. The log has the traceback."""
    server = await serve()
    with server.service.admission.guest(Faulty()):
        server.server.stop()
        await server.task
    assert "the drain has failed" in caplog.text and "RuntimeError: no such session" in caplog.text
