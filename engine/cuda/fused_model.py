"""The model's forward passes on an NVIDIA GPU, in 16 bits: the weights of `engine/model/whisper.py`, in larger kernels.

cuBLAS computes matrix products of many rows, and cuDNN the attention over windows. The rest is in `kernels/`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tutti_server.engine.cuda.kernels.attention import cross_attention, self_attention, store_cross_attention
from tutti_server.engine.cuda.kernels.linear import linear, linear_split_k
from tutti_server.engine.cuda.kernels.norm import layer_norm
from tutti_server.engine.cuda.packed_windows import PackedWindows, Places
from tutti_server.engine.cuda.states_attention import CrossAttentionToStates
from tutti_server.engine.model.attention import encoder_attention
from tutti_server.engine.model.kv_cache import KVCache
from tutti_server.engine.model.linear import Linear
from tutti_server.engine.model.packing import Run, pack
from tutti_server.engine.model.whisper import CrossAttention, Decoder, Encoder, EncoderLayer

MAX_TRITON_ROWS = 256
"""Products of at most this many rows use our kernels, which read each weight once. cuBLAS is faster for more rows, and
adds up the encoder's residuals in any case."""
_ATTENTION_BACKENDS = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
"""PyTorch's attention kernels for the encoder, the preferred one first."""


Attend = Callable[[Tensor], Tensor]
"""The encoder's attention over the windows of one call: `(states, 3, heads, head_dim)` to `(states, d_model)`."""
AttendIn = Callable[[Sequence[Run]], Attend | None]
"""The attention over these windows in place of PyTorch's; `None` where PyTorch computes it."""


class StepAttention(Protocol):
    """The decoder's attention for steps, where every row has one new token. It replaces our own kernels."""

    def self_attention(self, layer: int, qkv: Tensor, slots: Tensor, starts: Tensor) -> Tensor:
        """Store the new tokens' keys and values and attend; see `kernels.attention.self_attention`."""
        ...

    def cross_attention(self, layer: int, query: Tensor) -> Tensor:
        """Attend to the encoder states of each row's slot, `(rows, width)` to `(rows, width)`."""
        ...


Operand = TypeVar("Operand")
"""A matrix in the number format that is multiplied."""


class ResidualSum(Protocol[Operand]):
    """What the layers of the encoder add to: the embedded audio and the output of every layer before."""

    def normed(self, norm: nn.LayerNorm) -> Operand:
        """Return the layer norm of the sum, as an operand of the next product."""
        ...

    def add(self, layer: Linear, x: Operand) -> None:
        """Add a product."""
        ...

    def states(self, norm: nn.LayerNorm) -> Tensor:
        """Return the layer norm of the sum in the model's dtype, which is the encoder's output."""
        ...


class Products(Protocol[Operand]):
    """The encoder's matrix products in one number format, and the operations that produce their operands."""

    def to_operand(self, x: Tensor) -> Operand:
        """Convert `(rows, inputs)` from the model's dtype."""
        ...

    def product(self, layer: Linear, x: Operand) -> Tensor:
        """Multiply, and return `(rows, outputs)` in the model's dtype."""
        ...

    def activated(self, layer: Linear, x: Operand) -> Operand:
        """Multiply, and return the GELU of the product as an operand."""
        ...

    def begin(self, x: Tensor) -> ResidualSum[Operand]:
        """Begin a sum with `(rows, d_model)`, which may be overwritten."""
        ...


class HalfProducts:
    """`Products` in the model's own dtype, which has 16 bits."""

    def __init__(self, encoder: Encoder) -> None:
        # What the biases of the layers add up to, after each layer that adds to the sum.
        self._shifts: dict[Linear, Tensor] = {}
        shift = torch.zeros_like(encoder.layer_norm.bias, dtype=torch.float32)
        for layer in encoder.layers:
            for own in (layer.self_attn.out_proj, layer.mlp.fc2):
                self._shifts[own] = shift = shift + own.bias.float()

    def to_operand(self, x: Tensor) -> Tensor:
        """Return the matrix as it is."""
        return x

    def product(self, layer: Linear, x: Tensor) -> Tensor:
        """Multiply."""
        return _product(layer, x)

    def activated(self, layer: Linear, x: Tensor) -> Tensor:
        """Return the GELU of a product."""
        return _product(layer, x, with_gelu=True)

    def begin(self, x: Tensor) -> "HalfSum":
        """Begin a sum."""
        return HalfSum(x, self._shifts)


