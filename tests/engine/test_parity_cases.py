"""Generated cases of every option: batches of mixed windows give what transformers gives for each of them.

A group is a checkpoint (the small model, or a random one of its own weights and lists) and eight windows, which the
engine decodes together and the reference one by one. Three groups always run; hundreds of cases more do with
`make parity`.

Where the reference's two best tokens are closer than `NEAR_TIE`, rounding decides, and what follows is not compared;
that is logged, and rare. So it is with word times whose alignment is as good as the best one: of two tokens, every
weight is 1 or -1, and paths tie exactly. Where the engine cuts a repetition, the reference must have one there, and
both must agree up to it.
"""

import logging
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from tests.engine.checkpoints import SHAPES, make_checkpoint, vary
from tests.engine.engines import Samples, noise, read_clip
from tests.engine.reference import Decoded, Reference
from tests.engine.test_parity import decode, tokens_of
from tutti_server.engine.api import DecodeOptions, DoneEvent, Sampling, Word
from tutti_server.engine.checkpoint.checkpoint import read_checkpoint
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.decoding import transcript
from tutti_server.engine.decoding.word_timing import sounding_states
from tutti_server.engine.runner import Runner

logger = logging.getLogger(__name__)

N_CASES = 8
"""Of a group."""
N_GROUPS = 75
BY_DAY = (6, 7, 8)
"""The groups that do not wait for the night: each of another shape. The first has every option, and little audio."""

NEAR_TIE = 1e-4
"""In logits."""
NEAR_PATH = 1e-3
"""In the weight of an alignment, whose entries are about 1."""
MOST_NEAR_TIES = 1
"""In one group."""
WITHIN_S = 0.04

CLIPS = ("hello", "train", "call")
TEXTS = (
    "We are at the station.",
    "  Hello everyone, and welcome back.  ",
    "Grüße aus Zürich — 東京は晴れ。 🎵 naïve café, Ελλάδα",
    "The other one, said 17 people. " * 40,
    "Über 100 Züge — 東京🎵! " * 60,
)
WORDS = ("Kowalski", "meeting", "plat form", " tutti ", "Zürich", "東京", "thee", "e-mail", "the the", "trane", "🎵")
ALWAYS_GOOD = Sampling(no_speech_threshold=-1.0, logprob_threshold=1e9)
"""The first attempt counts, whatever it gives."""
GREEDY = (
    ALWAYS_GOOD,
    replace(ALWAYS_GOOD, best_of=5),
    replace(ALWAYS_GOOD, temperatures=(0.0, 0.4, 1.0)),
    replace(ALWAYS_GOOD, temperatures=(0.0, 0.8), best_of=3),
    # So cold that no random number outweighs a difference in logits.
    replace(ALWAYS_GOOD, temperatures=(1e-6,)),
    replace(ALWAYS_GOOD, temperatures=(1e-6, 1.0), best_of=2),
)
"""Settings that leave the outcome greedy."""


@dataclass(frozen=True)
class Case:
    samples: Samples
    options: DecodeOptions

    @property
    def audio_s(self) -> float:
        return len(self.samples) / 16_000


@dataclass(frozen=True)
class Expected:
    control: list[int]
    decoded: Decoded
    is_repetitive: bool


def make_audio(rng: Random) -> Samples:
    """0.1 to 30 s of speech, noise or silence."""
    n_samples = round(16_000 * rng.choice([0.1, rng.uniform(0.1, 1), rng.uniform(1, 8), rng.uniform(8, 30), 30]))
    clip = read_clip(rng.choice(CLIPS))
    numbers = np.random.default_rng(rng.randrange(10**6))
    audio = clip
    match rng.choice(["clip", "cut", "join", "join", "noisy", "quiet", "overdriven", "noise", "noise", "silence"]):
        case "cut":
            begin = rng.randrange(len(clip) - 1_600)
            audio = clip[begin : begin + n_samples]
        case "join":
            pause = np.zeros(rng.randrange(24_000), np.float32)
            audio = np.concatenate((clip, pause, read_clip(rng.choice(CLIPS)), pause, read_clip("hello")))[:480_000]
        case "noisy":
            audio = (clip + 0.05 * numbers.standard_normal(len(clip))).astype(np.float32)
        case "quiet":
            audio = np.float32(0.003) * clip
        case "overdriven":
            audio = (40 * clip).clip(-1, 1)
        case "silence":
            audio = np.zeros(n_samples, np.float32)
        case "noise":
            audio = noise(rng.randrange(10**6), n_samples)
    return audio


