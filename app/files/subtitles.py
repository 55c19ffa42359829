"""Final segments as subtitles: cues that are short enough to read, in the formats SRT and WebVTT.

Source of the syntax: W3C, "WebVTT: The Web Video Text Tracks Format".
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from unicodedata import east_asian_width

from app.languages import WITHOUT_SPACES
from app.session import events

MAX_CUE_CHARS = 2 * 42
"""The width of a cue in columns: two lines of 42 characters, on which broadcasters' guidelines agree."""
MAX_CUE_S = 7.0
"""The duration of a cue in seconds, on which broadcasters' guidelines agree."""
PUNCTUATION_BONUS = 0.2
"""A cut after punctuation is preferred to a cut in the middle if it is at most this share of the text away from it."""
PUNCTUATION = tuple(".,;:!?…。、，！？；：")
"""A good cut is after one of these characters."""


@dataclass(frozen=True, slots=True)
class Cue:
    """Text on one line, shown from `start_ms` to `end_ms`. Players wrap long lines."""

    start_ms: int
    end_ms: int
    text: str
    speaker: str = ""
    """Who speaks, if that is known: in SubRip before the text, in WebVTT a voice tag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedText:
    """Text that is no segment of a session, such as a translation."""

    start_s: float
    end_s: float
    text: str
    language: str | None
    words: tuple[events.Word, ...] = ()


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    start_s: float
    end_s: float


def cues(segments: Iterable[events.Segment]) -> list[Cue]:
    """Make the cues of a recording, in order. No cue is empty, and cues do not overlap."""
    cutter = CueCutter()
    return [cue for segment in segments for cue in cutter.cut(segment)]


@dataclass(slots=True)
class CueCutter:
    """Makes the cues of one channel, segment by segment.

    A segment becomes one cue. A segment that is too long to read is cut between words: after punctuation near its
    middle, or in the middle. Words without times get a share of the segment's time by their length.
    """

    speaker: str = ""
    _until_ms: int = 0
    """The end of the cue before; cues do not overlap."""

    def cut(self, segment: events.Segment | TimedText) -> list[Cue]:
        """The cues of the next segment; none is empty."""
        made: list[Cue] = []
        space = "" if segment.language in WITHOUT_SPACES else " "
        words = _words(segment, space)
        for part in _cut(words, space) if words else ():
            start_ms = max(round(part[0].start_s * 1000), self._until_ms)
            self._until_ms = max(round(part[-1].end_s * 1000), start_ms + 1)
            made.append(Cue(start_ms, self._until_ms, space.join(word.text for word in part), self.speaker))
        return made


VTT_HEAD = "WEBVTT\n\n"
"""What a WebVTT file begins with."""


def srt(made: Iterable[Cue]) -> str:
    """Cues as SubRip: numbered from 1, with commas before milliseconds. A `-->` in a text cannot be escaped."""
    return "".join(srt_cue(number, cue) for number, cue in enumerate(made, 1))


def srt_cue(number: int, cue: Cue) -> str:
    """One cue as SubRip."""
    text = (f"{cue.speaker}: {cue.text}" if cue.speaker else cue.text).replace("-->", "->")
    return f"{number}\n{_clock(cue.start_ms, ',')} --> {_clock(cue.end_ms, ',')}\n{text}\n\n"


def vtt(made: Iterable[Cue]) -> str:
    """Cues as WebVTT: with dots before milliseconds; `&`, `<` and `>` are escaped."""
    return VTT_HEAD + "".join(map(vtt_cue, made))


def vtt_cue(cue: Cue) -> str:
    """One cue as WebVTT."""
    voice = f"<v {_escaped(cue.speaker)}>" if cue.speaker else ""
    return f"{_clock(cue.start_ms, '.')} --> {_clock(cue.end_ms, '.')}\n{voice}{_escaped(cue.text)}\n\n"


def _words(segment: events.Segment | TimedText, space: str) -> list[_Word]:
    """The words of a segment. The first word starts with the segment, the last word ends with it."""
    words = _timed(segment) if segment.words else _estimated(segment, space)
    if words:
        words[0] = replace(words[0], start_s=segment.start_s)
        words[-1] = replace(words[-1], end_s=segment.end_s)
    return words


def _timed(segment: events.Segment | TimedText) -> list[_Word]:
    cleaned = ((" ".join(word.text.split()), word) for word in segment.words)
    return [_Word(text, word.start_s, word.end_s) for text, word in cleaned if text]


def _estimated(segment: events.Segment | TimedText, space: str) -> list[_Word]:
    texts = segment.text.split() if space else list("".join(segment.text.split()))
    n_chars = sum(map(len, texts))
    made: list[_Word] = []
    start_s = segment.start_s
    for text in texts:
        end_s = start_s + (segment.end_s - segment.start_s) * len(text) / n_chars
        made.append(_Word(text, start_s, end_s))
        start_s = end_s
    return made


def _cut(words: Sequence[_Word], space: str) -> list[Sequence[_Word]]:
    """Cut words into halves, again and again, until each part can be read or is a single word."""
    width = _width(words, space)
    fits = width <= MAX_CUE_CHARS and words[-1].end_s - words[0].start_s <= MAX_CUE_S
    if fits or len(words) == 1:
        return [words]

    def cost(n_left: int) -> float:
        is_good = words[n_left - 1].text.endswith(PUNCTUATION)
        return abs(_width(words[:n_left], space) / width - 0.5) - PUNCTUATION_BONUS * is_good

    middle = min(range(1, len(words)), key=cost)
    return [*_cut(words[:middle], space), *_cut(words[middle:], space)]


def _width(words: Sequence[_Word], space: str) -> int:
    """The width of words in columns. East Asian wide characters count as two."""
    text = space.join(word.text for word in words)
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def _clock(time_ms: int, point: str) -> str:
    seconds, ms = divmod(time_ms, 1000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{point}{ms:03d}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
