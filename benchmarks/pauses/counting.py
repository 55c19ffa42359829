"""Compares endpoints with the truth: which are right and how late, and which split an utterance, and where."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from app.media.pcm import Samples
from benchmarks.pauses.simulation import End, Pause
from benchmarks.recordings import Recording, ReferenceUtterance
from engine.api import SAMPLE_RATE

KINDS = ("sentence", "number", "spelling")
"""What a pause interrupts."""
KIND_OF_CLIP = {"synth-number": "number", "synth-date": "number", "synth-spell": "spelling"}
"""What the pauses of clips interrupt whose kind says it; those of all others interrupt a sentence."""
TOLERANCE_S = 0.1
"""An endpoint this much before the end of an utterance, in seconds, is still its end: the last sound is weak."""
QUIET = 0.01
"""Samples below this part of the loudest one are quiet at the edges of a clip."""


def with_truth(recording: Recording, kind: str) -> Recording:
    """The recording with utterances whose times fit the speech, and with the kind of every pause.

    Args:
        recording: a single clip has no times: it is one utterance. Those of joined human clips have quiet edges.
        kind: of the recording in the manifest.
    """
    utterances = recording.utterances or (ReferenceUtterance(recording.text, ((0.0, recording.audio_s),)),)
    if not recording.utterances or kind.startswith("human"):
        utterances = tuple(_trimmed(each, recording.samples) for each in utterances)
    usual = KIND_OF_CLIP.get(kind, "sentence")
    utterances = tuple(
        each if each.pause_kinds else replace(each, pause_kinds=(usual,) * (len(each.spans) - 1)) for each in utterances
    )
    return replace(recording, utterances=utterances)


def _trimmed(utterance: ReferenceUtterance, samples: Samples) -> ReferenceUtterance:
    start, end = (round(s * SAMPLE_RATE) for s in (utterance.start_s, utterance.end_s))
    loudness = np.abs(samples[start:end])
    loud = np.flatnonzero(loudness > QUIET * loudness.max())
    spans = [list(span) for span in utterance.spans]
    spans[0][0], spans[-1][1] = (start + int(loud[0])) / SAMPLE_RATE, (start + int(loud[-1])) / SAMPLE_RATE
    return replace(utterance, spans=tuple((s, e) for s, e in spans))


@dataclass(slots=True, kw_only=True)
class Count:
    """What a policy did with some recordings."""

    waited_s: list[float] = field(default_factory=list)
    """Silence waited at right endpoints, from the last frame of speech, in seconds."""
    late_s: list[float] = field(default_factory=list)
    """Right endpoints, from the true end of the speech, in seconds."""
    splits: Counter[str] = field(default_factory=Counter)
    """Endpoints inside an utterance, by what they interrupt."""
    split_utterances: Counter[str] = field(default_factory=Counter)
    """Utterances with such an endpoint."""
    pauses: Counter[str] = field(default_factory=Counter)
    """Pauses inside utterances, by what they interrupt."""
    n_utterances: int = 0
    n_joined: int = 0
    """Utterances without an endpoint before the next one begins."""

    def add(self, utterances: Sequence[ReferenceUtterance], ends: Sequence[End], kind: str) -> None:
        """Add a recording. `kind` is what a split interrupts where the truth has no pause."""
        found: dict[int, list[End]] = {}
        for end in ends:
            found.setdefault(_index_at(utterances, end.speech_until), []).append(end)
        for index, utterance in enumerate(utterances):
            self.n_utterances += 1
            self.pauses.update(utterance.pause_kinds)
            kinds = []
            is_ended = False
            for end in found.get(index, []):
                if end.position / SAMPLE_RATE < utterance.end_s - TOLERANCE_S:
                    kinds.append(kind_at(utterance, end.speech_until) or kind)
                elif not is_ended:
                    is_ended = True
                    self.waited_s.append((end.position - end.speech_until) / SAMPLE_RATE)
                    self.late_s.append(end.position / SAMPLE_RATE - utterance.end_s)
            self.splits.update(kinds)
            self.split_utterances.update(set(kinds))
            self.n_joined += not is_ended


def label(utterances: Sequence[ReferenceUtterance], pause: Pause) -> str | None:
    """What a pause is: `end`, what it interrupts, or `None` where the truth has no pause."""
    index = _index_at(utterances, pause.speech_until)
    if index < 0:
        return None
    utterance = utterances[index]
    if pause.speech_until / SAMPLE_RATE >= utterance.end_s - TOLERANCE_S:
        return "end"
    return kind_at(utterance, pause.speech_until)


def kind_at(utterance: ReferenceUtterance, position: int) -> str | None:
    """What the pause at a position interrupts; `None` where there is none within the detector's precision."""
    distances = [abs(before[1] - position / SAMPLE_RATE) for before, _ in pairwise(utterance.spans)]
    if not distances or min(distances) > 3.5 * TOLERANCE_S:
        return None
    return utterance.pause_kinds[distances.index(min(distances))]


def _index_at(utterances: Sequence[ReferenceUtterance], position: int) -> int:
    """The last utterance that has begun at a position; -1 before the first one."""
    starts = np.array([each.start_s for each in utterances])
    return int(np.searchsorted(starts, position / SAMPLE_RATE, side="right")) - 1
