"""Tests of `plugins/ray`, some of which need Ray."""

import os
import warnings
from importlib.util import find_spec

import pytest


def require_ray() -> None:
    """Skip the module without Ray; fail it where `TUTTI_REQUIRE_RAY=1` says that it must be there."""
    if find_spec("ray") is None:
        problem = "Ray is not installed: pip install 'tutti-asr[ray]'"
        if os.environ.get("TUTTI_REQUIRE_RAY") == "1":
            pytest.fail(problem)
        pytest.skip(problem, allow_module_level=True)
    with warnings.catch_warnings():
        # Ray warns of its own code while it is imported.
        warnings.simplefilter("ignore")
        import ray.serve  # noqa: F401
