"""Final text by speaker: each word gets the speaker of its time, and runs of one speaker become stretches of text."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from tutti_server.app.languages import joined
from tutti_server.app.session.messages import events
from tutti_server.app.voices.file_speakers import Span, Speakers

MIN_TURN_S = 0.4
"""A shorter turn inside the speech of another speaker is taken for that speaker's."""


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A word and its speaker."""

    word: events.Word
    speaker: int
    confidence: float
    """The confidence in the speaker, 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenText:
    """A stretch of text by one speaker."""

    start_s: float
    end_s: float
    speaker: int
    text: str
    words: tuple[events.Word, ...] = ()
    language: str | None = None
    redactions: tuple[events.Redaction, ...] = ()
    """What was said in it and is not written down, in order."""


def speech_of(segments: Iterable[events.Segment]) -> list[Span]:
    """Return when words are spoken, in seconds; the whole segment where its words are not known."""
    return [
        span
        for segment in segments
        for span in ([(each.start_s, each.end_s) for each in segment.words] or [(segment.start_s, segment.end_s)])
    ]


def spoken_words(words: Sequence[events.Word], speakers: Speakers) -> list[SpokenWord]:
    """The speaker of each word of a segment. Without any speech all words are of speaker 0."""
    found = [speakers.speaking(word.start_s, word.end_s) or (0, 0.0) for word in words]
    spoken = [SpokenWord(word, *each) for word, each in zip(words, found, strict=True)]
    runs = [list(run) for _, run in groupby(spoken, key=lambda each: each.speaker)]
    for before, run, after in zip(runs, runs[1:], runs[2:], strict=False):
        is_short = run[-1].word.end_s - run[0].word.start_s < MIN_TURN_S
        if is_short and before[-1].speaker == after[0].speaker:
            run[:] = [SpokenWord(each.word, before[-1].speaker, 0.5) for each in run]
    return [each for run in runs for each in run]


def spoken_texts(segments: Iterable[events.Segment], speakers: Speakers) -> Iterator[SpokenText]:
    """The text of segments, split where the speaker changes between two words."""
    for segment in segments:
        if not segment.words:
            speaker, _ = speakers.speaking(segment.start_s, segment.end_s) or (0, 0.0)
            if text := segment.text.strip():
                yield SpokenText(
                    start_s=segment.start_s,
                    end_s=segment.end_s,
                    speaker=speaker,
                    text=text,
                    language=segment.language,
                    redactions=segment.redactions,
                )
            continue
        spoken = spoken_words(segment.words, speakers)
        runs = [(speaker, list(run)) for speaker, run in groupby(spoken, key=lambda each: each.speaker)]
        ends_s = [run[-1].word.end_s for _, run in runs]
        for index, (speaker, run) in enumerate(runs):
            words = tuple(each.word for each in run)
            yield SpokenText(
                start_s=words[0].start_s,
                end_s=words[-1].end_s,
                speaker=speaker,
                text=joined(each.text for each in words),
                words=words,
                language=segment.language,
                redactions=tuple(each for each in segment.redactions if _run_at(each.start_s, ends_s) == index),
            )


def _run_at(time_s: float, ends_s: Sequence[float]) -> int:
    """The first of several runs of words that ends after a time; the last one if none does."""
    return next((index for index, end_s in enumerate(ends_s[:-1]) if time_s < end_s), len(ends_s) - 1)
