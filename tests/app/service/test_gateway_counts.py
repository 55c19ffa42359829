"""What several gateways have in common: whoever a client meets, it is one service."""

import time

import httpx
import numpy as np
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from app.errors import LimitExceeded
from app.service.gateway_counts import AdmissionCounter, Shared
from app.service.service import Service
from app.service.settings import Settings
from app.session.session import SessionConfig
from tests.fakes import FakeTranscriber


class Somebody:
    def drain(self) -> None: ...


def gateways(n: int, **values: object) -> list[Service]:
    """Services that share all they may."""
    taken, key = np.zeros((n, 2), np.int64), "k" * 64
    settings = Settings(**values)  # type: ignore[arg-type]
    return [
        Service(settings, FakeTranscriber(), SessionConfig(), Shared(key, 1, AdmissionCounter(taken, own), n))
        for own in range(n)
    ]


def test_limits_count_the_sessions_of_all_gateways() -> None:
    """However they are spread, and each place is free again for any."""
    one, other = gateways(2, max_sessions=2)
    with one.admitted_session(Somebody()):
        with one.admitted_session(Somebody()), pytest.raises(LimitExceeded, match="2 sessions of 2"):
            other.admitted_session(Somebody()).__enter__()
        with other.admitted_session(Somebody()), pytest.raises(LimitExceeded):
            one.admitted_session(Somebody()).__enter__()
    assert one.shared.places.n_taken("sessions") == 0
    assert one.metrics.registry.get_sample_value("tutti_refused_total", {"reason": "overloaded"}) == 1


def test_limits_count_the_uploads_of_all_gateways() -> None:
    one, other = gateways(2, max_uploads=1)
    with one.admitted_upload(), pytest.raises(LimitExceeded, match="1 file transcriptions of 1"):
        other.admitted_upload().__enter__()
    with other.admitted_upload():
        pass


def test_a_secret_of_one_gateway_opens_sessions_at_another() -> None:
    """Without API keys, too, where they are signed with a key of the service's own."""
    one, other = gateways(2)
    secret = one.access.sign_client_secret(None, int(time.time()) + 60, {"type": "transcription"})
    read = other.access.client_secret(secret.value)
    assert read and read.session == {"type": "transcription"}
    (stranger,) = gateways(1)
    assert stranger.access.client_secret(secret.value) is not None
    assert Service(Settings(), FakeTranscriber(), SessionConfig(), Shared()).access.client_secret(secret.value) is None


async def test_sockets_are_refused_when_other_gateways_have_taken_the_places(serve) -> None:
    """And not once they are free again."""
    taken = np.zeros((2, 2), np.int64)
    server = await serve(shared=Shared(places=AdmissionCounter(taken, 0), n_gateways=2), max_sessions=1)
    taken[1, 0] = 1
    with pytest.raises(InvalidStatus) as refused:
        await connect(server.stream)
    assert refused.value.response.status_code == 503
    taken[1, 0] = 0
    async with connect(server.stream):
        assert taken[0, 0] == 1


async def test_without_an_engine_nobody_is_sent_here(serve) -> None:
    """It may be on its way: sessions are kept, and newcomers are better off elsewhere."""
    server = await serve(FakeTranscriber(is_alive=False))
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"{server.http}/readyz")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
