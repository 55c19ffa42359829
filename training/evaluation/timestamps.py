"""Measures the errors of times: of segments from the engine, and of words from transformers."""

import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.scoring import matches, percentile, words
from engine.api import SAMPLE_RATE, Segment
from training.evaluation.bench import SEED, Bench
from training.evaluation.card import Row, make_row
from training.evaluation.clips import Clip, windows_of
from training.evaluation.held_out import VOICES, own_sentences
from training.evaluation.reference import silence_transformers

WINDOW_S = (8.0, 30.0)
"""Shortest and longest window of joined sentences, in seconds."""
ROUNDS = 3
"""How often the sentences are joined into windows, each time with other voices."""
WORD_VOICES = (("en-us", 175, 50), ("en", 160, 50), ("en-us+f3", 190, 60), ("en-us+m3", 140, 45), ("en-us+m7", 220, 50))
"""Voices of espeak-ng, each with rate and pitch, for word times."""
WORD_SENTENCES_EACH = 12
"""Sentences of each of these voices."""
JOINED_S = (12.0, 25.0)
"""Shortest and longest window of sentences with known word starts, in seconds."""


async def segments(bench: Bench) -> list[Row]:
    """Compare the start and end of joined sentences with the segments that begin or end with them."""
    part = "Segment times"
    decoded = await bench.subject.transcribe(joined_windows(bench))
    starts: list[float] = []
    ends: list[float] = []
    n_sentences = 0
    for each in decoded:
        found_starts, found_ends = segment_errors(each.clip, each.done.segments)
        starts += found_starts
        ends += found_ends
        n_sentences += len(each.clip.utterances)
    of = f"{len(decoded)} windows, {n_sentences} sentences"
    share = (len(starts) + len(ends)) / (2 * n_sentences) if n_sentences else None
    return [
        *_error_rows(part, "start", starts, 0.15, of),
        *_error_rows(part, "end", ends, 0.15, of),
        make_row(part, "starts and ends that a segment marks", share, "%", of=of),
    ]


def joined_windows(bench: Bench) -> list[Clip]:
    """Windows of sentences by all voices in turn, so that a window holds several voices."""
    if not bench.voices:
        return []
    r = random.Random(SEED)
    windows: list[Clip] = []
    names = list(VOICES)
    for number in range(ROUNDS):
        texts = own_sentences()
        r.shuffle(texts)
        windows += windows_of(bench.voices.in_turn(texts, names), r, f"joined-{number}", WINDOW_S)
    return windows


def segment_errors(clip: Clip, found: Sequence[Segment]) -> tuple[list[float], list[float]]:
    """Errors of the starts and of the ends of sentences in seconds; late is positive.

    A start is measured if a segment begins with the sentence, and an end if a segment ends with it.
    """
    sentence_of = [index for index, each in enumerate(clip.utterances) for _ in words(each.text)]
    segment_of = [index for index, segment in enumerate(found) for _ in words(segment.text)]
    reference = [word for each in clip.utterances for word in words(each.text)]
    decoded = [word for segment in found for word in words(segment.text)]
    in_segment: dict[int, list[int]] = {}
    of_sentence: dict[int, list[int]] = {}
    for reference_index, decoded_index in matches(reference, decoded).items():
        sentence, segment = sentence_of[reference_index], segment_of[decoded_index]
        in_segment.setdefault(segment, []).append(sentence)
        of_sentence.setdefault(sentence, []).append(segment)
    starts: list[float] = []
    ends: list[float] = []
    for sentence, its_segments in of_sentence.items():
        first, last = min(its_segments), max(its_segments)
        if min(in_segment[first]) == sentence:
            starts.append(found[first].start_s - clip.utterances[sentence].start_s)
        if max(in_segment[last]) == sentence:
            ends.append(found[last].end_s - clip.utterances[sentence].end_s)
    return starts, ends


async def word_times(bench: Bench) -> list[Row]:
    """Measure the starts of correct words, from `return_timestamps="word"` of transformers."""
    part = "Word times (transformers)"
    single, joined = timed_clips(bench)
    rows: list[Row] = []
    every: list[float] = []
    for name, clips in (("single sentences", single), ("several sentences", joined)):
        errors, n_words = word_errors_s(bench.model, clips)
        every += errors
        of = f"{len(clips)} clips, {len(errors)} of {n_words} words"
        rows += [_row(part, f"{name}: start, median", errors, 50, None, of)]
    of = f"{len(single) + len(joined)} clips, {len(every)} words"
    late = percentile(every, 50)
    return [
        *_error_rows(part, "start", every, 0.12, of),
        *rows,
        make_row(part, "start, median with its sign (late is positive)", late, "s", of=of),
    ]


def timed_clips(bench: Bench) -> tuple[list[Clip], list[Clip]]:
    """Sentences with word starts known from espeak-ng, alone and joined into windows."""
    if not bench.voices:
        return [], []
    # training.alignment chooses the heads on the other half.
    texts, r = own_sentences()[1::2], random.Random(SEED)
    chosen = [
        [texts[(index * WORD_SENTENCES_EACH + i) % len(texts)] for i in range(WORD_SENTENCES_EACH)]
        for index in range(len(WORD_VOICES))
    ]
    single = list(itertools.chain.from_iterable(bench.voices.timed(chosen, WORD_VOICES)))
    r.shuffle(single)
    alone = len(single) // 2
    return bench.with_silence(single[:alone]), windows_of(single[alone:], r, "timed", JOINED_S)


def word_errors_s(model: Path, clips: Sequence[Clip]) -> tuple[list[float], int]:
    """Errors of word starts in seconds (late is positive), and the number of words."""
    errors: list[float] = []
    n_words = 0
    for clip, chunks in zip(clips, _timed_words(model, clips), strict=True):
        reference = ["".join(words(word)) for word in clip.text.split()]
        decoded = ["".join(words(chunk["text"])) for chunk in chunks]
        n_words += len(reference)
        for index, other in matches(reference, decoded).items():
            start_s = chunks[other]["timestamp"][0]
            if start_s is not None:
                errors.append(start_s - clip.word_starts_s[index])
    return errors, n_words


def _timed_words(model: Path, clips: Sequence[Clip]) -> list[list[dict[str, Any]]]:
    if not clips:
        return []
    from transformers import pipeline

    silence_transformers()
    recogniser: Any = pipeline("automatic-speech-recognition", model=str(model), dtype="float32", device="cpu")
    options = {"language": "en", "task": "transcribe"}
    return [
        recogniser(
            {"raw": clip.samples, "sampling_rate": SAMPLE_RATE}, return_timestamps="word", generate_kwargs=options
        )["chunks"]
        for clip in clips
    ]


def _error_rows(part: str, what: str, errors: Sequence[float], target: float, of: str) -> list[Row]:
    return [
        _row(part, f"{what}, median", errors, 50, target, of),
        _row(part, f"{what}, 90 %", errors, 90, None, of),
    ]


def _row(part: str, what: str, errors: Sequence[float], percent: float, target: float | None, of: str) -> Row:
    return make_row(part, what, percentile([abs(error) for error in errors], percent), "s", target, of=of)
