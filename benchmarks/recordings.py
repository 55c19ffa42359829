"""Loads recordings with their transcripts and speech times: the bundled ones, or a folder with a manifest."""

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

import tutti
from tutti_server.app.media.file_decoder import decode_pieces
from tutti_server.app.media.pcm import Samples
from tutti_server.engine.api import SAMPLE_RATE

REPOSITORY = Path(__file__).parent.parent
BUNDLED = Path(__file__).parent / "bundled.json"
"""The bundled clips with the utterances in them and their times."""
PAUSE_S = 0.8
"""Seconds of silence between bundled clips in a row: longer than the silence that ends an utterance."""
EDGE_S = 0.1
"""Seconds kept before and after the speech of an utterance that is cut out of its recording."""
NOISE = 0.0003
"""Standard deviation of the noise in a simulated call, as a fraction of full scale, like the noise of an open line.

The noise lies under the whole call. Noise in the pauses alone would begin when speech ends and look like more
speech.
"""
DIALOGUES = "synth-dialogue"
"""The kind of a manifest's recordings that are measured: synthetic dialogues, whose words end at known times."""
PCM_16K = tutti.AudioFormat("pcm_s16le", SAMPLE_RATE, 1)
"""What `to_pcm` makes: 16-bit mono PCM at 16 kHz."""


@dataclass(frozen=True, slots=True)
class ReferenceUtterance:
    """An utterance of the reference transcript, with its times in seconds."""

    text: str
    spans: tuple[tuple[float, float], ...]
    """Start and end of each stretch of speech. Pauses inside the utterance lie between the spans."""

    @property
    def start_s(self) -> float:
        return self.spans[0][0]

    @property
    def end_s(self) -> float:
        return self.spans[-1][1]

    def shifted(self, by_s: float) -> "ReferenceUtterance":
        return replace(self, spans=tuple((start + by_s, end + by_s) for start, end in self.spans))


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """Mono audio at 16 kHz and its transcript."""

    name: str
    samples: Samples
    text: str
    utterances: tuple[ReferenceUtterance, ...] = ()
    """Empty if only the text is known."""

    @property
    def audio_s(self) -> float:
        return len(self.samples) / SAMPLE_RATE


def load_bundled(seconds: float, n: int) -> list[Recording]:
    """`n` recordings of about `seconds`, each made of the bundled clips in a row and starting with a different clip."""
    clips = [
        _with_times(entry["file"], REPOSITORY / entry["file"], entry["utterances"])
        for entry in json.loads(BUNDLED.read_text())
    ]
    return [_in_a_row(f"bundled-{i}", [*clips[i % 4 :], *clips[: i % 4]], seconds) for i in range(n)]


def load_recordings(folder: Path | None, *, seconds: float, n: int) -> list[Recording]:
    """Recordings for live clients: those of a folder in pieces of at most `seconds`, or `n` bundled ones."""
    if folder is None:
        return load_bundled(seconds, n)
    return [piece for each in load_folder(folder) for piece in cut(each, seconds)]


def load_folder(folder: Path) -> Iterator[Recording]:
    """The synthetic dialogues of `manifest.jsonl`."""
    manifest = folder / "manifest.jsonl"
    if not manifest.is_file():
        raise click.ClickException(f"--audio: expected a folder with a manifest.jsonl, found none in {folder}")
    lines = [json.loads(line) for line in manifest.read_text().splitlines() if line.strip()]
    lines = [line for line in lines if line["kind"] == DIALOGUES and line.get("text") is not None]
    if not lines:
        raise click.ClickException(f"--audio: no line of {manifest} is of kind {DIALOGUES!r}")
    for line in lines:
        path = folder / line["file"]
        times: dict[str, Any] = json.loads((folder / line["segments"]).read_text()) if "segments" in line else {}
        if times.get("utterances"):
            yield _with_times(line["file"], path, times["utterances"])
        else:
            yield Recording(line["file"], _read(path), line["text"])


def cut(recording: Recording, seconds: float) -> list[Recording]:
    """Cut a recording between utterances into pieces of at most `seconds`. One without times stays whole."""
    if not recording.utterances:
        return [recording]
    pauses = [0.0, *((a.end_s + b.start_s) / 2 for a, b in itertools.pairwise(recording.utterances)), recording.audio_s]
    pieces, first = [], 0
    for last in range(len(recording.utterances)):
        is_end = last + 1 == len(recording.utterances)
        if is_end or pauses[last + 2] - pauses[first] > seconds:
            begin_s, end_s = pauses[first], min(pauses[last + 1], pauses[first] + max(seconds, 0.0))
            end_s = max(end_s, recording.utterances[last].end_s)
            utterances = tuple(each.shifted(-begin_s) for each in recording.utterances[first : last + 1])
            samples = recording.samples[round(begin_s * SAMPLE_RATE) : round(end_s * SAMPLE_RATE)]
            pieces.append(Recording(f"{recording.name}@{begin_s:.1f}", samples, _joined(utterances), utterances))
            first = last + 1
    return pieces


