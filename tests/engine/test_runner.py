"""The runner against transformers' logits, and what must not leak between slots."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers.modeling_outputs import BaseModelOutput

from tests.engine.checkpoints import SHAPES, make_checkpoint
from tests.engine.engines import noise, prefill, read_clip
from tests.engine.reference import Reference
from tutti_server.engine.adaptation.reader import encode
from tutti_server.engine.checkpoint.checkpoint import Checkpoint, read_checkpoint
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.cuda.build import pick_device_and_dtype
from tutti_server.engine.decoding.prompt import Prompt
from tutti_server.engine.decoding.sampling import Draw
from tutti_server.engine.errors import CheckpointError
from tutti_server.engine.model.attention import PrefillAttention
from tutti_server.engine.runner import Runner


def test_only_interims_are_short_where_interims_are_asked_for(
    small_checkpoint: Checkpoint, small_runner: Runner
) -> None:
    """Encoded side by side, a final gives what it gives with full windows, and an interim what it gives alone."""
    untrained = replace(small_checkpoint, generation=replace(small_checkpoint.generation, audio_context=None))
    runner = Runner(untrained, EngineConfig(n_slots=3, audio_context="interims"))
    samples, kinds = noise(3, 48_000), [True, False, True]
    tokens, slots = [3, 50, 7], [0, 1, 2]

    def logits(runner: Runner, slots: list[int]) -> torch.Tensor:
        attention = PrefillAttention(runner.cache, slots)
        hidden = runner.model.decoder(torch.tensor([tokens] * len(slots)), torch.arange(len(tokens)), attention)
        return runner.model.decoder.logits(hidden)

    with torch.inference_mode():
        runner.encode([samples, samples, noise(1, 100_000)], slots, kinds)
        interim, final, longer = logits(runner, slots)
        small_runner.encode([samples], [0])
        torch.testing.assert_close(final, logits(small_runner, [0])[0], atol=2e-3, rtol=1e-4)
        runner.encode([samples], [2], [True])
        torch.testing.assert_close(interim, logits(runner, [2])[0], atol=2e-3, rtol=1e-4)
        runner.encode([noise(1, 100_000)], [0], [True])
        torch.testing.assert_close(longer, logits(runner, [0])[0], atol=2e-3, rtol=1e-4)
    assert not torch.allclose(interim, final, atol=0.1)
    assert [runner.cache.encoder_lengths[slot] for slot in slots] == [400, 1500, 200]


def test_short_windows_equal_the_reference_at_their_length(short_runner: Runner, small_reference: Reference) -> None:
    """The logits for a window of 5 s, among others, are those of transformers' layers over its 250 states."""
    samples, tokens = noise(3, 72_000), [3, 50, 7, 7, 200, 1]
    slots = [short_runner.slots.allocate() for _ in range(3)]
    short_runner.encode([noise(1), samples, noise(2, 200_000)], slots)
    with torch.inference_mode():
        states = encode(small_reference.model.model.encoder, small_reference.features(samples), 250)
        wanted = small_reference.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=states), decoder_input_ids=torch.tensor([tokens])
        ).logits[0]
        attention = PrefillAttention(short_runner.cache, slots)
        hidden = short_runner.model.decoder(torch.tensor([tokens] * 3), torch.arange(len(tokens)), attention)
        found = short_runner.model.decoder.logits(hidden)[1]
    for slot in slots:
        short_runner.release(slot)
    torch.testing.assert_close(found, wanted, atol=2e-3, rtol=1e-4)


def test_reused_slot_remembers_nothing(random_runner: Runner) -> None:
    """A window in a slot where a longer one was decodes as in a fresh slot, with holes between the rows."""
    runner = random_runner
    prompt = Prompt(tokens=(runner.checkpoint.tokenizer.sot,), sot_index=0, n_prefix=0)

    def decode(slot: int, seed: int, n_steps: int) -> list[int]:
        runner.encode([noise(seed)], [slot])
        tokens = [prefill(runner, [slot], [prompt], [Draw()])[0].tokens[0].token]
        return tokens + [runner.collect(runner.launch())[slot].token for _ in range(n_steps)]

    first, second, third = (runner.slots.allocate() for _ in range(3))
    fresh = decode(third, seed=1, n_steps=8)
    runner.release(third)
    runner.release(first)
    decode(second, seed=2, n_steps=12)
    runner.release(second)
    again = runner.slots.allocate()
    assert again == first
    hole, last = runner.slots.allocate(), runner.slots.allocate()
    runner.release(hole)
    assert decode(last, seed=1, n_steps=8) == fresh
    runner.release(last)
    assert decode(again, seed=1, n_steps=8) == fresh
    runner.release(again)


def test_rows_that_no_window_uses_do_no_harm(tmp_path: Path) -> None:
    """Steps go on past the end of their positions, of which this model has few."""
    runner = Runner(read_checkpoint(str(make_checkpoint(tmp_path, SHAPES[3]))), EngineConfig(n_slots=2))
    prompt = Prompt(tokens=(runner.checkpoint.tokenizer.sot,), sot_index=0, n_prefix=0)
    idle, used = runner.slots.allocate(), runner.slots.allocate()
    runner.encode([noise(0), noise(1)], [idle, used])
    prefill(runner, [idle, used], [prompt] * 2, [Draw()] * 2)
    runner.release(idle)
    for _ in range(2 * runner.checkpoint.model.max_target_positions // 3):
        runner.collect(runner.launch())
    prefill(runner, [used], [prompt], [Draw()])
    for _ in range(2 * runner.checkpoint.model.max_target_positions // 3):
        assert np.isfinite(runner.collect(runner.launch())[used].logprob)
    runner.release(used)


def test_warming_up_measures_and_leaves_nothing(random_runner: Runner) -> None:
    """All slots are free afterwards."""
    n_free = random_runner.slots.n_free
    speed = random_runner.warm_up()
    assert speed.window_s > 0 and speed.step_s > 0
    assert random_runner.slots.n_free == n_free
    assert not random_runner.states.running


def test_bfloat16_decodes_the_same_words(small_checkpoint: Checkpoint, small_runner: Runner) -> None:
    """Half the memory, the same text on clear speech."""
    audio, tokenizer = read_clip("hello"), small_checkpoint.tokenizer
    prompt = Prompt(
        tokens=(tokenizer.sot, tokenizer.languages["en"], tokenizer.transcribe, tokenizer.no_timestamps),
        sot_index=0,
        with_timestamps=False,
    )
    texts = []
    for runner in (small_runner, Runner(small_checkpoint, EngineConfig(n_slots=1, device="cpu", dtype="bfloat16"))):
        slot = runner.slots.allocate()
        runner.encode([audio], [slot])
        tokens = [prefill(runner, [slot], [prompt], [Draw()])[0].tokens[0].token]
        while tokens[-1] != tokenizer.eot:
            tokens.append(runner.collect(runner.launch())[slot].token)
        runner.release(slot)
        texts.append(tokenizer.decode(tokens))
    assert texts[0] == texts[1] == " Hello everyone, and welcome to the morning meeting."


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_devices_that_are_not_there_are_refused() -> None:
    """The error says what to use instead."""
    with pytest.raises(CheckpointError, match="use cpu or auto"):
        pick_device_and_dtype(EngineConfig(device="cuda"))
    with pytest.raises(CheckpointError, match="float32, bfloat16 or int8"):
        pick_device_and_dtype(EngineConfig(device="auto", dtype="float16"))
    assert pick_device_and_dtype(EngineConfig()) == (torch.device("cpu"), torch.float32)