class HalfSum:
    """`ResidualSum` in 16 bits: products are added in place, without their biases, which every norm adds.

    Adding is then a part of the product, and costs a layer norm less memory traffic.
    """

    def __init__(self, x: Tensor, shifts: dict[Linear, Tensor]) -> None:
        self._x = x
        self._shifts = shifts
        self._shift: Tensor | None = None

    def normed(self, norm: nn.LayerNorm) -> Tensor:
        """Return the layer norm of the sum."""
        return layer_norm(self._x, None, self._shift, norm.weight, norm.bias, norm.eps)[1]

    def add(self, layer: Linear, x: Tensor) -> None:
        """Add a product."""
        self._x.addmm_(x, layer.weight.T)
        self._shift = self._shifts[layer]

    def states(self, norm: nn.LayerNorm) -> Tensor:
        """Return the layer norm of the sum."""
        return self.normed(norm)


class FusedEncoder:
    """Computes what `Encoder` computes."""

    def __init__(self, encoder: Encoder, products: Products[Any]) -> None:
        self._encoder = encoder
        self._products = products
        # Channels come last in the convolutions, because the layers take their result in this order.
        self._convolution_weights = [
            convolution.weight[:, :, None].contiguous(memory_format=torch.channels_last)
            for convolution in (encoder.conv1, encoder.conv2)
        ]

    def __call__(self, features: Tensor, runs: Sequence[Run], attend: Attend | None = None) -> Tensor:
        """Encode windows; see `Encoder.forward`. `attend` replaces PyTorch's attention."""
        attend = attend or partial(encoder_attention, runs=runs)
        x = pack([self._embed(features[run.windows, :, : 2 * run.n_states]) for run in runs])
        return self._run_layers(x, attend)

    def encode_packed(self, features: Tensor, windows: PackedWindows) -> Tensor:
        """Encode windows of any lengths, which the device knows.

        Args:
            features: `(windows, n_mels, n_frames)`: two frames for each state of the longest window.
            windows: where they lie.

        Returns:
            Packed states, `(states, d_model)`.
        """
        return self._run_layers(windows.pack(self._embed(features, windows.frames)), windows.attend)

    def _run_layers(self, x: Tensor, attend: Attend) -> Tensor:
        """Run all layers over packed states, which are overwritten."""
        encoder = self._encoder
        total = self._products.begin(x)
        with sdpa_kernel(_ATTENTION_BACKENDS, set_priority=True):
            for layer in encoder.layers:
                self._add_layer(layer, total, attend)
        return total.states(encoder.layer_norm)

    def _embed(self, features: Tensor, frames: Tensor | None = None) -> Tensor:
        """Compute `Encoder.embed`, contiguous.

        Args:
            features: `(windows, n_mels, n_frames)`.
            frames: which frames a window has, `(windows, n_frames)`: the others are as the nothing after it.
        """
        encoder = self._encoder
        exists = None if frames is None else frames[:, None, None]
        x = features[:, :, None].contiguous(memory_format=torch.channels_last)
        x = x if exists is None else x * exists
        x = F.gelu(F.conv2d(x, self._convolution_weights[0], encoder.conv1.bias, padding=(0, 1)))
        x = x if exists is None else x * exists
        x = F.gelu(F.conv2d(x, self._convolution_weights[1], encoder.conv2.bias, stride=(1, 2), padding=(0, 1)))
        states = x.permute(0, 2, 3, 1)[:, 0]
        return (states + encoder.embed_positions.weight[: states.shape[1]]).contiguous()

    def _add_layer(self, layer: EncoderLayer, total: ResidualSum[Any], attend: Attend) -> None:
        products, attention, mlp = self._products, layer.self_attn, layer.mlp
        projected = products.product(attention.qkv_proj, total.normed(layer.self_attn_layer_norm))
        attended = attend(projected.view(len(projected), 3, attention.n_heads, -1))
        total.add(attention.out_proj, products.to_operand(attended))
        total.add(mlp.fc2, products.activated(mlp.fc1, total.normed(layer.final_layer_norm)))


