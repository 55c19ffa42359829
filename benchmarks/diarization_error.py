"""The diarization error rate: missed speech, speech that was none, and speech of the wrong speaker, over all speech.

Counted in frames of 10 ms as in NIST's evaluations: frames near the edges of reference turns are left out, overlapping
speech counts once for each speaker, and speakers are paired so that the error is the least.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FRAME_S = 0.01
COLLAR_S = 0.25
"""Frames this close to the start or the end of a reference turn are not counted."""


@dataclass(frozen=True, slots=True)
class Turn:
    start_s: float
    end_s: float
    speaker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DiarizationError:
    """Counted frames; `rate` is all errors over `speech`."""

    missed: int
    false_alarm: int
    confused: int
    speech: int
    """Frames of speech in the reference, each counted once for every speaker in it."""

    @property
    def rate(self) -> float:
        """The diarization error rate, 0 for none; it may be above 1."""
        return (self.missed + self.false_alarm + self.confused) / max(self.speech, 1)


def diarization_error(reference: Sequence[Turn], hypothesis: Sequence[Turn]) -> DiarizationError:
    end_s = max((turn.end_s for turn in (*reference, *hypothesis)), default=0.0)
    n_frames = round(end_s / FRAME_S) + 1
    truth, found = _frames(reference, n_frames), _frames(hypothesis, n_frames)
    counted = np.ones(n_frames, bool)
    for turn in reference:
        for edge_s in (turn.start_s, turn.end_s):
            counted[max(0, round((edge_s - COLLAR_S) / FRAME_S)) : round((edge_s + COLLAR_S) / FRAME_S)] = False
    truth, found = truth[:, counted], found[:, counted]
    n_truth, n_found = truth.sum(0), found.sum(0)
    correct = _most_correct((truth.astype(int) @ found.T.astype(int)).astype(int))
    return DiarizationError(
        missed=int(np.maximum(n_truth - n_found, 0).sum()),
        false_alarm=int(np.maximum(n_found - n_truth, 0).sum()),
        confused=int(np.minimum(n_truth, n_found).sum()) - correct,
        speech=int(n_truth.sum()),
    )


def _frames(turns: Sequence[Turn], n_frames: int) -> NDArray[np.bool_]:
    """`(speakers, frames)`: who speaks when."""
    names = sorted({turn.speaker for turn in turns})
    frames = np.zeros((len(names), n_frames), bool)
    for turn in turns:
        frames[names.index(turn.speaker), round(turn.start_s / FRAME_S) : round(turn.end_s / FRAME_S)] = True
    return frames


def _most_correct(together: NDArray[np.int_]) -> int:
    """The frames in which paired speakers speak together, for the best of all pairings."""
    if together.shape[0] > together.shape[1]:
        together = together.T
    # By the rows that have a column already, as bits: the most frames with the columns so far.
    best = {0: 0}
    for column in together.T.tolist():
        for taken, n_frames in list(best.items()):
            for row, n_shared in enumerate(column):
                if not taken >> row & 1:
                    best[taken | 1 << row] = max(best.get(taken | 1 << row, 0), n_frames + n_shared)
    return max(best.values())
