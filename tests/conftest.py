"""For all tests: without a GPU, Triton runs kernels in its interpreter, which is chosen before it is imported."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
