"""Final segments as subtitles: cues that are short enough to read, in the formats SRT and WebVTT.

Sources: W3C, "WebVTT: The Web Video Text TrackSync Format", for its syntax; two lines of 42 characters and 7 seconds are
what broadcasters' guidelines agree on.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from unicodedata import east_asian_width

from app.session import events
from app.languages import WITHOUT_SPACES

MAX_CUE_CHARS = 2 * 42
MAX_CUE_S = 7.0
# Cutting behind punctuation is worth a cut that is this far from the middle, as a share of the text.
PUNCTUATION_BONUS = 0.2
PUNCTUATION = tuple(".,;:!?…。、，！？；：")


@dataclass(frozen=True, slots=True)
class Cue:
    """Text to show from `start_ms` to `end_ms`, on one line; players wrap it."""

    start_ms: int
    end_ms: int
    text: str


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    start_s: float
    end_s: float


def cues(segments: Iterable[events.Segment]) -> list[Cue]:
    """Cues in order. None is empty, and each ends before the next one begins.

    A segment is one cue, unless it is too long to read: then it is cut between words, behind punctuation if there is
    any near the middle. The words' own times are used where they were asked for, else their share of the text.
    """
    made: list[Cue] = []
    until_ms = 0
    for segment in segments:
        space = "" if segment.language in WITHOUT_SPACES else " "
        words = _words(segment, space)
        for part in _cut(words, space) if words else ():
            start_ms = max(round(part[0].start_s * 1000), until_ms)
            until_ms = max(round(part[-1].end_s * 1000), start_ms + 1)
            made.append(Cue(start_ms, until_ms, space.join(word.text for word in part)))
    return made


def srt(made: Iterable[Cue]) -> str:
    """SubRip: numbered from 1, commas before milliseconds. It has no way to write `-->` in a text."""
    return "".join(
        f"{number}\n{_clock(cue.start_ms, ',')} --> {_clock(cue.end_ms, ',')}\n{cue.text.replace('-->', '->')}\n\n"
        for number, cue in enumerate(made, 1)
    )


def vtt(made: Iterable[Cue]) -> str:
    """WebVTT: dots before milliseconds; `&`, `<` and `>` are escaped."""
    shown = (f"{_clock(cue.start_ms, '.')} --> {_clock(cue.end_ms, '.')}\n{_escaped(cue.text)}\n\n" for cue in made)
    return "WEBVTT\n\n" + "".join(shown)


def _words(segment: events.Segment, space: str) -> list[_Word]:
    """The first begins with the segment, the last ends with it."""
    words = _timed(segment) if segment.words else _estimated(segment, space)
    if words:
        words[0] = replace(words[0], start_s=segment.start_s)
        words[-1] = replace(words[-1], end_s=segment.end_s)
    return words


def _timed(segment: events.Segment) -> list[_Word]:
    cleaned = ((" ".join(word.text.split()), word) for word in segment.words)
    return [_Word(text, word.start_s, word.end_s) for text, word in cleaned if text]


def _estimated(segment: events.Segment, space: str) -> list[_Word]:
    texts = segment.text.split() if space else list("".join(segment.text.split()))
    n_chars = sum(map(len, texts))
    made: list[_Word] = []
    at_s = segment.start_s
    for text in texts:
        end_s = at_s + (segment.end_s - segment.start_s) * len(text) / n_chars
        made.append(_Word(text, at_s, end_s))
        at_s = end_s
    return made


def _cut(words: Sequence[_Word], space: str) -> list[Sequence[_Word]]:
    """Halves, and halves of these, until each can be read or is a single word."""
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
    """In columns; those of East Asian scripts are two wide."""
    text = space.join(word.text for word in words)
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def _clock(at_ms: int, point: str) -> str:
    seconds, ms = divmod(at_ms, 1000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{point}{ms:03d}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
