"""The short form of the campaign of kills: a real Ray cluster that loses an engine and a gateway."""

import asyncio
from dataclasses import replace

import pytest

from tests.plugins.ray.conftest import require_ray

require_ray()

from benchmarks.faults.campaign import Plan  # noqa: E402
from benchmarks.faults.ray_kills import campaign_settings, compare  # noqa: E402
from benchmarks.faults.ray_service import RAY_FAULTS, ray_service  # noqa: E402
from benchmarks.recordings import load_bundled  # noqa: E402
from tests.small_model import SETTINGS  # noqa: E402

# Ray's own code warns, also in its threads.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(400)]


FAULTS = ("engine killed", "gateway killed")


def test_no_word_is_lost_or_repeated() -> None:
    """An engine and a gateway are killed in the middle of speech; every word comes once."""
    plan = Plan(
        recordings=load_bundled(8.0, 3),
        n_sessions=3,
        speed=2.0,
        n_process_faults=2,
        process_fault_every_s=1.0,
        seed=1,
    )
    with ray_service(replace(campaign_settings(plan.n_sessions), **SETTINGS), 2) as service:
        result = asyncio.run(compare(service, plan, {fault: RAY_FAULTS[fault] for fault in FAULTS}))
    assert result["holds"], result
    assert result["n_process_faults"] == 2
