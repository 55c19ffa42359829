"""Collects events into text to show: for each channel, what is final, what is stable and what may still change.

This module does no I/O.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from tutti.continuity import align
from tutti.messages import Event, Interim, Segment, SpeechStarted, Utterance


@dataclass(frozen=True, slots=True, kw_only=True)
class Caption:
    """The text of an utterance that has not ended. Only `tail` may still change."""

    utterance: int
    channel: int
    start_s: float
    final: str = ""
    """The texts of the segments so far, joined."""
    stable: str = ""
    """Text after `final` that will become final as it is."""
    tail: str = ""
    """Text after `stable` that may still change."""

    @property
    def text(self) -> str:
        """All of the text."""
        return self.final + self.stable + self.tail


class Transcript:
    """The text of a session. Call `add` with each event."""

    def __init__(self, max_utterances: int | None = None) -> None:
        """Begin without text.

        Args:
            max_utterances: how many ended utterances to keep for each channel, the newest ones. None: all.
        """
        self._max_utterances = max_utterances
        self._ended: dict[int, deque[Utterance]] = {}
        self._open: dict[int, Caption] = {}
        """The captions of utterances without final text, by number: one may begin before the last one is final."""

    def add(self, event: Event) -> None:
        """Apply an event. An event without text changes nothing."""
        match event:
            case SpeechStarted():
                self._open.setdefault(
                    event.utterance, Caption(utterance=event.utterance, channel=event.channel, start_s=event.at_s)
                )
            case Interim():
                self._open[event.utterance] = replace(
                    self._get_open(event), start_s=event.start_s, stable=event.stable, tail=event.tail
                )
            case Segment():
                self._open[event.utterance] = _add_segment(self._get_open(event), event.text)
            case Utterance():
                self._open.pop(event.utterance, None)
                ended = self._ended.setdefault(event.channel, deque(maxlen=self._max_utterances))
                ended.append(event)
            case _:
                pass

    @property
    def channels(self) -> list[int]:
        """The channels that have had an utterance so far."""
        return sorted(self._ended.keys() | {caption.channel for caption in self._open.values()})

    def utterances(self, channel: int = 0) -> list[Utterance]:
        """The ended utterances, in the order in which they began."""
        return sorted(self._ended.get(channel, ()), key=lambda utterance: utterance.utterance)

    def open_captions(self, channel: int = 0) -> list[Caption]:
        """The utterances that have not ended, in the order in which they began. Mostly there is none or one."""
        captions = [caption for caption in self._open.values() if caption.channel == channel]
        return sorted(captions, key=lambda caption: caption.utterance)

    def text(self, channel: int = 0, separator: str = " ") -> str:
        """All text of a channel, with text that may still change. Utterances are joined with `separator`."""
        texts = {item.utterance: item.text for item in self.utterances(channel)}
        texts |= {caption.utterance: caption.text for caption in self.open_captions(channel)}
        return separator.join(text for _, text in sorted(texts.items()) if text)

    def _get_open(self, event: Interim | Segment) -> Caption:
        return self._open.get(event.utterance) or Caption(
            utterance=event.utterance, channel=event.channel, start_s=event.start_s
        )


def _add_segment(caption: Caption, text: str) -> Caption:
    """`caption` after `text` has become final. The text that was shown after it stays until the next interim.

    If the tail was different from `text`, the words go that correspond to it. The words after them would otherwise
    disappear and come back with the next interim.
    """
    _, n_chars = align(text, caption.stable + caption.tail)
    stable, tail = caption.stable[n_chars:], caption.tail[max(n_chars - len(caption.stable), 0) :]
    return replace(caption, final=caption.final + text, stable=stable, tail=tail)
