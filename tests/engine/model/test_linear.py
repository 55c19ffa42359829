"""Packed products equal the formula, and a row's product does not depend on other rows."""

import weakref

import pytest
import torch
import torch.nn.functional as F

from tutti_server.engine.model.linear import Linear, can_pack


@pytest.fixture
def layer() -> Linear:
    torch.manual_seed(1)
    return Linear(256, 1024).requires_grad_(False)


@pytest.mark.parametrize("with_gelu", [False, True])
@pytest.mark.parametrize("shape", [(256,), (1, 256), (3, 7, 256), (150, 256)])
def test_packed_products_equal_the_formula(layer: Linear, shape: tuple[int, ...], with_gelu: bool) -> None:
    """For inputs of any shape, with and without an activation."""
    x = torch.randn(shape)
    expected = F.linear(x, layer.weight, layer.bias)
    expected = F.gelu(expected) if with_gelu else expected
    assert torch.equal(layer(x, with_gelu=with_gelu), expected)
    layer.pack()
    torch.testing.assert_close(layer(x, with_gelu=with_gelu), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.skipif(not can_pack(torch.zeros(1)), reason="PyTorch was built without oneDNN")
def test_a_packed_weight_is_in_memory_once(layer: Linear) -> None:
    """The layer still tells its shape and its number of weights."""
    weight = weakref.ref(layer.weight)
    layer.pack()
    assert weight() is None
    assert layer.weight.shape == (1024, 256) and layer.weight.numel() == 1024 * 256


@pytest.mark.skipif(not can_pack(torch.zeros(1)), reason="PyTorch was built without oneDNN")
@pytest.mark.parametrize("n_rows", [1, 2, 3, 5, 16, 99])
def test_a_row_has_the_same_bits_alone_and_in_a_batch(layer: Linear, n_rows: int) -> None:
    """Otherwise another stream could change a transcript."""
    layer.pack()
    x = torch.randn(100, 256)
    assert torch.equal(layer(x[:n_rows]), layer(x)[:n_rows])
