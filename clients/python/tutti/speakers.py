"""Who speaks when, from the `Speakers` events of a session."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import takewhile

from tutti.messages import Speakers, SpeakerSpan


class SpeakerTimeline:
    """What the `Speakers` events of a session say, together."""

    def __init__(self) -> None:
        self.spans: list[SpeakerSpan] = []
        """Who speaks when, in the order of time; none overlaps another, and none touches another of its speaker."""

    def apply(self, event: Speakers) -> None:
        """Apply an event. It replaces what earlier ones said of its times."""
        for span in event.spans:
            if span.from_s >= span.until_s:
                continue
            # Also those that end where this one begins, and begin where it ends: they may be of the same speaker.
            first = bisect_left(self.spans, span.from_s, key=lambda each: each.until_s)
            last = bisect_right(self.spans, span.until_s, key=lambda each: each.from_s)
            near = self.spans[first:last]
            before = [part for each in near for part in _cut(each, float("-inf"), span.from_s)]
            after = [part for each in near for part in _cut(each, span.until_s, float("inf"))]
            joined: list[SpeakerSpan] = []
            for each in (*before, span, *after):
                goes_on = joined and (joined[-1].speaker, joined[-1].until_s) == (each.speaker, each.from_s)
                joined.append(SpeakerSpan(joined.pop().from_s, each.until_s, each.speaker) if goes_on else each)
            self.spans[first:last] = joined

    def speaker_of(self, start_s: float, end_s: float) -> str | None:
        """Who speaks for most of a time in seconds; None if that is not known."""
        totals: dict[str, float] = {}
        first = bisect_right(self.spans, start_s, key=lambda each: each.until_s)
        for each in takewhile(lambda each: each.from_s < end_s, self.spans[first:]):
            for part in _cut(each, start_s, end_s):
                totals[part.speaker] = totals.get(part.speaker, 0.0) + part.until_s - part.from_s
        return max(totals, key=lambda each: totals[each], default=None)


def _cut(span: SpeakerSpan, from_s: float, until_s: float) -> list[SpeakerSpan]:
    """The part of a span between two times, if there is one."""
    part = SpeakerSpan(max(span.from_s, from_s), min(span.until_s, until_s), span.speaker)
    return [part] if part.from_s < part.until_s else []
