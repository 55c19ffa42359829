"""Programmatic dependent launch, which all kernels share: a GPU sets up a kernel while the one before it still runs.

A decode step launches a dozen short kernels for each layer of the decoder, so the gaps between kernels count.

Source: NVIDIA, CUDA programming guide, programmatic dependent launch.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from functools import cache

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def wait_for_previous_kernel(PDL: tl.constexpr):
    """Wait until the previous kernel has written its results, and allow the GPU to set up the next kernel.

    A kernel calls this before it reads or writes any tensor that another kernel touches. Before this call it may only
    compute addresses and read weights. `states_attention.cu` also reads what the kernels before the previous one wrote:
    they have ended, because the previous one calls this first.
    """
    if PDL:
        gdc_wait()
        gdc_launch_dependents()


def launch_options() -> dict[str, bool]:
    """Keyword arguments that every kernel with a `PDL` constant is launched with."""
    return {"PDL": True, "launch_pdl": True} if _has_dependent_launch() else {"PDL": False}


@cache
def _has_dependent_launch() -> bool:
    """Whether the GPU can set up a kernel while the previous one runs: compute capability 9.0 and later can."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)
