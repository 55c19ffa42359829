"""Words get the times that transformers gives them, whatever their neighbours."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from tests.engine.engines import collect, done_of, noise, read_clip, start_engine
from tests.engine.reference import Reference
from tests.engine.test_parity import decode, tokens_of
from tutti_server.engine.api import DecodeOptions, DoneEvent, EngineEvent, SegmentEvent, Window, Word
from tutti_server.engine.decoding.prompt import build_prompt
from tutti_server.engine.decoding.word_timing import ONSET_STATES, sounding_states
from tutti_server.engine.runner import Runner

TIMED = DecodeOptions(language="en", word_times=True)
TRAIN = "The next train to the city leaves from platform seven at a quarter past nine.".split()
WITHIN_S = 0.04


def words_of(done: DoneEvent) -> list[Word]:
    return [word for segment in done.segments for word in segment.words or ()]


def check(done: DoneEvent, audio_s: float) -> None:
    """What holds of the words of any window."""
    for segment in done.segments:
        assert segment.words is not None
        assert "".join(word.text for word in segment.words) == segment.text
    words = words_of(done)
    for word in words:
        assert 0 <= word.start_s <= word.end_s <= audio_s
        assert 0 <= word.probability <= 1
    assert all(word.start_s <= later.start_s for word, later in pairwise(words))


@pytest.mark.parametrize(
    ("clip", "timestamps"), [("hello", False), pytest.param("call", True, marks=pytest.mark.nightly)]
)
async def test_small_model_times_words_as_the_reference(
    small_runner: Runner, small_reference: Reference, clip: str, timestamps: bool
) -> None:
    """Each word begins where transformers has its first token begin."""
    samples = read_clip(clip)
    options = DecodeOptions(language="en", word_times=True, timestamps=timestamps)
    (done,) = await decode(small_runner, (samples, options))
    control = build_prompt(small_runner.checkpoint, options, "en").control
    heads = small_runner.checkpoint.generation.alignment_heads
    starts_s = small_reference.token_starts_s(samples, control, tokens_of(done), heads)
    wanted, at = list[float](), 0
    for piece in done.pieces:
        wanted += [starts_s[at]] if piece.at_s is None else []
        at += len(piece.tokens)
    found = [word.start_s for word in words_of(done)]
    assert found == pytest.approx(wanted, abs=WITHIN_S)
    check(done, len(samples) / 16_000)


ONSETS_S = {"call": 0.011, "names": 0.398, "train": 0.012}
"""Where the sound of clips begins, in seconds: the first 10 ms above a twentieth of the loudest."""


@pytest.mark.parametrize(("clip", "silence_s"), [("call", 0.0), ("names", 2.37)])
async def test_the_first_word_begins_with_the_sound(short_runner: Runner, clip: str, silence_s: float) -> None:
    """Not a token later, and not in the silence before it."""
    samples = np.concatenate((np.zeros(round(silence_s * 16_000), np.float32), read_clip(clip)))
    (done,) = await decode(short_runner, (samples, TIMED))
    assert words_of(done)[0].start_s == pytest.approx(silence_s + ONSETS_S[clip], abs=0.1)


@pytest.mark.nightly
async def test_the_first_word_begins_after_music(short_runner: Runner) -> None:
    """With or without quiet between both, and not longer than a word lasts."""
    music = noise(3, 5 * 16_000)
    for quiet_s in (0.0, 0.4):
        samples = np.concatenate((music, np.zeros(round(quiet_s * 16_000), np.float32), read_clip("train")))
        (done,) = await decode(short_runner, (samples, TIMED))
        words = words_of(done)
        assert [word.text.strip() for word in words] == TRAIN
        assert words[0].start_s == pytest.approx(5.0 + quiet_s + ONSETS_S["train"], abs=0.15)
        check(done, len(samples) / 16_000)


def test_quiet_stretches_are_left_out_where_speech_is_louder_than_they_are() -> None:
    """A stretch of 0.2 s in audio that is loud elsewhere; not a shorter one, and none in even noise."""
    samples = noise(3, 48_000)
    assert sounding_states(samples).tolist() == list(range(150))
    samples[16_000:19_200] *= 1e-3
    samples[32_000:34_880] *= 1e-3
    left_out = sorted(set(range(150)) - set(sounding_states(samples).tolist()))
    assert left_out == list(range(50, 60 - ONSET_STATES))
    assert sounding_states(np.zeros(16_000, np.float32)).tolist() == list(range(50))
    assert sounding_states(np.zeros(7, np.float32)).tolist() == [0]


def busy_tone(n: int, hz: float = 425.0) -> np.ndarray:
    """A tone of half a second and a pause as long, `n` times."""
    tone = 0.1 * np.sin(2 * np.pi * hz * np.arange(8000) / 16_000)
    return np.tile(np.concatenate((tone, np.zeros(8000))), n).astype(np.float32)


def test_tones_of_a_telephone_network_are_left_out_beside_other_sound() -> None:
    """Alone they are all that there is."""
    tones = busy_tone(2) + noise(1, 32_000) * 1e-3
    both = sounding_states(np.concatenate((tones, noise(3, 16_000))))
    assert 100 - ONSET_STATES <= both[0] <= 100
    assert sounding_states(tones)[0] == 0


async def test_words_before_a_cut_are_where_they_are_without_it(short_runner: Runner) -> None:
    """The token limit ends the text in the middle of the audio, and no word gets the rest of that."""
    samples = read_clip("call")
    (whole,) = await decode(short_runner, (samples, TIMED))
    for limit in (10, 20, 30):
        (cut,) = await decode(short_runner, (samples, replace(TIMED, max_tokens=limit)))
        words, wanted = words_of(cut), words_of(whole)
        assert cut.is_truncated and 2 < len(words) < len(wanted)
        # The last word may be cut itself.
        assert [each.start_s for each in words] == pytest.approx(
            [each.start_s for each in wanted[: len(words)]], abs=0.1
        )
        assert cut.segments[-1].end_s < wanted[len(words) - 1].end_s + 0.5


async def test_segments_with_words_come_at_the_end(short_runner: Runner) -> None:
    """The segments of a window follow one another, right before its last event; cancelling others does no harm."""
    async with start_engine(short_runner) as engine:
        other = asyncio.create_task(collect(engine, Window(samples=read_clip("call"), session="other", options=TIMED)))
        events: list[EngineEvent] = await collect(engine, Window(samples=read_clip("call"), session="", options=TIMED))
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)
    kinds = [type(event) for event in events]
    n_segments = kinds.count(SegmentEvent)
    assert n_segments == 3
    assert kinds[-1 - n_segments :] == [SegmentEvent] * n_segments + [DoneEvent]
    done = events[-1]
    assert isinstance(done, DoneEvent)
    assert tuple(event.segment for event in events if isinstance(event, SegmentEvent)) == done.segments


async def test_attention_peaks_show_roughly_when_a_word_begins(short_runner: Runner) -> None:
    """Alone or among others, with and without a draft; windows that did not ask get none."""
    samples = read_clip("train")
    plain = DecodeOptions(language="en", attention_times=True)
    timed = DecodeOptions(language="en", word_times=True)
    async with start_engine(short_runner, max_encode_batch=4, max_wait_ms=60_000) as engine:

        async def decode_one(options: DecodeOptions, n_samples: int = len(samples)) -> DoneEvent:
            return await done_of(engine, Window(samples=samples[:n_samples], session=str(options), options=options))

        alone, reference, _, cut = await asyncio.gather(
            decode_one(plain), decode_one(timed), decode_one(replace(plain, language=None)), decode_one(plain, 40_000)
        )
        draft = tuple(token for piece in alone.pieces for token in piece.tokens)
        drafted, unasked, *_ = await asyncio.gather(
            decode_one(replace(plain, draft=draft)),
            decode_one(DecodeOptions(language="en")),
            decode_one(timed),
            decode_one(plain, 20_000),
        )
    words = [piece for piece in alone.pieces if piece.at_s is None]
    assert [piece.attention_peak_s for piece in drafted.pieces] == [piece.attention_peak_s for piece in alone.pieces]
    assert all(piece.attention_peak_s is None for piece in unasked.pieces)
    starts = [word.start_s for segment in reference.segments for word in segment.words or ()]
    off = [abs((piece.attention_peak_s or 0.0) - start) for piece, start in zip(words, starts, strict=True)]
    assert np.median(off) < 0.3
    assert all(0 < (piece.attention_peak_s or 0) <= 2.5 for piece in cut.pieces)
