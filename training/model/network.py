"""Whisper's network with the parameter names of transformers, for windows of any length.

Source: openai/whisper, whisper/model.py.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.tokenizer import N_POSITIONS, N_TIMESTAMPS

N_STATES = 1500
"""Encoder states of a full window, 20 ms each."""
HEAD_DIM = 64
"""Width of an attention head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes of a network."""

    vocab_size: int
    n_classes: int
    """Classes of the CTC head, which is not exported."""
    d_model: int = 256
    encoder_layers: int = 6
    decoder_layers: int = 4
    n_mels: int = 80

    @property
    def ffn_dim(self) -> int:
        """Width of the feed-forward layers."""
        return 4 * self.d_model

    @property
    def first_timestamp(self) -> int:
        """The id of the timestamp token for 0 s."""
        return self.vocab_size - N_TIMESTAMPS


def sinusoids(length: int, channels: int) -> Tensor:
    """Sinusoidal position embeddings `(length, channels)`."""
    increment = math.log(10_000) / (channels // 2 - 1)
    angles = torch.arange(length)[:, None] * torch.exp(-increment * torch.arange(channels // 2))[None]
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class Attention(nn.Module):
    """Multi-head attention: over `x` itself, or over encoder states."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.n_heads = max(1, d_model // HEAD_DIM)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model)
        self.q_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, states: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """`x`: `(batch, tokens, d_model)`; `states`: `(batch, states, d_model)`."""
        source = x if states is None else states

        def heads(projected: Tensor) -> Tensor:
            batch, length, width = projected.shape
            return projected.view(batch, length, self.n_heads, width // self.n_heads).transpose(1, 2)

        query, key, value = heads(self.q_proj(x)), heads(self.k_proj(source)), heads(self.v_proj(source))
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=is_causal)
        out: Tensor = self.out_proj(attended.transpose(1, 2).flatten(2))
        return out


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward layer, each after a layer norm."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        d_model = sizes.d_model
        self.self_attn = Attention(d_model)
        self.self_attn_layer_norm = nn.LayerNorm(d_model)
        self.fc1 = nn.Linear(d_model, sizes.ffn_dim)
        self.fc2 = nn.Linear(sizes.ffn_dim, d_model)
        self.final_layer_norm = nn.LayerNorm(d_model)

    def forward(self, x: Tensor) -> Tensor:
        """`(batch, states, d_model)` to the same shape."""
        x = x + self.self_attn(self.self_attn_layer_norm(x))
        out: Tensor = x + self.fc2(F.gelu(self.fc1(self.final_layer_norm(x))))
        return out


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention and a feed-forward layer, each after a layer norm."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        d_model = sizes.d_model
        self.self_attn = Attention(d_model)
        self.self_attn_layer_norm = nn.LayerNorm(d_model)
        self.encoder_attn = Attention(d_model)
        self.encoder_attn_layer_norm = nn.LayerNorm(d_model)
        self.fc1 = nn.Linear(d_model, sizes.ffn_dim)
        self.fc2 = nn.Linear(sizes.ffn_dim, d_model)
        self.final_layer_norm = nn.LayerNorm(d_model)

    def forward(self, x: Tensor, states: Tensor) -> Tensor:
        """`x`: `(batch, tokens, d_model)`; `states`: `(batch, states, d_model)`."""
        x = x + self.self_attn(self.self_attn_layer_norm(x), is_causal=True)
        x = x + self.encoder_attn(self.encoder_attn_layer_norm(x), states)
        out: Tensor = x + self.fc2(F.gelu(self.fc1(self.final_layer_norm(x))))
        return out


class Encoder(nn.Module):
    """Two convolutions, position embeddings and layers of self-attention."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        d_model = sizes.d_model
        self.conv1 = nn.Conv1d(sizes.n_mels, d_model, 3, padding=1)
        self.conv2 = nn.Conv1d(d_model, d_model, 3, stride=2, padding=1)
        self.embed_positions = nn.Embedding(N_STATES, d_model)
        self.layers = nn.ModuleList(EncoderLayer(sizes) for _ in range(sizes.encoder_layers))
        self.layer_norm = nn.LayerNorm(d_model)

    def forward(self, mel: Tensor) -> Tensor:
        """`(batch, n_mels, frames)` to `(batch, frames / 2, d_model)`, for up to 3000 frames."""
        x = F.gelu(self.conv2(F.gelu(self.conv1(mel)))).transpose(1, 2)
        x = x + self.embed_positions.weight[: x.shape[1]]
        for layer in self.layers:
            x = layer(x)
        states: Tensor = self.layer_norm(x)
        return states


class Decoder(nn.Module):
    """Token and position embeddings, and layers of self- and cross-attention."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(sizes.vocab_size, sizes.d_model)
        self.embed_positions = nn.Embedding(N_POSITIONS, sizes.d_model)
        self.layers = nn.ModuleList(DecoderLayer(sizes) for _ in range(sizes.decoder_layers))
        self.layer_norm = nn.LayerNorm(sizes.d_model)

    def forward(self, tokens: Tensor, states: Tensor) -> Tensor:
        """Token ids `(batch, tokens)` and encoder states to hidden states `(batch, tokens, d_model)`."""
        x = self.embed_tokens(tokens) + self.embed_positions.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x, states)
        hidden: Tensor = self.layer_norm(x)
        return hidden


class Body(nn.Module):
    """Encoder and decoder, under the names of transformers."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.encoder, self.decoder = Encoder(sizes), Decoder(sizes)


class Whisper(nn.Module):
    """The network with its CTC head."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.model = Body(sizes)
        self.ctc = nn.Linear(sizes.d_model, sizes.n_classes)
        self._initialise(sizes)

    @torch.no_grad()
    def _initialise(self, sizes: Sizes) -> None:
        for name, parameter in self.named_parameters():
            if parameter.dim() >= 2 and "embed" not in name:
                is_output = "out_proj" in name or "fc2" in name
                parameter.normal_(0, (0.15 if is_output else 0.8) / math.sqrt(parameter[0].numel()))
            elif name.endswith("bias"):
                parameter.zero_()
        encoder, decoder = self.model.encoder, self.model.decoder
        encoder.embed_positions.weight.copy_(sinusoids(N_STATES, sizes.d_model))
        encoder.embed_positions.weight.requires_grad_(False)
        decoder.embed_positions.weight.copy_(0.03 * sinusoids(N_POSITIONS, sizes.d_model))
        tokens = decoder.embed_tokens.weight
        tokens.normal_(0, 0.04)
        # At the start, timestamps are already ordered along the axis of time.
        stamps = 0.05 * sinusoids(N_TIMESTAMPS, sizes.d_model)
        tokens[sizes.first_timestamp :] = stamps + 0.005 * torch.randn(N_TIMESTAMPS, sizes.d_model)

    def logits(self, hidden: Tensor) -> Tensor:
        """The logits of the tokens for hidden states of the decoder."""
        return F.linear(hidden, self.model.decoder.embed_tokens.weight.to(hidden.dtype))
