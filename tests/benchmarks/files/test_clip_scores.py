"""Scores of clips: errors by kind, paired differences, invented words, times of words and detected languages."""

import numpy as np
import pytest

from benchmarks.files import clip_scores
from benchmarks.files.clip_scores import ALL_HUMAN, ALL_SYNTHETIC, Score
from benchmarks.files.labelled_clips import Clip
from benchmarks.files.systems import ChannelResult, ClipResult, TimedWord
from benchmarks.scoring import WordErrors


def clip(name: str, kind: str, *texts: str, language: str = "en", seconds: float = 1.0) -> Clip:
    quiet = np.zeros(round(16_000 * seconds), np.int16)
    return Clip(name=name, kind=kind, channels=tuple(quiet for _ in texts), texts=texts, language=language)


def result(of: Clip, *texts: str, languages: tuple[str | None, ...] = ()) -> ClipResult:
    found = languages or (None,) * len(texts)
    return ClipResult(of, tuple(ChannelResult(text, language=each) for text, each in zip(texts, found, strict=True)))


CLIPS = [
    clip("a", "synth-call", "red green blue white"),
    clip("b", "human-read", "over and out"),
    clip("c", "human-nonnative", "er left and right"),
    clip("d", "nonspeech", ""),
    clip("e", "synth-call", "the end of the line", ""),
    clip("f", "human-multilingual", "uno dos", language="es"),
]


def test_errors_are_counted_by_what_they_are() -> None:
    """A word that is written on the other channel is missing on one and too much on the other."""
    found = result(clip("a", "call", "red green white", "blue"), "red grey white", "green blue")
    assert clip_scores.clip_errors(found) == WordErrors(substituted=1, missing=0, inserted=1, words=4)
    found = result(clip("a", "call", "red green"), "red")
    assert clip_scores.clip_errors(found) == WordErrors(substituted=0, missing=1, inserted=0, words=2)


def test_languages_are_scored_by_their_own_rules() -> None:
    found = result(clip("a", "human", "Am one-Tag!", language="de"), "am one tag")
    assert clip_scores.clip_errors(found) == WordErrors(words=3)


def test_kinds_are_added_up_by_who_speaks() -> None:
    """What is left out of the sums is still shown; files without speech are in no group."""
    members = {name: [each.name for each in clips] for name, clips in clip_scores.groups(CLIPS)}
    assert members == {
        "synth-call": ["a", "e"],
        ALL_SYNTHETIC: ["a", "e"],
        "human-read": ["b"],
        "human-nonnative": ["c"],
        "human-multilingual": ["f"],
        ALL_HUMAN: ["b", "f"],
    }


def test_a_sum_has_the_rate_of_all_words() -> None:
    """Not the mean of the rates of files."""
    errors = {"a": WordErrors(substituted=1, words=1), "b": WordErrors(words=9)}
    found = clip_scores.score([clip("a", "x", "one"), clip("b", "x", "nine")], errors)
    assert found == Score(files=2, audio_s=2.0, words=WordErrors(substituted=1, words=10))
    assert found.to_json()["wer"] == 0.1


def test_a_difference_is_paired_by_clip() -> None:
    """Hard clips that are equally hard for both do not widen the interval."""
    hard = [WordErrors(missing=n % 8, words=10) for n in range(100)]
    worse = [WordErrors(missing=each.missing + 1, words=10) for each in hard]
    found = clip_scores.paired_difference(worse, hard)
    assert found
    assert (found.points, found.low, found.high) == pytest.approx((10.0, 10.0, 10.0))


def test_a_difference_that_chance_makes_has_an_interval_over_zero() -> None:
    """Two clips that go different ways: the interval reaches over zero, and repeats with the same seed."""
    a = [WordErrors(missing=2, words=10), WordErrors(words=10)] * 5
    b = [WordErrors(words=10), WordErrors(missing=1, words=10)] * 5
    found = clip_scores.paired_difference(a, b)
    assert found
    assert found.points == pytest.approx(5.0)
    assert found.low < 0 < found.points < found.high
    assert found == clip_scores.paired_difference(a, b)
    swapped = clip_scores.paired_difference(b, a)
    assert swapped
    assert (swapped.points, swapped.low, swapped.high) == pytest.approx((-found.points, -found.high, -found.low))


def test_longer_clips_weigh_more_in_a_difference() -> None:
    found = clip_scores.paired_difference(
        [WordErrors(missing=1, words=1), WordErrors(words=99)], [WordErrors(words=1), WordErrors(words=99)]
    )
    assert found
    assert found.points == pytest.approx(1.0)
    assert (found.low, found.high) == pytest.approx((0.0, 100.0))


def test_there_is_no_difference_without_words() -> None:
    assert clip_scores.paired_difference([], []) is None
    assert clip_scores.paired_difference([WordErrors()], [WordErrors(inserted=1)]) is None


def test_words_without_speech_are_invented() -> None:
    """Each text is listed; points alone are no words."""
    silent = [clip("d", "nonspeech", ""), clip("g", "nonspeech", ""), clip("h", "nonspeech", "", "")]
    found = clip_scores.invented(
        [
            result(CLIPS[0], "red"),
            result(silent[0], "Thank you."),
            result(silent[1], " ... "),
            result(silent[2], "", "So"),
        ]
    )
    assert (found.files, found.n_words, found.audio_s) == (3, 3, 3.0)
    assert found.texts == {"d": "Thank you.", "h": " / So"}
    assert found.per_minute == pytest.approx(60.0)
    assert clip_scores.invented([]).per_minute is None


def test_times_of_words_are_compared_where_texts_agree() -> None:
    """Words that only one of them has are left out; points and capitals do not matter."""
    ours = [TimedWord(" The", 0.1, 0.2), TimedWord(" red", 0.3, 0.5), TimedWord(" ship.", 0.6, 0.9)]
    theirs = [TimedWord("the", 0.0, 0.2), TimedWord("big", 0.2, 0.3), TimedWord("Ship", 0.7, 0.9)]
    assert clip_scores.start_differences(ours, theirs) == pytest.approx([0.1, -0.1])
    assert clip_scores.start_differences(ours, []) == []


def test_detected_languages_are_those_of_the_manifest_or_wrong() -> None:
    """Only clips whose language was not named count."""
    second = clip("g", "human-multilingual", "um", language="pt")
    found = clip_scores.languages(
        [
            result(CLIPS[5], "uno dos", languages=("es",)),
            result(second, "un", languages=("es",)),
            result(CLIPS[1], "over", languages=("de",)),
        ]
    )
    assert (found.files, found.right, found.wrong) == (2, 1, {"g": "pt → es"})
