"""The record of a call, made from its text by speaker.

Talk time, silence, longest turns and interruptions are what conversation analytics of call centres report. None of
their vendors says how an interruption is found; here it is one that an audience would call so: it cuts in on speech,
goes on, and the other side stops.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from tutti_server.app.files.subtitles import TimedText
from tutti_server.app.files.time_spans import Span, overlap_s, total, union
from tutti_server.app.session.messages.events import Redaction

PAUSE_S = 0.5
"""A shorter pause between two words of a speaker is part of the speech."""
TURN_PAUSE_S = 3.0
"""After a longer pause, the same speaker begins another turn."""
CUT_IN_S = 0.3
"""An interruption begins at least so long after the speech that it cuts in on began, and before that ends."""
MIN_INTERRUPTION_S = 1.0
"""Shorter speech is an answer such as "mhm", which is no interruption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch(TimedText):
    """Text that one speaker says without another in between."""

    speaker: str
    redactions: tuple[Redaction, ...] = ()
    """What was said in it and is not written down, in order."""

    @property
    def speech(self) -> list[Span]:
        """The times at which the turn is spoken: of its words, with short pauses; all of it if they are not known."""
        spans = [(word.start_s, word.end_s) for word in self.words]
        return union(spans or [(self.start_s, self.end_s)], PAUSE_S)


@dataclass(frozen=True, slots=True)
class Turn:
    """What one speaker says until another begins, or until a long pause."""

    stretches: tuple[Stretch, ...]

    @property
    def speaker(self) -> str:
        """The speaker of the turn."""
        return self.stretches[0].speaker

    @property
    def start_s(self) -> float:
        """The time at which the turn begins, in seconds."""
        return self.stretches[0].start_s

    @property
    def end_s(self) -> float:
        """The time at which the turn ends, in seconds."""
        return max(each.end_s for each in self.stretches)


@dataclass(frozen=True, slots=True)
class Interruption:
    """One speaker cut in on another."""

    at_s: float
    by: str
    of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakerShare:
    """How much one speaker spoke."""

    name: str
    talk_s: float
    n_words: int
    n_turns: int
    longest_turn_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """The record of a call."""

    duration_s: float
    turns: tuple[Turn, ...]
    speakers: tuple[SpeakerShare, ...]
    """The speakers in the order of their first words."""
    silence_s: float
    """How long it was silent."""
    overlap_s: float
    """How long at least two spoke at the same time."""
    interruptions: tuple[Interruption, ...]


def make_record(stretches: Iterable[Stretch], duration_s: float) -> CallRecord:
    """Make the record of a call.

    Args:
        stretches: its text. Those of different speakers may overlap, where each has a channel.
        duration_s: the length of the recording.
    """
    ordered = sorted(stretches, key=lambda each: (each.start_s, each.end_s))
    turns = tuple(_turns(ordered))
    names = list(dict.fromkeys(each.speaker for each in ordered))
    speech = {
        name: union((span for each in ordered if each.speaker == name for span in each.speech), PAUSE_S)
        for name in names
    }
    shares = tuple(_share(name, speech[name], turns) for name in names)
    spoken = union(span for spans in speech.values() for span in spans)
    return CallRecord(
        duration_s=duration_s,
        turns=turns,
        speakers=shares,
        silence_s=max(0.0, duration_s - total(spoken)),
        overlap_s=overlap_s(list(speech.values())),
        interruptions=tuple(sorted(_interruptions(speech), key=lambda each: each.at_s)),
    )


def _turns(ordered: Sequence[Stretch]) -> Iterator[Turn]:
    for _, run in groupby(ordered, key=lambda each: each.speaker):
        open_turn: list[Stretch] = []
        for stretch in run:
            if open_turn and stretch.start_s - max(each.end_s for each in open_turn) > TURN_PAUSE_S:
                yield Turn(tuple(open_turn))
                open_turn = []
            open_turn.append(stretch)
        yield Turn(tuple(open_turn))


def _share(name: str, speech: Sequence[Span], turns: Sequence[Turn]) -> SpeakerShare:
    own = [turn for turn in turns if turn.speaker == name]
    return SpeakerShare(
        name=name,
        talk_s=total(speech),
        n_words=sum(len(each.words) or len(each.text.split()) for turn in own for each in turn.stretches),
        n_turns=len(own),
        longest_turn_s=max(turn.end_s - turn.start_s for turn in own),
    )


def _interruptions(speech: dict[str, list[Span]]) -> Iterator[Interruption]:
    for by, spans in speech.items():
        for start_s, end_s in spans:
            if end_s - start_s < MIN_INTERRUPTION_S:
                continue
            for of, others in speech.items():
                if of != by and any(
                    begin_s + CUT_IN_S <= start_s <= stop_s - CUT_IN_S and stop_s < end_s for begin_s, stop_s in others
                ):
                    yield Interruption(start_s, by, of)
