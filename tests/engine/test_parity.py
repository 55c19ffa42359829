"""The engine decodes the same tokens as transformers on the same weights, alone and among others."""

import asyncio
import os
import random
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import pytest

from tests.engine.engines import Samples, done_of, noise, read_clip, start_engine
from tests.engine.reference import Reference
from tutti_server.engine.api import DecodeOptions, DoneEvent, Sampling, Window
from tutti_server.engine.checkpoint.checkpoint import read_checkpoint
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.decoding.prompt import max_output_tokens
from tutti_server.engine.runner import Runner

CLIPS = ("hello", "call")
NEAR_TIE = 1e-3
"""In logits: below it, rounding may decide."""


def tokens_of(done: DoneEvent) -> list[int]:
    return [token for piece in done.pieces for token in piece.tokens]


async def decode(runner: Runner, *windows: tuple[Samples, DecodeOptions]) -> list[DoneEvent]:
    """Decode windows in one encoder call, one session each."""
    async with start_engine(runner, max_encode_batch=len(windows), max_wait_ms=60_000) as engine:
        submitted = [
            done_of(engine, Window(samples=samples, session=f"session {index}", options=options))
            for index, (samples, options) in enumerate(windows)
        ]
        ended = await asyncio.gather(*submitted)
        assert engine.stats().encode_batch.total == len(windows)
    return ended


async def decode_alone(runner: Runner, *windows: tuple[Samples, DecodeOptions]) -> list[DoneEvent]:
    """Decode one window after the other."""
    async with start_engine(runner) as engine:
        return [
            await done_of(engine, Window(samples=samples, session="", options=options)) for samples, options in windows
        ]


def expected(
    runner: Runner, reference: Reference, samples: Samples, options: DecodeOptions, language: str | None
) -> list[int]:
    """What transformers decodes."""
    control = reference.control(
        language=language,
        task=options.task,
        timestamps=options.timestamps,
        previous_text=options.previous_text,
    )
    limit, timestamps = max_output_tokens(runner.checkpoint, options), options.timestamps
    states = reference.states(samples)
    return reference.decode(states, control, max_tokens=limit, timestamps=timestamps, prefix=options.prefix).tokens


@pytest.mark.parametrize("timestamps", [True, pytest.param(False, marks=pytest.mark.nightly)])
async def test_speech_is_decoded_as_by_the_reference(small_folder: Path, timestamps: bool) -> None:
    """By the small model, or by the checkpoint that TUTTI_CHECKPOINT names; up to a near tie."""
    checkpoint = read_checkpoint(os.environ.get("TUTTI_CHECKPOINT") or str(small_folder))
    assert checkpoint.path is not None
    runner = Runner(checkpoint, EngineConfig(dtype="float32", audio_context="full", n_slots=4))
    reference = Reference(checkpoint.path)
    language = "en" if checkpoint.generation.is_multilingual else None
    windows = [(read_clip(clip), DecodeOptions(language=language, timestamps=timestamps)) for clip in CLIPS]
    control = reference.control(language=language, task="transcribe", timestamps=timestamps)
    for done, (samples, _) in zip(await decode(runner, *windows), windows, strict=True):
        wanted = reference.decode(reference.states(samples), control, max_tokens=100, timestamps=timestamps)
        n_sure = next((at for at, margin in enumerate(wanted.margins) if margin < NEAR_TIE), None)
        assert tokens_of(done)[:n_sure] == wanted.tokens[:n_sure] and len(wanted.tokens[:n_sure]) > 5
        assert not done.is_truncated


async def test_own_output_as_prefix_gives_the_same_output(small_runner: Runner) -> None:
    """A prefix of the model's own tokens changes nothing: the output begins with it and goes on as before."""
    samples, n_forced = read_clip("hello"), 2
    (free,) = await decode(small_runner, (samples, DecodeOptions(language="en")))
    options = DecodeOptions(language="en", prefix=tuple(tokens_of(free)[:n_forced]))
    (forced,) = await decode(small_runner, (samples, options))
    assert tokens_of(forced) == tokens_of(free)
    assert (forced.text, forced.pieces) == (free.text, free.pieces)
    assert forced.n_steps == free.n_steps - n_forced


