"""Captions as lines of text: final segments for any output and, for terminals, one line that is drawn again and again.

This module does no I/O.
"""

from __future__ import annotations

import unicodedata

from tutti.captions import Transcript
from tutti.messages import Event, Reconnecting, Resumed, Segment, Utterance
from tutti.options import FileProgress

CLEAR_LINE = "\r\x1b[2K"
"""Moves to the start of the line and clears it (ECMA-48)."""
_DIM = "\x1b[2m"
_RESET = "\x1b[0m"
_JOINERS = "\u200c\u200d"
"""The zero-width non-joiner and joiner: words of Persian and of Indian languages have them between two letters."""


class CaptionLines:
    """Turns events into text for the output."""

    def __init__(self, n_channels: int, columns: int | None) -> None:
        """Begin with an empty output.

        Args:
            n_channels: if there are several, every line begins with its channel.
            columns: the width of the terminal. None: the output is not a terminal, and gets final lines only.
        """
        self._n_channels = n_channels
        self.columns = columns
        """It may change from one event to the next."""
        self._transcript = Transcript(max_utterances=0)

    def add(self, event: Event) -> str:
        """The text to write after this event; it may be empty."""
        self._transcript.add(event)
        lines = "".join(f"{line}\n" for line in self._final_lines(event))
        if self.columns is None:
            return lines
        return CLEAR_LINE + lines + self._interim_line(self.columns)

    def note(self, text: str) -> str:
        """The text to write for a remark about the session. It stands above the line that is drawn again."""
        if self.columns is None:
            return f"{text}\n"
        return f"{CLEAR_LINE}{text}\n{self._interim_line(self.columns)}"

    def _final_lines(self, event: Event) -> list[str]:
        match event:
            case Segment() if event.text.strip():
                return [self._line(event.channel, event.start_s, event.end_s, event.text.strip())]
            case Utterance():
                return [self._line(event.channel, *span, "(speech, no text)") for span in event.uncovered]
            case _:
                return []

    def _line(self, channel: int, start_s: float, end_s: float, text: str) -> str:
        return f"[{start_s:8.2f} → {end_s:8.2f}] {self._channel_mark(channel)}{_make_printable(text)}"

    def _channel_mark(self, channel: int) -> str:
        return f"#{channel} " if self._n_channels > 1 else ""

    def _interim_line(self, columns: int) -> str:
        stable = tail = ""
        for channel in self._transcript.channels:
            for caption in self._transcript.open_captions(channel):
                if caption.stable or caption.tail:
                    # Only the last tail is dimmed. Tails before it look like stable text.
                    stable += tail + (" " if stable or tail else "") + self._channel_mark(channel) + caption.stable
                    tail = caption.tail
        return dim_tail(_make_printable(stable).lstrip(), _make_printable(tail), columns - 1)


def describe_progress(progress: FileProgress) -> str:
    """How far a file has come, on one line."""
    if progress.final_until_s > 0:
        of = "" if progress.audio_s is None else f" of {_clock(progress.audio_s)}"
        return f"transcribed {_clock(progress.final_until_s)}{of}"
    if progress.sent_bytes < progress.total_bytes:
        return f"sent {progress.sent_bytes / 1e6:.1f} of {progress.total_bytes / 1e6:.1f} MB"
    return "sent; waiting for the first text"


def _clock(time_s: float) -> str:
    seconds = int(time_s)
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def dim_tail(stable: str, tail: str, columns: int) -> str:
    """One line of `stable` and, dimmed, `tail`. If it is too long for `columns`, its beginning is left out."""
    tail = tail if stable else tail.lstrip()
    fitting = _clip_front(tail, columns)
    stable = _clip_front(stable, columns - _width(tail)) if fitting == tail else ""
    tail = fitting
    return stable + (f"{_DIM}{tail}{_RESET}" if tail else "")


def _clip_front(text: str, columns: int) -> str:
    begin = len(text)
    while begin > 0 and (columns := columns - _width(text[begin - 1])) >= 0:
        begin -= 1
    return text[begin:]


def _width(text: str) -> int:
    """The width of `text` on a terminal, in columns: 0 for combining marks, 2 for wide characters, otherwise 1."""
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


def _make_printable(text: str) -> str:
    # Control characters in the text must not control the terminal.
    return "".join(character if character.isprintable() or character in _JOINERS else " " for character in text)


def connection_note(event: Reconnecting | Resumed) -> str:
    """A line about a connection that is lost, or that another one has replaced."""
    if isinstance(event, Reconnecting):
        return f"connection lost ({event.reason}); trying again in {event.retry_in_s:.1f} s"
    lost = "" if event.gap is None else f"; {event.gap[1] - event.gap[0]:.1f} s of audio are lost"
    return f"connected again{lost}"
