"""Beam search finds what a plain reference finds on the same weights, alone and among others."""

from dataclasses import replace

import pytest

from tests.engine.beam_reference import Search, Searched
from tests.engine.engines import Samples, collect, noise, start_engine
from tests.engine.reference import Reference
from tests.engine.test_parity import decode, decode_alone, tokens_of
from tutti_server.engine.api import (
    DecodeOptions,
    DoneEvent,
    Sampling,
    StartedEvent,
    Window,
    is_punctuation,
)
from tutti_server.engine.decoding.prompt import build_prompt, max_output_tokens
from tutti_server.engine.runner import Runner

NEAR_TIE = 1e-4
"""In log-probability: below it, rounding may decide."""


def search(runner: Runner, reference: Reference, samples: Samples, options: DecodeOptions) -> Searched:
    """What the reference finds."""
    sampling = options.sampling
    return Search(
        reference,
        reference.states(samples),
        build_prompt(runner.checkpoint, options, options.language).control,
        timestamps=options.timestamps,
        max_tokens=max_output_tokens(runner.checkpoint, options),
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
    Sampling(beam_size=5, patience=0.5, length_penalty=0.0),
    Sampling(beam_size=2, patience=1.5, length_penalty=-2.0),
]


@pytest.mark.parametrize("timestamps", [True, pytest.param(False, marks=pytest.mark.nightly)])
async def test_random_models_search_as_the_reference(
    random_runner: Runner, random_reference: Reference, timestamps: bool
) -> None:
    """Beams, patience and length penalty give the reference's tokens, up to a limit or to the end."""
    for seed, sampling in enumerate(SAMPLINGS):
        audio = noise(seed, 32_000 * (1 + seed))
        options = DecodeOptions(
            language=language_of(random_runner),
            timestamps=timestamps,
            max_tokens=(14, 7)[seed % 2],
            sampling=sampling,
        )
        (done,) = await decode(random_runner, (audio, options))
        check(done, search(random_runner, random_reference, audio, options))


@pytest.mark.nightly
async def test_prompt_prefix_and_hotwords_hold_for_every_beam(
    random_runner: Runner, random_reference: Reference
) -> None:
    """Previous text, a forced prefix and hotwords give the reference's tokens; a draft changes nothing."""
    tokenizer = random_runner.checkpoint.tokenizer
    text, first = tokenizer.encode(" the other"), tokenizer.first_timestamp
    audio = noise(5)
    base = DecodeOptions(language=language_of(random_runner), max_tokens=12, sampling=Sampling(beam_size=3))
    for options in (
        replace(base, previous_text="the other one. " * 4),
        replace(base, prefix=(first + 5, *text, first + 40)),
        replace(base, prefix=tuple(text), timestamps=False, draft=tuple(text)),
        replace(base, hotwords=("other", "the one")),
        replace(base, hotwords=("other",), prefix=tuple(text[:-1]), timestamps=False),
    ):
        (done,) = await decode(random_runner, (audio, options))
        check(done, search(random_runner, random_reference, audio, options))


async def test_beams_and_greedy_rows_share_a_batch(random_runner: Runner) -> None:
    """Each window gives what it gives alone: searches of several sizes beside greedy and random decoding."""
    language = language_of(random_runner)
    options = [
        DecodeOptions(language=language, max_tokens=25, sampling=Sampling(beam_size=3)),
        DecodeOptions(language=language, max_tokens=30),
        DecodeOptions(language=language, max_tokens=14, timestamps=False, sampling=Sampling(beam_size=2, patience=2.0)),
        DecodeOptions(language=language, max_tokens=20, sampling=Sampling(temperatures=(0.7,))),
        DecodeOptions(language=language, max_tokens=12, hotwords=("other",)),
    ]
    windows = [(noise(seed, 30_000 * (1 + seed)), each) for seed, each in enumerate(options)]
    together = await decode(random_runner, *windows)
    alone = await decode_alone(random_runner, *windows)
    assert [tokens_of(done) for done in together] == [tokens_of(done) for done in alone]
    assert [done.avg_logprob for done in together] == pytest.approx([done.avg_logprob for done in alone], abs=1e-3)
    assert random_runner.slots.n_free == 8


