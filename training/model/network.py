"""Whisper's network with the parameter names of transformers, for windows of any length, and the optimiser Muon.

Source: openai/whisper, whisper/model.py; Muon: Keller Jordan, https://kellerjordan.github.io/posts/muon/.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.tokenizer import N_POSITIONS, N_TIMESTAMPS

N_STATES = 1500
HEAD_DIM = 64


@dataclass(frozen=True, slots=True)
class Sizes:
    vocab_size: int
    n_classes: int
    """Of the CTC head, which is left out of the exported model."""
    d_model: int = 256
    encoder_layers: int = 6
    decoder_layers: int = 4
    n_mels: int = 80

    @property
    def ffn_dim(self) -> int:
        return 4 * self.d_model

    @property
    def first_timestamp(self) -> int:
        return self.vocab_size - N_TIMESTAMPS


def sinusoids(length: int, channels: int) -> Tensor:
    increment = math.log(10_000) / (channels // 2 - 1)
    angles = torch.arange(length)[:, None] * torch.exp(-increment * torch.arange(channels // 2))[None]
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class Attention(nn.Module):
    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.n_heads = max(1, d_model // HEAD_DIM)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model)
        self.q_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, states: Tensor | None = None, is_causal: bool = False) -> Tensor:
        source = x if states is None else states

        def heads(projected: Tensor) -> Tensor:
            return projected.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

        query, key, value = heads(self.q_proj(x)), heads(self.k_proj(source)), heads(self.v_proj(source))
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=is_causal)
        out: Tensor = self.out_proj(attended.transpose(1, 2).flatten(2))
        return out


class EncoderLayer(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        d_model = sizes.d_model
        self.self_attn = Attention(d_model)
        self.self_attn_layer_norm = nn.LayerNorm(d_model)
        self.fc1 = nn.Linear(d_model, sizes.ffn_dim)
        self.fc2 = nn.Linear(sizes.ffn_dim, d_model)
        self.final_layer_norm = nn.LayerNorm(d_model)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.self_attn_layer_norm(x))
        return x + self.fc2(F.gelu(self.fc1(self.final_layer_norm(x))))


class DecoderLayer(nn.Module):
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
        x = x + self.self_attn(self.self_attn_layer_norm(x), is_causal=True)
        x = x + self.encoder_attn(self.encoder_attn_layer_norm(x), states)
        return x + self.fc2(F.gelu(self.fc1(self.final_layer_norm(x))))


class Encoder(nn.Module):
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
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(sizes.vocab_size, sizes.d_model)
        self.embed_positions = nn.Embedding(N_POSITIONS, sizes.d_model)
        self.layers = nn.ModuleList(DecoderLayer(sizes) for _ in range(sizes.decoder_layers))
        self.layer_norm = nn.LayerNorm(sizes.d_model)

    def forward(self, tokens: Tensor, states: Tensor) -> Tensor:
        x = self.embed_tokens(tokens) + self.embed_positions.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x, states)
        hidden: Tensor = self.layer_norm(x)
        return hidden


class Body(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.encoder, self.decoder = Encoder(sizes), Decoder(sizes)


class Whisper(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
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
        # Timestamps start out ordered along the axis of time.
        stamps = 0.05 * sinusoids(N_TIMESTAMPS, sizes.d_model)
        tokens[sizes.first_timestamp :] = stamps + 0.005 * torch.randn(N_TIMESTAMPS, sizes.d_model)

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.model.decoder.embed_tokens.weight.to(hidden.dtype))


class Muon:
    """Momentum made orthogonal by Newton-Schulz iterations, for matrices, batched by shape."""

    def __init__(self, parameters: list[nn.Parameter], momentum: float = 0.95, weight_decay: float = 0.01) -> None:
        self.groups: dict[tuple[int, ...], list[nn.Parameter]] = {}
        for parameter in parameters:
            self.groups.setdefault(tuple(parameter.shape), []).append(parameter)
        self.averages = {
            shape: torch.zeros(len(group), *shape, device=group[0].device) for shape, group in self.groups.items()
        }
        self.momentum, self.weight_decay = momentum, weight_decay

    @torch.no_grad()
    def step(self, rate: float) -> None:
        for shape, group in self.groups.items():
            gradient = torch.stack([parameter.grad for parameter in group if parameter.grad is not None])
            average = self.averages[shape]
            average.lerp_(gradient, 1 - self.momentum)
            update = gradient.lerp(average, self.momentum).bfloat16()
            is_tall = shape[0] > shape[1]
            if is_tall:
                update = update.mT
            update = update / (update.norm(dim=(1, 2), keepdim=True) + 1e-7)
            for _ in range(5):
                product = update @ update.mT
                update = 3.4445 * update + (-4.7750 * product + 2.0315 * (product @ product)) @ update
            if is_tall:
                update = update.mT
            scaled = update.float() * (rate * max(1, shape[0] / shape[1]) ** 0.5)
            torch._foreach_mul_(group, 1 - rate * self.weight_decay)
            torch._foreach_sub_(group, list(scaled.unbind(0)))
