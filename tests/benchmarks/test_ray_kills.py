"""The short form of the campaign of kills: a real Ray cluster that loses an engine, a gateway and a node."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.cluster.ray.conftest import require_ray

require_ray()

from benchmarks.faults.campaign import Plan  # noqa: E402
from benchmarks.faults.ray_service import RAY_FAULTS, RayService, ray_service  # noqa: E402
from benchmarks.ray_kills import campaign_settings, compare  # noqa: E402
from benchmarks.recordings import load_bundled  # noqa: E402

# Ray's own code warns, also in its threads.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def service() -> Iterator[RayService]:
    with ray_service(campaign_settings(4), 2) as service:
        yield service


@pytest.mark.parametrize("fault", ["engine killed", "gateway killed", "node killed"])
def test_no_word_is_lost_or_repeated(service: RayService, fault: str) -> None:
    """Whatever of the cluster is killed in the middle of speech, every word comes once."""
    plan = Plan(
        recordings=load_bundled(8.0, 3),
        files={},
        n_sessions=3,
        n_uploads=0,
        speed=1.0,
        language="en",
        n_cuts=0,
        n_process_faults=1,
        cut_every_s=1.0,
        process_fault_every_s=2.0,
        seed=1,
    )
    result = asyncio.run(compare(service, plan, {fault: RAY_FAULTS[fault]}))
    assert result["holds"], result
    assert result["n_process_faults"] == 1
