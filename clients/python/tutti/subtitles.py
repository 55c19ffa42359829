"""Final segments as subtitles, in the formats SRT and WebVTT.

This module does no I/O. Every segment with text becomes one cue, with its speaker if that is known: before the text, or
in WebVTT as a voice. The server's own subtitles (`tutti transcribe --format srt`) cut long segments too. Source of the
syntax: W3C, "WebVTT: The Web Video Text Tracks Format".
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator

from tutti.messages import Segment


def to_srt(segments: Iterable[Segment]) -> str:
    """The segments as SubRip."""
    made: list[str] = []
    for number, (start_ms, end_ms, speaker, text) in enumerate(_cues(segments), 1):
        said = f"{speaker}: {text}" if speaker else text
        # SubRip has no way to escape an arrow.
        said = re.sub("-{2,}>", "->", said)
        made.append(f"{number}\n{_clock(start_ms, ',')} --> {_clock(end_ms, ',')}\n{said}\n\n")
    return "".join(made)


def to_vtt(segments: Iterable[Segment]) -> str:
    """The segments as WebVTT."""
    made = ["WEBVTT\n\n"]
    for start_ms, end_ms, speaker, text in _cues(segments):
        said = html.escape(text, quote=False)
        if speaker:
            said = f"<v {html.escape(speaker, quote=False)}>{said}"
        made.append(f"{_clock(start_ms, '.')} --> {_clock(end_ms, '.')}\n{said}\n\n")
    return "".join(made)


def _cues(segments: Iterable[Segment]) -> Iterator[tuple[int, int, str, str]]:
    """Start and end in milliseconds, speaker, and text on one line: in order of time, none empty, none of no length."""
    for segment in sorted(segments, key=lambda segment: (segment.start_s, segment.channel)):
        if text := _one_line(segment.text):
            start_ms = round(segment.start_s * 1000)
            yield start_ms, max(round(segment.end_s * 1000), start_ms + 1), _one_line(segment.speaker or ""), text


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _clock(time_ms: int, point: str) -> str:
    seconds, ms = divmod(time_ms, 1000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{point}{ms:03d}"
