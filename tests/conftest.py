"""Prepares all tests.

Without a GPU, Triton runs kernels in its interpreter, which must be chosen before Triton is imported. Generated
examples have no deadline, so that none fails because the machine is busy.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest
import torch
from hypothesis import settings

from app.media.decoders import Decoders

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(scope="session")
def decoders() -> Iterator[Decoders]:
    """Decode the files of all servers: the processes take time to start."""
    with closing(Decoders()) as decoders:
        yield decoders


@pytest.fixture(autouse=True)
def without_coverage(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave out the measurement of coverage, which doubles the time of plain Python, where a test says so.

    pytest-cov's own `no_cover` goes on tracing, and drops what it found.
    """
    if request.node.get_closest_marker("long") is None:
        yield
        return
    tracer = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(tracer)
