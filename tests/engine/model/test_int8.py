"""Products with weights of 8 bits: exact sums, the same bits in any batch, and the words of the model in float32."""

import asyncio
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from benchmarks.recordings import load_bundled
from benchmarks.scoring import WordErrors, word_errors
from tests.engine.checkpoints import Shape, make_checkpoint
from tests.engine.engines import noise, prefill, start_engine
from tutti_server.engine.api import DecodeOptions, DoneEvent, Window
from tutti_server.engine.checkpoint.checkpoint import Checkpoint, read_checkpoint
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.cuda.build import pick_int8_part
from tutti_server.engine.decoding.prompt import Prompt
from tutti_server.engine.decoding.sampling import Draw
from tutti_server.engine.errors import CheckpointError
from tutti_server.engine.model import int8, linear, whisper
from tutti_server.engine.model.int8 import INPUT_MAX, WEIGHT_MAX, Int8Part, Int8Weight, ManyRowsInt8Weight
from tutti_server.engine.model.linear import Form, Linear
from tutti_server.engine.model.packing import find_runs
from tutti_server.engine.model.processor import has_bfloat16
from tutti_server.engine.model.random_weights import SIZES
from tutti_server.engine.model.weights import load_model
from tutti_server.engine.runner import Runner

pytestmark = pytest.mark.skipif(not int8.is_available(), reason="PyTorch has no kernels for 8 bits here")

