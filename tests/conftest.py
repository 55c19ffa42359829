"""Prepares all tests.

Without a GPU, Triton runs kernels in its interpreter, which must be chosen before Triton is imported. Generated
examples have no deadline, so that none fails because the machine is busy.
"""

import os
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
