"""What every part of the evaluation shares: the model, the clips, and how errors become rows of the table."""

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.files.word_normaliser import word_errors
from benchmarks.scoring import WordErrors
from training.evaluation.card import Row, make_row
from training.evaluation.clips import Clip, in_silence, load
from training.evaluation.held_out import TRAINED, Voices, own_sentences
from training.evaluation.subjects import DecodedClip, Subject

SEED = 20


@dataclass(kw_only=True)
class Bench:
    """The model that is measured, and the audio that it is measured on."""

    subject: Subject
    model: Path
    audio: Path
    lines: list[dict[str, Any]]
    """The lines of the manifest in `audio`; empty without a manifest."""
    voices: Voices | None
    """`None` if the synthesisers are not installed."""
    hypotheses: dict[str, str] = field(default_factory=dict)
    """The text of each listed file, by name, for other scoring tools."""

    def listed(self, *kinds: str) -> list[Clip]:
        """The clips of the manifest of these kinds."""
        return [load(self.audio, line) for line in self.lines if line["kind"] in kinds]

    @cached_property
    def held_out(self) -> list[Clip]:
        """Every sentence that was not trained on, by the trained voices in turn, with some silence around it."""
        return self.with_silence(self.voices.in_turn(own_sentences(), list(TRAINED))) if self.voices else []

    def with_silence(self, clips: Sequence[Clip]) -> list[Clip]:
        """The clips with 0.1 to 0.6 s of silence before and after each."""
        r = random.Random(SEED)
        return [in_silence(clip, round(r.uniform(0.1, 0.6), 2), round(r.uniform(0.1, 0.6), 2)) for clip in clips]

    def keep(self, decoded: Iterable[DecodedClip]) -> None:
        """Keep the texts of listed clips in `hypotheses`."""
        self.hypotheses |= {each.clip.name: each.text for each in decoded}


def total(decoded: Iterable[DecodedClip]) -> WordErrors:
    """The word errors of all clips."""
    return sum((word_errors(h.clip.text, h.text, h.clip.language) for h in decoded), WordErrors())


def error_row(part: str, what: str, decoded: Sequence[DecodedClip], target: float | None = None) -> Row:
    """A row with the word error rate of all clips."""
    errors = total(decoded)
    of = f"{len(decoded)} clips, {errors.words} words" if decoded else ""
    return make_row(part, what, errors.rate, "%", target, of=of)


def rows_by_group(part: str, decoded: Sequence[DecodedClip], targets: dict[str, float] | None = None) -> list[Row]:
    """A row for each group of clips, in the order in which the groups first appear."""
    groups: dict[str, list[DecodedClip]] = defaultdict(list)
    for each in decoded:
        groups[each.clip.group].append(each)
    return [error_row(part, group, some, (targets or {}).get(group)) for group, some in groups.items()]
