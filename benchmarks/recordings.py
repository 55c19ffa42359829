"""Recordings with what is said in them and when: the bundled ones, or a folder with a manifest."""

import asyncio
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import click
import numpy as np

from app.media.file_decoder import decode_file
from app.media.pcm import Samples
from engine.api import SAMPLE_RATE, WINDOW_SAMPLES

REPOSITORY = Path(__file__).parent.parent
BUNDLED = Path(__file__).parent / "bundled.json"
PAUSE_S = 0.8
"""Between bundled clips that follow each other: longer than the silence that ends an utterance."""
EDGE_S = 0.1
"""Kept before and behind the speech of an utterance that is taken out of its recording."""
NOISE = 0.0003
"""Under all of a call, in shares of full scale, as on a line that is open. In the pauses alone it would rise whenever
speech ends, and be taken for more of it."""
QUIET_SAMPLES = SAMPLE_RATE // 10
"""The shortest pause that a window may be cut in."""


@dataclass(frozen=True, slots=True)
class Said:
    """An utterance of the reference."""

    text: str
    spans: tuple[tuple[float, float], ...]
    """Where there is speech in it, in seconds; pauses inside an utterance lie between its spans."""

    @property
    def start_s(self) -> float:
        return self.spans[0][0]

    @property
    def end_s(self) -> float:
        return self.spans[-1][1]

    def shifted(self, by_s: float) -> "Said":
        return replace(self, spans=tuple((start + by_s, end + by_s) for start, end in self.spans))


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """Mono audio at 16 kHz and its transcript."""

    name: str
    samples: Samples
    text: str
    said: tuple[Said, ...] = ()
    """Empty where only the text is known."""

    @property
    def audio_s(self) -> float:
        return len(self.samples) / SAMPLE_RATE


def load_bundled(seconds: float, n: int) -> list[Recording]:
    """`n` recordings of about `seconds`, the bundled clips in a row; each begins with another clip."""
    clips = [
        _with_times(entry["file"], REPOSITORY / entry["file"], entry["utterances"])
        for entry in json.loads(BUNDLED.read_text())
    ]
    return [_in_a_row(f"bundled-{i}", [*clips[i % 4 :], *clips[: i % 4]], seconds) for i in range(n)]


def load_folder(folder: Path, kind: str, match: str = "") -> Iterator[Recording]:
    """The recordings that `manifest.jsonl` lists with this kind and with `match` in their name.

    Raises:
        ClickException: there is none.
    """
    manifest = folder / "manifest.jsonl"
    if not manifest.is_file():
        raise click.ClickException(f"--audio: expected a folder with a manifest.jsonl, found none in {folder}")
    lines = [json.loads(line) for line in manifest.read_text().splitlines() if line.strip()]
    lines = [line for line in lines if line["kind"] == kind and match in line["file"] and line.get("text") is not None]
    if not lines:
        raise click.ClickException(f"--audio: no line of {manifest} is of kind {kind!r} and matches {match!r}")
    for line in lines:
        path = folder / line["file"]
        times: dict[str, Any] = json.loads((folder / line["segments"]).read_text()) if "segments" in line else {}
        if times.get("utterances"):
            yield _with_times(line["file"], path, times["utterances"])
        else:
            yield Recording(line["file"], _read(path), line["text"])


def cut(recording: Recording, seconds: float) -> list[Recording]:
    """Pieces of at most `seconds`, cut in the pauses between utterances; whole if its times are not known."""
    if not recording.said:
        return [recording]
    pauses = [0.0, *((a.end_s + b.start_s) / 2 for a, b in itertools.pairwise(recording.said)), recording.audio_s]
    pieces, first = [], 0
    for last in range(len(recording.said)):
        is_end = last + 1 == len(recording.said)
        if is_end or pauses[last + 2] - pauses[first] > seconds:
            begin_s, end_s = pauses[first], min(pauses[last + 1], pauses[first] + max(seconds, 0.0))
            end_s = max(end_s, recording.said[last].end_s)
            said = tuple(each.shifted(-begin_s) for each in recording.said[first : last + 1])
            samples = recording.samples[round(begin_s * SAMPLE_RATE) : round(end_s * SAMPLE_RATE)]
            pieces.append(Recording(f"{recording.name}@{begin_s:.1f}", samples, _joined(said), said))
            first = last + 1
    return pieces


def take(recordings: Iterable[Recording], seconds: float) -> list[Recording]:
    """Recordings up to `seconds` altogether, the last one cut between utterances if that can be."""
    taken: list[Recording] = []
    rest_s = seconds
    for recording in recordings:
        piece = recording if recording.audio_s <= rest_s else cut(recording, rest_s)[0]
        if taken and piece.audio_s > rest_s:
            break
        taken.append(piece)
        rest_s -= piece.audio_s
        if piece is not recording:
            break
    return taken


