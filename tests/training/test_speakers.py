"""The weights of the speaker network: they compute what the original's do."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from numpy.typing import NDArray

from training.recordings import write
from training.speakers import cleaning, converted, in_a_room, main, on_the_telephone, people
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


def test_the_last_step_takes_out_what_all_people_have_in_common(tmp_path: Path) -> None:
    _, _, tensors = original()
    arrays = converted(tensors)
    np.savez(tmp_path / "without.npz", **arrays)
    people = [noise(seed, 48_000) for seed in range(4)]
    weight, bias = cleaning(NumpyNetwork(tmp_path / "without.npz"), {str(n): each for n, each in enumerate(people)})
    np.savez(tmp_path / "with.npz", **(arrays | {"clean.weight": weight, "clean.bias": bias}))
    others = [noise(seed) for seed in range(4, 8)]
    before, after = (NumpyNetwork(tmp_path / name).embed(others) for name in ("without.npz", "with.npz"))
    assert np.mean(before @ before.T) > 0.95
    assert np.mean(after @ after.T) < 0.9


def test_a_telephone_line_keeps_its_band_alone() -> None:
    at_s = np.arange(16_000) / 16_000
    low, kept, high = (0.3 * np.sin(2 * np.pi * hz * at_s).astype(np.float32) for hz in (100, 1000, 5000))
    found = on_the_telephone(low + kept + high)[1000:-1000]
    assert np.sqrt(np.mean((found - kept[1000:-1000]) ** 2)) < 0.03


def test_a_room_adds_echo_and_noise() -> None:
    click = np.zeros(16_000, np.float32)
    click[0] = 1
    found = in_a_room(click, np.random.default_rng(0))
    assert found[0] == pytest.approx(0.5, abs=0.01) and 0.3 < np.linalg.norm(found[1:]) < 0.5


def test_people_of_judged_recordings_are_not_learnt_from(tmp_path: Path) -> None:
    write(tmp_path / "clip.wav", noise(0))
    entries = [
        {"kind": "human-read", "speaker": "one"},
        {"kind": "human-short", "speaker": "one"},
        {"kind": "human-read", "speaker": "vctk-p225"},
        {"kind": "human-noisy", "speaker": "two"},
        {"kind": "human-long", "speaker": "three+four"},
        {"kind": "synth-short", "speaker": "five"},
    ]
    (tmp_path / "manifest.jsonl").write_text("\n".join(json.dumps(each | {"file": "clip.wav"}) for each in entries))
    found = people(tmp_path)
    assert list(found) == ["one"] and len(found["one"]) == 48_000


def test_another_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.pt"
    file.write_bytes(b"other")
    ran = CliRunner().invoke(main, [str(file), str(tmp_path), str(tmp_path / "speakers.npz")])
    assert ran.exit_code != 0 and "expected the file with the SHA-256" in ran.output
