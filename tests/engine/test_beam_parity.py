"""Beam search finds what a plain reference finds on the same weights, alone and among others."""

import pytest

from engine.api import DecodeOptions, DoneEvent, Sampling
from engine.decoding.prompt import build_prompt, max_output_tokens
from engine.runner import Runner
from tests.engine.beam_reference import Search, Searched
from tests.engine.engines import Samples, noise
from tests.engine.reference import Reference
from tests.engine.test_parity import decode, tokens_of

NEAR_TIE = 1e-4
"""In log-probability: below it, rounding may decide."""


def search(runner: Runner, reference: Reference, samples: Samples, options: DecodeOptions) -> Searched:
    """What the reference finds."""
    prompt = build_prompt(runner.checkpoint, options, options.language)
    sampling = options.sampling
    return Search(
        reference,
        reference.states(samples),
        prompt.control,
        timestamps=options.timestamps,
        max_tokens=max_output_tokens(runner.checkpoint, options, len(prompt.control)),
        beam_size=sampling.beam_size,
        patience=sampling.patience,
        length_penalty=sampling.length_penalty,
        prefix=options.prefix,
        hotwords=options.hotwords,
    ).run()


def check(done: DoneEvent, found: Searched) -> None:
    """The engine found the same. A repetition is cut to its first round."""
    tokens = tokens_of(done)
    if found.margin < NEAR_TIE:
        return
    if done.is_repetitive:
        assert tokens == found.tokens[: len(tokens)]
        return
    assert tokens == found.tokens
    assert done.is_truncated == (not found.is_ended)


def language_of(runner: Runner) -> str | None:
    return "en" if runner.checkpoint.generation.is_multilingual else None


SAMPLINGS = [
    Sampling(beam_size=2),
    Sampling(beam_size=3, patience=2.0),
    Sampling(beam_size=5),
    Sampling(beam_size=5, patience=0.5, length_penalty=0.0),
    Sampling(beam_size=3, length_penalty=1.0),
    Sampling(beam_size=2, patience=1.5, length_penalty=-2.0),
]


@pytest.mark.parametrize("timestamps", [True, False])
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
async def test_random_models_search_as_the_reference(
    random_runner: Runner, random_reference: Reference, sampling: Sampling, timestamps: bool
) -> None:
    """Beams, patience and length penalty give the reference's tokens, up to a limit or to the end."""
    for seed, limit in ((1, 12), (2, 40)):
        audio = noise(seed, 48_000 * seed)
        options = DecodeOptions(
            language=language_of(random_runner), timestamps=timestamps, max_tokens=limit, sampling=sampling
        )
        (done,) = await decode(random_runner, (audio, options))
        check(done, search(random_runner, random_reference, audio, options))
