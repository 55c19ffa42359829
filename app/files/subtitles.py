"""Final segments as subtitles: cues that are short enough to read, in the formats SRT and WebVTT.

Source of the syntax: W3C, "WebVTT: The Web Video Text Tracks Format".
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from unicodedata import category, east_asian_width

from tutti_server.app.languages import joined, joint, units
from tutti_server.app.session.messages import events

MAX_CUE_S = 7.0
"""The longest time of a cue in seconds, on which broadcasters' guidelines agree."""
MIN_CUE_S = 5 / 6
"""The shortest time of a cue in seconds, where the next one does not begin before; from the same guidelines."""
COLUMNS_PER_S = 17.0
"""How many columns of text a viewer reads in a second; from the same guidelines."""
MAX_LINGER_S = 2.0
"""How long a cue may stay after its speech in seconds, to be read."""
MIN_PAUSE_S = 2.0
"""A cue that is too long is cut in its longest pause, if that has this many seconds."""
PUNCTUATION_BONUS = 0.2
"""A cut after punctuation is preferred to a cut in the middle if it is at most this share of the text away from it."""
PUNCTUATION = tuple(".,;:!?…。、，！？；：،؛؟۔।")
"""A good cut is after one of these characters."""
NEVER_FIRST = ("Pe", "Pf", "Po", "Lm", "Mn", "Mc", "Me")
"""Unicode categories of characters that begin no line in scripts without spaces: they belong to the one before."""
NEVER_LAST = ("Ps", "Pi")
"""The categories of opening brackets and quotes, which end no line."""
WITHOUT_WIDTH = ("Mn", "Me", "Cf")
"""Unicode categories of characters that take no column, such as the vowel signs of Arabic, Hebrew and Thai."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CueLayout:
    """How much text a cue may have. The defaults are those on which broadcasters' guidelines agree."""

    max_line_width: int = 42
    """The most columns of a line; a longer word has a line of its own. East Asian wide characters take two."""
    max_line_count: int = 2
    """The most lines of a cue."""
    max_words_per_line: int | None = None
    """The most words of a line; in scripts without spaces, the most characters that the model writes at once."""


DEFAULT_LAYOUT = CueLayout()
LAYOUT_LIMITS = {"max_line_width": (10, 1000), "max_line_count": (1, 20), "max_words_per_line": (1, 1000)}
"""The least and the greatest value of each field of `CueLayout` that people may choose."""


@dataclass(frozen=True, slots=True)
class Cue:
    """Text of one or several lines, shown from `start_ms` to `end_ms`."""

    start_ms: int
    end_ms: int
    text: str
    speaker: str = ""
    """Who speaks, if that is known: in SubRip before the text, in WebVTT a voice tag."""

    def until_read(self, next_ms: int | None = None) -> "Cue":
        """The cue, shown until a viewer has read it or the next one begins, at `next_ms`."""
        needed_ms = round(max(_columns(self.text) / COLUMNS_PER_S, MIN_CUE_S) * 1000)
        end_ms = min(self.start_ms + needed_ms, self.end_ms + round(MAX_LINGER_S * 1000))
        if next_ms is not None:
            end_ms = min(end_ms, next_ms)
        return replace(self, end_ms=max(end_ms, self.end_ms))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedText:
    """Text that is no segment of a session, such as a translation."""

    start_s: float
    end_s: float
    text: str
    language: str | None = None
    words: tuple[events.Word, ...] = ()


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    start_s: float
    end_s: float


def cues(segments: Iterable[events.Segment], layout: CueLayout = DEFAULT_LAYOUT) -> list[Cue]:
    """Make the cues of a recording, in order. No cue is empty, and cues do not overlap."""
    cutter = CueCutter(layout=layout)
    return readable(cue for segment in segments for cue in cutter.cut(segment))


def readable(made: Iterable[Cue]) -> list[Cue]:
    """Cues in the order of their times, each shown until it can be read or the next one begins."""
    ordered = list(made)
    shown = [cue.until_read(following.start_ms) for cue, following in pairwise(ordered)]
    return [*shown, *(cue.until_read() for cue in ordered[-1:])]


