"""What the processor of this machine can do."""

import torch


def has_bfloat16() -> bool:
    """Return whether a CPU has products in bfloat16 of its own (AVX-512 BF16 or AMX)."""
    has: bool = torch.cpu._is_avx512_bf16_supported()  # private, and there is no public name for it
    return has


def has_tiles() -> bool:
    """Return whether a CPU multiplies tiles of matrices in one instruction (AMX)."""
    has: bool = torch.cpu._is_amx_tile_supported()  # private, and there is no public name for it
    return has


def has_int8() -> bool:
    """Return whether a CPU multiplies 8 bits itself (AVX-512 VNNI), twice as many in an instruction as in bfloat16."""
    has: bool = torch.cpu._is_vnni_supported()  # private, and there is no public name for it
    return has
