"""Clips for the evaluation: those of a manifest, and sentences joined into windows with their true times."""

import itertools
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import av
import numpy as np

from app.media.pcm import Samples
from benchmarks.recordings import ReferenceUtterance
from engine.api import SAMPLE_RATE, WINDOW_SAMPLES

SINGLE_SENTENCES = ("call", "lecture", "number", "date", "name", "spell", "short")
"""Kinds of synthetic clips that hold one sentence each."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Clip:
    """Mono audio at 16 kHz and its transcript."""

    name: str
    group: str
    """The kind of a listed clip, or the voice of a synthetic one. Figures are given by group."""
    samples: Samples
    text: str
    language: str = "en"
    utterances: tuple[ReferenceUtterance, ...] = ()
    """Its sentences with their true times; empty if the times are not known."""
    word_starts_s: tuple[float, ...] = ()
    """The start of each word of the text, split at white space; empty if they are not known."""

    @property
    def audio_s(self) -> float:
        """Length in seconds."""
        return len(self.samples) / SAMPLE_RATE


def read_manifest(folder: Path) -> list[dict[str, Any]]:
    """The lines of a folder's manifest; empty without a manifest."""
    file = folder / "manifest.jsonl"
    if not file.is_file():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]


def load(folder: Path, line: dict[str, Any]) -> Clip:
    """A listed clip, its channels mixed down."""
    samples = read_channels(folder / line["file"]).mean(0, dtype=np.float32)
    return Clip(
        name=line["file"],
        group=line["kind"],
        samples=samples,
        text=line["text"] or "",
        language=line.get("lang", "en"),
    )


def read_channels(file: Path) -> Samples:
    """The channels of a file at 16 kHz: `(channels, samples)`."""
    with av.open(str(file)) as container:
        stream = container.streams.audio[0]
        resampler = av.AudioResampler(format="fltp", layout=stream.layout, rate=SAMPLE_RATE)
        frames = [out for frame in container.decode(stream) for out in resampler.resample(frame)]
        frames += resampler.resample(None)
    samples: Samples = np.concatenate([frame.to_ndarray() for frame in frames], axis=1)
    return samples


def in_silence(clip: Clip, lead_s: float, tail_s: float) -> Clip:
    """The clip with digital silence before and after it."""
    lead, tail = (np.zeros(round(seconds * SAMPLE_RATE), np.float32) for seconds in (lead_s, tail_s))
    return replace(
        clip,
        samples=np.concatenate((lead, clip.samples, tail)),
        utterances=tuple(each.shifted(len(lead) / SAMPLE_RATE) for each in clip.utterances),
        word_starts_s=tuple(start + len(lead) / SAMPLE_RATE for start in clip.word_starts_s),
    )


def joined(name: str, clips: Sequence[Clip], gaps_s: Sequence[float]) -> Clip:
    """Join clips with silence before each one; there are as many gaps as clips.

    Times are kept if all clips have them.
    """
    parts: list[Samples] = []
    utterances: list[ReferenceUtterance] = []
    starts: list[float] = []
    n_samples = 0
    for clip, gap_s in zip(clips, gaps_s, strict=True):
        parts += [np.zeros(round(gap_s * SAMPLE_RATE), np.float32), clip.samples]
        at_s = (n_samples + len(parts[-2])) / SAMPLE_RATE
        utterances += (each.shifted(at_s) for each in clip.utterances)
        starts += (start + at_s for start in clip.word_starts_s)
        n_samples += len(parts[-2]) + len(parts[-1])
    groups = {clip.group for clip in clips}
    return Clip(
        name=name,
        group=groups.pop() if len(groups) == 1 else "mixed",
        samples=np.concatenate(parts),
        text=" ".join(clip.text for clip in clips),
        utterances=tuple(utterances) if all(clip.utterances for clip in clips) else (),
        word_starts_s=tuple(starts) if all(clip.word_starts_s for clip in clips) else (),
    )


def windows_of(clips: Iterable[Clip], r: random.Random, name: str, longest_s: tuple[float, float]) -> list[Clip]:
    """Join clips into windows, each up to a length drawn from the range, with gaps of 0.1 to 1.5 s."""
    windows: list[Clip] = []
    row: list[Clip] = []
    gaps: list[float] = []
    limit_s = length_s = 0.0

    def close() -> None:
        if row:
            windows.append(joined(f"{name}-{len(windows)}", row, gaps))
            row.clear()
            gaps.clear()

    for clip in clips:
        gap_s = round(r.uniform(0.1, 1.5), 3)
        if not row or length_s + gap_s + clip.audio_s > limit_s:
            close()
            limit_s, length_s = r.uniform(*longest_s), 0.0
        row.append(clip)
        gaps.append(gap_s)
        length_s += gap_s + clip.audio_s
    close()
    return [window for window in windows if len(window.samples) <= WINDOW_SAMPLES]


def pieces(clip: Clip, r: random.Random, shortest_s: float, longest_s: float) -> list[Clip]:
    """Cut a clip without speech into pieces of lengths drawn from the range. The rest is not used."""
    ends = [0]
    while ends[-1] < len(clip.samples):
        ends.append(ends[-1] + round(r.uniform(shortest_s, longest_s) * SAMPLE_RATE))
    spans = [(start, end) for start, end in itertools.pairwise(ends) if end <= len(clip.samples)]
    return [replace(clip, name=f"{clip.name}@{start}", samples=clip.samples[start:end]) for start, end in spans]
