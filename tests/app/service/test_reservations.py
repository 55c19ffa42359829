"""Lost sessions have reservations for the clients that come back; newcomers are refused meanwhile."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.app.conftest import Running, Serve, refusal
from tests.fakes import FakeSession, FakeTranscriber
from tutti_server.app.errors import LimitExceeded
from tutti_server.app.service import reservations
from tutti_server.app.service.admission import Admission
from tutti_server.app.service.metrics import Metrics
from tutti_server.app.service.reservations import Reservations
from tutti_server.app.service.settings import Settings
from tutti_server.app.service.shared_state import N_COUNTS, AdmissionCounter
from tutti_server.app.sharing.store import Lease

KEY = {"Authorization": "Bearer secret"}


def gateways(n: int, **settings: Any) -> list[Admission]:
    """The admissions of the gateways of one service."""
    counts, transcriber = np.zeros((n, N_COUNTS), np.int64), FakeTranscriber()
    return [
        Admission(Settings(**settings), Metrics(transcriber), AdmissionCounter(counts, gateway), transcriber)
        for gateway in range(n)
    ]


async def test_what_is_reserved_is_refused_to_newcomers() -> None:
    """The client that comes back takes the reservation, also at another gateway; then there is none."""
    one, other = gateways(2, max_sessions=1)
    with one.session(FakeSession()):
        one.reserve()
    for admission in one, other:
        with pytest.raises(LimitExceeded, match="1 of 1 sessions"):
            admission.session(FakeSession()).__enter__()
    with other.session(FakeSession(), is_resumed=True):
        with pytest.raises(LimitExceeded):
            one.session(FakeSession(), is_resumed=True).__enter__()
        assert not one.expects_returns and not other.expects_returns
    with one.session(FakeSession()):
        pass


async def timers_are_over() -> None:
    """Wait until all timers that are due have gone off: the event loop runs them in the order of their times."""
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(0.001, over.set)
    await over.wait()


async def test_a_reservation_does_not_last_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one that was taken at another gateway leave anything behind."""
    monkeypatch.setattr(reservations, "RESERVED_S", 0.0)
    counts = np.zeros((2, N_COUNTS), np.int64)
    one, other = (Reservations(AdmissionCounter(counts, gateway)) for gateway in range(2))
    one.add()
    one.add()
    assert one.n == other.n == 2
    assert other.take() and one.take() and not other.take()
    await timers_are_over()
    assert not counts.any()
    one.add()
    await timers_are_over()
    assert not one.n and not one.take()


async def test_a_stopping_server_adds_no_reservations() -> None:
    (admission,) = gateways(1, max_sessions=1)
    with admission.session(FakeSession()):
        admission.is_draining = True
        admission.reserve()
    assert not admission.expects_returns


async def lose_session(server: Running, headers: Mapping[str, str]) -> None:
    """Begin a session that its client would resume, and cut its connection."""
    socket = await connect(server.stream, additional_headers=headers)
    assert await started(socket, resumes=True) == "started"
    socket.transport.abort()
    await server.service.admission.all_finished.wait()


async def started(socket: ClientConnection, **options: Any) -> str:
    """Send a start, and return the type of the answer, or the code of an error."""
    await socket.send(json.dumps({"type": "start"} | options))
    answer = json.loads(await socket.recv())
    return str(answer.get("code", answer["type"]))


async def test_a_client_that_lost_its_connection_is_admitted_again(serve: Serve) -> None:
    """On a full server, although a newcomer calls first."""
    server = await serve(max_sessions=1)
    headers: dict[str, str] = {}
    await lose_session(server, headers)
    async with connect(server.stream, additional_headers=headers) as newcomer:
        assert await started(newcomer) == "overloaded"
    async with connect(server.stream, additional_headers=headers) as socket:
        assert await started(socket, resume={"from_s": 0}) == "started"
        await refusal(server.stream, additional_headers=headers)


async def test_a_client_that_comes_back_is_within_the_limit_of_its_key(serve: Serve, tmp_path: Path) -> None:
    """Its lost session still counts, as the leases of a gateway that has died end later. A newcomer is refused."""
    keys = tmp_path / "keys.toml"
    keys.write_text('[team]\nkey = "secret"\nsessions = 1')
    server = await serve(keys_file=str(keys))
    await lose_session(server, KEY)
    await server.service.store.renew([Lease("sessions:team", "of a gateway that has died")])
    async with connect(server.stream, additional_headers=KEY) as newcomer:
        assert await started(newcomer) == "session_limit"
    async with connect(server.stream, additional_headers=KEY) as socket:
        assert await started(socket, resume={"from_s": 0}) == "started"
        assert not server.service.admission.expects_returns
        assert (await refusal(server.stream, additional_headers=KEY)).status_code == 429
