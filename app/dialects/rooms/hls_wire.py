"""The lines of a room as WebVTT, whole or in segments for players of HLS.

Sources: W3C, "WebVTT: The Web Video Text Tracks Format"; RFC 8216, "HTTP Live Streaming", sections 3.5 and 4.3.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, urlencode

from tutti_server.app.files.subtitles import Cue, CueCutter, TimedText, vtt, vtt_cue
from tutti_server.app.publish.hls_lines import SEGMENT_S, Line

N_LISTED = 10
"""How many segments a playlist lists: a minute."""
N_SERVED = 100
"""How many of the newest segments can be fetched. Players may still want one that the playlist does not list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackOptions:
    """What a player asks for in the query of each of its addresses."""

    language: str | None = None
    """The code of the translation; `None` for the text as it was spoken."""
    mpegts: int = 0
    """The time in the video's MPEG-2 stream, in ticks of 90 kHz, at which the room began."""

    def query(self) -> str:
        """The options as the query of an address."""
        given = {"language": self.language or "", "mpegts": str(self.mpegts) if self.mpegts else ""}
        query = urlencode({name: value for name, value in given.items() if value})
        return f"?{query}" if query else ""


def whole_track(lines: Iterable[Line]) -> str:
    """All lines as one WebVTT file, in the order of their times."""
    made = [cue for line in lines for cue in _cues(line)]
    return vtt(sorted(made, key=lambda cue: cue.start_ms))


def track_segment(number: int, lines: Iterable[Line], options: TrackOptions) -> str:
    """One segment as WebVTT.

    A cue is in every segment of its time. One that came after all of these were made is in the next one.

    Args:
        number: of the segment, from 0.
        lines: those that there were when the segment was made.
    """
    start_ms, end_ms = number * SEGMENT_S * 1000, (number + 1) * SEGMENT_S * 1000
    head = f"WEBVTT\nX-TIMESTAMP-MAP=MPEGTS:{options.mpegts},LOCAL:00:00:00.000\n\n"
    cues: list[Cue] = []
    for line in lines:
        for cue in _cues(line):
            is_late = cue.end_ms <= start_ms and line.shown_from == number
            if is_late or (cue.start_ms < end_ms and cue.end_ms > start_ms):
                cues.append(cue)
    return head + "".join(vtt_cue(cue) for cue in sorted(cues, key=lambda cue: cue.start_ms))


def playlist(name: str, n_segments: int, began_at: float, is_live: bool, options: TrackOptions) -> str:
    """The media playlist of a room: its newest segments.

    Args:
        began_at: the time zero of the room, in seconds since 1970.
        options: go into the address of each segment.
    """
    first = max(n_segments - N_LISTED, 0)
    date = datetime.fromtimestamp(began_at + first * SEGMENT_S, UTC).isoformat(timespec="milliseconds")
    head = [
        "#EXTM3U",
        "#EXT-X-VERSION:3",
        f"#EXT-X-TARGETDURATION:{SEGMENT_S}",
        f"#EXT-X-MEDIA-SEQUENCE:{first}",
        f"#EXT-X-PROGRAM-DATE-TIME:{date}",
    ]
    segments = _listed(name, range(first, n_segments), options)
    tail = ("",) if is_live else ("#EXT-X-ENDLIST", "")
    return "\n".join((*head, *segments, *tail))


def _listed(name: str, numbers: Iterable[int], options: TrackOptions) -> Iterator[str]:
    for number in numbers:
        yield f"#EXTINF:{SEGMENT_S:.3f},"
        yield f"{quote(name)}/{number}.vtt{options.query()}"


def _cues(line: Line) -> list[Cue]:
    return CueCutter().cut(TimedText(start_s=line.start_s, end_s=line.end_s, text=line.text, language=line.language))
