"""The queue waits of finals, which decide whether new sessions are refused."""

import pytest

from tutti_server.app.service.final_waits import MAX_WAITS, MIN_WAITS, RECENT_S, FinalWaits


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_late_waits_are_those_of_the_last_seconds(clock: Clock) -> None:
    """Old waits are dropped. Few waits say nothing; of many, one in twenty may be longer."""
    waits = FinalWaits(clock)
    for _ in range(MIN_WAITS - 1):
        waits.add(4.0)
    assert waits.late_s == 0.0
    waits.add(1.0)
    assert waits.late_s == 4.0
    clock.now += RECENT_S / 2
    for number in range(100):
        waits.add(number / 100)
    assert waits.late_s == pytest.approx(0.97)
    clock.now += RECENT_S / 2 + 0.01
    assert waits.late_s == pytest.approx(0.94)
    clock.now += RECENT_S
    assert waits.late_s == 0.0


def test_the_number_of_kept_waits_is_limited(clock: Clock) -> None:
    """The oldest waits are dropped first."""
    waits = FinalWaits(clock)
    for index in range(3 * MAX_WAITS):
        waits.add(float(index >= 2 * MAX_WAITS))
    assert waits.late_s == 1.0
