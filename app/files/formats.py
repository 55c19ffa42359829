"""Transcripts as text for people and programs, written while the recording is transcribed."""

import heapq
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from tutti_server.app.files.subtitles import DEFAULT_LAYOUT, VTT_HEAD, Cue, CueCutter, CueLayout, srt_cue, vtt_cue
from tutti_server.app.files.transcript import Transcript, as_warnings
from tutti_server.app.languages import joined
from tutti_server.app.session.messages import events

FORMATS = ("txt", "srt", "vtt", "tsv", "json", "segments")
SUBTITLES = ("srt", "vtt")
WITH_WORDS = ("tsv", "json")
"""Formats that can list words with their times."""
HEADED = ("txt", "segments")
"""Formats of which several transcripts may follow each other, each below the name of its recording."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a transcript is written."""

    format: str = "txt"
    """The format of the answer: one of `FORMATS`."""
    has_words: bool = False
    """Whether words are listed with their times; for `WITH_WORDS` only."""
    has_channels: bool = False
    """Whether each text is labelled with its channel."""
    cues: CueLayout = DEFAULT_LAYOUT
    """How much text a cue may have; for `SUBTITLES` only."""

    @property
    def suffix(self) -> str:
        """The suffix of a file in this format."""
        return ".txt" if self.format == "segments" else f".{self.format}"

    @property
    def may_follow(self) -> bool:
        """Whether the transcripts of several recordings may follow each other in one stream."""
        return self.format in (*HEADED, "json")


class _Format:
    """Turns the segments of a recording into text. This one writes nothing before the end: JSON is one document."""

    @property
    def head(self) -> str:
        """What comes before the first segment."""
        return ""

    def items(self, segment: events.Segment) -> Iterable[tuple[float, Any]]:
        """The parts of a segment that are written in the order of their times, each with the time in seconds."""
        return ()

    def text(self, item: Any) -> str:
        raise NotImplementedError

    def utterance_ended(self) -> str:
        """The text that ends an utterance, if it needs any."""
        return ""

    def settled_items(self, until_s: float) -> Iterable[tuple[float, Any]]:
        """The parts of earlier segments that waited for what follows them, where nothing before this time will."""
        return ()

    @property
    def waits_from_s(self) -> float:
        """The least time of the parts that wait for what follows them."""
        return math.inf


class TranscriptWriter:
    """Writes one transcript, part by part, as soon as no earlier part can follow."""

    def __init__(self, write: Callable[[str], None], layout: Layout, name: str) -> None:
        """Write what comes before the first text."""
        self._write = write
        self._layout = layout
        self._name = name
        self._format = _format(layout)
        self._transcript = Transcript()
        self._waiting: list[tuple[float, int, Any]] = []
        """Parts that wait for earlier ones of other channels: a heap of their times, their numbers and themselves."""
        self._n_parts = 0
        self._put(self._format.head)

    @property
    def audio_s(self) -> float:
        """The length of the recording in seconds, once it is complete."""
        return self._transcript.audio_s

    def add(self, event: events.Event) -> None:
        """Take the next event of the recording."""
        self._transcript.add(event)
        if isinstance(event, events.Segment):
            self._push(self._format.items(event))
        if not self._layout.has_channels:
            # The segments of one channel come in their order.
            self._put_until(math.inf)
            if isinstance(event, events.Utterance):
                self._put(self._format.utterance_ended())

    def advance(self, until_s: float) -> None:
        """Write what begins before this time, in seconds: no segment that begins before it will follow."""
        self._push(self._format.settled_items(until_s))
        self._put_until(until_s)

    def _put_until(self, until_s: float) -> None:
        until_s = min(until_s, self._format.waits_from_s)
        while self._waiting and self._waiting[0][0] < until_s:
            *_, item = heapq.heappop(self._waiting)
            self._put(self._format.text(item))

    def finish(self) -> None:
        """Write the rest. Call it after the last event."""
        self.advance(math.inf)
        if self._layout.format == "json":
            document = as_json(self._transcript, self._name, self._layout)
            self._put(json.dumps(document, ensure_ascii=False, indent=2) + "\n")
        else:
            self._put(self._format.utterance_ended())

    def _push(self, items: Iterable[tuple[float, Any]]) -> None:
        for at_s, item in items:
            heapq.heappush(self._waiting, (at_s, self._n_parts, item))
            self._n_parts += 1

    def _put(self, text: str) -> None:
        if text:
            self._write(text)


def as_json(transcript: Transcript, name: str, layout: Layout) -> dict[str, object]:
    """A transcript as a JSON object. Times are in seconds; channels are numbered from 0, as in the protocols."""
    segments = sorted(transcript.segments, key=lambda segment: segment.start_s)
    utterances = ["".join(each.text for each in group) for _, group in groupby(segments, lambda each: each.utterance)]
    return {
        "file": name,
        "text": joined(text.strip() for text in utterances),
        "language": transcript.language,
        "audio_s": transcript.audio_s,
        "segments": [_segment_json(segment, layout) for segment in segments],
        "uncovered": transcript.uncovered,
    } | as_warnings(transcript.notices)


