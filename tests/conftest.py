"""Prepares all tests.

Without a GPU, Triton runs kernels in its interpreter, which must be chosen before Triton is imported. Generated
examples have no deadline, so that none fails because the machine is busy.
"""

import os

import torch
from hypothesis import settings

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
