"""Makes speech whose pauses are known: synthetic calls, with silence put in where a speaker would pause.

The two texts beside this module share no sentence, and the two sets no voice: weights are fitted on one and judged on
the other. A mark in a text is a place where the speaker may pause: `/` in a sentence, `#` inside a number, `@` inside
letters that are spelled. `<d3>` is three random digits, `<l2>` two random letters.
"""

import json
import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
import soxr

from app.media.pcm import Samples
from benchmarks.recordings import NOISE
from engine.api import SAMPLE_RATE
from training.speech import voices
from training.speech.speak import Job, speak
from training.text.numbers import LETTERS, ONES

KINDS = {"/": "sentence", "#": "number", "@": "spelling"}
"""What a pause interrupts, by its mark in a text."""
SETS = {
    "fit": (
        "espeak:en-us",
        "espeak:en",
        "espeak:en-us+f3",
        "espeak:en-gb-x-rp+m3",
        "espeak:en-us+f5",
        "espeak:en-gb-scotland+m1",
        "slt",
        "rms",
        "kal",
    ),
    "test": (
        "espeak:en-us+belinda",
        "espeak:en-us+Andrea",
        "espeak:en-us+m6",
        "espeak:en+iven",
        "espeak:en-us+m7",
        "espeak:en+f2",
        "awb",
        "kal16",
    ),
}
"""The voices of each set. Those of espeak-ng of the second are held out of the model's training, but for two."""
PAUSE_SHARE = 0.6
"""The share of the marks at which the speaker does pause."""
MEDIAN_MS = (300, 800)
"""The median pause of a speaker is drawn between these, in milliseconds, evenly on a logarithmic scale."""
SPREAD = 0.35
"""The standard deviation of the logarithm of one speaker's pauses."""
PAUSE_MS = (200, 1200)
"""The shortest and the longest pause, in milliseconds: what is drawn beyond them is drawn again."""
TURN_S = 2.5
"""Silence after each utterance, in seconds: longer than any policy waits."""
UTTERANCES = 10
"""Utterances of a recording, all of one speaker."""
FADE_SAMPLES = SAMPLE_RATE // 100
"""Where silence is put into a word's end, the speech fades out and in within 10 ms."""
PEAK = 0.5


@dataclass(frozen=True, slots=True)
class Phrase:
    """A part of an utterance between two pauses."""

    text: str
    kind: str | None
    """What the pause after it interrupts; `None` for the last one."""


