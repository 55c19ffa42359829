"""The model's passes on an NVIDIA GPU, in 16 bits: the same weights as `engine/model/whisper.py` in larger kernels.

Matrix products of many rows are cuBLAS's, attention over whole windows is cuDNN's; the rest is `kernels.py`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from engine.cuda import kernels
from engine.model.attention import encoder_attention
from engine.model.kv_cache import KVCache
from engine.model.linear import Linear
from engine.model.packing import Run, pack
from engine.model.whisper import Decoder, DecoderLayer, Encoder, EncoderLayer

MOST_ROWS = 256
"""From more rows on, cuBLAS is faster than the kernel that reads each weight once for few rows."""
_ATTENTION = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]


Attend = Callable[[Tensor], Tensor]


class StepAttention(Protocol):
    """Takes the place of our own kernels where every row has one new token."""

    def self_attention(self, layer: int, qkv: Tensor, slots: Tensor, starts: Tensor) -> Tensor: ...

    def cross_attention(self, layer: int, query: Tensor) -> Tensor: ...


Operand = TypeVar("Operand")


class Products(Protocol[Operand]):
    """The products of many rows, and what comes before them, in one kind of numbers; `Operand` is multiplied."""

    def take(self, x: Tensor) -> Operand:
        """`(rows, inputs)` of the model's numbers."""
        ...

    def product(self, layer: Linear, x: Operand) -> Tensor: ...

    def normed(self, norm: nn.LayerNorm, x: Tensor, y: Tensor | None) -> tuple[Tensor, Operand]:
        """`x + y`, and its norm to be multiplied."""
        ...

    def activated(self, layer: Linear, x: Operand) -> Operand:
        """A product behind GELU, to be multiplied."""
        ...


