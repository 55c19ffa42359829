"""What every part of the evaluation works with: the model, the clips it is asked about, and how errors become rows."""

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.files.word_normaliser import word_errors
from benchmarks.scoring import WordErrors
from training.evaluation.card import Row
from training.evaluation.clips import Clip, in_silence, load
from training.evaluation.held_out import TRAINED, Voices, own_sentences
from training.evaluation.subjects import Heard, Listener

SEED = 20


@dataclass
class Bench:
    listener: Listener
    model: Path
    audio: Path
    lines: list[dict[str, Any]]
    """Of the manifest in `audio`; none where there is none."""
    voices: Voices | None
    """`None` without synthesisers."""
    hypotheses: dict[str, str] = field(default_factory=dict)
    """What was heard in listed files, by name: kept for ../shared/tools/wer.py."""

    def listed(self, *kinds: str) -> list[Clip]:
        return [load(self.audio, line) for line in self.lines if line["kind"] in kinds]

    @cached_property
    def fresh(self) -> list[Clip]:
        """Every own sentence once, by the trained voices in turn, with some silence around it."""
        return self.with_silence(self.voices.in_turn(own_sentences(), list(TRAINED))) if self.voices else []

    def with_silence(self, clips: Sequence[Clip]) -> list[Clip]:
        r = random.Random(SEED)
        return [in_silence(clip, round(r.uniform(0.1, 0.6), 2), round(r.uniform(0.1, 0.6), 2)) for clip in clips]

    def keep(self, heard: Iterable[Heard]) -> None:
        self.hypotheses |= {each.clip.name: each.text for each in heard}


def total(heard: Iterable[Heard]) -> WordErrors:
    return sum((word_errors(h.clip.text, h.text, h.clip.language) for h in heard), WordErrors())


def error_row(part: str, what: str, heard: Sequence[Heard], target: float | None = None) -> Row:
    errors = total(heard)
    return Row(part, what, errors.rate, "%", target, of=f"{len(heard)} clips, {errors.words} words" if heard else "")


def rows_by_group(part: str, heard: Sequence[Heard], targets: dict[str, float] | None = None) -> list[Row]:
    """A row for each group of clips, in the order in which the groups first come."""
    groups: dict[str, list[Heard]] = defaultdict(list)
    for each in heard:
        groups[each.clip.group].append(each)
    return [error_row(part, group, some, (targets or {}).get(group)) for group, some in groups.items()]
