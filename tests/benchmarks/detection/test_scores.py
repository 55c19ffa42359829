"""The scores of a detector over audio whose speech is known."""

import numpy as np
import pytest

from app.media.pcm import Samples
from benchmarks.detection.labelled_audio import LabelledAudio
from benchmarks.detection.scores import Scores, find_utterances
from engine.api import SAMPLE_RATE
from tests.fakes import LevelDetector, silence

LOUD = np.full(SAMPLE_RATE, 0.5, dtype=np.float32)
AUDIO = LabelledAudio(
    "kind",
    "name",
    np.concatenate((silence(1.0), LOUD, silence(2.0), LOUD, silence(1.5))),
    ((SAMPLE_RATE, 2 * SAMPLE_RATE), (4 * SAMPLE_RATE, 5 * SAMPLE_RATE)),
)


class Deaf(LevelDetector):
    def is_speech(self, frame: Samples) -> bool:
        return False


class Opposite(LevelDetector):
    def is_speech(self, frame: Samples) -> bool:
        return not super().is_speech(frame)


def score(detector: LevelDetector) -> Scores:
    scores = Scores()
    scores.add(AUDIO, *find_utterances(detector, AUDIO))
    return scores


def test_a_perfect_detector_is_only_as_late_as_the_smoothing() -> None:
    """The beginning is noticed after six frames, the end after the silence that ends an utterance."""
    found = score(LevelDetector())
    assert (found.missed_s, found.false_s, found.n_false, found.n_split, found.n_unnoticed) == (0.0, 0.0, 0, 0, 0)
    assert found.n_true == 2
    assert found.onset_s == pytest.approx([0.12, 0.12])
    assert found.end_s == pytest.approx([0.5, 0.5])


def test_speech_that_was_not_found_is_missed() -> None:
    found = score(Deaf())
    assert (found.missed_s, found.speech_s, found.n_unnoticed, found.onset_s, found.end_s) == (2.0, 2.0, 2, [], [])


def test_detected_silence_is_false_speech() -> None:
    """All that is more than 0.2 s away from speech counts; here the 0.8 s, 1.6 s and 1.3 s of the pauses."""
    found = score(Opposite())
    assert found.false_s == pytest.approx(0.8 + 1.6 + 1.3, abs=0.05)
    assert found.silence_s == pytest.approx(0.8 + 1.6 + 1.3)


def test_an_utterance_of_noise_is_false_and_one_that_ends_in_speech_is_split() -> None:
    audio = LabelledAudio("kind", "name", AUDIO.samples, ((4 * SAMPLE_RATE, 6 * SAMPLE_RATE),))
    scores = Scores()
    scores.add(audio, *find_utterances(LevelDetector(), audio))
    assert (scores.n_false, scores.n_split) == (1, 1)
