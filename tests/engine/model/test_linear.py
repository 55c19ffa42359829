"""Packed products are those of the plain formula, and a row's do not depend on its neighbours."""

import pytest
import torch
import torch.nn.functional as F

from engine.model.linear import Linear, Product, can_pack


@pytest.fixture
def layer() -> Linear:
    torch.manual_seed(1)
    return Linear(256, 1024).requires_grad_(False)


@pytest.mark.parametrize("with_gelu", [False, True])
@pytest.mark.parametrize("shape", [(256,), (1, 256), (3, 7, 256), (150, 256)])
def test_packed_products_are_those_of_the_formula(layer: Linear, shape: tuple[int, ...], with_gelu: bool) -> None:
    """Whatever the shape of what comes in, with an activation behind it or without."""
    x = torch.randn(shape)
    wanted = F.linear(x, layer.weight, layer.bias)
    wanted = F.gelu(wanted) if with_gelu else wanted
    assert torch.equal(layer(x, with_gelu=with_gelu), wanted)
    layer.pack()
    torch.testing.assert_close(layer(x, with_gelu=with_gelu), wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.skipif(not can_pack(torch.zeros(1)), reason="PyTorch was built without oneDNN")
@pytest.mark.parametrize("n_rows", [1, 2, 3, 5, 16, 99])
def test_a_row_has_the_same_bits_alone_and_among_others(layer: Linear, n_rows: int) -> None:
    """Which is what keeps a neighbour from changing a transcript."""
    layer.pack()
    x = torch.randn(100, 256)
    assert torch.equal(layer(x[:n_rows]), layer(x)[:n_rows])


def test_what_has_no_such_kernels_is_left_as_it_is() -> None:
    """Half precision; and the weight as it was read is what counts, so packing again follows a change."""
    weight = torch.randn(8, 4, dtype=torch.bfloat16)
    assert not can_pack(weight)
    product = Product()
    product.pack(weight)
    x = torch.randn(3, 4, dtype=torch.bfloat16)
    assert torch.equal(product(x, weight, None), F.linear(x, weight))
    for _ in range(2):
        changed = torch.randn(8, 4)
        product.pack(changed)
        torch.testing.assert_close(product(x.float(), changed, None), F.linear(x.float(), changed))
