"""Checkpoints with random weights."""

import math

import pytest
import torch

from tests.engine.engines import prefill
from tutti_server.engine.api import DecodeOptions
from tutti_server.engine.checkpoint.checkpoint import ADAPTED_AUDIO_CONTEXT
from tutti_server.engine.config import Dtype, EngineConfig
from tutti_server.engine.decoding.beam_search import SampledToken
from tutti_server.engine.decoding.prompt import build_prompt
from tutti_server.engine.decoding.repetition import repeated_tokens
from tutti_server.engine.decoding.sampling import Draw
from tutti_server.engine.decoding.transcript import compression_ratio
from tutti_server.engine.errors import CheckpointError
from tutti_server.engine.model.random_weights import SIZES, random_checkpoint
from tutti_server.engine.runner import Runner, load_runner

N_WORDS = 28
"""Words of a window, as docs/results/gpu.md says."""


def test_special_tokens_have_the_ids_of_large_v3() -> None:
    tokenizer = random_checkpoint("random:large-v3").tokenizer
    assert (tokenizer.eot, tokenizer.sot, tokenizer.translate, tokenizer.transcribe) == (50257, 50258, 50359, 50360)
    assert (tokenizer.previous, tokenizer.no_speech, tokenizer.no_timestamps) == (50362, 50363, 50364)
    assert tokenizer.first_timestamp + 1501 == SIZES["large-v3"].vocab_size == 51866
    assert len(tokenizer.languages) == 100


def test_turbo_is_large_v3_with_four_decoder_layers() -> None:
    large, turbo = SIZES["large-v3"], SIZES["turbo"]
    assert (large.encoder_layers, large.decoder_layers, large.d_model, large.n_mels) == (32, 32, 1280, 128)
    assert (turbo.encoder_layers, turbo.decoder_layers, turbo.d_model) == (32, 4, 1280)


@pytest.mark.nightly
def test_adapted_weights_are_the_same_but_encode_windows_cut_to_their_audio() -> None:
    full, cut = random_checkpoint("random:tiny"), random_checkpoint("random:tiny-adapted")
    assert cut.model == full.model
    assert full.generation.audio_context is None
    assert cut.generation.audio_context == ADAPTED_AUDIO_CONTEXT
    assert load().encode_share(32_000, is_interim=False) == 1.0
    assert load(model="random:tiny-adapted").encode_share(32_000, is_interim=False) == 0.1


def test_other_sizes_are_refused() -> None:
    with pytest.raises(CheckpointError, match=r"random:huge: expected random: and one of tiny, base, .* got 'huge'"):
        random_checkpoint("random:huge")


def load(dtype: Dtype = "float32", model: str = "random:tiny") -> Runner:
    """A runner whose only slot holds a window of noise, 2 s long."""
    runner = load_runner(EngineConfig(model=model, device="cpu", dtype=dtype, n_slots=1))
    noise = torch.randn(32_000, generator=torch.Generator().manual_seed(3)) / 10
    runner.encode([noise.numpy()], [runner.slots.allocate()])
    return runner


@pytest.fixture(scope="module")
def tiny() -> Runner:
    return load()


def decode(runner: Runner, options: DecodeOptions) -> list[SampledToken]:
    """Decode up to the end token, for a hundred tokens at most."""
    prompt = build_prompt(runner.checkpoint, options, options.language)
    samples = [*prefill(runner, [0], [prompt], [options.timestamps], [Draw()])[0].tokens]
    while samples[-1].token != runner.checkpoint.tokenizer.eot and len(samples) < 100:
        samples.append(runner.collect(runner.launch())[0])
    return samples


def words_of(runner: Runner, sampled: list[SampledToken]) -> list[int]:
    return [each.token for each in sampled if each.token < runner.checkpoint.tokenizer.eot]


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_window_decodes_to_28_words(dtype: Dtype) -> None:
    """They are likely and not repeated, so that no window is decoded again and no text is filtered."""
    runner = load(dtype)
    tokenizer = runner.checkpoint.tokenizer
    for begin in ([], [tokenizer.first_timestamp]):
        sampled = decode(runner, DecodeOptions(language="en", timestamps=bool(begin)))
        words = words_of(runner, sampled)
        assert [each.token for each in sampled] == [*begin, *words, tokenizer.eot]
        assert len(words) == N_WORDS
        assert math.fsum(each.logprob for each in sampled) / len(sampled) > -0.6
        assert compression_ratio(tokenizer.decode(words)) < 1.8
        assert repeated_tokens(words) == 0


@pytest.mark.nightly
def test_the_words_are_the_same_every_time(tiny: Runner) -> None:
    options = DecodeOptions(language="en")
    assert words_of(tiny, decode(load(), options)) == words_of(tiny, decode(tiny, options))


@pytest.mark.nightly
def test_a_prefix_counts_as_words(tiny: Runner) -> None:
    sampled = decode(tiny, DecodeOptions(language="en", timestamps=False, prefix=(300, 400, 500)))
    assert len(words_of(tiny, sampled)) == N_WORDS - 3


@pytest.mark.parametrize("n_characters", [30, 1000])
@pytest.mark.nightly
def test_a_window_ends_after_a_long_prompt(tiny: Runner, n_characters: int) -> None:
    """At most 32 tokens later, and not without a word."""
    sampled = decode(tiny, DecodeOptions(language="en", previous_text="abc def " * (n_characters // 8)))
    assert sampled[-1].token == tiny.checkpoint.tokenizer.eot
    assert 2 <= len(sampled) <= 34
