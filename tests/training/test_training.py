"""The training scripts run on a CPU: text, windows, audio, two steps of a tiny network, export."""

import argparse
import itertools
import json
import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from training import calibration, export, tokenizer, train
from training.model import batch_plans, losses
from training.model.frontend import Frontend, mu_law_8k
from training.model.prompts import KeptPlanner, PromptPlanner, SilentPlanner
from training.model.windows import IGNORED, Planner, Window
from training.prompting import PromptTrainer
from training.speech import production, sounds, voices
from training.speech.bank import Bank
from training.speech.bank_index import SAMPLE_RATE, BankSentence, Chunk
from training.text import made_up_names, numbers
from training.text.corpus import SentenceFilter, normal
from training.text.templates import Grammar

SECONDS = 3.0


class Tones:
    """Stands in for the synthesisers: 0.3 s of tone a word, the words timed."""

    def speak(
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
    chunk = production.make_chunk(Tones(), random.Random(2), encoder, sentences, "espeak")
    assert chunk is not None
    (folder / "chunks").mkdir()
    production.save(folder / "chunks/0.npz", chunk)
    return folder


@pytest.fixture
def loaded() -> list[Chunk]:
    return []


@pytest.fixture
def bank(folder: Path, loaded: list[Chunk]) -> Bank:
    bank = Bank(folder / "chunks", 0.2, torch.device("cpu"), keep_hours=1, on_chunk=loaded.append)
    bank.poll()
    return bank


@pytest.fixture
def chunks(bank: Bank, loaded: list[Chunk]) -> list[list[BankSentence]]:
    return [chunk.sentences() for chunk in loaded]


def planner_of(kind: type[Planner], folder: Path, chunks: list[list[BankSentence]]) -> Planner:
    encoder = Tokenizer.from_file(str(folder / "tokenizer/tokenizer.json"))
    marks = tokenizer.mark_ids(encoder)
    return kind(chunks, tokenizer.Ids(folder / "tokenizer/tokenizer.json"), 3, marks)


@pytest.fixture
def planner(folder: Path, chunks: list[list[BankSentence]]) -> Planner:
    return planner_of(Planner, folder, chunks)


@pytest.mark.parametrize(
    ("n", "said"), [(0, "zero"), (105, "one hundred and five"), (8849, "eight thousand eight hundred and forty nine")]
)
def test_numbers_are_written_in_words(n: int, said: str) -> None:
    """`cardinal` says a number the British way if asked."""
    assert numbers.cardinal(n, use_and=True) == said


def test_close_sentences_are_left_out() -> None:
    """An evaluation sentence, or one with a word changed, is refused; another is accepted, once."""
    kept = SentenceFilter(["The ship sailed on a Monday morning."])
    assert not kept.add("The ship sailed on a Monday morning?")
    assert not kept.add("The ship sailed on a Tuesday morning.")
    assert kept.add("The ship came on Tuesday.")
    assert not kept.add("the ship came on tuesday")
    assert normal("It's one.") == ("it's", "one")


def test_windows_hold_what_their_tokens_say(planner: Planner, folder: Path) -> None:
    """Speech stays inside the window, inputs and targets are one step apart, and stamps are true."""
    ids = planner.ids
    n_cut = 0
    for _ in range(300):
        window = planner.window(SECONDS, batch_plans.token_room(SECONDS, False), False)
        assert all(place.at >= 0 and place.at + place.n_samples <= SECONDS * SAMPLE_RATE for place in window.placed)
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


def prompt_of(window: Window, ids: tokenizer.Ids) -> list[int]:
    """The tokens after `<|startofprev|>`."""
    return window.inputs[1 : window.inputs.index(ids.start)] if window.inputs[0] == ids.previous else []


def text_of(window: Window, ids: tokenizer.Ids) -> list[int]:
    return [token for token in window.targets if 0 <= token < ids.end]


def holds(tokens: list[int], part: list[int]) -> bool:
    return any(tokens[at : at + len(part)] == part for at in range(len(tokens) - len(part) + 1))


def test_prompts_say_how_rare_words_are_written(folder: Path, chunks: list[list[BankSentence]]) -> None:
    """Many lists hold a word of the text, most hold others too, and nothing is cut out of the audio in the end."""
    planner = planner_of(PromptPlanner, folder, chunks)
    planner.progress = 0.9
    n_helped = n_others = 0
    for _ in range(300):
        window = planner.window(SECONDS, 144, False)
        if not window.has_speech:
            continue
        prompt, text = prompt_of(window, planner.ids), text_of(window, planner.ids)
        joined = " ".join(map(str, prompt))
        words = [list(map(int, word.split())) for word in joined.split(f" {planner.marks[0]} ")] if joined else []
        n_helped += any(holds(text, word) for word in words)
        n_others += any(not holds(text, word) for word in words)
        assert len(window.inputs) <= 144
        # An open stamp at the end has no text.
        assert len(window.placed) <= 1 + sum(token in planner.marks for token in text)
    assert n_helped > 60
    assert n_others > 150


def test_words_that_stand_in_the_prompt_are_cut_out_of_the_audio(
    folder: Path, chunks: list[list[BankSentence]]
) -> None:
    """Early in the schedule the prompt has the whole text, and the audio only some of it, where and when it was."""
    planner = planner_of(PromptPlanner, folder, chunks)
    planner.progress = 0.08
    by_start = {sentence.start: sentence for chunk in chunks for sentence in chunk}
    starts = sorted(by_start)
    n_copied = n_cut = 0
    for _ in range(100):
        window = planner.window(SECONDS, 144, False)
        if not window.has_speech:
            continue
        whole = prompt_of(window, planner.ids)
        sentences = [by_start[start] for start in starts if holds(whole, by_start[start].tokens.tolist())]
        n_copied += any(holds(whole, sentence.tokens.tolist()) for sentence in sentences) and bool(
            text_of(window, planner.ids)
        )
        assert all(
            place.n_samples > 0 and place.at + place.n_samples <= SECONDS * SAMPLE_RATE for place in window.placed
        )
        by_time = sorted(window.placed)
        pairs = list(itertools.pairwise(by_time))
        assert all(first.at + first.n_samples <= second.at for first, second in pairs)
        # What is left of a sentence stands as far apart as it was said.
        for first, second in pairs:
            same = max(s for s in starts if s <= first.source) == max(s for s in starts if s <= second.source)
            if same and second.source > first.source:
                apart = (second.source - first.source) / first.speed
                n_cut += second.at - first.at > first.n_samples + 100
                assert abs(second.at - first.at - apart) < 200 or second.speed != first.speed
    assert n_copied > 50
    assert n_cut > 20


def test_the_schedule_begins_with_text_alone(folder: Path, chunks: list[list[BankSentence]]) -> None:
    """The wanted text stands in the prompt, and no audio is placed."""
    planner = planner_of(PromptPlanner, folder, chunks)
    plan = planner.batch(4, SECONDS, 100)
    assert plan.is_prompted and not len(plan.places) and not plan.has_speech.any()
    n_held = 0
    for inputs, targets in zip(plan.inputs.tolist(), plan.targets.tolist(), strict=True):
        start = inputs.index(planner.ids.start)
        text = [token for token in targets if 0 <= token < planner.ids.end]
        n_held += holds(inputs[1:start], text)
        assert inputs[start + 4 : start + 4 + len(text)] == text
    assert n_held > 0.8 * len(plan.inputs)


def test_ordinary_windows_have_prompts_that_say_nothing(folder: Path, chunks: list[list[BankSentence]]) -> None:
    """Lists hold other words than the text does."""
    planner = planner_of(KeptPlanner, folder, chunks)
    planner.progress = 0.5
    n_prompted = 0
    for _ in range(400):
        window = planner.window(SECONDS, 144, False)
        prompt, text = prompt_of(window, planner.ids), text_of(window, planner.ids)
        if prompt and planner.marks[0] in prompt and prompt[-1] not in planner.marks:
            n_prompted += 1
            joined = " ".join(map(str, prompt))
            words = [list(map(int, word.split())) for word in joined.split(f" {planner.marks[0]} ")]
            assert not all(holds(text, word) for word in words)
    assert n_prompted > 3
    assert not planner.batch(4, SECONDS, 144).is_prompted


def test_a_prompt_is_nothing_to_read_out_in_silence(folder: Path, chunks: list[list[BankSentence]]) -> None:
    """Late in the schedule nobody speaks in some windows; most of these have a prompt."""
    planner = planner_of(SilentPlanner, folder, chunks)
    planner.progress = 0.6
    silent = [w for w in (planner.window(SECONDS, 144, False) for _ in range(400)) if not w.has_speech]
    for window in silent:
        start = window.inputs.index(planner.ids.start)
        assert not window.placed and len(window.targets) == len(window.inputs)
        assert window.targets[start] == planner.ids.no_speech and window.targets[-1] == planner.ids.end
        assert all(target == IGNORED for target in window.targets[:start])
    assert 80 < len(silent) < 180
    assert len(silent) / 4 < sum(window.inputs[0] == planner.ids.previous for window in silent) < len(silent)


def test_made_up_names_are_words_that_start_with_a_capital() -> None:
    """Many different ones, of letters alone."""
    r = random.Random(1)
    names = [made_up_names.name(r) for _ in range(500)]
    assert all(re.fullmatch(r"[A-Z][a-z]{1,25}", name) for name in names)
    assert len(set(names)) > 450


def test_augmented_audio_is_finite_and_ends_where_it_should(bank: Bank, planner: Planner) -> None:
    """Every row stays in range and is zero after its end."""
    beds = sounds.make_all(8, 4 * SAMPLE_RATE, torch.device("cpu"))
    frontend = Frontend(torch.device("cpu"), train.mel_filters(), beds)
    plan = planner.batch(8, SECONDS, batch_plans.token_room(SECONDS, False))
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
    loss, _ = losses.decoder_loss(logits, torch.eye(vocabulary), torch.tensor([[3, 7]]), first)
    torch.autograd.backward(loss)
    assert logits.grad is not None
    assert (logits.grad[..., first:] > 0).all()


def test_a_raised_token_is_likelier_where_it_was_raised() -> None:
    """By the shift at the state, by nothing at a state across it."""
    row, state = torch.tensor([0.5, -1.0, 2.0]), torch.tensor([2.0, 0.0, 1.0])
    across = torch.tensor([1.0, 5.0, -2.0])
    raised = calibration.raised(row, state, 1.5)
    assert state @ raised == pytest.approx(float(state @ row) + 1.5)
    assert across @ raised == pytest.approx(float(across @ row))


def test_mu_law_keeps_a_tone() -> None:
    """A tone of the telephone band comes through with the noise of eight bits."""
    tone = 0.3 * torch.sin(2 * torch.pi * 1000 * torch.arange(16_000) / SAMPLE_RATE)[None]
    noise = tone - mu_law_8k(tone)
    assert 30 < 10 * float(torch.log10(tone.square().mean() / noise.square().mean())) < 50


def arguments(
    folder: Path, tmp_path: Path, steps: int, kind: type[train.Trainer] = train.Trainer, more: str = ""
) -> argparse.Namespace:
    options = f"""--bank {folder}/chunks --tokenizer {folder}/tokenizer/tokenizer.json --state {tmp_path}/state
        --out {tmp_path}/out --device cpu --d-model 64 --encoder-layers 1 --decoder-layers 1 --batch-seconds 20
        --most-rows 3 --hours 0.2 --keep-hours 1 --first-hours 0.001 --sounds 8 --compile 0 --most-steps {steps}"""
    (tmp_path / "state").mkdir(exist_ok=True)
    return train.parse_arguments(kind, [*options.split(), *more.split()])


def test_training_goes_on_from_its_state_and_exports(folder: Path, tmp_path: Path) -> None:
    """Two steps, two more after a restart, and a checkpoint on which transformers and the engine agree."""
    train.Trainer(arguments(folder, tmp_path, 2)).run()
    trainer = train.Trainer(arguments(folder, tmp_path, 4))
    assert trainer.record.step == 2 and trainer.record.elapsed_before_s > 0
    trainer.run()
    assert json.loads((tmp_path / "out/train.json").read_text())["step"] == 4
    export.export(tmp_path / "out", folder / "tokenizer", tmp_path / "model")
    export.check(tmp_path / "model")


def test_a_dead_planner_ends_the_training(folder: Path, tmp_path: Path, loaded: list[Chunk], bank: Bank) -> None:
    """The error names it, though the others still plan."""
    trainer = train.Trainer(arguments(folder, tmp_path, 1))
    pool = batch_plans.PlannerPool(trainer.args, (Planner, Planner), trainer.ids, 1, trainer.marks, 0.0)
    try:
        pool.add(loaded[0])
        assert len(pool.next(0.0).inputs)
        pool._processes[0].kill()
        pool._processes[0].join()
        with pytest.raises(RuntimeError, match=pool._processes[0].name):
            pool.next(0.0)
    finally:
        pool.stop()


@pytest.fixture
def prompt_trainer(folder: Path, tmp_path: Path) -> PromptTrainer:
    """On the weights of a step of ordinary training."""
    train.Trainer(arguments(folder, tmp_path, 1)).run()
    (tmp_path / "prompts").mkdir()
    weights = f"--weights {tmp_path}/out/weights-0.safetensors"
    return PromptTrainer(arguments(folder, tmp_path / "prompts", 2, PromptTrainer, weights))


def test_prompts_are_taught_to_the_decoder_alone(prompt_trainer: PromptTrainer, tmp_path: Path) -> None:
    """Two steps on text: the encoder and the tokens stay as they were, attention to the text before moves."""
    before = {name: parameter.detach().clone() for name, parameter in prompt_trainer.model.named_parameters()}
    prompt_trainer.run()
    after = dict(prompt_trainer.model.named_parameters())
    moved = {name for name, parameter in after.items() if not torch.equal(parameter, before[name])}
    assert all(name.startswith("model.decoder.") for name in moved)
    assert "model.decoder.embed_tokens.weight" not in moved
    assert any("self_attn" in name for name in moved)
    assert json.loads((tmp_path / "prompts/out/train.json").read_text())["step"] == 2


def test_ordinary_windows_hold_the_decoder_to_what_it_wrote(
    prompt_trainer: PromptTrainer, folder: Path, bank: Bank, chunks: list[list[BankSentence]]
) -> None:
    """Nothing is lost before the first step, and something once the decoder has changed; prompted windows teach."""
    beds = sounds.make_all(8, 4 * SAMPLE_RATE, torch.device("cpu"))
    frontend = Frontend(torch.device("cpu"), train.mel_filters(), beds)

    def loss(kind: type[Planner]) -> float:
        planner = planner_of(kind, folder, chunks)
        planner.progress = 0.9
        plan = planner.batch(4, SECONDS, 144)
        found = prompt_trainer.compute_gradients(plan, bank, frontend, losses.decoder_loss)
        return float(found["loss"])

    assert loss(KeptPlanner) == pytest.approx(0, abs=1e-5)
    assert loss(PromptPlanner) > 1
    with torch.no_grad():
        parameters = dict(prompt_trainer.model.named_parameters())
        parameters["model.decoder.layers.0.fc1.weight"].mul_(2)
    assert loss(KeptPlanner) > 1e-3