CPU = torch.device("cpu")
Kind = type[Int8Weight] | type[ManyRowsInt8Weight]
WEIGHTS = pytest.mark.parametrize("kind", [Int8Weight, ManyRowsInt8Weight])
MAX_POINTS = 0.1
"""The largest difference of word errors from float32 that is accepted, in percentage points."""


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def formula(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The product in 8 bits in plain PyTorch, with sums in 64 bits."""
    integers, scales = int8.quantise(weight)
    largest = x.abs().amax(-1, keepdim=True)
    rounded = (x / largest * INPUT_MAX).round().long()
    sums = rounded @ integers.long().T
    return sums.float() * scales / INPUT_MAX * largest


@WEIGHTS
@pytest.mark.parametrize("n_rows", [1, 7, 65, 300])
def test_a_product_is_that_of_the_rounded_numbers(kind: Kind, n_rows: int) -> None:
    """It is close to the product in float32, too."""
    x, weight = random(n_rows, 96), random(200, 96, seed=1)
    product = kind(weight).multiply(x)
    torch.testing.assert_close(product, formula(x, weight), atol=0.05, rtol=1e-3)
    exact = F.linear(x, weight)
    assert float((product - exact).norm() / exact.norm()) < 0.02


@WEIGHTS
def test_the_largest_numbers_do_not_overflow(kind: Kind) -> None:
    """Processors without VNNI add pairs of products in 16 bits, in which larger weights would not fit."""
    signs = torch.tensor([[1.0], [-1.0]])
    weight, x = signs.expand(2, 512).contiguous(), signs.expand(2, 512).contiguous()
    expected = torch.tensor([[512.0, -512.0], [-512.0, 512.0]])
    torch.testing.assert_close(kind(weight).multiply(x), expected)
    assert 2 * (INPUT_MAX + int8.ZERO_POINT) * WEIGHT_MAX < 2**15


@WEIGHTS
@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize("n_outputs", [384, 4681])
def test_a_row_has_the_same_bits_alone_and_among_others(
    threads: None, kind: Kind, n_outputs: int, n_threads: int
) -> None:
    """Also with another number of threads, and where a neighbour is a thousand times larger."""
    weight = kind(random(n_outputs, 384))
    x = random(70, 384, seed=1)
    x[5] *= 1000
    torch.set_num_threads(1)
    alone = torch.cat([weight.multiply(row[None]) for row in x])
    torch.set_num_threads(n_threads)
    for n_rows in (1, 2, 8, 64, 65, 70):
        assert torch.equal(weight.multiply(x[:n_rows]), alone[:n_rows])
    assert torch.equal(weight.multiply(x.view(10, 7, 384)), alone.view(10, 7, n_outputs))


@WEIGHTS
def test_a_row_of_zeros_gives_the_bias(monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    """A free slot has such rows. They do not become numbers that are not finite."""
    monkeypatch.setattr(linear, "has_int8", lambda: True)
    layer = Linear(64, 128).requires_grad_(False)
    layer.pack(Form.INT8 if kind is Int8Weight else Form.INT8_MANY_ROWS)
    x = random(3, 64)
    x[1] = 0.0
    y = layer(x)
    assert torch.equal(y[1], layer.bias) and y.isfinite().all()
    assert kind(torch.zeros(4, 64)).multiply(x).eq(0).all()


@pytest.mark.parametrize("part", [Int8Part.DECODER, Int8Part.ALL])
def test_windows_decode_alone_as_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: Int8Part) -> None:
    """Tokens are the same for windows of several lengths, and the keys and values of their states in all bits.

    Log-probabilities are nearly the same: the order in which PyTorch's attention adds up depends on the longest window.
    """
    monkeypatch.setattr(int8, "best_part", lambda: part)
    checkpoint = read_checkpoint(str(make_checkpoint(tmp_path, Shape("int8", encoder_layers=1))))
    config = EngineConfig(n_slots=4, device="cpu", dtype="int8", audio_context="interims")
    runner = Runner(checkpoint, config)
    assert runner.dtype == "int8" and runner.cache.dtype == torch.float32
    in_bfloat16 = part is Int8Part.DECODER or has_bfloat16()
    assert runner.model.encoder.conv1.weight.dtype == (torch.bfloat16 if in_bfloat16 else torch.float32)
    prompt = Prompt(tokens=(checkpoint.tokenizer.sot,) * 3, sot_index=0, with_timestamps=False)
    clips = [noise(seed, n_samples) for seed, n_samples in enumerate((16_000, 40_000, 40_000, 60_000))]
    slots = [runner.slots.allocate() for _ in clips]

    def decode(some: list[int]) -> list[tuple[list[int], list[float], torch.Tensor]]:
        runner.encode([clips[slot] for slot in some], some, [True] * len(some))
        prefilled = prefill(runner, some, [prompt] * len(some), [Draw()] * len(some))
        steps = [runner.collect(runner.launch()) for _ in range(5)]
        for slot in some:
            runner.end_decoding(slot)
        decoded = []
        for slot, first in zip(some, prefilled, strict=True):
            tokens = [*first.tokens, *(step[slot] for step in steps)]
            keys_values = runner.cache.cross_attention[:, :, slot, :, : runner.cache.encoder_lengths[slot]].clone()
            decoded.append(([each.token for each in tokens], [each.logprob for each in tokens], keys_values))
        return decoded

    for slot, (tokens, logprobs, keys_values) in zip(slots, decode(slots), strict=True):
        alone = decode([slot])[0]
        assert tokens == alone[0]
        assert logprobs == pytest.approx(alone[1], abs=1e-4)
        assert torch.equal(keys_values, alone[2])


@pytest.mark.nightly
def test_words_are_those_of_float32(small_checkpoint: Checkpoint) -> None:
    """The word errors of the small model on the recordings that come with it differ by 0.1 points at most."""
    recordings = load_bundled(24.0, 3)

    async def errors(runner: Runner) -> WordErrors:
        async def one(index: int) -> str:
            window = Window(
                samples=recordings[index].samples, session=f"s{index}", options=DecodeOptions(language="en")
            )
            async with start.submit(window) as events:
                return "".join([event.text async for event in events if isinstance(event, DoneEvent)])

        async with start_engine(runner) as start:
            texts = await asyncio.gather(*map(one, range(len(recordings))))
        return sum(map(word_errors, [each.text for each in recordings], texts), WordErrors())

    in_8_bits = Runner(small_checkpoint, EngineConfig(n_slots=3, device="cpu", dtype="int8"))
    in_float32 = Runner(small_checkpoint, EngineConfig(n_slots=3, device="cpu", dtype="float32"))
    assert (in_8_bits.dtype, in_float32.dtype) == ("int8", "float32")
    found, expected = asyncio.run(errors(in_8_bits)), asyncio.run(errors(in_float32))
    assert expected.words > 150 and expected.rate is not None and expected.rate < 0.05
    assert found.rate is not None and 100 * abs(found.rate - expected.rate) <= MAX_POINTS


def test_auto_takes_8_bits_for_models_of_the_published_sizes(small_checkpoint: Checkpoint) -> None:
    """The small model is smaller. On CUDA nothing has 8 bits, and on a CPU nothing in the other types."""
    for name in ("tiny", "base", "small", "large-v3"):
        assert pick_int8_part(EngineConfig(), SIZES[name], CPU) is int8.best_part()
        assert pick_int8_part(EngineConfig(), SIZES[name], torch.device("cuda")) is Int8Part.NOTHING
        assert pick_int8_part(EngineConfig(dtype="float32"), SIZES[name], CPU) is Int8Part.NOTHING
    assert pick_int8_part(EngineConfig(), small_checkpoint.model, CPU) is Int8Part.NOTHING
    assert pick_int8_part(EngineConfig(dtype="int8"), small_checkpoint.model, CPU) is int8.best_part()


def test_a_machine_without_the_kernels_refuses_8_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """There `auto` is float32."""
    monkeypatch.setattr(int8, "is_available", lambda: False)
    assert pick_int8_part(EngineConfig(), SIZES["base"], CPU) is Int8Part.NOTHING
    with pytest.raises(CheckpointError, match="dtype int8: expected an x86 processor with AVX2"):
        pick_int8_part(EngineConfig(dtype="int8"), SIZES["base"], CPU)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_encoder_in_8_bits_gives_the_same_states_in_blocks_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    """Its attention is over whole windows, in float32 or bfloat16."""
    monkeypatch.setattr(whisper, "has_bfloat16", lambda: dtype == torch.bfloat16)
    checkpoint = read_checkpoint(str(make_checkpoint(tmp_path, Shape("blocks", encoder_layers=2))))
    found = []
    for max_block in (70, 256, 1000):
        monkeypatch.setattr(whisper, "INT8_BLOCK_STATES", max_block)
        encoder = load_model(checkpoint, CPU, torch.float32, Int8Part.ALL).encoder
        assert encoder.conv2.weight.dtype == dtype and encoder.layers[1].attention_dtype == dtype
        features = random(2, encoder.conv1.in_channels, 600).to(dtype)
        found.append(encoder(features, find_runs([300, 300])))
    assert found[0].dtype == torch.float32 and found[0].shape[0] == 600
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


def test_the_encoder_is_in_bfloat16_where_the_processor_multiplies_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """There it is faster than 8 bits."""
    for has_tiles, part in ((True, Int8Part.DECODER), (False, Int8Part.ALL)):
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda has=has_tiles: has)
        assert int8.best_part() is part