class FusedDecoder:
    """Computes what `Decoder` computes, over the slots of a cache. Each layer norm also adds the residual before it.

    Slots and positions are tensors on the device, so that a CUDA graph can be replayed with other ones.
    """

    def __init__(self, decoder: Decoder, cache: KVCache) -> None:
        """Load the kernel that a cache of encoder states needs.

        Raises:
            CudaError: it does not work here.
        """
        self._decoder = decoder
        self._cache = cache
        self._to_states = CrossAttentionToStates(cache) if cache.encoder_states is not None else None
        self._last_position = decoder.embed_positions.num_embeddings - 1

    def __call__(
        self,
        tokens: Tensor,
        starts: Tensor,
        slots: Tensor,
        attention: StepAttention | None = None,
        *,
        rows_are_slots: bool = False,
    ) -> Tensor:
        """Run new tokens of some rows, and store their keys and values.

        Args:
            tokens: `(rows, n_tokens)`.
            starts: `(rows,)`: the position of each row's first new token.
            slots: `(rows,)`.
            attention: replaces our own attention kernels; only for one token in each row.
            rows_are_slots: whether each row is that of the slot of its number, or of the padding slot, with one token.
                Then the keys and values of a window are read once for all beams that share it.

        Returns:
            Hidden states, `(rows, n_tokens, d_model)`.
        """
        rows, n_tokens = tokens.shape
        decoder, cache = self._decoder, self._cache
        positions = (starts[:, None] + torch.arange(n_tokens, device=tokens.device)).clamp_(max=self._last_position)
        x = (decoder.embed_tokens(tokens) + decoder.embed_positions(positions)).view(rows * n_tokens, -1)
        residual: _Residual | None = None
        windows = cache.window_slots[slots]
        sharers = cache.sharers if rows_are_slots else None
        for index, layer in enumerate(decoder.layers):
            own, cross, mlp = layer.self_attn, layer.encoder_attn, layer.mlp
            x, normed = _added(layer.self_attn_layer_norm, x, residual)
            qkv = _product(own.qkv_proj, normed)
            if attention:
                heads = attention.self_attention(index, qkv, slots, starts)
            else:
                keys, values = cache.self_attention[index]
                heads = self_attention(qkv, keys, values, slots, starts, n_tokens)
            x, normed = _added(layer.encoder_attn_layer_norm, x, _residual(own.out_proj, heads))
            query = _product(cross.q_proj, normed)
            if attention:
                heads = attention.cross_attention(index, query)
            else:
                heads = self.attend_to_states(index, cross, query, windows, n_tokens, sharers)
            x, normed = _added(layer.final_layer_norm, x, _residual(cross.out_proj, heads))
            residual = _residual(mlp.fc2, _product(mlp.fc1, normed, with_gelu=True))
        return _added(decoder.layer_norm, x, residual)[1].view(rows, n_tokens, -1)

    def attend_to_states(
        self,
        layer: int,
        cross: CrossAttention,
        query: Tensor,
        windows: Tensor,
        n_tokens: int,
        sharers: Tensor | None = None,
    ) -> Tensor:
        """Attend from new tokens to the encoder states of their windows, `(rows * n_tokens, d_model)` each.

        Args:
            cross: the attention of this layer.
            windows: the slot of each row's window, `(rows,)`.
            sharers: which slots share a window, where rows are slots.
        """
        cache = self._cache
        if self._to_states:
            return self._to_states(cross, query, windows, n_tokens)
        return cross_attention(query, *cross_caches(cache, layer), windows, cache.lengths, n_tokens, sharers)

    def logits(self, hidden: Tensor) -> Tensor:
        """`(rows, d_model)` to `(rows, vocab_size)` float32."""
        weight = self._decoder.embed_tokens.weight
        if hidden.shape[0] > MAX_TRITON_ROWS:
            return F.linear(hidden, weight).float()
        return linear(hidden.contiguous(), weight, None, dtype=torch.float32)

    def write_cross_attention(self, states: Tensor, places: Places, products: Products[Any]) -> None:
        """Store packed states, `(states, d_model)`, or the cross-attention keys and values of every layer."""
        encoder_states = self._cache.encoder_states
        if encoder_states is not None:
            encoder_states[places] = states
            return
        operand = products.to_operand(states)
        for index, layer in enumerate(self._decoder.layers):
            projected = products.product(layer.encoder_attn.kv_proj, operand)
            store_cross_attention(projected, *cross_caches(self._cache, index), *places)


def cross_caches(cache: KVCache, layer: int) -> tuple[Tensor, Tensor | None]:
    """One layer's keys and values of cross-attention, and their scales if they are in 8 bits."""
    return cache.cross_attention[layer], None if cache.cross_scales is None else cache.cross_scales[layer]


_Residual = tuple[Tensor, Tensor | None]
"""A layer's output that the next layer norm adds: a product, or the partial sums of one and the bias to add to them."""


def _residual(layer: Linear, x: Tensor) -> _Residual:
    if x.shape[0] <= MAX_TRITON_ROWS:
        return linear_split_k(x, layer.weight), layer.bias
    return F.linear(x, layer.weight, layer.bias), None


def _added(norm: nn.LayerNorm, x: Tensor, residual: _Residual | None) -> tuple[Tensor, Tensor]:
    y, bias = residual or (None, None)
    return layer_norm(x, y, bias, norm.weight, norm.bias, norm.eps)


def _product(layer: Linear, x: Tensor, *, with_gelu: bool = False) -> Tensor:
    if x.shape[0] <= MAX_TRITON_ROWS:
        return linear(x, layer.weight, layer.bias, with_gelu=with_gelu)
    if with_gelu:
        # cuBLASLt's GELU is the approximation with tanh. It differs by less than 16 bits can tell apart.
        return torch._addmm_activation(layer.bias, x, layer.weight.T, use_gelu=True)
    return F.linear(x, layer.weight, layer.bias)
