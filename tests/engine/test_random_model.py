"""Random weights of the published sizes."""

import pytest
import torch

from engine.config import EngineConfig
from engine.errors import CheckpointError
from engine.prompt import Prompt
from engine.random_model import SIZES, random_checkpoint
from engine.runner import load_runner
from engine.sampling import Draw


def test_tokens_stand_where_large_v3_has_them() -> None:
    tokenizer = random_checkpoint("random:large-v3").tokenizer
    assert (tokenizer.eot, tokenizer.sot, tokenizer.translate, tokenizer.transcribe) == (50257, 50258, 50359, 50360)
    assert (tokenizer.previous, tokenizer.no_speech, tokenizer.no_timestamps) == (50362, 50363, 50364)
    assert tokenizer.first_timestamp + 1501 == SIZES["large-v3"].vocab_size == 51866
    assert len(tokenizer.languages) == 100


def test_turbo_is_large_with_four_decoder_layers() -> None:
    large, turbo = SIZES["large-v3"], SIZES["turbo"]
    assert (large.encoder_layers, large.decoder_layers, large.d_model, large.n_mels) == (32, 32, 1280, 128)
    assert (turbo.encoder_layers, turbo.decoder_layers, turbo.d_model) == (32, 4, 1280)


def test_other_sizes_are_refused() -> None:
    with pytest.raises(CheckpointError, match=r"random:huge: expected random: and one of tiny, base"):
        random_checkpoint("random:huge")


def test_it_decodes_the_same_every_time_and_does_not_repeat_itself() -> None:
    """So that the engine neither ends early nor finds a loop."""

    def tokens() -> list[int]:
        runner = load_runner(EngineConfig(model="random:tiny", device="cpu", n_slots=1))
        slot = runner.slots.allocate()
        runner.encode([torch.zeros(16_000).numpy()], [slot])
        begun = runner.prefill([slot], [Prompt((runner.checkpoint.tokenizer.sot,), 0, 0)], [False], [Draw()])
        rest = [runner.collect(runner.launch())[slot].token for _ in range(15)]
        return [begun[0].samples[0].token, *rest]

    first = tokens()
    assert first == tokens()
    assert len(set(first)) > 8 and all(token < 50257 for token in first)
