"""Whisper's encoder and decoder. Positions and attention (masks and caches) are arguments of the forward pass.

Source: openai/whisper, whisper/model.py. Here one matrix product computes queries, keys and values instead of three.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tutti_server.engine.checkpoint.checkpoint import ModelConfig
from tutti_server.engine.model.attention import DecoderAttention, encoder_attention
from tutti_server.engine.model.int8 import Int8Part
from tutti_server.engine.model.linear import Form, Linear, Product
from tutti_server.engine.model.log_mel import LogMel
from tutti_server.engine.model.packing import Run, in_blocks, pack
from tutti_server.engine.model.processor import has_bfloat16

INT8_BLOCK_STATES = 256
"""How many encoder states go through all operations between two products of 8 bits at a time.

These operations are more than between products of floats: scales, rounding, bias and GELU by themselves. In blocks of
this size they work in the caches: without attention, a layer of base takes 18 ms for 1,500 states instead of 28, on two
cores of an AMD EPYC. Floats are slower in blocks, by 5 % for a model of 11 M parameters.
"""


Layer = TypeVar("Layer", bound=nn.Module)


class Layers(nn.ModuleList, Generic[Layer]):
    """The layers of an encoder or a decoder, in their order."""

    def __iter__(self) -> Iterator[Layer]:
        return super().__iter__()  # type: ignore[return-value]  # PyTorch's list does not know what it holds


class Whisper(nn.Module):
    """Encoder and decoder. `outline` makes one without weights, and `tutti_server.engine.model.weights` loads them."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)

    @cached_property
    def log_mel(self) -> LogMel:
        """Computes what the encoder takes. Ask for it once the weights are packed: it is of their type."""
        convolution = self.encoder.conv1
        return LogMel(convolution.in_channels, convolution.weight.device, convolution.weight.dtype)

    def pack(self, int8_part: Int8Part = Int8Part.NOTHING) -> None:
        """Bring the weights into the form that this machine's kernels need. Call it once they are loaded."""
        of_states = [module for name, module in self.decoder.named_modules() if name.endswith("encoder_attn.kv_proj")]
        over_states = {*self.encoder.modules(), *of_states}
        states_form = own_form = Form.SAME_BITS
        match int8_part:
            case Int8Part.DECODER:
                states_form, own_form = Form.FASTEST, Form.INT8
                for module in (self.encoder, *of_states):
                    module.to(torch.bfloat16)
            case Int8Part.ALL:
                states_form, own_form = Form.INT8_MANY_ROWS, Form.INT8
                self.encoder.prepare_for_int8(torch.bfloat16 if has_bfloat16() else torch.float32)
        for module in self.modules():
            if isinstance(module, Linear):
                module.pack(states_form if module in over_states else own_form)
        self.decoder.pack(own_form)