class HalfProducts:
    """In the 16 bits of the model itself."""

    def take(self, x: Tensor) -> Tensor:
        return x

    def product(self, layer: Linear, x: Tensor) -> Tensor:
        return _product(layer, x)

    def normed(self, norm: nn.LayerNorm, x: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
        return _normed(norm, x, y)

    def activated(self, layer: Linear, x: Tensor) -> Tensor:
        return _product(layer, x, with_gelu=True)


class FusedEncoder:
    def __init__(self, encoder: Encoder, products: Products[Any]) -> None:
        self._encoder = encoder
        self._products = products
        # Channels last, so that what comes out is what the layers take, without being turned round.
        self._weights = [
            convolution.weight[:, :, None].contiguous(memory_format=torch.channels_last)
            for convolution in (encoder.conv1, encoder.conv2)
        ]

    def __call__(self, features: Tensor, runs: Sequence[Run], attend: Attend | None = None) -> Tensor:
        """As `Encoder.forward`. `attend` takes the place of PyTorch's attention: `(states, 3, heads, head_dim)` to
        `(states, d_model)`.
        """
        encoder = self._encoder
        attend = attend or partial(encoder_attention, runs=runs)
        x = pack([self._embed(features[run.windows, :, : 2 * run.n_states]) for run in runs])
        y: Tensor | None = None
        with _fast_attention():
            for layer in _encoder_layers(encoder):
                x, y = self._layer(layer, x, y, attend)
        return _normed(encoder.layer_norm, x, y)[1]

    def _embed(self, features: Tensor) -> Tensor:
        """As `Encoder.embed`, contiguous."""
        encoder = self._encoder
        x = features[:, :, None].contiguous(memory_format=torch.channels_last)
        x = F.gelu(F.conv2d(x, self._weights[0], encoder.conv1.bias, padding=(0, 1)))
        x = F.gelu(F.conv2d(x, self._weights[1], encoder.conv2.bias, stride=(1, 2), padding=(0, 1)))
        states = x.permute(0, 2, 3, 1)[:, 0]
        return (states + encoder.embed_positions.weight[: states.shape[1]]).contiguous()

    def _layer(self, layer: EncoderLayer, x: Tensor, y: Tensor | None, attend: Attend) -> tuple[Tensor, Tensor]:
        """`x + y` is what comes in, and what is returned."""
        products, attention, mlp = self._products, layer.self_attn, layer.mlp
        x, normed = products.normed(layer.self_attn_layer_norm, x, y)
        projected = products.product(attention.qkv_proj, normed).view(len(x), 3, attention.n_heads, -1)
        y = products.product(attention.out_proj, products.take(attend(projected)))
        x, normed = products.normed(layer.final_layer_norm, x, y)
        return x, products.product(mlp.fc2, products.activated(mlp.fc1, normed))


class FusedDecoder:
    """Decodes rows over the slots of a cache; all that a row's place depends on lies in tensors on the device."""

    def __init__(self, decoder: Decoder, cache: KVCache) -> None:
        self._decoder = decoder
        self._cache = cache
        self._last = decoder.embed_positions.num_embeddings - 1

    def __call__(self, tokens: Tensor, starts: Tensor, slots: Tensor, attention: StepAttention | None = None) -> Tensor:
        """New tokens of some rows to hidden states; their keys and values are stored.

        Args:
            tokens: `(rows, n_tokens)`.
            starts: `(rows,)`: where the first token of each row stands.
            slots: `(rows,)`.

        Returns:
            `(rows, n_tokens, d_model)`.
        """
        rows, n_tokens = tokens.shape
        decoder, cache = self._decoder, self._cache
        places = (starts[:, None] + torch.arange(n_tokens, device=tokens.device)).clamp_(max=self._last)
        x = (decoder.embed_tokens(tokens) + decoder.embed_positions(places)).view(rows * n_tokens, -1)
        rest: _Rest | None = None
        for index, layer in enumerate(_decoder_layers(decoder)):
            own, cross, mlp = layer.self_attn, layer.encoder_attn, layer.mlp
            x, normed = _added(layer.self_attn_layer_norm, x, rest)
            qkv = _product(own.qkv_proj, normed)
            if attention:
                heads = attention.self_attention(index, qkv, slots, starts)
            else:
                keys, values = cache.self_attention[index]
                heads = kernels.self_attention(qkv, keys, values, slots, starts, n_tokens)
            x, normed = _added(layer.encoder_attn_layer_norm, x, _rest(own.out_proj, heads))
            query = _product(cross.q_proj, normed)
            if attention:
                heads = attention.cross_attention(index, query)
            else:
                keys, values = cache.cross_attention[index]
                heads = kernels.cross_attention(query, keys, values, slots, cache.lengths, n_tokens)
            x, normed = _added(layer.final_layer_norm, x, _rest(cross.out_proj, heads))
            rest = _rest(mlp.fc2, _product(mlp.fc1, normed, with_gelu=True))
        return _added(decoder.layer_norm, x, rest)[1].view(rows, n_tokens, -1)

    def logits(self, hidden: Tensor) -> Tensor:
        """`(rows, d_model)` to `(rows, vocab_size)` float32."""
        weight = self._decoder.embed_tokens.weight
        if hidden.shape[0] > MOST_ROWS:
            return F.linear(hidden, weight).float()
        return kernels.linear(hidden.contiguous(), weight, None, dtype=torch.float32)

    def write_cross_attention(self, states: Tensor, slots: Tensor, products: Products[Any]) -> None:
        """Keys and values of packed encoder states, all windows of the same length, for every layer."""
        taken = products.take(states)
        for index, layer in enumerate(_decoder_layers(self._decoder)):
            keys, values = self._cache.cross_attention[index]
            kernels.store_cross(products.product(layer.encoder_attn.kv_proj, taken), keys, values, slots)


_Rest = tuple[Tensor, Tensor | None]
"""What is still to be added: one product, or the parts of one and the bias that goes with them."""


def _rest(layer: Linear, x: Tensor) -> _Rest:
    if x.shape[0] <= MOST_ROWS:
        return kernels.linear_parts(x, layer.weight), layer.bias
    return F.linear(x, layer.weight, layer.bias), None


def _added(norm: nn.LayerNorm, x: Tensor, rest: _Rest | None) -> tuple[Tensor, Tensor]:
    y, bias = rest or (None, None)
    return kernels.layer_norm(x, y, bias, norm.weight, norm.bias, norm.eps)


def _normed(norm: nn.LayerNorm, x: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
    return kernels.layer_norm(x, y, None, norm.weight, norm.bias, norm.eps)


def _product(layer: Linear, x: Tensor, *, with_gelu: bool = False) -> Tensor:
    if x.shape[0] <= MOST_ROWS:
        return kernels.linear(x, layer.weight, layer.bias, with_gelu=with_gelu)
    if with_gelu:
        # cuBLASLt's GELU is the one with tanh, off by less than what 16 bits can tell apart.
        return torch._addmm_activation(layer.bias, x, layer.weight.T, use_gelu=True)
    return F.linear(x, layer.weight, layer.bias)


@contextmanager
def _fast_attention() -> Iterator[None]:
    with sdpa_kernel(_ATTENTION, set_priority=True):
        yield


def _encoder_layers(encoder: Encoder) -> Iterator[EncoderLayer]:
    for layer in encoder.layers:
        assert isinstance(layer, EncoderLayer)
        yield layer


def _decoder_layers(decoder: Decoder) -> Iterator[DecoderLayer]:
    for layer in decoder.layers:
        assert isinstance(layer, DecoderLayer)
        yield layer
