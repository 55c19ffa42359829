"""The mean queue wait of finals, which decides whether new sessions are refused."""

import pytest

from app.service.admission import MAX_WAITS, MIN_WAITS, RECENT_S, FinalWaits


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_mean_is_that_of_the_last_seconds(clock: Clock) -> None:
    """Old waits are dropped. With few waits the mean is 0."""
    waits = FinalWaits(clock)
    for _ in range(MIN_WAITS - 1):
        waits.add(4.0)
    assert waits.mean_s == 0.0
    waits.add(1.0)
    assert waits.mean_s == pytest.approx((4.0 * (MIN_WAITS - 1) + 1.0) / MIN_WAITS)
    clock.now += RECENT_S / 2
    for _ in range(MIN_WAITS):
        waits.add(1.0)
    clock.now += RECENT_S / 2 + 0.01
    assert waits.mean_s == 1.0
    clock.now += RECENT_S
    assert waits.mean_s == 0.0


def test_the_number_of_kept_waits_is_limited(clock: Clock) -> None:
    """The oldest waits are dropped first."""
    waits = FinalWaits(clock)
    for index in range(3 * MAX_WAITS):
        waits.add(float(index >= 2 * MAX_WAITS))
    assert waits.mean_s == 1.0