@dataclass(slots=True)
class CueCutter:
    """Makes the cues of one channel, segment by segment.

    A segment becomes one cue. A segment that is too long to read is cut between words: in a long pause, after
    punctuation near its middle, or in the middle. Words without times get a share of the segment's time by their
    length.
    """

    speaker: str = ""
    layout: CueLayout = field(default=DEFAULT_LAYOUT, kw_only=True)
    names_speaker: bool = field(default=False, kw_only=True)
    """Whether the name of the speaker stands before the text, as in SubRip. Then it takes columns of the first line."""
    _until_ms: int = 0
    """The end of the cue before; cues do not overlap."""

    def cut(self, segment: events.Segment | TimedText) -> list[Cue]:
        """The cues of the next segment; none is empty."""
        made: list[Cue] = []
        words = _words(segment)
        for part in self._cut(words) if words else ():
            start_ms = max(round(part[0].start_s * 1000), self._until_ms)
            self._until_ms = max(round(part[-1].end_s * 1000), start_ms + 1)
            lines = self._lines(part, self._least_width(part))
            made.append(Cue(start_ms, self._until_ms, "\n".join(lines), self.speaker))
        return made

    def _cut(self, words: Sequence[_Word]) -> list[Sequence[_Word]]:
        """Cut words into two parts, again and again, until each part can be read or is a single word."""
        is_short = words[-1].end_s - words[0].start_s <= MAX_CUE_S
        n_lines = len(self._lines(words, self.layout.max_line_width))
        if len(words) == 1 or (is_short and n_lines <= self.layout.max_line_count):
            return [words]
        pauses_s = [after.start_s - before.end_s for before, after in pairwise(words)]
        if not is_short and max(pauses_s) >= MIN_PAUSE_S:
            middle = pauses_s.index(max(pauses_s)) + 1
        else:
            widths = _widths(words)

            def cost(n_left: int) -> float:
                is_good = words[n_left - 1].text.endswith(PUNCTUATION)
                return abs(widths[n_left - 1] / widths[-1] - 0.5) - PUNCTUATION_BONUS * is_good

            middle = min(range(1, len(words)), key=cost)
        return [*self._cut(words[:middle]), *self._cut(words[middle:])]

    @property
    def _lead(self) -> int:
        return _columns(_before_text(self.speaker)) if self.names_speaker else 0

    def _least_width(self, words: Sequence[_Word]) -> int:
        """The width at which the lines of a cue are about equally long, and no more than they need be."""
        widest = self.layout.max_line_width
        n_lines = len(self._lines(words, widest))
        widths = range((self._lead + _widths(words)[-1]) // n_lines, widest)
        n_narrower = bisect_left(widths, True, key=lambda width: len(self._lines(words, width)) <= n_lines)
        return widths[n_narrower] if n_narrower < len(widths) else widest

    def _lines(self, words: Sequence[_Word], width: int) -> list[str]:
        """Fill lines with words, one after the other. A word that is wider than a line has one of its own."""
        lines: list[list[str]] = []
        n_columns = self._lead
        for word in words:
            n_more = _columns(word.text)
            n_between = len(joint(lines[-1][-1], word.text)) if lines else 0
            if not lines:
                lines.append([word.text])
                n_columns += n_more
            elif len(lines[-1]) != self.layout.max_words_per_line and n_columns + n_between + n_more <= width:
                lines[-1].append(word.text)
                n_columns += n_between + n_more
            else:
                lines.append([word.text])
                n_columns = n_more
        return [joined(line) for line in lines]


VTT_HEAD = "WEBVTT\n\n"
"""What a WebVTT file begins with."""


def srt(made: Iterable[Cue]) -> str:
    """Cues as SubRip: numbered from 1, with commas before milliseconds. A `-->` in a text cannot be escaped."""
    return "".join(srt_cue(number, cue) for number, cue in enumerate(made, 1))


def srt_cue(number: int, cue: Cue) -> str:
    """Write one cue as SubRip."""
    text = re.sub("-{2,}>", "->", _before_text(cue.speaker) + cue.text)
    return f"{number}\n{_clock(cue.start_ms, ',')} --> {_clock(cue.end_ms, ',')}\n{text}\n\n"


def vtt(made: Iterable[Cue]) -> str:
    """Cues as WebVTT: with dots before milliseconds; `&`, `<` and `>` are escaped."""
    return VTT_HEAD + "".join(map(vtt_cue, made))


def vtt_cue(cue: Cue) -> str:
    """Write one cue as WebVTT."""
    voice = f"<v {_escaped(_one_line(cue.speaker))}>" if cue.speaker else ""
    return f"{_clock(cue.start_ms, '.')} --> {_clock(cue.end_ms, '.')}\n{voice}{_escaped(cue.text)}\n\n"


def _before_text(speaker: str) -> str:
    return f"{_one_line(speaker)}: " if speaker else ""


def _one_line(name: str) -> str:
    """A name without line breaks, which would end a cue and begin another one."""
    return " ".join(name.split())


def _words(segment: events.Segment | TimedText) -> list[_Word]:
    """The words of a segment. The first word starts with the segment, the last word ends with it."""
    words = _bound(_timed(segment) if segment.words else _estimated(segment))
    if words:
        words[0] = replace(words[0], start_s=segment.start_s)
        words[-1] = replace(words[-1], end_s=segment.end_s)
    return words


def _timed(segment: events.Segment | TimedText) -> list[_Word]:
    cleaned = ((" ".join(word.text.split()), word) for word in segment.words)
    return [_Word(text, word.start_s, word.end_s) for text, word in cleaned if text]


def _bound(words: Iterable[_Word]) -> list[_Word]:
    """Join what no line may part, in scripts without spaces: signs with what they belong to."""
    made: list[_Word] = []
    for word in words:
        is_bound = made and (category(word.text[0]) in NEVER_FIRST or category(made[-1].text[-1]) in NEVER_LAST)
        if is_bound and not joint(made[-1].text, word.text):
            made[-1] = _Word(made[-1].text + word.text, made[-1].start_s, word.end_s)
        else:
            made.append(word)
    return made


def _estimated(segment: events.Segment | TimedText) -> list[_Word]:
    texts = units(segment.text)
    n_chars = sum(map(len, texts))
    made: list[_Word] = []
    start_s = segment.start_s
    for text in texts:
        end_s = start_s + (segment.end_s - segment.start_s) * len(text) / n_chars
        made.append(_Word(text, start_s, end_s))
        start_s = end_s
    return made


def _widths(words: Sequence[_Word]) -> list[int]:
    """The width of the text up to the end of each word, in columns."""
    between = [0, *(len(joint(before.text, after.text)) for before, after in pairwise(words))]
    return list(accumulate(n_between + _columns(word.text) for n_between, word in zip(between, words, strict=True)))


def _columns(text: str) -> int:
    """The width of text in columns. East Asian wide characters count as two, and signs on another character as none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if category(character) in WITHOUT_WIDTH else 2 if east_asian_width(character) in "WF" else 1
        for character in text
    )


def _clock(time_ms: int, point: str) -> str:
    seconds, ms = divmod(time_ms, 1000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{point}{ms:03d}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
