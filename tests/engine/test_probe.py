"""How a device's speed is measured before the first window."""

from collections.abc import Iterator

from tutti_server.engine.probe import shortest_s


def measured(times_s: list[float], max_s: float) -> tuple[float, int]:
    """The shortest of some times, and how often the work was done."""
    left = iter(times_s)

    def clock() -> Iterator[float]:
        now_s = 0.0
        for time_s in times_s:
            yield now_s
            now_s += time_s
            yield now_s

    return shortest_s(lambda: next(left), len(times_s), max_s, clock().__next__), len(times_s) - len(list(left))


def test_the_shortest_time_counts_and_a_slow_device_is_measured_once() -> None:
    """Not what a first call or another program adds. The start takes no longer than it would without a probe."""
    assert measured([2.0, 0.25, 0.5], 10.0) == (0.25, 3)
    assert measured([4.0, 2.0, 2.0], 1.0) == (4.0, 1)
