"""The figures of a service whose size changes."""

from typing import Any

import pytest

from tests.cluster.ray.conftest import require_ray

require_ray()

from benchmarks.faults.campaign import CampaignLog  # noqa: E402
from benchmarks.faults.differences import TimedWord  # noqa: E402
from benchmarks.faults.sessions import SessionLog  # noqa: E402
from benchmarks.ray_autoscaling import Phase, Sample, sizes, summarise_phases  # noqa: E402

PHASES = [Phase(2, 10.0), Phase(8, 10.0), Phase(2, 10.0)]
EXPECTED = {"one": [TimedWord("hello", 0.0)]}


def summarise(numbers: list[tuple[int, int, int]], words: list[TimedWord]) -> dict[str, Any]:
    """The figures of samples, each with its phase, engines and gateways, and of one session with these words."""
    log = CampaignLog(sessions=[(0, SessionLog(recording="one", words=words))])
    samples = [
        Sample(phase=phase, at_s=float(at_s), engines=engines, gateways=gateways)
        for at_s, (phase, engines, gateways) in enumerate(numbers)
    ]
    return summarise_phases(log, samples, PHASES, EXPECTED, EXPECTED)


GROWS_AND_SHRINKS = [(0, 2, 2), (0, 1, 1), (1, 1, 1), (1, 3, 2), (2, 3, 2), (2, 1, 1)]


def test_a_service_that_grows_and_shrinks_holds() -> None:
    """The fewest and the most replicas of each phase, and those at its end."""
    result = summarise(GROWS_AND_SHRINKS, EXPECTED["one"])
    assert result["holds"]
    assert [each["engines"] for each in result["phases"]] == [[1, 2, 1], [1, 3, 3], [1, 3, 1]]
    assert sizes(result["phases"]).rows[1] == ("8", "10", "1 to 3, 3 at its end", "1 to 2, 2 at its end")


@pytest.mark.parametrize(
    "numbers",
    [
        [(0, 1, 1), (1, 3, 1), (2, 1, 1)],  # the gateways do not grow
        [(0, 1, 1), (1, 1, 2), (2, 1, 1)],  # the engines do not
        [(0, 1, 1), (1, 3, 2), (2, 3, 1)],  # the engines do not shrink
        [(0, 1, 1), (1, 3, 2), (2, 1, 2)],  # the gateways do not
    ],
)
def test_a_service_that_keeps_its_size_does_not_hold(numbers: list[tuple[int, int, int]]) -> None:
    """Both must follow the number of speakers, up and down."""
    assert not summarise(numbers, EXPECTED["one"])["holds"]


def test_a_lost_word_does_not_hold() -> None:
    """Whatever the size is."""
    assert not summarise(GROWS_AND_SHRINKS, [])["holds"]