async def test_a_search_that_is_doubtful_is_followed_by_temperatures(random_runner: Runner) -> None:
    """Above temperature 0 tokens are drawn as without beams; what the beams found counts if nothing is likelier."""
    audio, language = noise(4), language_of(random_runner)
    drawn = Sampling(temperatures=(0.0, 0.5), logprob_threshold=1e9, no_speech_threshold=2.0)
    options = DecodeOptions(language=language, max_tokens=12, sampling=drawn)
    searched = replace(options, sampling=replace(drawn, beam_size=3))
    alone = replace(options, sampling=Sampling(beam_size=3))
    greedy, found, once = await decode_alone(random_runner, (audio, options), (audio, searched), (audio, alone))
    assert found.n_steps > once.n_steps
    assert tokens_of(found) == tokens_of(once) if found.temperature == 0 else tokens_of(found) == tokens_of(greedy)


async def test_words_and_attention_peaks_are_those_of_the_best_hypothesis(random_runner: Runner) -> None:
    """Word times cover the text, and every token has the attention of the beam that sampled it."""
    audio, language = noise(6), language_of(random_runner)
    options = DecodeOptions(language=language, max_tokens=16, sampling=Sampling(beam_size=3))
    plain, told = await decode_alone(
        random_runner, (audio, options), (audio, replace(options, word_times=True, attention_times=True))
    )
    assert tokens_of(plain) == tokens_of(told)
    assert "".join(word.text for segment in told.segments for word in segment.words or ()) == told.text
    assert all(0 <= (piece.attention_peak_s or -1) <= 3 for piece in told.pieces if piece.at_s is None)


async def test_a_search_that_is_cancelled_frees_all_of_its_slots(random_runner: Runner) -> None:
    """Its beams have slots from the beginning of the window to its end."""
    options = DecodeOptions(language=language_of(random_runner), sampling=Sampling(beam_size=4))
    window = Window(samples=noise(7), session="s", options=options)
    async with start_engine(random_runner) as engine:
        async with engine.submit(window) as events:
            assert isinstance(await anext(events), StartedEvent)
        ended = await collect(engine, replace(window, options=replace(options, max_tokens=3)))
        assert isinstance(ended[-1], DoneEvent)
        assert engine.stats().running == 0
    assert random_runner.slots.n_free == 8


async def first_unlikely(
    runner: Runner, audio: Samples, options: DecodeOptions, greedy: list[int], sure_logprob: float
) -> int:
    """Where greedy decoding first takes a text token that is less likely; its punctuation is never doubted."""
    for at in range(len(greedy)):
        one = replace(options, prefix=tuple(greedy[:at]), max_tokens=at + 1, sampling=Sampling())
        (done,) = await decode(runner, (audio, one))
        *_, piece = done.pieces
        text = runner.checkpoint.tokenizer.whole_text(greedy[at])
        logprob = piece.marks_logprob if piece.logprob is None else piece.logprob
        # Part of a character is no punctuation, and timestamps have no text.
        if logprob is not None and logprob < sure_logprob and text != "" and not is_punctuation(text or ""):
            return at
    raise AssertionError("every token is likely")


async def test_a_search_goes_on_from_the_first_unlikely_token(
    random_runner: Runner, random_reference: Reference
) -> None:
    """Greedy tokens before it stay, the draft changes nothing, and the rest is what the reference finds after them."""
    audio, sure_logprob, hotwords = noise(5, 48_000), -1.9, ("other",)
    # Without a penalty the length of what came before does not matter to the reference either.
    sampling = Sampling(beam_size=3, length_penalty=0.0)
    language = language_of(random_runner)
    options = DecodeOptions(language=language, max_tokens=16, hotwords=hotwords, sampling=sampling)
    (greedy,) = await decode(random_runner, (audio, replace(options, sampling=Sampling())))
    first = await first_unlikely(random_runner, audio, options, tokens_of(greedy), sure_logprob)
    unsure = replace(options, sampling=replace(sampling, sure_logprob=sure_logprob))
    found = search(random_runner, random_reference, audio, replace(options, prefix=tuple(tokens_of(greedy)[:first])))
    for draft in ((), tokens_of(greedy), tokens_of(greedy)[: first + 2]):
        (done,) = await decode(random_runner, (audio, replace(unsure, draft=tuple(draft))))
        check(done, found)
