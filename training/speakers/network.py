"""The speaker network, and the log-mel input of which `app/speakers/network.py` has the same in numpy.

The blocks follow TitaNet: separable convolutions over time, squeeze and excitation, and attentive statistics pooling.
Source: Koluguri et al., "TitaNet: Neural model for speaker representation with 1D depth-wise separable convolutions
and global context", 2021.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

SAMPLE_RATE = 16_000
N_FFT = 400
HOP = 160
N_MELS = 64
LOWEST_HZ = 60.0
HIGHEST_HZ = 7000.0
FLOOR = 1e-3
"""Added to the mel power of audio with a mean square of 1, so that silence has a finite logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The sizes of a network."""

    channels: int = 256
    kernels: tuple[int, ...] = (5, 9, 13, 17)
    """The length of the depthwise convolution of each block, in frames of 20 ms."""
    pooled: int = 512
    attention: int = 96
    embedding: int = 160


def mel_filters() -> NDArray[np.float32]:
    """`(N_MELS, N_FFT // 2 + 1)`: triangles on the mel scale of HTK, each with the same area."""
    hz = np.linspace(0, SAMPLE_RATE / 2, N_FFT // 2 + 1)
    low, high = (2595 * math.log10(1 + each / 700) for each in (LOWEST_HZ, HIGHEST_HZ))
    edges = 700 * (10 ** (np.linspace(low, high, N_MELS + 2) / 2595) - 1)
    rising = (hz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - hz) / (edges[2:] - edges[1:-1])[:, None]
    triangles = np.maximum(0, np.minimum(rising, falling)) * (2 / (edges[2:] - edges[:-2]))[:, None]
    return (triangles * 100).astype(np.float32)


class LogMel(nn.Module):
    """`(batch, samples)` audio to `(batch, N_MELS, frames)`, without the mean of each band."""

    filters: Tensor
    window: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("filters", torch.from_numpy(mel_filters()), persistent=False)
        self.register_buffer("window", torch.hann_window(N_FFT), persistent=False)

    def forward(self, samples: Tensor) -> Tensor:
        level = samples.square().mean(1, keepdim=True).sqrt().clamp_min(1e-5)
        frames = (samples / level).unfold(1, N_FFT, HOP) * self.window
        power = torch.fft.rfft(frames).abs().square() / N_FFT
        mel = torch.log(power @ self.filters.T + FLOOR).transpose(1, 2)
        return mel - mel.mean(2, keepdim=True)


class Block(nn.Module):
    """Two pointwise convolutions around a depthwise one, squeeze and excitation, and a residual."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.enter = nn.Conv1d(channels, channels, 1, bias=False)
        self.enter_norm = nn.BatchNorm1d(channels)
        self.depthwise = nn.Conv1d(channels, channels, kernel, padding=kernel // 2, groups=channels, bias=False)
        self.depthwise_norm = nn.BatchNorm1d(channels)
        self.leave = nn.Conv1d(channels, channels, 1, bias=False)
        self.leave_norm = nn.BatchNorm1d(channels)
        self.squeeze = nn.Linear(channels, channels // 4)
        self.excite = nn.Linear(channels // 4, channels)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.enter_norm(self.enter(x)))
        y = F.relu(self.depthwise_norm(self.depthwise(y)))
        y = self.leave_norm(self.leave(y))
        scale = torch.sigmoid(self.excite(F.relu(self.squeeze(y.mean(2)))))
        return F.relu(x + y * scale[:, :, None])


class SpeakerNetwork(nn.Module):
    """`(batch, N_MELS, frames)` log-mel to `(batch, embedding)` unit vectors."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        n = shape.channels
        self.stem = nn.Conv1d(N_MELS, n, 5, stride=2, padding=2, bias=False)
        self.stem_norm = nn.BatchNorm1d(n)
        self.blocks = nn.ModuleList(Block(n, kernel) for kernel in shape.kernels)
        self.join = nn.Conv1d(n * len(shape.kernels), shape.pooled, 1, bias=False)
        self.join_norm = nn.BatchNorm1d(shape.pooled)
        self.attend = nn.Conv1d(shape.pooled, shape.attention, 1)
        self.weigh = nn.Conv1d(shape.attention, shape.pooled, 1)
        self.pooled_norm = nn.BatchNorm1d(2 * shape.pooled)
        self.embed = nn.Linear(2 * shape.pooled, shape.embedding, bias=False)
        self.embed_norm = nn.BatchNorm1d(shape.embedding)

    def forward(self, mel: Tensor) -> Tensor:
        x = F.relu(self.stem_norm(self.stem(mel)))
        outputs = []
        for block in self.blocks:
            x = block(x)
            outputs.append(x)
        x = F.relu(self.join_norm(self.join(torch.cat(outputs, 1))))
        weights = torch.softmax(self.weigh(torch.tanh(self.attend(x))), 2)
        x, weights = x.float(), weights.float()
        mean = (x * weights).sum(2)
        deviation = ((x.square() * weights).sum(2) - mean.square()).clamp_min(1e-5).sqrt()
        pooled = self.pooled_norm(torch.cat([mean, deviation], 1))
        return F.normalize(self.embed_norm(self.embed(pooled)).float(), dim=1)


class AngularMargin(nn.Module):
    """Cross-entropy over the speakers of the training, with an angular margin.

    Source: Deng et al., "ArcFace: Additive angular margin loss for deep face recognition", 2019.
    """

    def __init__(self, embedding: int, n_speakers: int, scale: float = 30.0) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.randn(n_speakers, embedding) * 0.1)
        self.scale = scale

    def forward(self, embeddings: Tensor, speakers: Tensor, margin: float) -> tuple[Tensor, Tensor]:
        """The loss, and the share of `(batch, embedding)` vectors that are nearest to their own speaker's centre."""
        cosine = embeddings @ F.normalize(self.centres, dim=1).T
        own = cosine.gather(1, speakers[:, None]).clamp(-1 + 1e-6, 1 - 1e-6)
        harder = torch.cos(torch.acos(own) + margin)
        # Past the angle at which the margin would wrap around, the penalty stays linear.
        harder = torch.where(own > math.cos(math.pi - margin), harder, own - margin * math.sin(margin))
        logits = cosine.scatter(1, speakers[:, None], harder.to(cosine.dtype)) * self.scale
        accuracy = (cosine.argmax(1) == speakers).float().mean()
        return F.cross_entropy(logits, speakers), accuracy


def folded(network: SpeakerNetwork) -> dict[str, NDArray[np.float16]]:
    """The weights for inference, by name: each normalisation is folded into the layer before it, as weight and bias."""
    state = {name: value.detach().double().cpu() for name, value in network.state_dict().items()}
    out: dict[str, Tensor] = {}

    def fold(layer: str) -> None:
        norm = f"{layer}_norm"
        scale = state[f"{norm}.weight"] / (state[f"{norm}.running_var"] + 1e-5).sqrt()
        weight = state[f"{layer}.weight"]
        out[f"{layer}.weight"] = weight * scale.view(-1, *[1] * (weight.dim() - 1))
        out[f"{layer}.bias"] = state[f"{norm}.bias"] - state[f"{norm}.running_mean"] * scale

    for layer in ("stem", "join", "embed"):
        fold(layer)
    for index in range(len(network.blocks)):
        for layer in ("enter", "depthwise", "leave"):
            fold(f"blocks.{index}.{layer}")
        for layer in ("squeeze", "excite"):
            for part in ("weight", "bias"):
                out[f"blocks.{index}.{layer}.{part}"] = state[f"blocks.{index}.{layer}.{part}"]
    for layer in ("attend", "weigh"):
        for part in ("weight", "bias"):
            out[f"{layer}.{part}"] = state[f"{layer}.{part}"]
    # The normalisation of the pooled statistics comes before the last layer, so it is folded into that one.
    scale = state["pooled_norm.weight"] / (state["pooled_norm.running_var"] + 1e-5).sqrt()
    shift = state["pooled_norm.bias"] - state["pooled_norm.running_mean"] * scale
    out["embed.bias"] = out["embed.bias"] + out["embed.weight"] @ shift
    out["embed.weight"] = out["embed.weight"] * scale
    pointwise = {name for name, value in out.items() if value.dim() == 3 and value.shape[-1] == 1}
    return {
        name: (value[..., 0] if name in pointwise else value).numpy().astype(np.float16) for name, value in out.items()
    }
