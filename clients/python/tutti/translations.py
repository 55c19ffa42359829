"""Which translations a session still owes its program, over all of its connections.

A connection may be lost after a text was final and before its translations came. The next one is asked for them: with
the text, and with its audio. This module does no I/O.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from tutti.messages import Segment, Translation, Untranslated

ROUNDING_S = 0.002
"""By how many seconds two times may differ that mean the same moment."""
MAX_TEXTS = 500
"""The most segments that are remembered; older ones are not asked for again."""
MAX_NUMBERS = 500
"""The most utterances whose numbers and translations are remembered."""
MAX_SPAN_S = 28.0
"""The longest piece of text that is asked for again, in seconds: the server takes 30 s."""
MAX_PIECES = 64
"""The most pieces that are asked for (docs/protocol.md); the newest ones."""
MAX_CHARS = 10_000
"""The most characters of all pieces."""
WITHOUT_SPACES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
"""Codes of languages that write no spaces between words, as the server knows them."""


class PendingTranslations:
    """The final text whose translations have not all come, and the translations that were delivered."""

    def __init__(self, targets: tuple[str, ...]) -> None:
        """Begin without text."""
        self._targets = targets
        self._texts: deque[Segment] = deque(maxlen=MAX_TEXTS)
        """The segments that were delivered, but for those whose translations were sent, or do not come."""
        self._numbers: dict[int, int] = {}
        """The numbers of utterances as delivered, by those that they have in this connection."""
        self._until_s: dict[tuple[int, str], float] = {}
        """How far each utterance was translated to each language, in seconds."""

    @property
    def needed_from_s(self) -> float | None:
        """From when on audio must be kept, so that another connection can translate it; None for none."""
        return min((segment.start_s for segment in self._texts), default=None)

    def restart(self) -> None:
        """A new connection counts its utterances anew."""
        self._numbers.clear()

    def note_number(self, theirs: int, ours: int) -> None:
        """Note which utterance has a number in this connection."""
        if self._targets:
            self._numbers[theirs] = ours
            while len(self._numbers) > MAX_NUMBERS:
                del self._numbers[next(iter(self._numbers))]

    def add(self, segment: Segment) -> None:
        """Note final text that was delivered."""
        if self._targets:
            self._texts.append(segment)

    def forget_before(self, times_s: tuple[float, ...]) -> None:
        """Before these times, one for each channel, no more translations come."""
        if times_s:
            left = [
                each for each in self._texts if each.end_s > times_s[min(each.channel, len(times_s) - 1)] + ROUNDING_S
            ]
            self._texts = deque(left, MAX_TEXTS)

    def receive(self, event: Translation) -> Translation | None:
        """The translation to deliver; None if what it translates was delivered already."""
        number = event.utterance if event.earlier else self._numbers.get(event.utterance, event.utterance)
        key = number, event.language
        is_new = (event.start_s + event.end_s) / 2 >= self._until_s.get(key, 0.0) - ROUNDING_S
        # A connection does not know what an earlier one has sent of the utterance.
        lacks_space = key in self._until_s and event.language not in WITHOUT_SPACES and not event.text[:1].isspace()
        text = f" {event.text}" if lacks_space else event.text
        if is_new:
            self._until_s[key] = event.end_s
            while len(self._until_s) > MAX_NUMBERS:
                del self._until_s[next(iter(self._until_s))]
        self.forget_before(event.translated_until_s)
        return replace(event, utterance=number, text=text, earlier=False) if is_new else None

    def missing(self, from_s: tuple[float, ...]) -> tuple[Untranslated, ...]:
        """What another connection must translate that sends the text after these times, one for each channel."""
        pieces: list[Untranslated] = []
        for segment in sorted(self._texts, key=lambda each: each.channel):
            end_s = min(segment.end_s, from_s[min(segment.channel, len(from_s) - 1)])
            targets = tuple(each for each in self._targets if self._is_missing(segment, each))
            if not targets or segment.start_s >= end_s:
                continue
            last = pieces[-1] if pieces else None
            if last and _goes_on(last, segment, targets) and end_s - last.start_s <= MAX_SPAN_S:
                pieces[-1] = replace(last, end_s=end_s, text=last.text + segment.text)
            else:
                pieces.append(
                    Untranslated(
                        utterance=segment.utterance,
                        channel=segment.channel,
                        start_s=segment.start_s,
                        end_s=end_s,
                        text=segment.text,
                        language=segment.language,
                        targets=targets,
                    )
                )
        pieces = sorted(pieces, key=lambda each: each.start_s)[-MAX_PIECES:]
        while sum(len(each.text) for each in pieces) > MAX_CHARS:
            pieces.pop(0)
        return tuple(pieces)

    def _is_missing(self, segment: Segment, target: str) -> bool:
        until_s = self._until_s.get((segment.utterance, target), 0.0)
        return target != segment.language and segment.end_s > until_s + ROUNDING_S


def _goes_on(piece: Untranslated, segment: Segment, targets: tuple[str, ...]) -> bool:
    """Whether the text of a segment follows that of a piece, and lacks the same translations."""
    return (piece.utterance, piece.channel, piece.language, piece.targets) == (
        segment.utterance,
        segment.channel,
        segment.language,
        targets,
    )
