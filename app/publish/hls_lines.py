"""The final text of a room as lines with times, and which of them a player of a live stream gets when."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

SEGMENT_S = 6
"""The length of a segment for players of HLS, in seconds, as Apple's guidelines advise."""
SETTLE_S = 2.0
"""The text of speech is not awaited for longer than this, in seconds, where no text of it has come yet."""
MAX_WAIT_S = 15.0
"""A segment waits at most this long for the final text of an open utterance, in seconds. Text that is later is in the
segment after it.
"""
MAX_OVERHANG_S = 1.0
"""No cue ends later than this after its line, in seconds: a word without time gets a millisecond."""
ROUNDING_S = 0.01
"""Times that differ by less than this are the same, in seconds: times are sent in milliseconds."""


@dataclass(slots=True, kw_only=True)
class Line:
    """Final text: a segment of an utterance, or a translation."""

    utterance: int
    channel: int
    start_s: float
    end_s: float
    text: str
    language: str | None
    """The code of its language; `None` if it is not known."""
    is_translation: bool = False
    shown_from: int = 0
    """The first segment that was made after this line."""
    gone_from: int | None = None
    """The first segment that was made after this line was taken back."""

    def begins_at(self, start_s: float) -> bool:
        """Whether it begins at this time, but for a rounding."""
        return abs(self.start_s - start_s) < ROUNDING_S


@dataclass(slots=True)
class Lines:
    """All lines that are kept, in the order in which they came, and how many segments were made of them.

    What a segment holds never changes: it is decided by the lines that there were when it was made.
    """

    all: list[Line] = field(default_factory=list)
    n_segments: int = 0

    def add(self, line: Line) -> None:
        """Add a line. The segments to come have it."""
        line.shown_from = self.n_segments
        self.all.append(line)

    def take_back(self, utterance: int) -> None:
        """Leave the lines of an utterance out of the segments to come."""
        for line in self.all:
            if line.utterance == utterance and line.gone_from is None:
                line.gone_from = self.n_segments

    def drop(self, utterance: int) -> None:
        """Forget the lines of an utterance, which is the oldest one."""
        self.all = [line for line in self.all if line.utterance != utterance]

    def make_segments(self, until_s: float, *, are_last: bool = False) -> None:
        """Make the segments that end before a time, and where they are the last, one more for lines after them."""
        self.n_segments = max(self.n_segments, int(until_s // SEGMENT_S))
        if are_last:
            self.n_segments = max([self.n_segments, *(line.shown_from + 1 for line in self.all)])
        # Players have left the segments behind from which these were taken back.
        self.all = [line for line in self.all if line.gone_from is None or self.n_segments - line.gone_from < 100]

    @property
    def end_s(self) -> float:
        """The end of the latest text."""
        return max((line.end_s for line in self.all), default=0.0)

    def utterance_at(self, channel: int, start_s: float) -> int | None:
        """The newest utterance with a spoken line that begins at this time."""
        found = (line for line in reversed(self.all) if line.channel == channel and not line.is_translation)
        return next((line.utterance for line in found if line.gone_from is None and line.begins_at(start_s)), None)

    def has_translation(self, utterance: int, language: str, start_s: float) -> bool:
        """Whether an utterance has a translation to this language that begins at this time."""
        return any(
            line.is_translation and (line.utterance, line.language) == (utterance, language) and line.begins_at(start_s)
            for line in reversed(self.all)
        )

    def current(self, language: str | None) -> Iterator[Line]:
        """The lines that were not taken back: the text as it was spoken, or translated to a language."""
        return (line for line in self.all if line.gone_from is None and _is_of(line, language))

    def of_segment(self, number: int, language: str | None) -> Iterator[Line]:
        """The lines from which a segment takes its cues.

        They were spoken in its time, or came too late for the segment of their own time.
        """
        start_s, end_s = number * SEGMENT_S, (number + 1) * SEGMENT_S
        return (
            line
            for line in self.all
            if line.shown_from <= number and (line.gone_from is None or number < line.gone_from)
            if line.start_s < end_s and (line.shown_from == number or line.end_s + MAX_OVERHANG_S > start_s)
            if _is_of(line, language)
        )

    def snapshot(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {"all": [asdict(line) for line in self.all], "n_segments": self.n_segments}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Become what the snapshot was made of."""
        self.all = [Line(**each) for each in snapshot["all"]]
        self.n_segments = snapshot["n_segments"]


def _is_of(line: Line, language: str | None) -> bool:
    return line.language == language if line.is_translation else language is None
