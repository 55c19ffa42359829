"""Which unauthenticated connections are counted together, and when a connection counts."""

from dataclasses import replace
from typing import Any

import pytest

from tests.fakes import FakeTranscriber
from tutti_server.app.service.client_connections import UnauthenticatedConnections, cut_slow
from tutti_server.app.service.metrics import Metrics
from tutti_server.app.service.settings import Settings
from tutti_server.app.service.shared_state import AdmissionCounter

SETTINGS = Settings(max_strangers=10, max_strangers_per_address=2, trusted_proxies="127.0.0.1, 10.0.0.0/8")


def unauthenticated(**values: Any) -> UnauthenticatedConnections:
    settings = replace(SETTINGS, **values)
    return UnauthenticatedConnections(settings, Metrics(FakeTranscriber()).unauthenticated, AdmissionCounter())


@pytest.mark.parametrize(
    ("address", "group"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8::1:2:3:4", "2001:db8::"),
        ("2001:db8::ffff:0:0:1", "2001:db8::"),
        ("2001:db8:0:1::1", "2001:db8:0:1::"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("127.0.0.1", ""),
        ("10.1.2.3", ""),
        ("::ffff:10.1.2.3", ""),
        ("unknown", ""),
        (None, ""),
    ],
)
def test_an_address_is_what_one_customer_has(address: str | None, group: str) -> None:
    """Proxies, and what is no address, are counted in all only. Sockets for both families write IPv4 within IPv6."""
    assert unauthenticated().group(address) == group


def test_the_oldest_of_an_address_is_cut() -> None:
    """One that comes back counts as new."""
    cut: list[str] = []
    all_ = unauthenticated()
    connections = [
        all_.arrive("192.0.2.1", lambda _: cut.append("a")),
        all_.arrive("192.0.2.1", lambda _: cut.append("b")),
    ]
    connections[0].admit()
    connections[0].dismiss()
    connections.append(all_.arrive("192.0.2.1", lambda _: cut.append("c")))
    assert cut == ["b"]
    for each in connections:
        each.leave()
    assert len(all_) == 0


def test_one_that_has_left_does_not_come_back() -> None:
    """What its application still does after that changes no count."""
    all_ = unauthenticated()
    connection = all_.arrive("192.0.2.1", lambda _: None)
    connection.leave()
    connection.dismiss()
    connection.admit()
    connection.come_from("192.0.2.2")
    connection.leave()
    assert len(all_) == 0


def test_a_client_that_is_cut_after_it_was_admitted_is_not_counted_as_refused() -> None:
    """Where it does not read. The metric counts only clients that were never admitted."""
    metrics = Metrics(FakeTranscriber())
    all_ = UnauthenticatedConnections(SETTINGS, metrics.unauthenticated, AdmissionCounter())
    cut: list[str] = []
    for is_admitted, n_refused in ((False, 1), (True, 1)):
        connection = all_.arrive("192.0.2.1", cut.append)
        if is_admitted:
            connection.admit()
        assert cut_slow({"state": {"client_connection": connection}})
        assert metrics.registry.get_sample_value("tutti_strangers_refused_total", {"reason": "slow"}) == n_refused
    assert cut == ["slow", "slow"] and len(all_) == 0
