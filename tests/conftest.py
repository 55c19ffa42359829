"""For all tests: without a GPU, Triton runs kernels in its interpreter, which is chosen before it is imported, and no
generated example fails because the machine was busy.
"""

import os

import torch
from hypothesis import settings

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
