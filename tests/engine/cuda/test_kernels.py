"""The Triton kernels against plain PyTorch. On a machine without a GPU they run in Triton's interpreter."""

import math

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from tutti_server.engine.cuda.graph_sizes import GRAPH_SIZES
from tutti_server.engine.cuda.kernels.attention import cross_attention, self_attention, store_cross_attention
from tutti_server.engine.cuda.kernels.linear import choose_tile, linear, linear_split_k
from tutti_server.engine.cuda.kernels.norm import Scaled, layer_norm, layer_norm_scaled, scale_rows
from tutti_server.engine.cuda.packed_windows import places_of
from tutti_server.engine.model.kv_cache import quantise

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HEADS, HEAD_DIM = 2, 64
WIDTH = HEADS * HEAD_DIM


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def integers(*values: int) -> torch.Tensor:
    return torch.tensor(values, device=DEVICE)


def test_layer_norm_of_a_sum() -> None:
    x, y, weight, bias = random(5, 96), random(5, 96, seed=1), random(96, seed=2), random(96, seed=3)
    total, normed = layer_norm(x, y, None, weight, bias)
    torch.testing.assert_close(total, x + y)
    torch.testing.assert_close(normed, F.layer_norm(x + y, (96,), weight, bias), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shift", [None, random(96, seed=1)])
def test_layer_norm_alone_keeps_its_input(shift: torch.Tensor | None) -> None:
    """Also where a bias is added before the norm."""
    x, weight, bias = random(3, 96), random(96, seed=2), random(96, seed=3)
    total, normed = layer_norm(x, None, shift, weight, bias)
    assert total is x
    shifted = x if shift is None else x + shift
    torch.testing.assert_close(normed, F.layer_norm(shifted, (96,), weight, bias), atol=1e-5, rtol=1e-5)


def test_partial_sums_of_a_product_are_added_with_their_bias() -> None:
    x, inputs, product, product_bias = random(3, 96), random(3, 256, seed=1), random(96, 256, seed=2) / 16, random(96)
    weight, bias = random(96, seed=3), random(96, seed=4)
    partial_sums = linear_split_k(inputs, product)
    total, normed = layer_norm(x, partial_sums, product_bias, weight, bias)
    expected = x + F.linear(inputs, product, product_bias)
    torch.testing.assert_close(total, expected, atol=2e-3, rtol=2e-3)
    torch.testing.assert_close(normed, F.layer_norm(expected, (96,), weight, bias), atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize(
    ("n_inputs", "n_outputs", "n_splits"),
    [(1_280, 3_840, 1), (1_280, 1_280, 1), (320, 1_280, 4), (1_280, 5_120, 1), (1_280, 1_280, 4), (512, 1_536, 1)],
)
def test_programs_of_a_product_run_at_once_as_long_as_a_tile_is_large_enough(
    n_inputs: int, n_outputs: int, n_splits: int
) -> None:
    for n_rows in GRAPH_SIZES.step_rows:
        tile = choose_tile(n_rows, n_inputs, n_outputs, n_splits)
        n_programs = math.ceil(n_rows / tile.rows) * math.ceil(n_outputs / tile.outputs) * n_splits
        assert n_programs <= 132 or tile.rows == tile.outputs == 128
        assert n_inputs % tile.inputs == 0


@pytest.mark.parametrize("n_rows", [5, 70, 130])
def test_a_row_of_a_product_is_the_same_beside_any_others(n_rows: int) -> None:
    """Bit for bit, whichever tile serves them.

    The interpreter leaves the order of a sum to numpy, so there the numbers are whole: any order adds them up.
    """
    x, weight, bias = (random(*shape, dtype=torch.float16) for shape in ((n_rows, 256), (2_100, 256), (2_100,)))
    if DEVICE == "cpu":
        x, weight, bias = (each.mul(4).round() for each in (x, weight, bias))
    together = linear(x, weight, bias, dtype=torch.float32)
    torch.testing.assert_close(together, F.linear(x.float(), weight.float(), bias.float()), atol=2e-3, rtol=2e-3)
    few = x[:2].contiguous()
    assert torch.equal(together[:2], linear(few, weight, bias, dtype=torch.float32))
    assert torch.equal(linear_split_k(x, weight)[:, :2], linear_split_k(few, weight))


def dequantised(scaled: Scaled) -> torch.Tensor:
    return scaled.values.float() * scaled.scales


@pytest.mark.usefixtures("exact_eight_bits")
@pytest.mark.parametrize("columns", [96, *(pytest.param(each, marks=pytest.mark.nightly) for each in (64, 160))])
@pytest.mark.parametrize("with_gelu", [False, True])
def test_rows_are_scaled_to_what_eight_bits_hold(with_gelu: bool, columns: int) -> None:
    """Each row has its own scale, however large or small its numbers are. A row of zeros stays zeros."""
    x = random(4, columns) * torch.tensor([[1e-4], [1.0], [1e4], [0.0]], device=DEVICE)
    scaled = scale_rows(x, with_gelu=with_gelu)
    expected = F.gelu(x, approximate="tanh") if with_gelu else x
    assert scaled.values.dtype == torch.float8_e4m3fn
    assert scaled.values.float().abs().amax(1).tolist() == [448, 448, 448, 0]
    largest = expected.abs().amax(1, keepdim=True)
    # Numbers have three bits of mantissa, so the error is a sixteenth of the number, or of the smallest normal number.
    error = (dequantised(scaled) - expected).abs()
    assert bool((error <= expected.abs() / 16 + largest / 448 * 2**-9).all())


@pytest.mark.usefixtures("exact_eight_bits")
def test_layer_norm_of_a_sum_is_scaled() -> None:
    x, y, weight, bias = random(5, 96), random(5, 96, seed=1), random(96, seed=2), random(96, seed=3)
    expected_total, expected = layer_norm(x, y, None, weight, bias)
    total, normed = layer_norm_scaled(x, y, weight, bias, 1e-5)
    torch.testing.assert_close(total, expected_total)
    torch.testing.assert_close(dequantised(normed), dequantised(scale_rows(expected)), atol=1e-5, rtol=0.07)


@pytest.mark.parametrize("rows", [17, *(pytest.param(each, marks=pytest.mark.nightly) for each in (1, 16, 40))])
@pytest.mark.parametrize("with_gelu", [False, True])
def test_linear(rows: int, with_gelu: bool) -> None:
    x, weight, bias = random(rows, 128), random(100, 128, seed=1) / 11, random(100, seed=2)
    expected = F.linear(x, weight, bias)
    out = linear(x, weight, bias, with_gelu=with_gelu)
    torch.testing.assert_close(out, F.gelu(expected) if with_gelu else expected, atol=2e-3, rtol=2e-3)


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels in 32 bits need more shared memory than a GPU has")
def test_long_rows_are_added_up_in_two_sums() -> None:
    x, weight, bias = random(3, 1024), random(32, 1024, seed=1) / 32, random(32, seed=2)
    torch.testing.assert_close(linear(x, weight, bias), F.linear(x, weight, bias), atol=4e-3, rtol=4e-3)


def test_gelu_is_the_exact_one() -> None:
    """The products with one are exact in any format, so that the error is the GELU's."""
    x = (torch.arange(-64, 64, device=DEVICE) / 8.0).view(2, 64)
    out = linear(x, torch.eye(64, device=DEVICE), None, with_gelu=True)
    torch.testing.assert_close(out.double(), F.gelu(x.double()), atol=1e-6, rtol=0)


@pytest.mark.parametrize("n_tokens", [4, *(pytest.param(each, marks=pytest.mark.nightly) for each in (1, 20, 40))])
def test_self_attention_stores_new_tokens_and_attends_to_earlier_ones(n_tokens: int) -> None:
    """Rows are in any slots, and at different positions."""
    n_positions = 96
    keys, values = random(5, HEADS, n_positions, HEAD_DIM, seed=1), random(5, HEADS, n_positions, HEAD_DIM, seed=2)
    slots, starts = integers(3, 0, 4), integers(0, 5, 50)
    qkv = random(3 * n_tokens, 3 * WIDTH, seed=3)
    expected_keys, expected = keys.clone(), []
    for row, (slot, start) in enumerate(zip(slots.tolist(), starts.tolist(), strict=True)):
        own = qkv[row * n_tokens : (row + 1) * n_tokens].view(n_tokens, 3, HEADS, HEAD_DIM).permute(1, 2, 0, 3)
        all_keys = torch.cat([keys[slot, :, :start], own[1]], dim=1)
        all_values = torch.cat([values[slot, :, :start], own[2]], dim=1)
        mask = torch.ones(n_tokens, start + n_tokens, dtype=torch.bool, device=DEVICE).tril(start)
        attended = F.scaled_dot_product_attention(own[0], all_keys, all_values, attn_mask=mask)
        expected.append(attended.transpose(0, 1).reshape(n_tokens, WIDTH))
        expected_keys[slot, :, start : start + n_tokens] = own[1]
    out = self_attention(qkv, keys, values, slots, starts, n_tokens)
    torch.testing.assert_close(out, torch.cat(expected), atol=2e-3, rtol=2e-3)
    assert torch.equal(keys, expected_keys)


def test_self_attention_stays_inside_its_slot() -> None:
    """A token beyond the last position is not stored."""
    keys, values = (
        torch.zeros(2, HEADS, 32, HEAD_DIM, device=DEVICE),
        torch.zeros(2, HEADS, 32, HEAD_DIM, device=DEVICE),
    )
    self_attention(random(1, 3 * WIDTH), keys, values, integers(0), integers(32), 1)
    assert not keys.any() and not values.any()


@pytest.mark.parametrize("in_eight_bits", [False, True])
@pytest.mark.parametrize("n_tokens", [5, *(pytest.param(each, marks=pytest.mark.nightly) for each in (1, 40))])
def test_cross_attention_reads_as_many_states_as_each_slot_holds(n_tokens: int, in_eight_bits: bool) -> None:
    n_states = 400
    keys, values = random(4, HEADS, n_states, HEAD_DIM, seed=1), random(4, HEADS, n_states, HEAD_DIM, seed=2)
    slots, lengths = integers(2, 0, 3), integers(400, 250, 7, 0)
    query = random(3 * n_tokens, WIDTH, seed=3)
    caches, scales = torch.stack([keys, values]), None
    if in_eight_bits:
        caches, scales = quantise(caches)
        keys, values = caches * scales[..., None]
    out = cross_attention(query, caches, scales, slots, lengths, n_tokens).view(3, n_tokens, WIDTH)
    for row, slot in enumerate((2, 0)):
        length = int(lengths[slot])
        own = query.view(3, n_tokens, HEADS, HEAD_DIM)[row].transpose(0, 1)
        expected = F.scaled_dot_product_attention(own, keys[slot, :, :length], values[slot, :, :length])
        torch.testing.assert_close(out[row], expected.transpose(0, 1).reshape(n_tokens, WIDTH), atol=2e-3, rtol=2e-3)
    assert not out[2].any()


def test_cross_keys_and_values_are_stored_by_slot() -> None:
    n_states, width = 6, WIDTH
    keys, values = caches = torch.zeros(2, 3, HEADS, 10, HEAD_DIM, device=DEVICE)
    product = random(2 * n_states, 2 * width)
    store_cross_attention(product, caches, None, *places_of(integers(2, 0), n_states))
    split = product.view(2, n_states, 2, HEADS, HEAD_DIM).permute(2, 0, 3, 1, 4)
    assert torch.equal(keys[[2, 0], :, :n_states], split[0])
    assert torch.equal(values[[2, 0], :, :n_states], split[1])
    assert not keys[1].any() and not keys[:, :, n_states:].any()


def test_cross_keys_and_values_are_stored_in_eight_bits() -> None:
    """As PyTorch brings them there. A key of zeros stays zeros, however its neighbours are."""
    n_states = 6
    caches = torch.zeros(2, 3, HEADS, 10, HEAD_DIM, device=DEVICE, dtype=torch.int8)
    scales = torch.zeros(2, 3, HEADS, 10, device=DEVICE)
    product = random(2 * n_states, 2 * WIDTH) * torch.logspace(-3, 3, 2 * n_states, device=DEVICE)[:, None]
    product[3, :HEAD_DIM] = 0.0
    store_cross_attention(product, caches, scales, *places_of(integers(2, 0), n_states))
    split = product.view(2, n_states, 2, HEADS, HEAD_DIM).permute(2, 0, 3, 1, 4)
    expected, expected_scales = quantise(split)
    assert torch.equal(scales[:, [2, 0], :, :n_states], expected_scales)
    assert int((caches[:, [2, 0], :, :n_states].int() - expected.int()).abs().max()) <= 1
    assert not caches[:, 1].any() and not caches[:, :, :, n_states:].any() and not scales[:, :, :, n_states:].any()
    assert not caches[0, 2, 0, 3].any()
    largest = split.abs().amax(-1, keepdim=True)
    restored = caches[:, [2, 0], :, :n_states] * scales[:, [2, 0], :, :n_states, None]
    assert bool(((restored - split).abs() <= largest / 250 + 1e-6).all())
