"""Steps of few rows in one kernel. The kernel itself runs on a GPU only: there `pytest -m gpu` compares all bits."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from tests.engine.cuda.test_fused_model import DEVICE, SMALL
from tutti_server.engine.cuda import row_step
from tutti_server.engine.cuda.fused_model import FusedDecoder
from tutti_server.engine.cuda.nvrtc import CudaError
from tutti_server.engine.cuda.row_step import RowStep, can_run, has_same_bits, load_row_steps
from tutti_server.engine.model.kv_cache import KVCache
from tutti_server.engine.model.random_weights import SIZES, fill
from tutti_server.engine.model.whisper import Whisper, build

CPU = torch.device("cpu")
TINY = replace(SMALL, d_model=256, decoder_attention_heads=4, decoder_ffn_dim=1024, max_source_positions=1500)
N_SLOTS = 3


def make(**changes: Any) -> tuple[Whisper, KVCache]:
    """A model and its cache, in 16 bits, that the kernel can run unless something is changed."""
    has_int8_cross = changes.pop("has_int8_cross", False)
    dtype = changes.pop("dtype", torch.bfloat16)
    config = replace(TINY, **changes)
    return build(config, CPU, dtype), KVCache(config, N_SLOTS, CPU, dtype, has_int8_cross=has_int8_cross)


@pytest.mark.parametrize(
    ("changes", "capability", "expected"),
    [
        ({}, (9, 0), True),
        ({"dtype": torch.float16}, (10, 0), True),
        ({}, (8, 9), False),
        ({"dtype": torch.float32}, (9, 0), False),
        ({"has_int8_cross": True}, (9, 0), True),
        ({"decoder_layers": 3}, (9, 0), False),
        ({"decoder_ffn_dim": 512}, (9, 0), False),
        ({"decoder_attention_heads": 2}, (9, 0), False),
        ({"d_model": 384, "decoder_attention_heads": 6, "decoder_ffn_dim": 1536}, (9, 0), False),
        ({"max_source_positions": 200}, (9, 0), False),
    ],
)
def test_the_kernel_runs_models_that_it_is_written_for(
    changes: dict[str, Any], capability: tuple[int, int], expected: bool
) -> None:
    model, cache = make(**changes)
    assert can_run(model.decoder, cache, capability) == expected


def struct(source: Path, name: str) -> list[str]:
    """The fields of a structure in a kernel's source, in order."""
    body = re.search(rf"struct {name} {{(.*?)}};", source.read_text(), re.DOTALL)
    assert body
    declarations = re.sub(r"//.*", "", body[1]).split(";")
    return [field.split()[-1].lstrip("*") for line in declarations for field in line.split(",") if field.strip()]


def test_arguments_are_in_the_order_of_the_kernels_source() -> None:
    assert [name for name, *_ in row_step._Model._fields_] == struct(row_step.SOURCE, "Model")
    model, _ = make()
    layer = next(iter(model.decoder.layers))
    weights = {
        "own_norm": layer.self_attn_layer_norm.weight,
        "qkv_bias": layer.self_attn.qkv_proj.bias,
        "own_out": layer.self_attn.out_proj.weight,
        "cross_norm_bias": layer.encoder_attn_layer_norm.bias,
        "query": layer.encoder_attn.q_proj.weight,
        "cross_out": layer.encoder_attn.out_proj.weight,
        "mlp_norm": layer.final_layer_norm.weight,
        "fc1": layer.mlp.fc1.weight,
        "fc2_bias": layer.mlp.fc2.bias,
    }
    pointers, names = row_step._pointers(layer), struct(row_step.SOURCE, "Layer")
    assert len(pointers) == len(names)
    assert {name: pointers[names.index(name)] for name in weights} == {
        name: weight.data_ptr() for name, weight in weights.items()
    }


