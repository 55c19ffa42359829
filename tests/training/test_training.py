"""The training scripts run on a CPU: text, windows, audio, two steps of a tiny network, export."""

import argparse
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from training import export, numbers, sounds, speech, tokenizer, train, voices
from training.bank import SAMPLE_RATE, Bank
from training.frontend import Frontend, mu_law_8k
from training.templates import Grammar
from training.text import Kept, normal
from training.windows import IGNORED, Planner

SECONDS = 3.0


class Tones:
    """Stands in for the synthesisers: 0.3 s of tone a word, the words timed."""

    def say(
        self, r: random.Random, kind: str, texts: list[str], held_out: bool = False
    ) -> list[voices.Utterance | None]:
        return [self.utterance(text) for text in texts]

    def utterance(self, text: str) -> voices.Utterance:
        n_words = len(text.split())
        n_word = int(0.3 * SAMPLE_RATE)
        tone = 9000 * np.sin(np.arange(n_words * n_word) * 0.1)
        return voices.Utterance(tone.astype(np.int16), SAMPLE_RATE, [n_word * index for index in range(n_words)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer, and a chunk of 40 sentences."""
    folder = tmp_path_factory.mktemp("training")
    grammar = Grammar(random.Random(1))
    sentences = [grammar.sentence() for _ in range(40)]
    tokenizer.train(sentences, folder / "tokenizer", 400)
    encoder = Tokenizer.from_file(str(folder / "tokenizer/tokenizer.json"))
    chunk = speech.make_chunk(Tones(), random.Random(2), encoder, sentences, "espeak")
    assert chunk is not None
    (folder / "chunks").mkdir()
    speech.save(folder / "chunks/0.npz", chunk)
    return folder


@pytest.fixture
def bank(folder: Path) -> Bank:
    bank = Bank(folder / "chunks", 0.2, torch.device("cpu"), keep_hours=1)
    bank.poll()
    return bank


@pytest.fixture
def planner(folder: Path, bank: Bank) -> Planner:
    encoder = Tokenizer.from_file(str(folder / "tokenizer/tokenizer.json"))
    marks = [encoder.token_to_id(mark) for mark in (",", ".", "?")]
    return Planner(bank, tokenizer.Ids(folder / "tokenizer/tokenizer.json"), 3, marks)


@pytest.mark.parametrize(
    ("n", "said"), [(0, "zero"), (105, "one hundred and five"), (8849, "eight thousand eight hundred and forty nine")]
)
def test_numbers_are_written_in_words(n: int, said: str) -> None:
    """`cardinal` says a number the British way if asked."""
    assert numbers.cardinal(n, use_and=True) == said


def test_close_sentences_are_left_out() -> None:
    """An evaluation sentence, or one with a word changed, is not taken; another is, once."""
    kept = Kept(["The ship sailed on a Monday morning."])
    assert not kept.take("The ship sailed on a Monday morning?")
    assert not kept.take("The ship sailed on a Tuesday morning.")
    assert kept.take("The ship came on Tuesday.")
    assert not kept.take("the ship came on tuesday")
    assert normal("It's one.") == ("it's", "one")


def test_windows_hold_what_their_tokens_say(planner: Planner, folder: Path) -> None:
    """Speech stays inside the window, inputs and targets are one step apart, and stamps are true."""
    ids = planner.ids
    n_cut = 0
    for _ in range(300):
        window = planner.window(SECONDS, train.token_room(SECONDS, False), False)
        assert all(0 <= place.at and place.at + place.n_samples <= SECONDS * SAMPLE_RATE for place in window.placed)
        start = window.inputs.index(ids.start)
        if not window.has_speech:
            assert window.targets[start] == ids.no_speech and window.targets[-1] == ids.end
            continue
        head = 4 if ids.no_timestamps in window.inputs else 3
        assert window.inputs[start + head :] == window.targets[start + head - 1 : -1]
        stamps = [token - ids.first_timestamp for token in window.targets if token >= ids.first_timestamp]
        assert stamps == sorted(stamps)
        if stamps:
            assert abs(stamps[0] / 50 - window.placed[0].at / SAMPLE_RATE) <= 0.02
        n_cut += window.targets[-2] not in planner.marks and window.targets[-2] < ids.end
        assert all(token == IGNORED for token in window.targets[:start])
    assert n_cut > 5


def test_augmented_audio_is_finite_and_ends_where_it_should(bank: Bank, planner: Planner) -> None:
    """Every row stays in range and is zero after its end."""
    beds = sounds.make_all(8, 4 * SAMPLE_RATE, torch.device("cpu"))
    frontend = Frontend(torch.device("cpu"), train.mel_filters(), beds)
    plan = planner.batch(8, SECONDS, train.token_room(SECONDS, False))
    n_samples = int(SECONDS * SAMPLE_RATE)
    total = int(plan.places[:, 3].sum())
    audio = frontend.mix(bank, 8, n_samples, total, torch.from_numpy(plan.places), torch.from_numpy(plan.speeds))
    audio = frontend.augment(audio, torch.from_numpy(plan.has_speech), torch.from_numpy(plan.ends))
    assert audio.isfinite().all() and audio.abs().max() <= 1
    for row, end in zip(audio, plan.ends.tolist(), strict=True):
        assert not row[end:].any()
    assert frontend.mask(frontend.log_mel(audio), 0.5).shape == (8, 80, n_samples // 160)


@pytest.mark.parametrize("kind", sounds.KINDS)
def test_sounds_are_sound(kind: str) -> None:
    """Every sample is a number, within full scale."""
    random = sounds.Random(torch.device("cpu"), 7)
    for _ in range(6):
        assert (sounds.make(kind, 6 * SAMPLE_RATE, random).abs() <= 1).all()


def test_nothing_draws_timestamps_into_text() -> None:
    """Where text stands, the loss pushes every timestamp down: none is smoothed towards."""
    first, vocabulary = 20, 60
    logits = torch.full((1, 2, vocabulary), 0.0)
    logits[..., first:] = -12.0
    logits.requires_grad_(True)
    loss, _ = train.loss_of(logits, torch.eye(vocabulary), torch.tensor([[3, 7]]), first)
    loss.backward()
    assert logits.grad is not None
    assert (logits.grad[..., first:] > 0).all()


def test_mu_law_keeps_a_tone() -> None:
    """A tone of the telephone band comes through with the noise of eight bits."""
    tone = 0.3 * torch.sin(2 * torch.pi * 1000 * torch.arange(16_000) / SAMPLE_RATE)[None]
    noise = tone - mu_law_8k(tone)
    assert 30 < 10 * float(torch.log10(tone.square().mean() / noise.square().mean())) < 50


def arguments(folder: Path, tmp_path: Path, steps: int) -> argparse.Namespace:
    options = f"""--bank {folder}/chunks --tokenizer {folder}/tokenizer/tokenizer.json --state {tmp_path}/state
        --out {tmp_path}/out --device cpu --d-model 64 --encoder-layers 1 --decoder-layers 1 --batch-seconds 20
        --most-rows 3 --hours 0.2 --keep-hours 1 --first-hours 0.001 --sounds 8 --compile 0 --most-steps {steps}"""
    (tmp_path / "state").mkdir(exist_ok=True)
    return train.parse_arguments(options.split())


def test_training_goes_on_from_its_state_and_exports(folder: Path, tmp_path: Path) -> None:
    """Two steps, two more after a restart, and a checkpoint on which transformers and the engine agree."""
    train.Trainer(arguments(folder, tmp_path, 2)).run()
    trainer = train.Trainer(arguments(folder, tmp_path, 4))
    assert trainer.step == 2 and trainer.elapsed_before > 0
    trainer.run()
    assert json.loads((tmp_path / "out/train.json").read_text())["step"] == 4
    export.export(tmp_path / "out", folder / "tokenizer", tmp_path / "model")
    export.check(tmp_path / "model")