async def test_foreign_prefix_is_followed_as_in_the_reference(
    random_runner: Runner, random_reference: Reference
) -> None:
    """Any prefix, ending in text or in a timestamp, counts as sampled for the rules."""
    tokenizer = random_runner.checkpoint.tokenizer
    language = "en" if random_runner.checkpoint.generation.is_multilingual else None
    text, first = tokenizer.encode(" the other"), tokenizer.first_timestamp
    prefixes = [text, [first, *text], [first + 5, *text, first + 40], [first, *text, first + 90, first + 90]]
    audio = noise(5)
    windows = [(audio, DecodeOptions(language=language, prefix=tuple(prefix), max_tokens=20)) for prefix in prefixes]
    for done, (_, options) in zip(await decode(random_runner, *windows), windows, strict=True):
        tokens = tokens_of(done)
        assert tokens[: len(options.prefix)] == list(options.prefix)
        assert tokens == expected(random_runner, random_reference, audio, options, language)


async def test_candidates_are_detected_as_by_the_masked_reference(
    random_runner: Runner, random_reference: Reference
) -> None:
    """The probabilities of the candidates add up to 1. Windows with other candidates may be in the same batch.

    No text is doubtful: its window would be decoded in the second language, too.
    """
    if not random_reference.languages:
        pytest.skip("the checkpoint knows one language")
    samples = [noise(seed) for seed in range(4)]
    named = [("de", "zh"), (), ("zh",), ("en", "de")]
    sure = Sampling(logprob_threshold=-1e9)
    options = [DecodeOptions(languages=languages, max_tokens=2, sampling=sure) for languages in named]
    decoded = await decode(random_runner, *zip(samples, options, strict=True))
    for audio, languages, done in zip(samples, named, decoded, strict=True):
        everything = random_reference.language_probabilities(random_reference.states(audio))
        possible = {each: share for each, share in everything.items() if each in (languages or everything)}
        expected = {each: share / sum(possible.values()) for each, share in possible.items()}
        assert done.language_probabilities == pytest.approx(expected, abs=1e-4)
        assert done.language == max(expected, key=lambda each: expected[each])


@pytest.mark.parametrize("n_rounds", [2, pytest.param(250, marks=pytest.mark.nightly)])
async def test_drafts_do_not_change_the_output_of_random_models(random_runner: Runner, n_rounds: int) -> None:
    """Drafts of other windows, of noise, with times that go back: each gives what no draft gives, in a mixed batch."""
    vocab_size, eot = random_runner.checkpoint.model.vocab_size, random_runner.checkpoint.tokenizer.eot
    r = random.Random(2)
    language = "en" if random_runner.checkpoint.generation.is_multilingual else None
    audios = [noise(seed, 30_000 + 9_000 * seed) for seed in range(4)]
    limits = [24, 17, 9, 15]
    plain = [DecodeOptions(language=language, max_tokens=limit, timestamps=limit != 9) for limit in limits]
    alone = await decode_alone(random_runner, *zip(audios, plain, strict=True))
    wanted = [tokens_of(done) for done in alone]
    for _ in range(n_rounds):
        drafts = []
        for own in wanted:
            draft = own[: r.randrange(len(own) + 1)] + [r.randrange(vocab_size) for _ in range(r.randrange(12))]
            drafts.append(tuple(token for token in draft if token != eot))
        options = [replace(each, draft=draft) for each, draft in zip(plain, drafts, strict=True)]
        decoded = await decode(random_runner, *zip(audios, options, strict=True))
        assert [tokens_of(done) for done in decoded] == wanted
        for done, plainly, own, drafted in zip(decoded, alone, wanted, drafts, strict=True):
            n_right = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(own, drafted, strict=False)))
            assert done.n_steps == max(0, plainly.n_steps - n_right), "each right token saves a step"