def make_options(rng: Random, reference: Reference) -> DecodeOptions:
    """Any of them, each with some probability."""
    languages = ["en", "en", *reference.languages] if len(reference.languages) < 9 else ["en"] * 9 + ["de", "zh", "ja"]
    is_multilingual = bool(reference.languages)
    timestamps = rng.random() < 0.7
    return DecodeOptions(
        language=rng.choice([None, rng.choice(languages)]),
        task=rng.choice(["transcribe", "transcribe", "translate"]) if is_multilingual else "transcribe",
        timestamps=timestamps,
        previous_text=rng.choice(["", "", *TEXTS]),
        prefix=make_prefix(rng, reference) if rng.random() < 0.35 else (),
        hotwords=tuple(rng.choice(WORDS) for _ in range(rng.choice([1, 2, 5, 60]))) if rng.random() < 0.4 else (),
        word_times=rng.random() < 0.4,
        max_tokens=rng.choice([None, 1, 2, rng.randint(3, 16), rng.randint(17, 60), rng.randint(17, 60)]),
        sampling=rng.choice([GREEDY[0], *GREEDY]),
    )


def make_prefix(rng: Random, reference: Reference) -> tuple[int, ...]:
    """Text alone, or after a timestamp, or closed by one, or with the next one opened."""
    first = first_timestamp(reference)
    text = reference.encode_text(rng.choice([" Hello everyone,", " The", " Grüße", " the other"]))
    start, end = first + rng.randrange(6), first + rng.randrange(20, 90)
    forms = ([start], text, [start, *text], [start, *text, end], [start, *text, end, end], [start, *text, end, end])
    prefix = rng.choice(forms)
    return tuple(prefix + text if rng.random() < 0.2 else prefix)


def make_case(rng: Random, reference: Reference) -> Case:
    options = make_options(rng, reference)
    limit = token_limit(reference, options, control_of(reference, options, "en"))
    if len(options.prefix) >= limit:
        options = replace(options, prefix=())
    return Case(make_audio(rng), options)


def control_of(reference: Reference, options: DecodeOptions, language: str | None, has_text: bool = True) -> list[int]:
    return reference.control(
        language=language,
        task=options.task,
        timestamps=options.timestamps,
        previous_text=options.previous_text if has_text else "",
    )