def read_texts(name: str) -> list[str]:
    """The lines of a set."""
    return (Path(__file__).parent / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def phrases(line: str, r: random.Random) -> list[Phrase]:
    """Fill the slots of a line, and cut it at the marks where the speaker pauses."""
    filled = re.sub(r"<([dl])(\d)>", lambda slot: _random_symbols(slot[1], int(slot[2]), r), line)
    found: list[Phrase] = []
    text = ""
    for part in re.split(r" ([/#@]) ", filled):
        if part not in KINDS:
            text = f"{text} {part}".strip()
        elif r.random() < PAUSE_SHARE:
            found.append(Phrase(text, KINDS[part]))
            text = ""
    return [*found, Phrase(text, None)]


def _random_symbols(kind: str, n: int, r: random.Random) -> str:
    return " ".join(ONES[r.randrange(10)] if kind == "d" else r.choice(LETTERS) for _ in range(n))


def pause_ms(median_ms: float, r: random.Random) -> float:
    """Draw a pause of a speaker, in milliseconds."""
    while True:
        drawn = median_ms * math.exp(r.gauss(0.0, SPREAD))
        if PAUSE_MS[0] <= drawn <= PAUSE_MS[1]:
            return drawn


def make(name: str, root: Path, out: Path, n_recordings: int, seed: int) -> list[dict[str, Any]]:
    """Write the recordings of a set into a folder, and return their lines of the manifest.

    Args:
        name: "fit" or "test".
        root: the folder that training/synthesisers.sh has made.
        out: the folder.
        n_recordings: with `UTTERANCES` utterances each.
        seed: equal seeds give equal recordings.
    """
    r = random.Random(f"{name} {seed}")
    lines = read_texts(name)
    out.mkdir(parents=True, exist_ok=True)
    order = [
        line for _ in range(math.ceil(n_recordings * UTTERANCES / len(lines))) for line in r.sample(lines, len(lines))
    ]
    calls = [
        [phrases(line, r) for line in order[first : first + UTTERANCES]]
        for first in range(0, n_recordings * UTTERANCES, UTTERANCES)
    ]
    used = [SETS[name][index % len(SETS[name])] for index in range(n_recordings)]
    spoken = speak(root, seed, [Job(_texts(call, voice), voice) for call, voice in zip(calls, used, strict=True)])
    manifest = []
    for index, (call, voice, clips) in enumerate(zip(calls, used, spoken, strict=True)):
        median_ms = math.exp(r.uniform(*map(math.log, MEDIAN_MS)))
        samples, utterances = _join(call, _pieces(call, voice, clips), median_ms, r, seed + index)
        file = f"{name}-{index:02}"
        write_flac(out / f"{file}.flac", samples)
        (out / f"{file}.json").write_text(json.dumps({"utterances": utterances}, indent=1))
        manifest.append(
            {
                "file": f"{file}.flac",
                "kind": f"pauses-{name}",
                "text": " ".join(each["text"] for each in utterances),
                "seconds": round(len(samples) / SAMPLE_RATE, 3),
                "speaker": voice,
                "segments": f"{file}.json",
            }
        )
    return manifest


def _is_split_by_word(voice: str) -> bool:
    """Whether the whole utterance is spoken and cut at its words: espeak-ng alone says where these begin."""
    return voice.startswith("espeak:")


def _texts(call: Sequence[Sequence[Phrase]], voice: str) -> list[str]:
    """What the synthesiser speaks: whole utterances, or for other voices phrases that go on after a comma."""
    if _is_split_by_word(voice):
        return [" ".join(phrase.text for phrase in each) for each in call]
    return [phrase.text.rstrip(",") + ("," if phrase.kind else "") for each in call for phrase in each]


def _pieces(
    call: Sequence[Sequence[Phrase]], voice: str, clips: Sequence[voices.Utterance | None]
) -> list[list[Samples]]:
    """The speech of every phrase of every utterance."""
    if not _is_split_by_word(voice):
        given = iter(clips)
        return [[_speech(_spoken(next(given))) for _ in each] for each in call]
    found = []
    for each, clip in zip(call, clips, strict=True):
        whole = voices.trimmed(_spoken(clip))
        starts, word = whole.word_starts, 0
        cuts = [0]
        for phrase in each[:-1]:
            word += len(phrase.text.split())
            # espeak-ng joins or splits words at times; then the words are taken to be equally long.
            at = starts[word] if starts else len(whole.samples) * word // len(_words(each))
            cuts.append(at)
        bounds = zip(cuts, [*cuts[1:], len(whole.samples)], strict=True)
        found.append([_speech(whole._replace(samples=whole.samples[start:end])) for start, end in bounds])
    return found


def _words(utterance: Sequence[Phrase]) -> list[str]:
    return " ".join(phrase.text for phrase in utterance).split()


def _spoken(clip: voices.Utterance | None) -> voices.Utterance:
    if clip is None:
        raise OSError("the synthesiser failed")
    return clip


def _speech(clip: voices.Utterance) -> Samples:
    """A clip at 16 kHz, without silence at its ends, which fade."""
    trimmed = voices.trimmed(clip)
    samples: Samples = soxr.resample(trimmed.samples.astype(np.float32) / 32768, trimmed.sample_rate, SAMPLE_RATE)
    samples = samples.astype(np.float32)
    n_fade = min(FADE_SAMPLES, len(samples) // 2)
    if n_fade:
        ramp = np.linspace(0.0, 1.0, n_fade, dtype=np.float32)
        samples[:n_fade] *= ramp
        samples[-n_fade:] *= ramp[::-1]
    return samples


def _join(
    call: Sequence[Sequence[Phrase]], pieces: Sequence[Sequence[Samples]], median_ms: float, r: random.Random, seed: int
) -> tuple[Samples, list[dict[str, Any]]]:
    """Put the phrases in a row, with their pauses, faint noise under all of it, and note where everything is."""
    row: list[Samples] = []
    utterances = []
    position = 0

    def add(samples: Samples) -> None:
        nonlocal position
        row.append(samples)
        position += len(samples)

    def silence(seconds: float) -> None:
        add(np.zeros(round(seconds * SAMPLE_RATE), dtype=np.float32))

    silence(1.0)
    for each, spoken in zip(call, pieces, strict=True):
        spans = []
        for phrase, samples in zip(each, spoken, strict=True):
            begin = position
            add(samples)
            spans.append([round(begin / SAMPLE_RATE, 3), round(position / SAMPLE_RATE, 3)])
            if phrase.kind:
                silence(pause_ms(median_ms, r) / 1000)
        text = " ".join(phrase.text for phrase in each)
        kinds = [phrase.kind for phrase in each if phrase.kind]
        utterances.append(
            {"start": spans[0][0], "end": spans[-1][1], "text": text, "speech": spans, "pause_kinds": kinds}
        )
        silence(TURN_S)
    samples = np.concatenate(row)
    samples *= PEAK / float(np.abs(samples).max())
    samples += (NOISE * np.random.default_rng(seed).standard_normal(len(samples))).astype(np.float32)
    return samples, utterances


def write_flac(file: Path, samples: Samples) -> None:
    with av.open(str(file), "w") as container:
        stream = container.add_stream("flac", rate=SAMPLE_RATE, layout="mono", format="s16")
        pcm = (np.clip(samples, -1, 1) * 32767).astype(np.int16)
        frame = av.AudioFrame.from_ndarray(pcm[None], format="s16", layout="mono")
        frame.sample_rate = SAMPLE_RATE
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