def _segment_json(segment: events.Segment, layout: Layout) -> dict[str, object]:
    shown: dict[str, object] = {"start_s": segment.start_s, "end_s": segment.end_s, "text": segment.text}
    shown["language"] = segment.language
    if layout.has_channels:
        shown["channel"] = segment.channel
    if layout.has_words:
        shown["words"] = [
            {"text": word.text, "start_s": word.start_s, "end_s": word.end_s, "confidence": word.confidence}
            for word in segment.words
        ]
    return shown


def _format(layout: Layout) -> _Format:
    match layout.format:
        case "txt":
            return _Plain(layout.has_channels)
        case "segments":
            return _Lines(layout.has_channels)
        case "tsv":
            return _Table(layout)
        case "json":
            return _Format()
        case "srt" | "vtt":
            return _Subtitles(layout=layout)
        case other:
            raise ValueError(f"format: expected one of {', '.join(FORMATS)}, got {other!r}")


@dataclass(slots=True)
class _Plain(_Format):
    has_channels: bool
    _utterance: int | None = None
    """The utterance whose line is not ended."""

    def items(self, segment: events.Segment) -> Iterable[tuple[float, events.Segment]]:
        return ((segment.start_s, segment),)

    def text(self, segment: events.Segment) -> str:
        if segment.utterance == self._utterance:
            return segment.text
        ended = self.utterance_ended()
        self._utterance = segment.utterance
        return f"{ended}{_label(segment.channel, self.has_channels)}{segment.text.lstrip()}"

    def utterance_ended(self) -> str:
        is_open, self._utterance = self._utterance is not None, None
        return "\n" if is_open else ""


@dataclass(slots=True)
class _Lines(_Format):
    """A line with the times of each segment."""

    has_channels: bool

    def items(self, segment: events.Segment) -> Iterable[tuple[float, events.Segment]]:
        return ((segment.start_s, segment),)

    def text(self, segment: events.Segment) -> str:
        text = _label(segment.channel, self.has_channels) + segment.text.strip()
        return segment_line(segment.start_s, segment.end_s, text) + "\n"


@dataclass(frozen=True, slots=True)
class _Row:
    start_s: float
    end_s: float
    channel: int
    text: str


@dataclass(slots=True)
class _Table(_Format):
    """Tab-separated values with a heading: a row for each segment or word. Times are whole milliseconds."""

    layout: Layout

    @property
    def head(self) -> str:
        return "\t".join(self._cells("start", "end", "channel", "text")) + "\n"

    def items(self, segment: events.Segment) -> Iterable[tuple[float, _Row]]:
        parts = segment.words if self.layout.has_words else (segment,)
        return [(each.start_s, _Row(each.start_s, each.end_s, segment.channel, each.text)) for each in parts]

    def text(self, row: _Row) -> str:
        start, end = (str(round(time_s * 1000)) for time_s in (row.start_s, row.end_s))
        return "\t".join(self._cells(start, end, str(row.channel), " ".join(row.text.split()))) + "\n"

    def _cells(self, start: str, end: str, channel: str, text: str) -> Sequence[str]:
        return (start, end, channel, text) if self.layout.has_channels else (start, end, text)


@dataclass(slots=True, kw_only=True)
class _Subtitles(_Format):
    """The cues of every channel. The last one of a channel waits for the next one, as it may be shown until then."""

    layout: Layout
    _cutters: dict[int, CueCutter] = field(default_factory=dict, init=False)
    _held: dict[int, Cue] = field(default_factory=dict, init=False)
    """The last cue of each channel."""
    _n_cues: int = field(default=0, init=False)

    @property
    def head(self) -> str:
        return VTT_HEAD if self.layout.format == "vtt" else ""

    @property
    def waits_from_s(self) -> float:
        return min((cue.start_ms / 1000 for cue in self._held.values()), default=math.inf)

    def items(self, segment: events.Segment) -> Iterable[tuple[float, Any]]:
        speaker = f"channel {segment.channel}" if self.layout.has_channels else ""
        default = CueCutter(speaker, layout=self.layout.cues, names_speaker=self.layout.format == "srt")
        made: list[tuple[float, Any]] = []
        for cue in self._cutters.setdefault(segment.channel, default).cut(segment):
            if before := self._held.get(segment.channel):
                made.append((before.start_ms / 1000, before.until_read(cue.start_ms)))
            self._held[segment.channel] = cue
        return made

    def settled_items(self, until_s: float) -> Iterable[tuple[float, Any]]:
        shown = {channel: cue.until_read() for channel, cue in self._held.items()}
        settled = {channel: cue for channel, cue in shown.items() if cue.end_ms <= until_s * 1000}
        for channel in settled:
            del self._held[channel]
        return [(cue.start_ms / 1000, cue) for cue in settled.values()]

    def text(self, cue: Any) -> str:
        self._n_cues += 1
        return vtt_cue(cue) if self.layout.format == "vtt" else srt_cue(self._n_cues, cue)


def _label(channel: int, is_shown: bool) -> str:
    return f"channel {channel}: " if is_shown else ""


def segment_line(start_s: float, end_s: float, text: str) -> str:
    """One line with the times and the text of a segment."""
    return f"{clock(start_s)} – {clock(end_s)}  {text.strip()}"


def clock(seconds: float) -> str:
    """A time as minutes and seconds, with hours if there are any."""
    minutes, rest = divmod(round(seconds, 2), 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}:{minutes:02d}:{rest:05.2f}" if hours else f"{minutes:02d}:{rest:05.2f}"
