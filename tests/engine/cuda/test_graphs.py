"""The forward pass with CUDA graphs against the eager one.

On a machine without a GPU, replaying a graph runs the captured function again.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from tutti_server.engine.cuda import fused_model, hopper_attention

pytest.importorskip("triton")

from tests.engine.cuda.test_fused_model import DEVICE, SMALL, assert_close
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.cuda.fused_model import HalfProducts
from tutti_server.engine.cuda.fused_sampling import FusedSampler
from tutti_server.engine.cuda.graph_capture import CapturedGraph, GraphPool
from tutti_server.engine.cuda.graph_sizes import GraphSizes, n_rows_held
from tutti_server.engine.cuda.graphs import CudaGraphForward, load_flashinfer
from tutti_server.engine.cuda.hopper_attention import load_hopper_attention
from tutti_server.engine.errors import CheckpointError
from tutti_server.engine.model.forward import EagerForward
from tutti_server.engine.model.kv_cache import KVCache
from tutti_server.engine.model.log_mel import STATE_SAMPLES
from tutti_server.engine.model.packing import find_runs
from tutti_server.engine.model.random_weights import fill
from tutti_server.engine.model.whisper import Whisper, build

TINY = replace(SMALL, encoder_layers=1, decoder_layers=1, max_source_positions=24)
N_SLOTS = 5
MAX_SHORT = 12


class Replayed:
    """Replaces a CUDA graph: it writes the results of a replay to the tensors of the capture."""

    def __init__(self, body: Callable[[], Any], out: Any) -> None:
        self._body = body
        self._out = out

    def replay(self) -> None:
        new = self._body()
        if self._out is not None:
            self._out.copy_(new)


@pytest.fixture(scope="module")
def model() -> Whisper:
    model = build(TINY, DEVICE, torch.float32)
    fill(model)
    return model


class NoSampler:
    """Replaces the sampler, which other tests cover."""

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        return torch.stack([logits.argmax(dim=-1).float(), logits.amax(dim=-1)])


def make(
    model: Whisper,
    monkeypatch: pytest.MonkeyPatch,
    *,
    with_graphs: bool,
    decodes: bool = True,
    max_short: int = MAX_SHORT,
) -> tuple[EagerForward, CudaGraphForward]:
    """Make both, each with its own cache, and with the same tokens at the same positions."""

    def capture(self: object, body: Callable[[], Any]) -> CapturedGraph[Any]:
        out = body()
        return CapturedGraph(Replayed(body, out), out)  # type: ignore[arg-type]

    if DEVICE.type == "cpu":
        monkeypatch.setattr(GraphPool, "capture", capture)
    # Our matrix products are slow in Triton's interpreter, and other tests cover them.
    monkeypatch.setattr(fused_model, "MAX_TRITON_ROWS", 0)
    sizes = GraphSizes(
        step_rows=(4, 8) if decodes else (64,),
        prefill_rows=(4,),
        prefill_tokens=(4,) if decodes else (),
        full_windows=((2, 1.0), (1, 1.1)),
        packed_states=(48,),
        packed_longest=(),
        packed_least=12,
    )
    rows = n_rows_held(N_SLOTS)
    tokens, positions = torch.arange(rows, device=DEVICE) + 20, torch.full((rows,), 4, device=DEVICE)
    eager_cache, cache = (KVCache(TINY, N_SLOTS + 1, DEVICE, torch.float32) for _ in range(2))
    sampler: FusedSampler = NoSampler()  # type: ignore[assignment]
    cuda = CudaGraphForward(
        model,
        cache,
        tokens,
        positions,
        sampler,
        HalfProducts(model.encoder),
        EngineConfig(cuda_graphs=with_graphs, kernels="triton"),
        sizes,
    )
    with torch.inference_mode():
        cuda.capture(4, max_short)
    return EagerForward(model, eager_cache, tokens, positions), cuda


def noise(n_windows: int, n_states: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (0.1 * torch.randn(n_windows, n_states * STATE_SAMPLES, generator=generator)).to(DEVICE)


@torch.inference_mode()
@pytest.mark.nightly
@pytest.mark.parametrize(("lengths", "with_graphs"), [([12, 12, 12], True), ([24, 24], True), ([24, 18], False)])
def test_windows_are_decoded_as_by_the_eager_forward_pass(
    model: Whisper, monkeypatch: pytest.MonkeyPatch, lengths: list[int], with_graphs: bool
) -> None:
    """Batches are cut or padded, a prefill has fewer rows than its graph, and a step has a free slot among its rows."""
    eager, cuda = make(model, monkeypatch, with_graphs=with_graphs)
    slots = [3, 0, 1][: len(lengths)]
    samples = noise(len(lengths), 24, seed=2)
    prompts = [[5, 6, 7], [8, 9, 10, 11], [12]][: len(lengths)]
    for forward in (eager, cuda):
        forward.encode(samples, slots, find_runs(lengths))
    expected, found = eager.prefill(prompts, slots), cuda.prefill(prompts, slots)
    assert found.shape == expected.shape
    for row, prompt in enumerate(prompts):
        assert_close(found[row, : len(prompt)], expected[row, : len(prompt)])
    for forward in (eager, cuda):
        # The step reads four positions of every slot, and what padding leaves in some means nothing.
        forward.prefill([[5, 6, 7, 8]] * len(slots), slots)
    logits = cuda.step(dict.fromkeys(slots, 4))
    assert_close(logits[slots], eager.step(dict.fromkeys(slots, 4))[slots])
    assert cuda.sample(logits)[0, slots].tolist() == logits[slots].argmax(dim=-1).tolist()


@torch.inference_mode()
@pytest.mark.nightly
def test_padding_writes_to_the_padding_slot_only(model: Whisper, monkeypatch: pytest.MonkeyPatch) -> None:
    """A padding row held another window in the replay before. The slot of that window now belongs to a new window."""
    _, cuda = make(model, monkeypatch, with_graphs=True, decodes=False)
    samples = noise(4, 12, seed=3)
    cuda.encode(samples, [0, 1, 2, 4], find_runs([12] * 4))
    cuda.encode(samples[:1], [4], find_runs([12]))
    before = cuda._cache.cross_attention.clone()
    cuda.encode(samples[:3].flip(0), [3, 0, 1], find_runs([12] * 3))
    is_same = (cuda._cache.cross_attention == before).transpose(0, 2).flatten(1).all(dim=1)
    assert is_same[:N_SLOTS].tolist() == [False, False, True, False, True]


def test_flashinfer_that_is_required_and_not_installed_is_an_error(
    model: Whisper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    monkeypatch.delitem(sys.modules, "tutti_server.engine.cuda.flashinfer_attention", raising=False)
    with pytest.raises(CheckpointError, match="kernels flashinfer: expected the package"):
        load_flashinfer(model, KVCache(TINY, 1, DEVICE, torch.float32))


def test_cudnn_serves_where_our_own_attention_does_not_work(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("no such layout")

    cache = KVCache(TINY, 1, DEVICE, torch.float32)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(hopper_attention, "check", fail)
    assert load_hopper_attention(cache) is None
    assert "uses cuDNN, because our own kernel does not work here: no such layout" in caplog.messages[-1]
    monkeypatch.setattr(hopper_attention, "check", lambda *args: None)
    assert load_hopper_attention(cache)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert load_hopper_attention(cache) is None
