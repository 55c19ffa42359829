"""The training of the speaker network, with made-up voices and a few steps."""

import argparse
from pathlib import Path

import numpy as np
import pytest
import torch

from app.speakers.network import NumpyNetwork
from training.speakers.bank import SpeakerBank
from training.speakers.production import HELD_OUT, save
from training.speakers.train import Trainer
from training.speakers.virtual_voices import resampled, speakers
from training.speech import voices

N_SPEAKERS = 6


def _voice(pitch_hz: float, seconds: float = 6.0) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    t = np.arange(int(16_000 * seconds)) / 16_000
    wave = sum(np.sin(2 * np.pi * pitch_hz * n * t) / n for n in range(1, 20)) * (1 + np.sin(2 * np.pi * 3 * t))
    return np.asarray(wave / np.abs(wave).max() * 12_000).astype(np.int16)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("speakers")
    bank_folder, out = folder / "bank", folder / "out"
    bank_folder.mkdir()
    out.mkdir()
    save(bank_folder / "00.npz", [_voice(90 + 30 * n) for n in range(N_SPEAKERS)], list(range(N_SPEAKERS)))
    save(bank_folder / f"{HELD_OUT}_0.npz", [_voice(100.0, 8.0), _voice(210.0, 8.0)], [0, 1])
    args = argparse.Namespace(seed=1, channels=16, speakers=N_SPEAKERS, sounds=8, rate=1e-3, batch=3, log=50)
    trainer = Trainer(args, torch.device("cpu"))
    bank = SpeakerBank(bank_folder, torch.device("cpu"), 0.1, watches=False)
    bank.load_new()
    for step in range(3):
        trainer.train_step(bank, 0.1 * (step + 1))
    trainer.test(bank)
    trainer.save(out, bank)
    assert set(trainer.record["tests"][0]) == {
        "step",
        "clean 1.5 s",
        "augmented 1.5 s",
        "clean 3.0 s",
        "augmented 3.0 s",
    }
    return out


def test_numpy_computes_the_embeddings_of_torch(trained: Path) -> None:
    reference = np.load(trained / "reference.npz")
    network = NumpyNetwork(trained / "speakers.npz")
    found = network.embed([each.astype(np.float32) / 32768 for each in reference["audio"]])
    assert np.sum(found * reference["embeddings"], axis=1) == pytest.approx(1.0, abs=2e-3)
    assert np.linalg.norm(found, axis=1) == pytest.approx(1.0, abs=1e-4)


def test_held_out_voices_are_never_among_the_trained_ones() -> None:
    trained, held_out = speakers(300, 1), speakers(300, 1, held_out=True)
    bases = {each.voice.split("+")[-1] for each in trained}
    assert bases.isdisjoint({each.voice.split("+")[-1] for each in held_out})
    assert bases.isdisjoint(voices.ESPEAK_HELD_OUT)


def test_resampling_keeps_the_tone_and_stretches_the_time() -> None:
    t = np.arange(8000) / 8000
    tone = (np.sin(2 * np.pi * 440 * t) * 10_000).astype(np.int16)
    stretched = resampled(tone, 2.0)
    assert len(stretched) == 16_000
    peak_hz = np.argmax(np.abs(np.fft.rfft(stretched[2000:10_000] * np.hanning(8000)))) * 2
    assert peak_hz == pytest.approx(440, abs=4)
