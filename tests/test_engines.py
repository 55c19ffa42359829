"""`tutti serve --engines 2`: real processes with the small model."""

from pathlib import Path

import pytest

from tests.supervised import supervised


@pytest.mark.nightly
def test_two_engines_have_one_gateway(tmp_path: Path) -> None:
    """Without `--gateways`. Only the engines have torch."""
    with supervised(tmp_path, engines=2) as supervisor:
        assert (len(supervisor.with_torch()), len(supervisor.gateways())) == (2, 1)
