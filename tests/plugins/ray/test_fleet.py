"""Gateways of a cluster know each other's counts: limits hold for all of them, and each shows the metrics of all."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress

import pytest

from tests.plugins.ray.conftest import require_ray

require_ray()

from prometheus_client.core import Metric  # noqa: E402
from prometheus_client.parser import text_string_to_metric_families  # noqa: E402
from ray.serve.exceptions import RayServeException  # noqa: E402

from tests.fakes import FakeSession, FakeTranscriber  # noqa: E402
from tutti_server.app.errors import LimitExceeded  # noqa: E402
from tutti_server.app.media.decoder_workers import Decoders  # noqa: E402
from tutti_server.app.service.reservations import RESERVED_S  # noqa: E402
from tutti_server.app.service.service import Service  # noqa: E402
from tutti_server.app.service.settings import Settings  # noqa: E402
from tutti_server.app.service.shared_state import AdmissionCounter, SharedState  # noqa: E402
from tutti_server.app.session.core.options import SessionConfig  # noqa: E402
from tutti_server.plugins.ray.fleet import FORGET_S, Entry, FleetReplica  # noqa: E402
from tutti_server.plugins.ray.fleet_member import OWN, SILENT_S, FleetMember  # noqa: E402


class Cluster(FleetReplica):
    """The fleet of gateways that exchange when the test says so."""

    now_s = 0.0

    def __init__(self) -> None:
        super().__init__(self.clock)

    def clock(self) -> float:
        return self.now_s

    def gateway(self, name: str, **values: int) -> "Gateway":
        return Gateway(self, name, values)


class Gateway:
    def __init__(self, cluster: Cluster, name: str, values: dict[str, int]) -> None:
        self._cluster = cluster
        self._name = name
        self.member = FleetMember(name, cluster, cluster.clock)
        shared = SharedState(
            key="k" * 64,
            counter=AdmissionCounter(self.member.counts, OWN, outlives_gateway=True),
            n_gateways=2,
            metrics_of_all=self.member.metrics,
        )
        settings = Settings(**values)  # type: ignore[arg-type]  # numbers only
        self.service = Service(settings, FakeTranscriber(), SessionConfig(), shared, Decoders())
        self.admission = self.service.admission

    async def exchange(self) -> None:
        counts = tuple(self.member.counts[OWN].tolist())
        self.member.note(await self._cluster.exchange(self._name, counts, self.service.metrics.snapshot()))


async def exchange(*gateways: Gateway, seconds: float = 0.0) -> None:
    """Let time pass, and all of these exchange twice: then each one knows all."""
    for _ in range(round(seconds / 0.5)):
        gateways[0]._cluster.now_s += 0.5
        for gateway in gateways:
            await gateway.exchange()
    for gateway in (*gateways, *gateways):
        await gateway.exchange()


async def test_limits_count_the_sessions_of_all_gateways() -> None:
    """Wherever they are: as on one host."""
    cluster = Cluster()
    one, other = cluster.gateway("a", max_sessions=2), cluster.gateway("b", max_sessions=2)
    with one.admission.session(FakeSession()):
        await exchange(one, other)
        with other.admission.session(FakeSession()):
            await exchange(one, other)
            for gateway in (one, other):
                assert gateway.admission.session_load() == 1.0
                with pytest.raises(LimitExceeded, match="2 of 2 sessions"):
                    gateway.admission.session(FakeSession()).__enter__()
        await exchange(one, other)
        with other.admission.session(FakeSession()):
            pass


async def test_a_gateway_that_dies_keeps_the_places_of_its_clients() -> None:
    """For those that come back; after a while they go to newcomers."""
    cluster = Cluster()
    one, other = cluster.gateway("a", max_sessions=2), cluster.gateway("b", max_sessions=2)
    connections = (FakeSession(), FakeSession())
    with ExitStack() as stack:
        for connection in connections:
            stack.enter_context(one.admission.session(connection))
        one.admission.note_resumable(connections[0])
        await exchange(one, other)
        # It dies: it exchanges nothing any more.
        await exchange(other, seconds=SILENT_S)
        with other.admission.session(FakeSession()):
            with pytest.raises(LimitExceeded, match="2 of 2 sessions"):
                other.admission.session(FakeSession()).__enter__()
            with other.admission.session(FakeSession(), is_resumed=True):
                pass
        await exchange(other, seconds=RESERVED_S + SILENT_S)
        with other.admission.session(FakeSession()), other.admission.session(FakeSession()):
            pass
        await exchange(other, seconds=FORGET_S)
        assert set(await cluster.metrics()) == {"b"}


async def test_a_gateway_that_drains_keeps_the_places_of_its_clients() -> None:
    """The service goes on at the others."""
    cluster = Cluster()
    one, other = cluster.gateway("a", max_sessions=1), cluster.gateway("b", max_sessions=1)
    with one.admission.session(FakeSession()):
        one.admission.is_draining = True
        one.admission.reserve()
    await exchange(one, other)
    with pytest.raises(LimitExceeded, match="1 of 1 sessions"):
        other.admission.session(FakeSession()).__enter__()
    with other.admission.session(FakeSession(), is_resumed=True):
        pass


async def test_what_was_known_stays_while_the_fleet_has_no_replica() -> None:
    """The next replica knows nothing. No gateway is taken for dead, and no final counts twice."""
    cluster = Cluster()
    one, other = cluster.gateway("a", max_sessions=1), cluster.gateway("b", max_sessions=1)
    await exchange(one, other)
    with one.admission.session(FakeSession()):
        for _ in range(7):
            one.admission.note_final(0.0)
        await exchange(one, other)
        cluster.now_s += 10 * RESERVED_S
        cluster._gateways.clear()
        await other.exchange()
        assert other.member.counts.sum(axis=0)[0] == 1
        assert other.service.shared.counter.total("finals") == 7
        await exchange(one, other)
        assert other.service.shared.counter.total("finals") == 7


async def test_each_gateway_shows_the_metrics_of_all() -> None:
    """Told apart by a label. What each one knows of the whole service is there once."""
    cluster = Cluster()
    one, other = cluster.gateway("a"), cluster.gateway("b")
    with one.admission.session(FakeSession()), one.admission.session(FakeSession()):
        await exchange(one, other)
        pages = [(await gateway.service.metrics.page()).decode() for gateway in (one, other)]
    assert pages[0] == pages[1]
    samples = [sample for family in text_string_to_metric_families(pages[0]) for sample in family.samples]
    n_open = {sample.labels["gateway"]: sample.value for sample in samples if sample.name == "tutti_sessions_open"}
    assert n_open == {"a": 2, "b": 0}
    whole = [sample for sample in samples if sample.name == "tutti_session_load_ratio"]
    assert [(sample.labels, sample.value) for sample in whole] == [({}, 2 / 32)]
    assert len(samples) == len({(sample.name, *sorted(sample.labels.items())) for sample in samples})


async def test_an_exchange_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway goes on with what it knows, and says so once."""
    monkeypatch.setattr("tutti_server.plugins.ray.fleet_member.RETRY_S", 0.0)
    answers = iter([RayServeException("no replica"), RayServeException("no replica"), {}])
    exchanged: list[Sequence[Metric] | None] = []

    class Failing(Cluster):
        async def exchange(
            self, name: str, counts: tuple[int, ...], metrics: Sequence[Metric] | None
        ) -> Mapping[str, Entry]:
            exchanged.append(metrics)
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return {}

    member = FleetMember("a", Failing())
    running = asyncio.create_task(member.run(lambda: []))
    async with asyncio.timeout(20.0):
        await member.is_known.wait()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert exchanged == [[], [], []]