@pytest.mark.parametrize("name", ["base", "small", "medium", "large-v3"])
def test_shared_memory_of_an_h100_holds_what_the_kernel_needs(name: str) -> None:
    for n_rows in row_step.ROWS:
        n_buffers, n_bytes = row_step._shared_memory(SIZES[name].d_model, n_rows, 232_448)
        assert 5 <= n_buffers <= 8
        assert n_bytes <= 232_448


def test_too_little_shared_memory_is_an_error() -> None:
    with pytest.raises(CudaError, match=r"expected 1.* bytes of shared memory, the device has 101376"):
        row_step._shared_memory(1280, 1, 101_376)


class FakeStep:
    """Computes a step with the other kernels, and can change the logits on purpose."""

    def __init__(self, model: Whisper, cache: KVCache, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.n_rows, self.n_tokens = 2, TINY.vocab_size
        self._decoder, self._change = FusedDecoder(model.decoder, cache), change

    def __call__(self, tokens: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        return self._change(self._decoder.logits(self._decoder(tokens[:, None], positions, slots)[:, 0]))


@pytest.mark.parametrize(("change", "expected"), [(lambda x: x, True), (lambda x: x * (1 + 2**-23), False)])
@pytest.mark.nightly
@pytest.mark.usefixtures("plain_products")
def test_all_bits_are_compared_and_the_cache_is_empty_afterwards(
    change: Callable[[torch.Tensor], torch.Tensor], expected: bool
) -> None:
    small = replace(SMALL, decoder_layers=1, max_source_positions=24)
    model = build(small, DEVICE, torch.float32)
    fill(model)
    cache = KVCache(small, N_SLOTS, DEVICE, torch.float32)
    step: Any = FakeStep(model, cache, change)
    assert has_same_bits(step, FusedDecoder(model.decoder, cache), cache) == expected
    assert not cache.self_attention.any() and not cache.cross_attention.any() and not cache.lengths.any()


class FakeCache:
    """The cache of a GPU that has room for one row and the padding slot."""

    device = torch.device("cuda")
    padding_slot = 1


@pytest.mark.parametrize(
    ("step", "has_same", "expected", "warning"),
    [
        (lambda *_: "step", True, [1], None),
        (lambda *_: "step", False, [], "adds up in another order"),
        (CudaError("no compiler"), True, [], "does not work here: no compiler"),
    ],
)
def test_the_kernel_is_used_where_it_works_and_gives_the_same_bits(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    step: Any,
    has_same: bool,
    expected: list[int],
    warning: str | None,
) -> None:
    def load(*args: object) -> object:
        if isinstance(step, Exception):
            raise step
        return step(*args)

    monkeypatch.setattr(row_step, "RowStep", load)
    monkeypatch.setattr(row_step, "has_same_bits", lambda *_: has_same)
    monkeypatch.setattr(row_step, "can_run", lambda *_: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    nothing: Any = None
    cache: Any = FakeCache()
    assert list(load_row_steps(nothing, nothing, cache)) == expected
    assert (warning in caplog.messages[-1]) if warning else not caplog.messages


@pytest.mark.gpu
@pytest.mark.parametrize("has_int8_cross", [False, True])
@pytest.mark.parametrize(("name", "dtype"), [("base", torch.float16), ("turbo", torch.bfloat16)])
@torch.inference_mode()
def test_one_kernel_gives_the_bits_of_many(name: str, dtype: torch.dtype, has_int8_cross: bool) -> None:
    """So does the second launch, which finds the scratch memory as the first one left it."""
    config = replace(SIZES[name], encoder_layers=1)
    device = torch.device("cuda")
    model = build(config, device, dtype)
    fill(model)
    for parameter in model.decoder.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.02)
    cache = KVCache(config, N_SLOTS, device, dtype, has_int8_cross=has_int8_cross)
    fused = FusedDecoder(model.decoder, cache)
    assert can_run(model.decoder, cache, torch.cuda.get_device_capability())
    for n_rows in row_step.ROWS:
        step = RowStep(model.decoder, cache, n_rows)
        assert has_same_bits(step, fused, cache)
        assert has_same_bits(step, fused, cache)