class Encoder(nn.Module):
    """Computes encoder states from log-mel spectrograms, for windows of any lengths in one call."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d_model = config.d_model
        self.conv1 = nn.Conv1d(config.n_mels, d_model, kernel_size=3, padding=1)
        self.conv2 = nn.Conv1d(d_model, d_model, kernel_size=3, stride=2, padding=1)
        self.embed_positions = _embedding(config.max_source_positions, d_model)
        self.layers: Layers[EncoderLayer] = Layers(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.layer_norm = nn.LayerNorm(d_model)

    def forward(self, features: Tensor, runs: Sequence[Run]) -> Tensor:
        """Encode windows.

        Args:
            features: `(batch, n_mels, n_frames)`. Each encoder state of a window needs two frames; later frames are
                not used.
            runs: the windows, grouped by length.

        Returns:
            Packed states, `(states, d_model)`.
        """
        x = pack([self.embed(features[run.windows, :, : 2 * run.n_states]) for run in runs])
        for layer in self.layers:
            x = layer(x, runs)
        states: Tensor = self.layer_norm(x)
        return states

    def prepare_for_int8(self, attention_dtype: torch.dtype) -> None:
        """Compute convolutions and attention in this type, and all else in the type of the weights, in blocks.

        Weights in 8 bits are packed by themselves afterwards.
        """
        self.conv1.to(attention_dtype)
        self.conv2.to(attention_dtype)
        for layer in self.layers:
            layer.attention_dtype = attention_dtype
            layer.max_block = INT8_BLOCK_STATES

    def embed(self, features: Tensor) -> Tensor:
        """Convolve, and add positions: `(batch, n_mels, n_frames)` to `(batch, n_frames / 2, d_model)`."""
        x = F.gelu(self.conv1(features))
        x = F.gelu(self.conv2(x)).transpose(1, 2)
        return x + self.embed_positions.weight[: x.shape[1]]


class EncoderLayer(nn.Module):
    """Self-attention within each window, then a perceptron, both with a residual connection."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model)
        self.self_attn = SelfAttention(config.d_model, config.encoder_attention_heads)
        self.final_layer_norm = nn.LayerNorm(config.d_model)
        self.mlp = MLP(config.d_model, config.encoder_ffn_dim)
        self.attention_dtype: torch.dtype | None = None
        """The type of the attention; `None` for that of the products."""
        self.max_block: int | None = None
        """The most states for which all but the attention is computed at a time; `None` for all."""

    def forward(self, x: Tensor, runs: Sequence[Run]) -> Tensor:
        """Packed states to packed states, `(states, d_model)`."""
        attended = encoder_attention(in_blocks(self._before_attention, self.max_block, x), runs)
        return in_blocks(self._after_attention, self.max_block, x, attended)

    def _before_attention(self, x: Tensor) -> Tensor:
        """Queries, keys and values: `(states, 3, heads, head_dim)`."""
        projected: Tensor = self.self_attn.qkv_proj(self.self_attn_layer_norm(x))
        projected = projected.to(self.attention_dtype or projected.dtype)
        return projected.view(len(projected), 3, self.self_attn.n_heads, -1)

    def _after_attention(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.self_attn.out_proj(attended.to(x.dtype))
        out: Tensor = x + self.mlp(self.final_layer_norm(x))
        return out


class Decoder(nn.Module):
    """Computes hidden states from tokens, and logits from hidden states. Its attention reads the caches."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = _embedding(config.vocab_size, config.d_model)
        self.embed_positions = _embedding(config.max_target_positions, config.d_model)
        self.layers: Layers[DecoderLayer] = Layers(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.layer_norm = nn.LayerNorm(config.d_model)
        self._projection = Product()

    def pack(self, form: Form = Form.SAME_BITS) -> None:
        """Bring the projection to the vocabulary, which is the token embedding, into the form for the kernels."""
        self._projection.pack(self.embed_tokens.weight, form)

    def forward(self, tokens: Tensor, positions: Tensor, attention: DecoderAttention) -> Tensor:
        """Run some tokens of every row.

        Args:
            tokens: `(rows, tokens)`.
            positions: `(rows, tokens)`, or `(tokens,)` for all rows.
            attention: knows the slot and the length of each row.

        Returns:
            Hidden states, `(rows, tokens, d_model)`.
        """
        x = self.embed_tokens(tokens) + self.embed_positions(positions)
        for index, layer in enumerate(self.layers):
            x = layer(x, index, attention)
        hidden: Tensor = self.layer_norm(x)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """`(..., d_model)` to `(..., vocab_size)` float32; the projection is the token embedding."""
        return self._projection(hidden, self.embed_tokens.weight, None).float()

    def cross_keys_values(self, layer: int, states: Tensor) -> Tensor:
        """A layer's keys and values of packed encoder states: `(states, 2, heads, head_dim)`."""
        decoder_layer = self.layers[layer]
        assert isinstance(decoder_layer, DecoderLayer)
        return decoder_layer.encoder_attn.project_states(states)


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention and a perceptron, each with a residual connection."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model)
        self.self_attn = SelfAttention(config.d_model, config.decoder_attention_heads)
        self.encoder_attn_layer_norm = nn.LayerNorm(config.d_model)
        self.encoder_attn = CrossAttention(config.d_model, config.decoder_attention_heads)
        self.final_layer_norm = nn.LayerNorm(config.d_model)
        self.mlp = MLP(config.d_model, config.decoder_ffn_dim)

    def forward(self, x: Tensor, index: int, attention: DecoderAttention) -> Tensor:
        """`(rows, tokens, d_model)` to the same shape. `index` is the layer's, by which `attention` finds its cache."""
        query, keys_values = self.self_attn.project(self.self_attn_layer_norm(x))
        x = x + self.self_attn.merge(attention.self_attention(index, query, keys_values))
        query = self.encoder_attn.project(self.encoder_attn_layer_norm(x))
        x = x + self.encoder_attn.merge(attention.cross_attention(index, query))
        out: Tensor = x + self.mlp(self.final_layer_norm(x))
        return out


class SelfAttention(nn.Module):
    """The projections around self-attention."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.qkv_proj = Linear(d_model, 3 * d_model)
        self.out_proj = Linear(d_model, d_model)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`(batch, tokens, d_model)` to queries `(batch, heads, tokens, head_dim)` and, stacked, keys and values."""
        projected = self.qkv_proj(x).unflatten(-1, (3, self.n_heads, -1))
        projected = projected.permute(2, 0, 3, 1, 4)  # (3, batch, heads, tokens, head_dim)
        return projected[0], projected[1:]

    def merge(self, heads: Tensor) -> Tensor:
        """`(batch, heads, tokens, head_dim)` to `(batch, tokens, d_model)`."""
        return _merge(heads, self.out_proj)


class CrossAttention(nn.Module):
    """The projections around cross-attention. Where keys and values are kept, a window's states are projected once."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.q_proj = Linear(d_model, d_model)
        self.kv_proj = Linear(d_model, 2 * d_model)
        self.out_proj = Linear(d_model, d_model)

    def project(self, x: Tensor) -> Tensor:
        """`(batch, tokens, d_model)` to queries `(batch, heads, tokens, head_dim)`."""
        query: Tensor = self.q_proj(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        return query

    def project_states(self, states: Tensor) -> Tensor:
        """`(states, d_model)` to keys and values `(states, 2, heads, head_dim)`."""
        projected: Tensor = self.kv_proj(states).unflatten(-1, (2, self.n_heads, -1))
        return projected

    def merge(self, heads: Tensor) -> Tensor:
        """`(batch, heads, tokens, head_dim)` to `(batch, tokens, d_model)`."""
        return _merge(heads, self.out_proj)


class MLP(nn.Module):
    """The perceptron of a layer: two linear layers with a GELU between them."""

    def __init__(self, d_model: int, ffn_dim: int) -> None:
        super().__init__()
        self.fc1 = Linear(d_model, ffn_dim)
        self.fc2 = Linear(ffn_dim, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """`(..., d_model)` to the same shape."""
        out: Tensor = self.fc2(self.fc1(x, with_gelu=True))
        return out


def _merge(heads: Tensor, projection: Linear) -> Tensor:
    """`(batch, heads, tokens, head_dim)` to `(batch, tokens, d_model)`."""
    out: Tensor = projection(heads.transpose(1, 2).flatten(2))
    return out


def _embedding(n_rows: int, n_columns: int) -> nn.Embedding:
    """An embedding with unset weights.

    To set them on the meta device, PyTorch would import its compiler, which takes two seconds.
    """
    return nn.Embedding(n_rows, n_columns, _weight=torch.empty(n_rows, n_columns))


def outline(config: ModelConfig) -> Whisper:
    """Make a model whose weights have shapes, and take no memory."""
    with torch.device("meta"):
        return Whisper(config)


def allocate(model: Whisper, device: torch.device, dtype: torch.dtype) -> Whisper:
    """Give the weights of an outline memory, which is not set yet, and make the model ready for inference.

    `nn.Module.to_empty` would do the same, but for weights on the meta device PyTorch imports its compiler.
    """
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False):
            memory = torch.empty(weight.shape, device=device, dtype=dtype)
            setattr(module, name, nn.Parameter(memory, requires_grad=False))
    return model.eval()


def build(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> Whisper:
    """Make a model for inference. Its weights are memory that is not set yet."""
    return allocate(outline(config), device, dtype)
