"""Reading `/metrics`."""

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

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


def test_several_engines_are_added_up() -> None:
    """And each is found by its name; a single engine has none."""
    registry = CollectorRegistry()
    done = Counter("done", "", ["engine", "how"], registry=registry)
    encode_s, step_s = (
        Histogram(f"tutti_engine_{each}_seconds", "", ["engine"], registry=registry) for each in ("encode", "step")
    )
    for engine, n_windows in (("0", 3), ("1", 4)):
        done.labels(engine, "well").inc(n_windows)
        encode_s.labels(engine).observe(0.5 * n_windows)
        step_s.labels(engine).observe(0.25)
    counters = Counters.parse(generate_latest(registry).decode())
    assert counters.value("done_total", how="well") == 7
    assert counters.value("done_total", how="well", engine="1") == 4
    assert counters.mean("tutti_engine_encode_seconds") == 1.75
    assert counters.engine_busy_s() == {"0": 1.75, "1": 2.25}


def test_a_single_engine_has_no_name() -> None:
    registry = CollectorRegistry()
    Histogram("tutti_engine_step_seconds", "", registry=registry).observe(0.25)
    assert Counters.parse(generate_latest(registry).decode()).engine_busy_s() == {"": 0.25}
