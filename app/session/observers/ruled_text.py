"""Applies the client's text rules to what a session sends; no I/O.

The end of a text that more text could change is held back: it is a part of the tail of an interim, and comes with the
next segment. So nothing is shown as stable and then taken away. The session itself keeps the text as it was decoded, as
long as its utterance is open, because the model is shown it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from tutti_server.app.session.messages import events
from tutti_server.app.text_rules.edits import Edit, Found, apply, cut_before, start_of_last_word
from tutti_server.app.text_rules.pipeline import TextRuleOptions, TextRules
from tutti_server.app.text_rules.redaction import MIN_PART, Before

WORDS_IN_MIND = 200
"""How many words after the number of a card a translation may still be that of the words beside it."""
AFTER_UNKNOWN = Before(digits=MIN_PART, words_since_card=0)
"""What is known of the text before a session that goes on with another one: it may end inside a number."""


@dataclass(slots=True, kw_only=True)
class _Channel:
    before: Before
    """What is known of the text that was sent."""
    before_utterance: Before
    """What is known of the text before the utterance."""
    text: str = ""
    """What was decoded and is held back."""
    words: tuple[events.Word, ...] = ()
    """The words of the text."""
    span: tuple[float, float] = (0.0, 0.0)
    """When it begins and ends, in seconds."""
    last: events.Segment | None = None
    """The segment that it is the end of."""
    sent: list[str] = field(default_factory=list)
    """The texts of the segments that were sent."""
    eager_end: str | None = None
    """The text of an eager end that was sent, if the utterance did not go on after it."""


@dataclass(frozen=True, slots=True)
class _Timed:
    text: str
    words: tuple[events.Word, ...]
    """The words of the text; none if they are not known."""
    start_s: float
    end_s: float

    def spans(self) -> list[tuple[int, int]]:
        spans, at = [], 0
        for word in self.words:
            found = self.text.find(word.text, at)
            start = at if found < 0 else found
            at = min(start + len(word.text), len(self.text))
            spans.append((start, at))
        return spans

    def cut_before(self, found: Found) -> int:
        """Return the last index at which what was found lets the text be cut, and which cuts no word."""
        return cut_before(self.text, found.decided, [*found.whole, *self.spans()])

    def times(self, start: int, end: int) -> tuple[float, float]:
        """When a part of the text is spoken. The last words may not be known: they share the time that is left."""
        spans = self.spans()
        inside = [word for word, (first, last) in zip(self.words, spans, strict=True) if first < end and start < last]
        known = spans[-1][1] if spans else 0
        if inside and not self.text[known:end].strip():
            return inside[0].start_s, inside[-1].end_s
        known, since_s = (known, self.words[-1].end_s) if known < end and self.words else (0, self.start_s)
        part_s = (self.end_s - since_s) / max(len(self.text) - known, 1)
        start_s = inside[0].start_s if inside else round(since_s + max(start - known, 0) * part_s, 3)
        return start_s, round(since_s + (end - known) * part_s, 3)

    def edited_words(self, edits: Sequence[Edit], start: int, end: int) -> tuple[events.Word, ...]:
        """The words that begin between two indices, as the edits leave them."""
        words: list[events.Word] = []
        group: list[events.Word] = []
        group_start = group_end = 0
        for word, (first, last) in zip(self.words, self.spans(), strict=True):
            if not start <= first < end:
                continue
            if group and not any(each.start < group_end and first < each.end for each in edits):
                words += _joined(group, apply(self.text, edits, group_start, group_end))
                group = []
            if not group:
                group_start = min([first, *(each.start for each in edits if each.start < first < each.end)])
            group.append(word)
            group_end = max([last, *(each.end for each in edits if each.start < last and first < each.end)])
        if group:
            words += _joined(group, apply(self.text, edits, group_start, group_end))
        return tuple(words)


class RuledText:
    """The text rules of a session."""

    def __init__(self, options: TextRuleOptions, *, is_resumed: bool, wants_words: bool) -> None:
        """Make the rules of a session, which needs the times of words even if the client does not want them."""
        self._rules = TextRules(options)
        self._before = AFTER_UNKNOWN if is_resumed else Before()
        self._wants_words = wants_words
        self._have_words: dict[int, bool] = {}
        """Whether the segments of an open utterance have words, which is decided where it begins."""
        self._channels: dict[int, _Channel] = {}
        self._segment_numbers = count()

    def configure(self, *, wants_words: bool) -> None:
        """Change whether the client wants the words of final text, from the next utterance on."""
        self._wants_words = wants_words

    def applied(self, event: events.Event) -> Iterator[events.Event]:
        """The event as the rules leave it; with text that was held back, or not at all if all of its text is."""
        match event:
            case events.SpeechStarted(utterance=utterance):
                self._have_words[utterance] = self._wants_words
                yield event
            case events.Segment():
                yield from self._segment(self._channel(event.channel), event)
            case events.Utterance():
                yield from self._end(self._channel(event.channel), event)
            case events.Interim():
                yield self._interim(self._channel(event.channel), event)
            case events.EagerEnd():
                yield self._eager_end(self._channel(event.channel), event)
            case events.SpeechResumed():
                self._channel(event.channel).eager_end = None
                yield event
            case events.Translation():
                yield replace(event, text=self.redacted(event.channel, event.text))
            case _:
                yield event

    def redacted(self, channel: int, text: str) -> str:
        """A translation, or a text to be translated, without what must not be written down.

        It begins anywhere in the text of its channel, so a number at its beginning may be the end of a longer one. If
        the channel had a card's number not long ago, it may be the security code.
        """
        before = self._channel(channel).before
        has_card = before.words_since_card < WORDS_IN_MIND
        before = Before(1, 0 if has_card else before.words_since_card)
        return apply(text, self._rules.find(text, before, is_translation=True).edits)

    def _channel(self, number: int) -> _Channel:
        if number not in self._channels:
            self._channels[number] = _Channel(before=self._before, before_utterance=self._before)
        return self._channels[number]

    # Final text.

    def _segment(self, channel: _Channel, event: events.Segment) -> Iterator[events.Segment]:
        start_s = channel.span[0] if channel.text else event.start_s
        timed = _Timed(channel.text + event.text, channel.words + event.words, start_s, event.end_s)
        found = self._rules.find(timed.text, channel.before)
        yield from self._send(channel, event, timed, found.edits, timed.cut_before(found))

    def _end(self, channel: _Channel, event: events.Utterance) -> Iterator[events.Event]:
        if channel.text:
            assert channel.last
            timed = _Timed(channel.text, channel.words, *channel.span)
            edits = self._rules.find(timed.text, channel.before).edits
            yield from self._send(channel, replace(channel.last, goes_on=False), timed, edits, len(timed.text))
        text = "".join(channel.sent)
        if channel.eager_end not in (None, text.strip()):
            # A number of the eager end turned out to be harmless.
            yield events.SpeechResumed(utterance=event.utterance, channel=event.channel, at_s=event.end_s)
        self._have_words.pop(event.utterance, None)
        channel.sent, channel.eager_end = [], None
        channel.before = channel.before_utterance = replace(channel.before, last="")
        yield self._resumable(replace(event, text=text))

    def _resumable(self, event: events.Utterance) -> events.Utterance:
        """The event, so that a session that goes on with this one decodes what is held back on other channels again."""
        held = {number: each.span[0] for number, each in self._channels.items() if each.text}
        until_s = tuple(min(time_s, held.get(number, time_s)) for number, time_s in enumerate(event.resume_from_s))
        if until_s == event.resume_from_s:
            return event
        starts = tuple(None if number in held else each for number, each in enumerate(event.detector_from_s))
        return replace(event, resume_from_s=until_s, final_until_s=min(until_s), detector_from_s=starts)

    def _send(
        self, channel: _Channel, event: events.Segment, timed: _Timed, edits: Sequence[Edit], end: int
    ) -> Iterator[events.Segment]:
        """Send the text up to an index, and hold back the rest."""
        n_words = sum(first < end for first, _ in timed.spans())
        has_rest = end < len(timed.text)
        rest_s, _ = timed.times(end, len(timed.text)) if has_rest else (event.end_s, 0.0)
        until_s = timed.times(0, end)[1] if has_rest else max(event.end_s, timed.start_s)
        raw, text = timed.text[:end], apply(timed.text, edits, 0, end)
        channel.text, channel.words = timed.text[end:], timed.words[n_words:]
        channel.span, channel.last = (rest_s, event.end_s), event if has_rest else None
        channel.before = self._rules.after(raw, channel.before)
        if not any(channel.sent):
            text = text.lstrip()
        if not text:
            return
        channel.sent.append(text)
        yield replace(
            event,
            id=next(self._segment_numbers),
            text=text,
            start_s=timed.start_s,
            end_s=until_s,
            words=timed.edited_words(edits, 0, end) if self._have_words.get(event.utterance, self._wants_words) else (),
            redactions=tuple(_redactions(timed, edits, end)),
            source=replace(event.source, text=text, tokens=(), words=None),
        )

    # Text that may change.

    def _eager_end(self, channel: _Channel, event: events.EagerEnd) -> events.EagerEnd:
        found = self._rules.find(event.text, channel.before_utterance, changes_from=0)
        channel.eager_end = apply(event.text, found.edits).strip()
        return replace(event, text=channel.eager_end)

    def _interim(self, channel: _Channel, event: events.Interim) -> events.Interim:
        stable = channel.text + event.stable
        has_words = bool(event.stable_words or event.tail_words)
        words = channel.words + event.stable_words + event.tail_words
        timed = _Timed(stable + event.tail, words, event.start_s, event.end_s)
        # The last word may get more letters.
        found = self._rules.find(stable[: start_of_last_word(stable)].rstrip(), channel.before)
        decided = timed.cut_before(found)
        edits = self._rules.find(timed.text, channel.before, changes_from=decided).edits
        shown = apply(timed.text, edits, 0, decided)
        tail = apply(timed.text, edits, decided)
        if not any(channel.sent):
            shown, tail = shown.lstrip(), tail if shown.strip() else tail.lstrip()
        return replace(
            event,
            stable=shown,
            tail=tail,
            start_s=min(event.start_s, channel.span[0]) if channel.text else event.start_s,
            stable_words=timed.edited_words(edits, 0, decided) if has_words else (),
            tail_words=timed.edited_words(edits, decided, len(timed.text)) if has_words else (),
        )


def _joined(words: Sequence[events.Word], text: str) -> Iterable[events.Word]:
    """The words of a new text that stands where these words stood. They share the time."""
    parts = text.split()
    if len(words) == len(parts) == 1:
        return [replace(words[0], text=parts[0])]
    start_s, end_s = words[0].start_s, words[-1].end_s
    part_s = (end_s - start_s) / max(len(parts), 1)
    confidence = min(each.confidence for each in words)
    return [
        replace(
            words[0],
            text=part,
            start_s=round(start_s + index * part_s, 3),
            end_s=round(start_s + (index + 1) * part_s, 3),
            confidence=confidence,
        )
        for index, part in enumerate(parts)
    ]


def _redactions(timed: _Timed, edits: Sequence[Edit], end: int) -> Iterator[events.Redaction]:
    """When that is spoken which was redacted before an index."""
    for edit in edits:
        if edit.kind and edit.end <= end:
            yield events.Redaction(edit.kind, *timed.times(edit.start, edit.end))
