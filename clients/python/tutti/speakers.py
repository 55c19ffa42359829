"""Who speaks when, from the `Speakers` events of a session."""

from __future__ import annotations

from tutti.messages import Speakers, SpeakerSpan


class SpeakerTimeline:
    """What the `Speakers` events of a session say, together."""

    def __init__(self) -> None:
        self.spans: list[SpeakerSpan] = []
        """Who speaks when, in the order of time; none overlaps another."""

    def apply(self, event: Speakers) -> None:
        """Apply an event. It replaces what earlier ones said of its times."""
        for span in event.spans:
            before = [part for each in self.spans for part in _cut(each, float("-inf"), span.from_s)]
            after = [part for each in self.spans for part in _cut(each, span.until_s, float("inf"))]
            goes_on = before and before[-1].speaker == span.speaker and before[-1].until_s == span.from_s
            from_s = before.pop().from_s if goes_on else span.from_s
            self.spans = [*before, SpeakerSpan(from_s, span.until_s, span.speaker), *after]

    def speaker_of(self, start_s: float, end_s: float) -> str | None:
        """Who speaks for most of a time in seconds; None if that is not known."""
        totals: dict[str, float] = {}
        for each in self.spans:
            for part in _cut(each, start_s, end_s):
                totals[part.speaker] = totals.get(part.speaker, 0.0) + part.until_s - part.from_s
        return max(totals, key=lambda each: totals[each], default=None)


def _cut(span: SpeakerSpan, from_s: float, until_s: float) -> list[SpeakerSpan]:
    """The part of a span between two times, if there is one."""
    part = SpeakerSpan(max(span.from_s, from_s), min(span.until_s, until_s), span.speaker)
    return [part] if part.from_s < part.until_s else []
