"""Folds events into text to show: what is final, what is stable and what may still change, per channel. No I/O."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass

from tutti.messages import Event, Interim, Segment, SpeechStarted, Utterance


@dataclass(frozen=True, slots=True)
class Caption:
    """An utterance that has not ended. Its text is `final + stable + tail`; only `tail` may still change."""

    utterance: int
    channel: int
    start_s: float
    # Joined texts of the segments so far.
    final: str = ""
    # What is promised to follow them.
    stable: str = ""
    tail: str = ""

    @property
    def text(self) -> str:
        return self.final + self.stable + self.tail


class Transcript:
    """The text of a session, kept up to date by `add`.

    Args:
        max_utterances: how many ended utterances to keep per channel, the newest; None keeps all.
    """

    def __init__(self, max_utterances: int | None = None) -> None:
        self._max_utterances = max_utterances
        self._ended: dict[int, deque[Utterance]] = {}
        # By utterance number. An utterance may begin before the one ahead of it is final.
        self._open: dict[int, Caption] = {}

    def add(self, event: Event) -> None:
        """Takes in any event; those without text change nothing."""
        match event:
            case SpeechStarted():
                self._open.setdefault(event.utterance, Caption(event.utterance, event.channel, event.at_s))
            case Interim():
                final = self._get_open(event).final
                self._open[event.utterance] = Caption(
                    event.utterance, event.channel, event.start_s, final, event.stable, event.tail
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
        """The channels heard from so far."""
        return sorted(self._ended.keys() | {caption.channel for caption in self._open.values()})

    def utterances(self, channel: int = 0) -> list[Utterance]:
        """Ended utterances, in the order of speech."""
        return sorted(self._ended.get(channel, ()), key=lambda utterance: utterance.utterance)

    def open_captions(self, channel: int = 0) -> list[Caption]:
        """Utterances that have not ended, in the order of speech; mostly none or one."""
        captions = [caption for caption in self._open.values() if caption.channel == channel]
        return sorted(captions, key=lambda caption: caption.utterance)

    def text(self, channel: int = 0, separator: str = " ") -> str:
        """Everything on `channel`, the changing tail included; utterances are joined with `separator`."""
        texts = {item.utterance: item.text for item in self.utterances(channel)}
        texts |= {caption.utterance: caption.text for caption in self.open_captions(channel)}
        return separator.join(text for _, text in sorted(texts.items()) if text)

    def _get_open(self, event: Interim | Segment) -> Caption:
        return self._open.get(event.utterance) or Caption(event.utterance, event.channel, event.start_s)


def _add_segment(caption: Caption, text: str) -> Caption:
    """`caption` once `text` is final: what was shown beyond it stays until the next interim.

    A tail that turned out differently gives way by as many words as `text` has, so that what follows them does not
    vanish and come back.
    """
    shown = caption.stable + caption.tail
    if shown.startswith(text):
        beyond = shown[len(text) :]
        n_stable = max(len(caption.stable) - len(text), 0)
    else:
        beyond = _behind_words(shown, len(text.split()))
        n_stable = 0
    return Caption(
        caption.utterance,
        caption.channel,
        caption.start_s,
        caption.final + text,
        beyond[:n_stable],
        beyond[n_stable:],
    )


def _behind_words(text: str, n: int) -> str:
    return re.sub(rf"^(?:\s*\S+){{0,{n}}}", "", text)