def as_call(recording: Recording, talk: float, seconds: float, seed: int) -> Recording:
    """One side of a call: the recording's utterances in turn, with pauses between them for the other side.

    Speech takes the share `talk` of it. The pauses are of random lengths, at least `PAUSE_S`; under all of it is a
    faint noise.

    Raises:
        ClickException: its times are not known, or the pauses inside its utterances leave less room than asked.
    """
    if not recording.said:
        raise click.ClickException(f"--talk: it is not known when there is speech in {recording.name}")
    said: list[Said] = []
    for each in itertools.cycle(recording.said):
        if said and sum(map(_speech_s, (*said, each))) > talk * seconds:
            break
        said.append(each)
    cuts = [(max(each.start_s - EDGE_S, 0.0), min(each.end_s + EDGE_S, recording.audio_s)) for each in said]
    length_s = sum(map(_speech_s, said)) / talk
    spare_s = length_s - sum(end - begin for begin, end in cuts) - PAUSE_S * (len(said) + 1)
    if spare_s < 0:
        most = length_s * talk / (length_s - spare_s)
        raise click.ClickException(f"--talk: {recording.name} allows no more than {most:.2f}, got {talk:g}")
    random = np.random.default_rng(seed)
    shares = random.exponential(size=len(said) + 1)
    pauses_s = PAUSE_S + spare_s * shares / shares.sum()
    samples = (NOISE * random.standard_normal(round(length_s * SAMPLE_RATE))).astype(np.float32)
    at_s, placed = 0.0, []
    for each, (begin_s, end_s), pause_s in zip(said, cuts, pauses_s[:-1], strict=True):
        at_s += float(pause_s)
        piece = recording.samples[round(begin_s * SAMPLE_RATE) : round(end_s * SAMPLE_RATE)]
        samples[round(at_s * SAMPLE_RATE) :][: len(piece)] += piece
        placed.append(each.shifted(at_s - begin_s))
        at_s += end_s - begin_s
    return Recording(f"{recording.name}, talk {talk:g}", samples, _joined(placed), tuple(placed))


def with_silence(recording: Recording, seconds: float) -> Recording:
    """The same with silence behind it: a microphone that stays open after the last word."""
    silence = np.zeros(round(seconds * SAMPLE_RATE), dtype=np.float32)
    return replace(recording, samples=np.concatenate((recording.samples, silence)))


def windows(samples: Samples) -> list[Samples]:
    """Cut at the quietest 100 ms in the last third of every 30 s: no detector, and nothing known of what is said."""
    cuts, begin = [], 0
    while len(samples) - begin > WINDOW_SAMPLES:
        third = samples[begin + WINDOW_SAMPLES * 2 // 3 : begin + WINDOW_SAMPLES]
        loudness = np.add.reduceat(np.square(third), np.arange(0, len(third), QUIET_SAMPLES))
        quietest = int(loudness.argmin()) * QUIET_SAMPLES + QUIET_SAMPLES // 2
        begin += WINDOW_SAMPLES * 2 // 3 + quietest
        cuts.append(begin)
    return np.split(samples, cuts)


def _speech_s(said: Said) -> float:
    return sum(end - start for start, end in said.spans)


def _with_times(name: str, path: Path, utterances: Sequence[dict[str, Any]]) -> Recording:
    said = tuple(
        Said(each["text"], tuple((s, e) for s, e in each.get("speech") or [(each["start"], each["end"])]))
        for each in utterances
    )
    return Recording(name, _read(path), _joined(said), said)


def _in_a_row(name: str, clips: list[Recording], seconds: float) -> Recording:
    """Clips in turn for as long as any of them fits; the shortest one if none does."""
    row: list[Samples] = []
    said: list[Said] = []
    length_s = 0.0
    for clip in itertools.cycle(clips):
        if not any(length_s + each.audio_s <= seconds for each in clips):
            break
        if length_s + clip.audio_s <= seconds:
            said += (each.shifted(length_s) for each in clip.said)
            row += [clip.samples, np.zeros(round(PAUSE_S * SAMPLE_RATE), dtype=np.float32)]
            length_s = sum(map(len, row)) / SAMPLE_RATE
    if not row:
        shortest = min(clips, key=lambda clip: clip.audio_s)
        return replace(shortest, name=name)
    return Recording(name, np.concatenate(row[:-1]), _joined(said), tuple(said))


def _joined(said: Iterable[Said]) -> str:
    return " ".join(each.text for each in said)


def _read(path: Path) -> Samples:
    async def collect(file: IO[bytes]) -> Samples:
        async with aclosing(decode_file(file)) as pieces:
            return np.concatenate([piece async for piece in pieces])

    with path.open("rb") as file:
        return asyncio.run(collect(file))
