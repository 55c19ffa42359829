"""The choice of kernels, and a runner with the fused ones. Without a GPU, Triton's interpreter runs them."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from tutti_server.engine.checkpoint.checkpoint import Checkpoint
from tutti_server.engine.config import CrossCache, EngineConfig
from tutti_server.engine.cuda import build
from tutti_server.engine.errors import CheckpointError
from tutti_server.engine.model.random_weights import SIZES
from tutti_server.engine.model.slot_budget import SCRATCH_BYTES, slot_bytes

CPU = torch.device("cpu")


def test_importing_the_choice_needs_no_triton() -> None:
    """A machine without a GPU has none."""
    code = "import sys; sys.modules['triton'] = None; import tutti_server.engine.cuda.build, tutti_server.engine.runner"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (EngineConfig(encoder_dtype="fp8"), "encoder_dtype fp8: expected 16 bits and our own kernels on a CUDA device"),
        (EngineConfig(cross_cache="int8"), "cross_cache int8: expected 16 bits and our own kernels on a CUDA device"),
        (EngineConfig(cross_cache="states"), "cross_cache states: expected 16 bits and our own kernels on a CUDA"),
        (EngineConfig(kernels="triton"), "kernels triton: expected 16 bits on a CUDA device, got torch.float32 on cpu"),
        (EngineConfig(kernels="flashinfer"), "kernels flashinfer: expected 16 bits on a CUDA device"),
    ],
)
def test_kernels_that_the_device_does_not_have_are_refused(
    small_checkpoint: Checkpoint, config: EngineConfig, expected: str
) -> None:
    with pytest.raises(CheckpointError, match=expected):
        build.uses_fused_kernels(config, small_checkpoint.model, CPU, torch.float32)


@pytest.mark.parametrize("cross_cache", ["int8", "states"])
def test_flashinfers_steps_are_refused(
    small_checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, cross_cache: CrossCache
) -> None:
    """Its kernels do not know the format."""
    monkeypatch.setattr(build, "can_fuse", lambda *_: True)
    config = EngineConfig(cross_cache=cross_cache, kernels="flashinfer")
    with pytest.raises(CheckpointError, match=f"cross_cache {cross_cache}: expected kernels auto or triton, got fl"):
        build.uses_fused_kernels(config, small_checkpoint.model, CPU, torch.bfloat16)


@pytest.mark.parametrize(("n_heads", "expected"), [(12, True), (6, True), (8, False), (96, False)])
def test_heads_of_sizes_that_the_kernels_cannot_have_are_left_to_pytorch(
    monkeypatch: pytest.MonkeyPatch, n_heads: int, expected: bool
) -> None:
    """Triton's blocks are powers of two."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    model = replace(SIZES["small"], decoder_attention_heads=n_heads)
    assert build.uses_fused_kernels(EngineConfig(), model, torch.device("cuda"), torch.bfloat16) == expected


def test_a_cpu_runs_the_plain_kernels(small_checkpoint: Checkpoint) -> None:
    assert not build.uses_fused_kernels(EngineConfig(), small_checkpoint.model, CPU, torch.float32)
    assert build.pick_n_slots(EngineConfig(), small_checkpoint.model, CPU, torch.float32) == 32
    assert build.pick_n_slots(EngineConfig(n_slots=3), small_checkpoint.model, CPU, torch.float32) == 3


def test_engines_that_share_a_gpu_have_equal_parts(
    small_checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever starts first. Each one's weights count for its own part."""
    each, weights = slot_bytes(small_checkpoint.model, 2), 1 << 30
    part = weights + SCRATCH_BYTES + 10 * each
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: weights)
    config = EngineConfig(gpu_share=0.5, gpu_memory_fraction=1.0)
    for taken_by_the_other in (weights, part):
        free = 2 * part - weights - taken_by_the_other
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, 2 * part))
        assert build.pick_n_slots(config, small_checkpoint.model, torch.device("cuda"), torch.bfloat16) == 10