def as_call(recording: Recording, talk: float, seconds: float, seed: int) -> Recording:
    """Simulate one side of a call: utterances that fill the share `talk` of it, with random pauses and faint noise."""
    if not recording.utterances:
        raise click.ClickException(f"the speech times of {recording.name} are not known")
    utterances: list[ReferenceUtterance] = []
    for each in itertools.cycle(recording.utterances):
        if utterances and sum(map(_speech_s, (*utterances, each))) > talk * seconds:
            break
        utterances.append(each)
    cuts = [(max(each.start_s - EDGE_S, 0.0), min(each.end_s + EDGE_S, recording.audio_s)) for each in utterances]
    length_s = sum(map(_speech_s, utterances)) / talk
    spare_s = length_s - sum(end - begin for begin, end in cuts) - PAUSE_S * (len(utterances) + 1)
    if spare_s < 0:
        most = length_s * talk / (length_s - spare_s)
        raise click.ClickException(f"{recording.name} allows no more than {most:.2f} of speech, got {talk:g}")
    random = np.random.default_rng(seed)
    shares = random.exponential(size=len(utterances) + 1)
    pauses_s = PAUSE_S + spare_s * shares / shares.sum()
    samples = (NOISE * random.standard_normal(round(length_s * SAMPLE_RATE))).astype(np.float32)
    at_s, placed = 0.0, []
    for each, (begin_s, end_s), pause_s in zip(utterances, cuts, pauses_s[:-1], strict=True):
        at_s += float(pause_s)
        piece = recording.samples[round(begin_s * SAMPLE_RATE) : round(end_s * SAMPLE_RATE)]
        samples[round(at_s * SAMPLE_RATE) :][: len(piece)] += piece
        placed.append(each.shifted(at_s - begin_s))
        at_s += end_s - begin_s
    return Recording(f"{recording.name}, talk {talk:g}", samples, _joined(placed), tuple(placed))


def with_silence(recording: Recording, seconds: float) -> Recording:
    """The recording followed by silence, like a microphone that stays open after the last word."""
    silence = np.zeros(round(seconds * SAMPLE_RATE), dtype=np.float32)
    return replace(recording, samples=np.concatenate((recording.samples, silence)))


def to_pcm(samples: Samples) -> bytes:
    return (np.clip(samples, -1, 1) * 32_767).astype("<i2").tobytes()


def _speech_s(utterance: ReferenceUtterance) -> float:
    return sum(end - start for start, end in utterance.spans)


def _with_times(name: str, path: Path, utterances: Sequence[dict[str, Any]]) -> Recording:
    found = tuple(
        ReferenceUtterance(each["text"], tuple((s, e) for s, e in each.get("speech") or [(each["start"], each["end"])]))
        for each in utterances
    )
    return Recording(name, _read(path), _joined(found), found)


def _in_a_row(name: str, clips: list[Recording], seconds: float) -> Recording:
    """Join clips in turn as long as one of them fits into `seconds`. If none fits, return the shortest clip."""
    row: list[Samples] = []
    utterances: list[ReferenceUtterance] = []
    length_s = 0.0
    for clip in itertools.cycle(clips):
        if not any(length_s + each.audio_s <= seconds for each in clips):
            break
        if length_s + clip.audio_s <= seconds:
            utterances += (each.shifted(length_s) for each in clip.utterances)
            row += [clip.samples, np.zeros(round(PAUSE_S * SAMPLE_RATE), dtype=np.float32)]
            length_s = sum(map(len, row)) / SAMPLE_RATE
    if not row:
        shortest = min(clips, key=lambda clip: clip.audio_s)
        return replace(shortest, name=name)
    return Recording(name, np.concatenate(row[:-1]), _joined(utterances), tuple(utterances))


def _joined(utterances: Iterable[ReferenceUtterance]) -> str:
    return " ".join(each.text for each in utterances)


def _read(path: Path) -> Samples:
    with path.open("rb") as file:
        return np.concatenate(list(decode_pieces(file, None)))
