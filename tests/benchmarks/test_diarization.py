"""The benchmark of live labels finds the turns of two voices."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.diarization import diarized_live
from benchmarks.diarization_error import Turn, diarization_error
from tests.recordings import read
from tutti_server.app.media.pcm import Samples
from tutti_server.app.voices.speaker_clustering import SpeakerThresholds


async def embed(stretches: Sequence[Samples]) -> NDArray[np.float32]:
    """A voice is a level here."""
    return np.stack([np.eye(2, dtype=np.float32)[int(np.abs(each).max() > 0.3)] for each in stretches])


async def test_two_voices_are_told_apart_at_once_and_in_the_end() -> None:
    speech = read("train").astype(np.float32) / 32768
    quiet, loud = (speech / np.abs(speech).max() * level for level in (0.2, 0.8))
    audio = np.concatenate((quiet, quiet, loud, loud)).astype(np.float32)
    turn_s = 2 * len(speech) / 16_000
    truth = [Turn(0, turn_s, "quiet"), Turn(turn_s, 2 * turn_s, "loud")]
    first, last = await diarized_live(audio, embed, SpeakerThresholds(joins=0.5, knows=0.6))
    for turns in (first, last):
        error = diarization_error(truth, turns)
        assert error.speech > 0 and error.confused < 0.05 * error.speech
        assert {turn.speaker for turn in turns} == {"0", "1"}


def test_speakers_are_paired_so_that_the_error_is_the_least() -> None:
    """However many were found: the one who is the first person's may share little speech with anybody."""
    found = [Turn(0.0, 1.0, "a"), *(Turn(2.0 * n, 2.0 * n + 1.5, f"b{n}") for n in range(1, 10))]
    error = diarization_error([Turn(0.0, 1.0, "a"), Turn(2.0, 19.5, "b")], found)
    # Of 1,350 frames in which somebody was found, 50 of one pair and 150 of the other are right.
    assert (error.speech - error.missed, error.confused) == (1350, 1150)