def token_limit(reference: Reference, options: DecodeOptions, control: list[int]) -> int:
    n_positions: int = reference.model.config.max_target_positions
    limit = min(n_positions // 2, n_positions - len(control))
    return limit if options.max_tokens is None else min(limit, options.max_tokens)


def first_timestamp(reference: Reference) -> int:
    return int(reference.model.generation_config.no_timestamps_token_id) + 1


def is_repetitive(tokens: list[int], reference: Reference) -> bool:
    """The text ends with the same 1 to 40 tokens at least three times, and in at least 24 tokens."""
    text = [token for token in tokens if token < first_timestamp(reference)]
    if tokens[-1] >= reference.model.generation_config.eos_token_id:
        return False
    for length in range(1, 41):
        n_rounds = max(3, -(-24 // length))
        if len(text) >= n_rounds * length and text[-n_rounds * length :] == text[-length:] * n_rounds:
            return True
    return False


def expect(
    reference: Reference, states: BaseModelOutput, case: Case, language: str | None, other_probability: float
) -> Expected:
    """What the engine must give: a repetition is decoded again, once, without the text that may have caused it.

    That is not possible once a segment is out. None is before the end where several attempts, or two languages, may be.
    """
    options = case.options
    limit = token_limit(reference, options, control_of(reference, options, language))
    for has_text in (True, False):
        control = control_of(reference, options, language, has_text)
        decoded = reference.decode(
            states,
            control,
            max_tokens=limit,
            timestamps=options.timestamps,
            prefix=options.prefix,
            hotwords=options.hotwords if has_text else (),
            is_enough=lambda tokens: is_repetitive(tokens, reference),
        )
        repeats = bool(decoded.logprobs) and not decoded.is_ended and is_repetitive(decoded.tokens, reference)
        n_temperatures, is_drawn = len(options.sampling.temperatures), options.sampling.temperatures[0] > 0
        is_held = n_temperatures > 1 or (is_drawn and options.sampling.best_of > 1) or other_probability >= 0.05
        closed = segments_of(reference, case, decoded)
        has_segments_out = not (is_held or options.word_times) and any(each.is_closed for each in closed)
        if not repeats or options.prefix or has_segments_out or not (options.previous_text or options.hotwords):
            break
    return Expected(control, decoded, repeats)


@dataclass(frozen=True)
class PlainSegment:
    start_s: float
    end_s: float
    text: str
    tokens: list[int]
    avg_logprob: float
    is_closed: bool


def segments_of(reference: Reference, case: Case, decoded: Decoded) -> list[PlainSegment]:
    """Cut at timestamps; the open last one ends with the audio."""
    segments: list[PlainSegment] = []
    tokens, logprobs, start_s = list[int](), list[float](), 0.0
    n_forced = len(case.options.prefix)

    def close(end_s: float, is_closed: bool) -> None:
        nonlocal tokens, logprobs, start_s
        text = reference.decode_text(tokens)
        segments.append(PlainSegment(start_s, end_s, text, tokens, mean(logprobs), is_closed))
        tokens, logprobs, start_s = [], [], end_s

    for at, token in enumerate(decoded.tokens):
        tokens.append(token)
        if at >= n_forced:
            logprobs.append(decoded.logprobs[at - n_forced])
        if case.options.timestamps and token >= first_timestamp(reference):
            at_s = min(max(round(0.02 * (token - first_timestamp(reference)), 2), start_s), case.audio_s)
            if reference.decode_text(tokens):
                close(at_s, is_closed=True)
            else:
                start_s = at_s
    if reference.decode_text(tokens):
        close(case.audio_s, is_closed=False)
    return segments


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def compression_ratio(text: str) -> float:
    return len(text.encode()) / len(zlib.compress(text.encode())) if text else 0.0


def check(runner: Runner, reference: Reference, case: Case, done: DoneEvent) -> bool:
    """Compare all that a case gave. False where only a near tie was decided otherwise."""
    options = case.options
    states = reference.states(case.samples)
    language, other_probability = options.language, 0.0
    if language is None and reference.languages:
        probabilities = reference.language_probabilities(states)
        assert done.language_probabilities == pytest.approx(probabilities, abs=1e-3)
        language, other, *_ = sorted(probabilities, key=lambda each: -probabilities[each])
        other_probability = probabilities[other]
    else:
        assert done.language_probabilities is None
    assert done.language == language
    expected = expect(reference, states, case, language, other_probability)
    decoded, found = expected.decoded, tokens_of(done)
    wanted = decoded.tokens
    if expected.is_repetitive and done.is_repetitive:
        # The engine keeps one round of a repetition, as far as the open segment holds it.
        assert found == wanted[: len(found)]
        assert len(options.prefix) <= len(found) < len(wanted)
        segments = segments_of(reference, case, decoded)
        for ours, theirs in zip(done.segments[:-1], segments, strict=False):
            assert (ours.start_s, ours.end_s, ours.text) == (theirs.start_s, theirs.end_s, theirs.text)
        return True
    if found != wanted or done.is_repetitive != expected.is_repetitive:
        same = [ours == theirs for ours, theirs in zip(found, wanted, strict=False)]
        at = same.index(False) if False in same else len(same)
        margin = decoded.margins[at - len(options.prefix)]
        assert margin < NEAR_TIE, (at, margin, found, wanted, done.is_repetitive)
        logger.info("a near tie, %.2g, in token %d of %d: %s", margin, at, len(wanted), options)
        return False
    assert not done.is_repetitive
    assert done.is_truncated == (not decoded.is_ended)
    assert done.text == reference.decode_text(wanted)
    assert done.compression_ratio == compression_ratio(done.text)
    assert done.avg_logprob == pytest.approx(mean(decoded.logprobs), abs=1e-3)
    following = reference.probabilities(states, [*expected.control, *wanted])
    # The token before <|notimestamps|> in every vocabulary, as `_retrieve_logit_processors` has it.
    no_speech = reference.model.generation_config.no_timestamps_token_id - 1
    no_speech_prob = following[reference.sot_index(expected.control), no_speech].item()
    assert done.no_speech_prob == pytest.approx(no_speech_prob, abs=1e-4)
    segments = segments_of(reference, case, decoded)
    if done.is_truncated and segments and not segments[-1].is_closed:
        # It ends where its last token was spoken.
        assert segments[-1].start_s <= done.segments[-1].end_s <= case.audio_s
        segments[-1] = replace(segments[-1], end_s=done.segments[-1].end_s)
    assert [(each.start_s, each.end_s, each.text, list(each.tokens)) for each in done.segments] == [
        (each.start_s, each.end_s, each.text, each.tokens) for each in segments
    ]
    for ours, theirs in zip(done.segments, segments, strict=True):
        assert ours.avg_logprob == pytest.approx(theirs.avg_logprob, abs=1e-3)
        assert ours.no_speech_prob == done.no_speech_prob
        assert ours.compression_ratio == compression_ratio(ours.text)
        assert ours.temperature == done.temperature == options.sampling.temperatures[0]
    if options.word_times and wanted:
        return check_words(runner, reference, case, done, expected, states, following)
    assert all(segment.words == (() if options.word_times else None) for segment in done.segments)
    return True


def check_words(
    runner: Runner,
    reference: Reference,
    case: Case,
    done: DoneEvent,
    expected: Expected,
    states: BaseModelOutput,
    following: Tensor,
) -> bool:
    """Each word begins where its first token does, and is as likely as its tokens.

    It ends where the next token begins: `aligned` leaves out what `word_placement.py` makes of that. A text that the
    token limit ended is aligned with a part of the audio alone, as in `test_word_timing.py`.
    """
    tokens, n_control = expected.decoded.tokens, len(expected.control)
    heads = runner.checkpoint.generation.alignment_heads
    starts_s = reference.token_starts_s(case.samples, expected.control, tokens, heads, states)
    starts_s = [min(start_s, case.audio_s) for start_s in starts_s]
    likely = [following[n_control + at - 1, token].item() for at, token in enumerate(tokens)]
    sounding = sounding_states(case.samples)
    at = 0
    found: list[tuple[int, float]] = []
    for segment in done.segments:
        assert segment.words is not None
        assert "".join(word.text for word in segment.words) == segment.text
        words = list(segment.words)
        for piece in runner.checkpoint.tokenizer.split(segment.tokens, done.language):
            begin, at = at, at + len(piece.tokens)
            if piece.at_s is None:
                word = words.pop(0)
                assert word.text == piece.text
                assert word.start_s <= word.end_s <= case.audio_s
                assert word.probability == pytest.approx(mean(likely[begin:at]), abs=1e-3)
                found += [(begin, word.start_s)]
                found += [(at, word.end_s)] if at < len(tokens) else []
        assert not words
    apart = [(token, at_s) for token, at_s in found if at_s != pytest.approx(starts_s[token], abs=WITHIN_S)]
    if not apart or done.is_truncated:
        return True
    losses = reference.path_losses(case.samples, expected.control, tokens, heads, states)
    places = np.searchsorted(sounding, [round(at_s / 0.02) for _, at_s in apart]).tolist()
    frames = [(token, min(place, losses.shape[1] - 1)) for (token, _), place in zip(apart, places, strict=True)]
    worst = max(losses[token, frame] for token, frame in frames)
    assert worst < NEAR_PATH, (apart, [starts_s[token] for token, _ in apart], worst)
    logger.info("a near path, %.2g, at %d of %d tokens: %s", worst, len(apart), len(tokens), case.options)
    return False


def name_of(index: int) -> str:
    return f"{index}-{SHAPES[index % 5 - 1].name if index % 5 else 'small'}"


GROUPS = [
    pytest.param(index, id=name_of(index), marks=[] if index in BY_DAY else [pytest.mark.nightly])
    for index in range(N_GROUPS)
]


@pytest.fixture(autouse=True)
def aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words lie where the alignment puts them.

    `test_word_placement.py` compares where they are placed within that, and `test_transcript.py` what they take of the
    timestamps before them.
    """

    def leave(timed: Sequence[tuple[Word, int]], _: object) -> tuple[Word, ...]:
        return tuple(word for word, _ in timed)

    monkeypatch.setattr(transcript, "place_all", leave)
    monkeypatch.setattr(transcript, "usual_s", lambda _: 0.0)


@pytest.mark.parametrize("index", GROUPS)
async def test_generated_cases_decode_as_the_reference(index: int, tmp_path: Path, small_folder: Path) -> None:
    """Tokens, text, segments, probabilities, detected languages and word times, whatever the options."""
    rng = Random(index)
    folder = small_folder
    if index % 5:
        shape = SHAPES[index % 5 - 1]
        folder = make_checkpoint(tmp_path, shape if index < 5 else vary(shape, rng), seed=index)
    runner = Runner(read_checkpoint(str(folder)), EngineConfig(n_slots=N_CASES, audio_context="full"))
    reference = Reference(folder)
    cases = [make_case(rng, reference) for _ in range(N_CASES)]
    decoded = await decode(runner, *((case.samples, case.options) for case in cases))
    agreed = [check(runner, reference, case, done) for case, done in zip(cases, decoded, strict=True)]
    assert agreed.count(False) <= MOST_NEAR_TIES
