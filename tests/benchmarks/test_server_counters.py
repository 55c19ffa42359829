"""Reading `/metrics`."""

from prometheus_client import CollectorRegistry, Histogram, generate_latest

from benchmarks.server_counters import Counters


def test_the_difference_of_two_moments() -> None:
    """Means and quantiles are of what happened in proxy, by labels."""
    registry = CollectorRegistry()
    wait = Histogram("wait", "", ["priority"], buckets=(1.0, 2.0, 4.0), registry=registry)
    for value in (0.5, 9.0):
        wait.labels("final").observe(value)
    before = Counters.parse(generate_latest(registry).decode())
    for value in (1.5, 1.5, 3.0, 3.0):
        wait.labels("final").observe(value)
    proxy = Counters.parse(generate_latest(registry).decode()) - before
    assert proxy.mean("wait", priority="final") == 2.25
    assert proxy.quantile("wait", 0.5, priority="final") == 2.0
    assert proxy.quantile("wait", 0.75, priority="final") == 3.0
    assert proxy.quantile("wait", 0.5, priority="interim") is None
    assert proxy.mean("absent") is None
