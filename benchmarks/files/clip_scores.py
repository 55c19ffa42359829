"""Scores what systems wrote for clips: errors, differences between systems, invented words, times of words, languages.

No I/O.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.files.labelled_clips import NOT_SUMMED, Clip
from benchmarks.files.systems import ClipResult, TimedWord
from benchmarks.files.word_normaliser import normalise
from benchmarks.scoring import WordErrors, count_errors, matches, words

N_RESAMPLES = 10_000
"""Resamples of the bootstrap: its limits then repeat within a few hundredths of a point."""
BATCH = 250
COVERAGE_PERCENT = 95
"""The interval of the bootstrap has this part of the resampled differences."""
ALL_SYNTHETIC = "all synthetic"
"""The group that sums all synthetic kinds, as tables and JSON name it."""
ALL_HUMAN = "all human"
"""The group that sums the human kinds, without `labelled_clips.NOT_SUMMED`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    files: int = 0
    audio_s: float = 0.0
    words: WordErrors = field(default_factory=WordErrors)

    def __add__(self, other: "Score") -> "Score":
        return Score(
            files=self.files + other.files, audio_s=self.audio_s + other.audio_s, words=self.words + other.words
        )

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "wer": self.words.rate}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """By how many points the word error rate of one system is above that of another, on the same clips."""

    points: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Invented:
    """Words that a system wrote where there is no speech."""

    files: int
    audio_s: float
    n_words: int
    texts: Mapping[str, str]
    """The texts with words, by clip."""

    @property
    def per_minute(self) -> float | None:
        return 60 * self.n_words / self.audio_s if self.audio_s else None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "per_minute": self.per_minute}


@dataclass(frozen=True, slots=True, kw_only=True)
class Languages:
    files: int
    """Clips whose language was not named."""
    right: int
    wrong: Mapping[str, str]
    """By clip, such as "pt → es"."""


def clip_errors(result: ClipResult) -> WordErrors:
    """The word errors of one clip, counted on each channel by itself."""
    return sum(
        (
            count_errors(*(normalise(text, result.clip.language) for text in (expected, channel.text)))
            for expected, channel in zip(result.clip.texts, result.channels, strict=True)
        ),
        WordErrors(),
    )


def score(clips: Sequence[Clip], errors: Mapping[str, WordErrors]) -> Score:
    """The sum over clips, from the errors by the name of the clip."""
    return sum((Score(files=1, audio_s=clip.audio_s, words=errors[clip.name]) for clip in clips), Score())


def groups(clips: Sequence[Clip]) -> Iterator[tuple[str, list[Clip]]]:
    """Group clips with speech by kind: synthetic kinds and their sum, then human kinds and their sum."""
    spoken = [clip for clip in clips if clip.has_speech]
    synthetic = [clip for clip in spoken if "synth" in clip.kind]
    human = [clip for clip in spoken if "synth" not in clip.kind]
    for members, name in ((synthetic, ALL_SYNTHETIC), (human, ALL_HUMAN)):
        for kind in dict.fromkeys(clip.kind for clip in members):
            yield kind, [clip for clip in members if clip.kind == kind]
        if summed := [clip for clip in members if clip.kind not in NOT_SUMMED]:
            yield name, summed


def paired_difference(ours: Sequence[WordErrors], theirs: Sequence[WordErrors], *, seed: int = 0) -> Difference | None:
    """The difference of two word error rates, with an interval from a paired bootstrap over clips."""
    n_words = np.array([each.words for each in ours], np.float64)
    gained = np.array([_n_errors(a) - _n_errors(b) for a, b in zip(ours, theirs, strict=True)], np.float64)
    if not n_words.sum():
        return None
    random = np.random.default_rng(seed)
    points = np.concatenate([_resampled(random, gained, n_words) for _ in range(N_RESAMPLES // BATCH)])
    outside = (100 - COVERAGE_PERCENT) / 2
    low, high = np.percentile(points, [outside, 100 - outside])
    return Difference(points=float(100 * gained.sum() / n_words.sum()), low=float(low), high=float(high))


def invented(results: Sequence[ClipResult]) -> Invented:
    """The words in clips without speech. All channels count."""
    silent = [each for each in results if not each.clip.has_speech]
    texts = {each.clip.name: " / ".join(channel.text for channel in each.channels) for each in silent}
    return Invented(
        files=len(silent),
        audio_s=sum(each.clip.audio_s for each in silent),
        n_words=sum(len(words(text)) for text in texts.values()),
        texts={name: text for name, text in texts.items() if words(text)},
    )


def start_differences(ours: Sequence[TimedWord], theirs: Sequence[TimedWord]) -> list[float]:
    """Seconds from the start of each word of theirs to the start of the same word of ours, where the texts agree."""
    a, b = (_pieces(each) for each in (ours, theirs))
    return [a[i][1] - b[j][1] for i, j in matches([word for word, _ in a], [word for word, _ in b]).items()]


def languages(results: Sequence[ClipResult]) -> Languages:
    """Compare detected languages with those of the clips. A channel without a language counts as wrong."""
    unnamed = [each for each in results if each.clip.named_language is None and each.clip.has_speech]
    wrong = {
        each.clip.name: f"{each.clip.language} → {', '.join(found or 'none' for found in _found(each))}"
        for each in unnamed
        if set(_found(each)) != {each.clip.language}
    }
    return Languages(files=len(unnamed), right=len(unnamed) - len(wrong), wrong=wrong)


def _resampled(
    random: np.random.Generator, gained: NDArray[np.float64], n_words: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The differences in points of one batch of resamples. A resample without a word has none."""
    chosen = random.integers(len(n_words), size=(BATCH, len(n_words)))
    sums = n_words[chosen].sum(axis=1)
    return np.asarray(100 * gained[chosen].sum(axis=1)[sums > 0] / sums[sums > 0])


def _found(result: ClipResult) -> list[str | None]:
    return [channel.language for channel in result.channels]


def _n_errors(errors: WordErrors) -> int:
    return errors.substituted + errors.missing + errors.inserted


def _pieces(timed: Sequence[TimedWord]) -> list[tuple[str, float]]:
    """The words as they are compared, each with its start. A word with a hyphen has one start for all parts."""
    return [(piece, word.start_s) for word in timed for piece in words(word.text)]
