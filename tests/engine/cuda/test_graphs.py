"""The forward pass with CUDA graphs against the eager one.

On a machine without a GPU, replaying a graph runs the captured function again.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from tutti_server.engine.cuda import fused_model

pytest.importorskip("triton")

from tests.engine import fake_flashinfer
from tests.engine.cuda.test_fused_model import DEVICE, SMALL, assert_close
from tutti_server.engine.config import EngineConfig, Kernels
from tutti_server.engine.cuda import graphs
from tutti_server.engine.cuda.flashinfer_loader import load_flashinfer
from tutti_server.engine.cuda.fused_model import Attend, HalfProducts
from tutti_server.engine.cuda.fused_sampling import FusedSampler
from tutti_server.engine.cuda.graph_capture import CapturedGraph, GraphPool
from tutti_server.engine.cuda.graph_sizes import GraphSizes, n_rows_held
from tutti_server.engine.cuda.graphs import CudaGraphForward
from tutti_server.engine.cuda.hopper_attention import HopperAttention, load_hopper_attention
from tutti_server.engine.errors import CheckpointError
from tutti_server.engine.model.attention import encoder_attention
from tutti_server.engine.model.forward import EagerForward
from tutti_server.engine.model.kv_cache import KVCache
from tutti_server.engine.model.log_mel import STATE_SAMPLES
from tutti_server.engine.model.packing import Run, find_runs
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
    kernels: Kernels = "triton",
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
        EngineConfig(cuda_graphs=with_graphs, kernels=kernels),
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
@pytest.mark.parametrize(("lengths", "with_graphs"), [([12, 12, 12], True), ([24, 18], False)])
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
    logits = cuda.step(dict.fromkeys(slots, 4))
    assert_close(logits[slots], eager.step(dict.fromkeys(slots, 4))[slots])
    assert cuda.sample(logits)[0, slots].tolist() == logits[slots].argmax(dim=-1).tolist()


class OneKernel:
    """Replaces the kernel for steps of four rows."""

    n_rows = 4

    def __call__(self, tokens: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        return torch.stack([tokens, positions, slots], 1).float()


@torch.inference_mode()
@pytest.mark.parametrize("with_graphs", [True, False])
@pytest.mark.nightly
def test_graphs_of_few_rows_use_one_kernel(model: Whisper, monkeypatch: pytest.MonkeyPatch, with_graphs: bool) -> None:
    """Larger graphs do not, and steps without graphs do not."""
    monkeypatch.setattr("tutti_server.engine.cuda.graphs.load_row_steps", lambda *_: {4: OneKernel()})
    _, cuda = make(model, monkeypatch, with_graphs=with_graphs, max_short=0)
    logits = cuda.step({1: 4})
    if with_graphs:
        assert logits.tolist() == [[20 + row, 4, row] for row in range(4)]
    else:
        assert logits.shape == (4, TINY.vocab_size)
    assert cuda.step({4: 4}).shape == (8, TINY.vocab_size)


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


@torch.inference_mode()
@pytest.mark.parametrize("lengths", [(8, 10), (10, 8)])
@pytest.mark.nightly
def test_nothing_is_left_of_the_audio_of_the_call_before(
    model: Whisper, monkeypatch: pytest.MonkeyPatch, lengths: tuple[int, int]
) -> None:
    """It was longer and louder. Each window keeps its own length."""
    eager, cuda = make(model, monkeypatch, with_graphs=True, decodes=False)
    cuda.encode(1e4 * noise(2, 12, seed=6), [3, 4], find_runs([12, 12]))
    samples = noise(2, 10, seed=7)
    for row, length in zip(samples, lengths, strict=True):
        row[length * STATE_SAMPLES :] = 0
    for forward in (eager, cuda):
        forward.encode(samples, [0, 1], find_runs(lengths))
    for slot, length in enumerate(lengths):
        assert_close(*(forward._cache.cross_attention[:, :, slot, :, :length] for forward in (cuda, eager)))


class PlainAttention:
    """Stands in for our attention over windows, which runs on a Hopper GPU only."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []
        """Lengths of the windows of every attention."""

    def attend(self, runs: Sequence[Run]) -> Attend | None:
        lengths = [run.n_states for run in runs for _ in range(run.n_windows)]
        if min(lengths) < 24:
            return None

        def attend(queries_keys_values: torch.Tensor) -> torch.Tensor:
            self.seen.append(lengths)
            return encoder_attention(queries_keys_values, runs)

        return attend


@pytest.mark.skipif(torch.cuda.is_available(), reason="a captured graph calls nothing of Python again")
@torch.inference_mode()
@pytest.mark.nightly
def test_attention_of_our_own_leaves_short_windows_to_pytorch(model: Whisper, monkeypatch: pytest.MonkeyPatch) -> None:
    attention = PlainAttention()
    monkeypatch.setattr(graphs, "load_hopper_attention", lambda cache: attention)
    eager, cuda = make(model, monkeypatch, with_graphs=True, decodes=False, max_short=0, kernels="auto")
    samples = noise(4, 24, seed=4)
    attention.seen.clear()
    for forward in (eager, cuda):
        forward.encode(samples[:3], [0, 1, 3], find_runs([24] * 3))
        forward.encode(samples[3:], [4], find_runs([12]))
    assert attention.seen == [[24, 24], [24]]
    states = [forward._cache.cross_attention[:, :, [0, 1, 3, 4]] for forward in (cuda, eager)]
    assert_close(*states)


def test_cudnn_serves_where_our_own_attention_does_not_work(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("no such layout")

    cache = KVCache(TINY, 1, DEVICE, torch.float32)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(HopperAttention, "check", fail)
    assert load_hopper_attention(cache) is None
    assert "uses cuDNN, because our own kernel does not work here: no such layout" in caplog.messages[-1]
    monkeypatch.setattr(HopperAttention, "check", lambda *args: None)
    assert load_hopper_attention(cache)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert load_hopper_attention(cache) is None


class BrokenCompiler(fake_flashinfer.Ragged):
    """FlashInfer on a machine without a compiler."""

    def plan(self, *args: object, **kwargs: object) -> None:
        raise RuntimeError("no nvcc")


def test_flashinfer_computes_all_attention_where_it_is_required(
    model: Whisper, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_flashinfer.install(monkeypatch, fake_flashinfer.Ragged)
    flashinfer = load_flashinfer(model, KVCache(TINY, 1, DEVICE, torch.float32))
    runs = find_runs([12, 24, 24])
    shape = (60, 3, TINY.encoder_attention_heads, TINY.d_model // TINY.encoder_attention_heads)
    packed = torch.randn(shape, generator=torch.Generator().manual_seed(5)).to(DEVICE)
    assert_close(flashinfer.attend(runs)(packed), encoder_attention(packed, runs))
    assert fake_flashinfer.Ragged.seen[-1] == [12, 24, 24]


@pytest.mark.parametrize(
    ("ragged", "expected"),
    [
        (None, "kernels flashinfer: expected the package"),
        (BrokenCompiler, "expected it to work on this machine, got: no nvcc"),
    ],
)
def test_flashinfer_that_is_required_and_not_available_is_an_error(
    model: Whisper, monkeypatch: pytest.MonkeyPatch, ragged: type[fake_flashinfer.Ragged] | None, expected: str
) -> None:
    fake_flashinfer.install(monkeypatch, ragged)
    with pytest.raises(CheckpointError, match=expected):
        load_flashinfer(model, KVCache(TINY, 1, DEVICE, torch.float32))
