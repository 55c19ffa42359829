"""Compares detected speech with the text that covers it: which speech has no text, and where a text may end.

These are pure functions of spans and texts.
"""

from dataclasses import dataclass
from difflib import SequenceMatcher

from tutti_server.engine.api import SAMPLE_RATE

Span = tuple[int, int]
"""A stretch of the timeline in samples: the position of its first sample, and the position after its last sample."""

MIN_UNCOVERED_SAMPLES = SAMPLE_RATE // 2
"""The shortest speech without text, in samples, that is reported in a window with some text (0.5 s).

Shorter stretches are breaths and the inaccuracy of the detector. In a window without any text every stretch is
reported.
"""
MIN_MISSED_SAMPLES = SAMPLE_RATE
"""The least speech without text between two segments, in samples, that is decoded again (1 s).

Measured on 24 minutes of human speech with the demo model of that time, a Whisper of 11 M parameters. 1 s: 10
re-decodes. 0.5 s: 67 re-decodes, two thirds of which found nothing.
"""
MARGIN_SAMPLES = SAMPLE_RATE // 5
"""Audio before and after missed speech that is decoded with it, in samples (0.2 s).

The detector notices soft beginnings late.
"""
LETTER_SAMPLES = SAMPLE_RATE // 2
"""The longest time that one letter or digit of a text can take, in samples (0.5 s); a text may take one letter more.

The slowest text in an hour of human and synthetic speech, with the same model, was "One" over 1.4 s.
"""
REPEATED_SHARE = 0.8
"""A text repeats its neighbour if they are similar by this ratio (`SequenceMatcher.ratio`, 0 to 1)."""


@dataclass(frozen=True, slots=True)
class Missed:
    """Speech for which a decoding attempt gave no text."""

    speech: list[Span]
    """The detected speech, in order."""
    start: int
    """Position of the first sample to decode again: before the speech by a margin, but after audio that has text."""
    end: int
    """Position after the last sample to decode again."""


def uncovered(speech: list[Span], covered: list[Span], min_samples: int) -> list[Span]:
    """The stretches of speech of at least `min_samples` that no covered span reaches. Both lists are in order."""
    gaps: list[Span] = []
    for start, end in speech:
        position = start
        for covered_start, covered_end in covered:
            if position < covered_start < end:
                gaps.append((position, covered_start))
            if covered_start < end and covered_end > position:
                position = min(covered_end, end)
        gaps.append((position, end))
    return [(start, end) for start, end in gaps if end - start >= min_samples]


def find_missed(speech: list[Span], since: int, until: int) -> Missed | None:
    """The speech between two positions without text, if there is enough of it to decode it again."""
    spans = clip(speech, since, until)
    if duration(spans) < MIN_MISSED_SAMPLES:
        return None
    return Missed(spans, max(spans[0][0] - MARGIN_SAMPLES, since), min(spans[-1][1] + MARGIN_SAMPLES, until))


def latest_end(speech: list[Span]) -> int | None:
    """The position at which a text must end at the latest so that no speech after it is missed.

    `None` if there is too little speech to miss.
    """
    n_left = MIN_MISSED_SAMPLES
    for start, end in reversed(speech):
        if end - start >= n_left:
            return end - n_left
        n_left -= end - start
    return None


def plausible_end(text: str, speech: list[Span], start: int, end: int) -> int:
    """The latest position at which a text can end: two words do not take half a minute.

    Only detected speech counts, `LETTER_SAMPLES` for each letter and for one more.

    Args:
        speech: all detected speech, in order.
        end: where the segment ends by the model's timestamps.

    Returns:
        A position between `start` and `end`.
    """
    n_left, latest = (count_letters(text) + 1) * LETTER_SAMPLES, start
    for span_start, span_end in clip(speech, start, end):
        if span_end - span_start > n_left:
            return span_start + n_left if n_left else latest
        n_left, latest = n_left - (span_end - span_start), span_end
    return end


def clip(spans: list[Span], start: int, end: int) -> list[Span]:
    """The parts of the spans that lie between two positions."""
    return [(max(begin, start), min(until, end)) for begin, until in spans if begin < end and until > start]


def duration(spans: list[Span]) -> int:
    """The sum of the lengths of the spans, in samples."""
    return sum(end - start for start, end in spans)


def repeats_neighbour(text: str, text_before: str, text_after: str) -> bool:
    """Whether a text only repeats the end of the text before it, or the beginning of the text after it.

    Similar is enough: where the timestamp of a segment's end is too early, its last words are decoded again from the
    middle of a word, and come out differently.
    """
    letters = _letters(text)
    if not letters:
        return True
    neighbours = (_letters(text_before)[-len(letters) :], _letters(text_after)[: len(letters)])
    return any(SequenceMatcher(None, letters, each, False).ratio() >= REPEATED_SHARE for each in neighbours)


def count_letters(text: str) -> int:
    """How many letters and digits a text has."""
    return len(_letters(text))


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)).casefold()
