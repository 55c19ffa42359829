"""Which detected speech has no text, and which of it is to be read again. Plain functions of spans and texts."""

from dataclasses import dataclass
from difflib import SequenceMatcher

from engine.api import SAMPLE_RATE

Span = tuple[int, int]
"""A stretch of the timeline: first position, and the one behind the last."""

# Speech without text beside other text is reported from this length on; shorter stretches are breaths and the
# detector's slack. In a window without any text all of it is reported.
UNCOVERED_SAMPLES = SAMPLE_RATE // 2
# So much speech without text between two segments is read again. Measured on 24 minutes of human speech with the
# embedded model: 10 times; half a second would make it 67 times, two thirds of them for nothing.
MISSED_SAMPLES = SAMPLE_RATE
# Audio read around it: the detector hears soft beginnings late.
MARGIN_SAMPLES = SAMPLE_RATE // 5
# However slowly somebody speaks, a letter or a figure takes no longer, and a text no longer than one more of them.
# Slowest measured with the embedded model on an hour of human and synthetic speech: "One" over 1.4 s.
LETTER_SAMPLES = SAMPLE_RATE // 2
# A text of which so much stands in its neighbour says the same again.
REPEATED_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Missed:
    """Speech that a reading has passed over, and the audio that holds it, free of what has text."""

    speech: list[Span]
    start: int
    end: int


def uncovered(speech: list[Span], covered: list[Span], least: int) -> list[Span]:
    """The stretches of speech, of `least` samples or more, that no segment reaches. Both lists are in order."""
    left: list[Span] = []
    for start, end in speech:
        at = start
        for covered_start, covered_end in covered:
            if at < covered_start < end:
                left.append((at, covered_start))
            if covered_start < end and covered_end > at:
                at = min(covered_end, end)
        left.append((at, end))
    return [(start, end) for start, end in left if end - start >= least]


def missed(speech: list[Span], since: int, until: int) -> Missed | None:
    """What was passed over between two segments, if it is long enough to be read again."""
    spans = within(speech, since, until)
    if duration(spans) < MISSED_SAMPLES:
        return None
    return Missed(spans, max(spans[0][0] - MARGIN_SAMPLES, since), min(spans[-1][1] + MARGIN_SAMPLES, until))


def spoken_until(text: str, speech: list[Span], start: int, end: int) -> int:
    """Where the speech that a text stands for ends at the latest: two words are not what was said in half a minute.

    Args:
        start: where the text begins and
        end: ends, as the model has it.
    """
    left, until = (n_letters(text) + 1) * LETTER_SAMPLES, start
    for span_start, span_end in within(speech, start, end):
        if span_end - span_start > left:
            return span_start + left if left else until
        left, until = left - (span_end - span_start), span_end
    return end


def within(spans: list[Span], start: int, end: int) -> list[Span]:
    """What of the spans lies between two positions."""
    return [(max(begin, start), min(until, end)) for begin, until in spans if begin < end and until > start]


def duration(spans: list[Span]) -> int:
    return sum(end - start for start, end in spans)


def repeats(text: str, before: str, behind: str) -> bool:
    """Whether a text only says again how the one before it ends, or how the one behind it begins.

    Nearly is enough: where a segment's end is told too early, its last words are read again from the middle of one of
    them, and not the same.
    """
    letters = _letters(text)
    if not letters:
        return True
    neighbours = (_letters(before)[-len(letters) :], _letters(behind)[: len(letters)])
    return any(SequenceMatcher(None, letters, each, False).ratio() >= REPEATED_SHARE for each in neighbours)


def n_letters(text: str) -> int:
    """Letters and figures."""
    return len(_letters(text))


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)).casefold()
