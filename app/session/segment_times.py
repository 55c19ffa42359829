"""Moves the times of a segment to its words. The model's timestamps often have the music around it as well."""

from app.session.coverage import Span
from engine import api
from engine.api import SAMPLE_RATE

LEAD_SAMPLES = 3 * SAMPLE_RATE // 10
"""A segment that begins earlier than this before its first word begins with the word instead (0.3 s)."""
TRAIL_SAMPLES = SAMPLE_RATE
"""A segment that ends later than this after its last word ends with the word instead (1 s)."""


def tightened(segment: api.Segment, origin: int, sent: Span) -> Span:
    """The positions where a segment starts and ends.

    Args:
        segment: the segment, with words.
        origin: the position from which its times count.
        sent: where it starts and ends by the model's timestamps, as positions.
    """
    assert segment.words
    start, end = sent
    first = min(max(origin + round(segment.words[0].start_s * SAMPLE_RATE), start), end)
    last = min(max(origin + round(segment.words[-1].end_s * SAMPLE_RATE), first), end)
    return first if first - start > LEAD_SAMPLES else start, last if end - last > TRAIL_SAMPLES else end
