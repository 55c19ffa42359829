"""The encoder over cut windows, the clips, and the training."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.engine.checkpoints import SHAPES, Shape, make_checkpoint
from tests.engine.engines import noise
from tutti_server.engine.adaptation.clips import Clips
from tutti_server.engine.adaptation.reader import AdaptationError, Reader, check_languages, encode, load_whisper
from tutti_server.engine.adaptation.trainer import EncoderStudent, Progress, Trainer, Training
from tutti_server.engine.api import WINDOW_SAMPLES
from tutti_server.engine.checkpoint.checkpoint import read_checkpoint
from tutti_server.engine.model.log_mel import STATE_SAMPLES
from tutti_server.engine.model.packing import find_runs
from tutti_server.engine.model.weights import load_model

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("original"), SHAPES[3])


@pytest.fixture(scope="module")
def reader(folder: Path) -> Reader:
    return Reader(load_whisper(folder, CPU), read_checkpoint(str(folder)), ())


def clips(n_full_states: int = 1500) -> Clips:
    return Clips([noise(1), noise(2, 80_000)], CPU, 0, n_full_states)


def trainer(reader: Reader, folder: Path, steps: int, learning_rate: float = 1e-3) -> Trainer:
    """On windows of at most 3 s, so that the steps are short."""
    folder.mkdir(exist_ok=True)
    training = Training(steps=steps, batch=2, learning_rate=learning_rate)
    return Trainer(reader, EncoderStudent(reader), clips(150), training, folder)


def trained(run: Trainer) -> list[torch.Tensor]:
    run.train(lambda _: None)
    return [weight.detach() for weight in run.student.weights]


@torch.inference_mode()
def test_a_cut_window_is_encoded_as_by_the_engine(reader: Reader, folder: Path) -> None:
    """The engine pads the audio to the cut window alone; training cuts the spectrogram of the full window."""
    n_states, audio = 180, torch.from_numpy(noise(4))[None]
    model = load_model(read_checkpoint(str(folder)), CPU, torch.float32)
    cut = torch.nn.functional.pad(audio, (0, n_states * STATE_SAMPLES - audio.shape[1]))
    expected = model.encoder(model.log_mel(cut), find_runs([n_states]))
    features = reader.features(torch.nn.functional.pad(audio, (0, WINDOW_SAMPLES - audio.shape[1])))
    states = encode(reader.model.model.encoder, features, n_states)[0]
    torch.testing.assert_close(states, expected, rtol=1e-4, atol=1e-4)


def test_a_text_follows_the_rules_of_decoding_and_is_read_with_times_if_asked(reader: Reader) -> None:
    samples = clips().batch(1, 0, 2).samples
    tokenizer = read_checkpoint(str(reader.model.name_or_path)).tokenizer
    timed = reader.read(samples, 60, with_timestamps=True)
    assert (timed[:, 0] == tokenizer.sot).all() and (timed[:, 3] >= tokenizer.first_timestamp).all()
    plain = reader.read(samples, 60, with_timestamps=False)
    assert (plain[:, 3] == tokenizer.no_timestamps).all()


@pytest.mark.parametrize(
    ("shape", "languages", "message"),
    [
        (SHAPES[3], ("en", "xx"), "expected some of en, de, zh, got xx"),
        (SHAPES[2], ("en",), "expected none, as the model is English-only, got en"),
    ],
    ids=["an unknown language", "an English-only model"],
)
def test_languages_are_some_of_the_model(
    tmp_path: Path, shape: Shape, languages: tuple[str, ...], message: str
) -> None:
    checkpoint = read_checkpoint(str(make_checkpoint(tmp_path / "model", shape)))
    with pytest.raises(AdaptationError, match=f"languages: {message}"):
        check_languages(checkpoint, languages)


@pytest.mark.nightly
def test_training_brings_the_cut_window_near_to_the_full_one(reader: Reader, tmp_path: Path) -> None:
    before = {name: weight.clone() for name, weight in reader.model.state_dict().items()}
    run = trainer(reader, tmp_path / "work", 16)
    run.train(lambda _: None)
    losses = [divergence + 0.1 * difference for divergence, difference in run.losses]
    assert np.mean(losses[-6:]) < 0.8 * np.mean(losses[:6])
    assert all(torch.equal(weight, before[name]) for name, weight in reader.model.state_dict().items())


@pytest.mark.nightly
def test_a_resumed_training_gives_the_same_weights(reader: Reader, tmp_path: Path) -> None:
    """It reads no clip again either: the texts are in the work folder."""
    expected = trained(trainer(reader, tmp_path / "whole", 4))

    def interrupt(progress: Progress) -> None:
        if progress.step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer(reader, tmp_path / "parts", 4).train(interrupt, save_every_s=0.0)
    resumed = trainer(reader, tmp_path / "parts", 4)
    assert len(resumed.losses) == 2
    assert all(torch.equal(*pair) for pair in zip(trained(resumed), expected, strict=True))
    assert len(list((tmp_path / "parts" / "texts").iterdir())) == 4
