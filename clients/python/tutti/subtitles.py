"""Final segments as subtitles, in the formats SRT and WebVTT.

This module does no I/O. Every segment with text becomes one cue; the server's own subtitles (`tutti transcribe --format
srt`) cut long segments too. Source of the syntax: W3C, "WebVTT: The Web Video Text Tracks Format".
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator

from tutti.messages import Segment


def to_srt(segments: Iterable[Segment]) -> str:
    """The segments as SubRip."""
    # SubRip has no way to escape an arrow.
    return "".join(
        f"{number}\n{_clock(start_ms, ',')} --> {_clock(end_ms, ',')}\n{re.sub('-{2,}>', '->', text)}\n\n"
        for number, (start_ms, end_ms, text) in enumerate(_cues(segments), 1)
    )


def to_vtt(segments: Iterable[Segment]) -> str:
    """The segments as WebVTT."""
    return "WEBVTT\n\n" + "".join(
        f"{_clock(start_ms, '.')} --> {_clock(end_ms, '.')}\n{html.escape(text, quote=False)}\n\n"
        for start_ms, end_ms, text in _cues(segments)
    )


def _cues(segments: Iterable[Segment]) -> Iterator[tuple[int, int, str]]:
    """Start and end in milliseconds, and the text on one line: in order of time, none empty, none of no length."""
    for segment in sorted(segments, key=lambda segment: (segment.start_s, segment.channel)):
        if text := " ".join(segment.text.split()):
            start_ms = round(segment.start_s * 1000)
            yield start_ms, max(round(segment.end_s * 1000), start_ms + 1), text


def _clock(time_ms: int, point: str) -> str:
    seconds, ms = divmod(time_ms, 1000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{point}{ms:03d}"
