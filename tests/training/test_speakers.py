"""The weights of the speaker network: they compute what the original's do."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from training.speakers import converted
from tutti_server.app.media.pcm import Samples
from tutti_server.app.voices.speaker_network import N_LAYERS, N_MELS, SIZE, NumpyNetwork


def noise(seed: int, n: int = 24_000) -> Samples:
    return np.random.default_rng(seed).normal(0, 0.1, n).astype(np.float32)


def original() -> tuple[torch.nn.LSTM, torch.nn.Linear, dict[str, NDArray[np.float32]]]:
    """A network of the form of the original with random weights."""
    torch.manual_seed(0)
    layers, linear = torch.nn.LSTM(N_MELS, SIZE, N_LAYERS, batch_first=True), torch.nn.Linear(SIZE, SIZE)
    named = {f"lstm.{name}": each for name, each in layers.state_dict().items()}
    named |= {f"linear.{name}": each for name, each in linear.state_dict().items()}
    return layers, linear, {name: each.numpy() for name, each in named.items()}


def test_the_network_in_numpy_is_that_of_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layers, linear, tensors = original()
    np.savez(tmp_path / "weights.npz", **converted(tensors))
    network = NumpyNetwork(tmp_path / "weights.npz")
    mels = [np.random.default_rng(n).exponential(size=(n, N_MELS)).astype(np.float32) for n in (149, 201, 160)]
    given = iter(mels)
    monkeypatch.setattr(network, "_mels", lambda _: next(given))
    found = network.embed([np.zeros(24_000, np.float32)] * 3)
    for mel, vector in zip(mels, found, strict=True):
        with torch.no_grad():
            _, (states, _) = layers(torch.from_numpy(mel)[None])
            expected = torch.nn.functional.normalize(linear(states[-1]).relu()[0], dim=0).numpy()
        np.testing.assert_allclose(vector, expected, atol=2e-3)
