"""Moves the times of a segment to its words. The model's timestamps often have the music around it as well."""

from tutti_server.app.session.speech.coverage import Span
from tutti_server.engine import api
from tutti_server.engine.api import SAMPLE_RATE

LEAD_SAMPLES = 3 * SAMPLE_RATE // 10
"""A segment that begins earlier than this before its first word begins with the word instead (0.3 s).

One whose last word ends later than this after it ends with the word as well.
"""
TRAIL_SAMPLES = SAMPLE_RATE
"""A segment that ends later than this after its last word ends with the word instead (1 s)."""


def end_of_words(segment: api.Segment, origin: int, sent: Span, until: int) -> int:
    """The position up to which a segment has text.

    In loud music the model may end it seconds before its words, which the alignment finds.

    Args:
        segment: has words.
        origin: the position from which its times count.
        sent: where it starts and ends by the model's timestamps, as positions.
        until: where the audio ends that the model has decoded.
    """
    assert segment.words
    last = min(origin + round(segment.words[-1].end_s * SAMPLE_RATE), until)
    return last if last - sent[1] > LEAD_SAMPLES else sent[1]


def tightened(segment: api.Segment, origin: int, sent: Span) -> Span:
    """The positions where a segment starts and ends; the arguments are those of `end_of_words`."""
    assert segment.words
    start, end = sent
    first = min(max(origin + round(segment.words[0].start_s * SAMPLE_RATE), start), end)
    last = min(max(origin + round(segment.words[-1].end_s * SAMPLE_RATE), first), end)
    return first if first - start > LEAD_SAMPLES else start, last if end - last > TRAIL_SAMPLES else end
