"""The runner against transformers' logits, and what must not leak between slots."""

import numpy as np
import pytest
import torch

from engine.api import WINDOW_SAMPLES
from engine.attention import PrefillAttention
from engine.config import EngineConfig
from engine.errors import CheckpointError
from engine.prompt import Prompt
from engine.runner import Runner, pick_device_and_dtype
from tests.engine.conftest import noise
from tests.engine.reference import Reference


def test_logits_equal_the_reference(random_runner: Runner, random_reference: Reference):
    """For every position of a prompt, on every shape of checkpoint."""
    runner, tokens = random_runner, [3, 50, 7, 7, 200, 1]
    audio = noise(0)
    slot = runner.slots.allocate()
    runner.encode([audio], [slot])
    with torch.inference_mode():
        attention = PrefillAttention(runner._cache, [slot])
        hidden = runner.model.decoder(torch.tensor([tokens]), torch.arange(len(tokens)), attention)
        logits = runner.model.decoder.logits(hidden)[0]
    runner.release(slot)
    torch.testing.assert_close(logits, random_reference.logits(audio, tokens), atol=2e-3, rtol=1e-4)


def test_reused_slot_remembers_nothing(random_runner: Runner):
    """A window in a slot where a longer one was decodes as in a fresh slot, with holes between the rows."""
    runner = random_runner
    prompt = Prompt((runner.checkpoint.tokenizer.sot,), 0, 0)

    def decode(slot: int, seed: int, n_steps: int) -> list[int]:
        runner.encode([noise(seed)], [slot])
        tokens = [runner.prefill([slot], [prompt], [True])[0].first.token]
        return tokens + [runner.step()[slot].token for _ in range(n_steps)]

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


def test_rows_that_nobody_uses_do_no_harm(random_runner: Runner):
    """Steps go on past the end of their positions."""
    runner = random_runner
    prompt = Prompt((runner.checkpoint.tokenizer.sot,), 0, 0)
    idle, used = runner.slots.allocate(), runner.slots.allocate()
    runner.encode([noise(0), noise(1)], [idle, used])
    runner.prefill([idle, used], [prompt] * 2, [True] * 2)
    runner.release(idle)
    for _ in range(2 * runner.checkpoint.model.max_target_positions // 3):
        runner.step()
    runner.prefill([used], [prompt], [True])
    for _ in range(2 * runner.checkpoint.model.max_target_positions // 3):
        assert np.isfinite(runner.step()[used].logprob)
    runner.release(used)


def test_warming_up_measures_and_leaves_nothing(random_runner: Runner):
    """All slots are free afterwards."""
    n_free = random_runner.slots.n_free
    assert random_runner.warm_up() > 0
    assert (random_runner.slots.n_free, random_runner.slots.n_rows) == (n_free, 0)


def test_bfloat16_hears_the_same_words(demo, demo_runner: Runner):
    """Half the memory, the same text on clear speech."""
    from tests.engine.conftest import read_clip

    audio, tokenizer = read_clip("hello"), demo.tokenizer
    prompt = Prompt((tokenizer.sot, tokenizer.languages["en"], tokenizer.transcribe, tokenizer.no_timestamps), 0, 0)
    texts = []
    for runner in (demo_runner, Runner(demo, EngineConfig(n_slots=1, device="cpu", dtype="bfloat16"))):
        slot = runner.slots.allocate()
        runner.encode([audio], [slot])
        tokens = [runner.prefill([slot], [prompt], [False])[0].first.token]
        while tokens[-1] != tokenizer.eot:
            tokens.append(runner.step()[slot].token)
        runner.release(slot)
        texts.append(tokenizer.decode(tokens))
    assert texts[0] == texts[1] == " Hello everyone, and welcome to the morning meeting."


def test_full_window_is_heard_to_its_end(demo_runner: Runner):
    """30 s fit exactly."""
    slot = demo_runner.slots.allocate()
    demo_runner.encode([np.zeros(WINDOW_SAMPLES, np.float32)], [slot])
    demo_runner.release(slot)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_devices_that_are_not_there_are_refused():
    """The error says what to use instead."""
    with pytest.raises(CheckpointError, match="use cpu or auto"):
        pick_device_and_dtype(EngineConfig(device="cuda"))
    with pytest.raises(CheckpointError, match="float32 or bfloat16"):
        pick_device_and_dtype(EngineConfig(device="auto", dtype="float16"))
    assert pick_device_and_dtype(EngineConfig()) == (torch.device("cpu"), torch.float32)
