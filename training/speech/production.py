"""Makes speech during the training: processes turn sentences into chunk files that `bank.py` loads."""

import argparse
import logging
import multiprocessing
import os
import random
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from training.speech import voices
from training.text import numbers

logger = logging.getLogger(__name__)

KINDS = {
    "espeak": (0.46, 256),
    "slt": (0.13, 64),
    "rms": (0.08, 64),
    "awb": (0.08, 64),
    "kal": (0.09, 256),
    "kal16": (0.04, 256),
    "ked_diphone": (0.08, 160),
    "cmu_us_slt_arctic_hts": (0.04, 40),
}
"""By voice: its share of the speech, and the number of sentences in a chunk."""
BROKEN_OFF = 0.06
"""Share of sentences that are spoken only in part, by voices whose word starts are not known."""
CTC_ALPHABET = " abcdefghijklmnopqrstuvwxyz'"
"""The characters of the CTC classes from 1 on. Class 0 is the blank."""
LONGEST_S = 20.0
"""Longest sentence, in seconds."""
FULL = "full"
"""A file of this name in the folder of the chunks ends the production of speech."""
_FIRST_SECONDS = 8.0
"""In the first seconds only the fast synthesisers run, so that the training can start."""


def characters(word: str) -> list[int]:
    """The CTC classes of a written word, with digits in words."""
    in_words = re.sub(r"\d+", lambda match: numbers.cardinal(int(match[0])), word.lower())
    return [
        CTC_ALPHABET.index(letter) + 1
        for letter in re.sub(r"[^a-z' ]", " ", in_words).strip()
        if letter in CTC_ALPHABET
    ]


class Speaks(Protocol):
    """Something that speaks sentences: the synthesisers, or what stands for them in tests."""

    def speak(
        self, r: random.Random, kind: str, texts: list[str], held_out: bool = False
    ) -> list[voices.Utterance | None]:
        """Speak sentences with one of `KINDS`."""


class Speakers:
    """Speaks sentences with random voices, rates and pitches, which change every few sentences."""

    SENTENCES_EACH = 16
    """Sentences in a row by one voice."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.espeak, self.flite = voices.Espeak(root), voices.Flite(root)

    def speak(
        self, r: random.Random, kind: str, texts: list[str], held_out: bool = False
    ) -> list[voices.Utterance | None]:
        """Speak sentences with one of `KINDS`. `held_out` chooses variants of espeak-ng that are not trained on."""
        if kind in voices.FESTIVAL_VOICES or kind == voices.FESTIVAL_HELD_OUT:
            return voices.festival(
                self.root, texts, kind, 1.0 if r.random() < 0.35 else _around(r, 1.02, 0.13, 0.72, 1.4)
            )
        spoken: list[voices.Utterance | None] = []
        for start in range(0, len(texts), self.SENTENCES_EACH):
            some = texts[start : start + self.SENTENCES_EACH]
            spoken += self._espeak(r, some, held_out) if kind == "espeak" else self._flite(r, kind, some)
        return spoken

    def _espeak(self, r: random.Random, texts: list[str], held_out: bool) -> list[voices.Utterance | None]:
        if held_out:
            variant = r.choice(voices.ESPEAK_HELD_OUT)
        else:
            variant = r.choices(list(voices.ESPEAK_WEIGHTS), list(voices.ESPEAK_WEIGHTS.values()))[0]
        voice = r.choice(voices.ESPEAK_ACCENTS) + ("+" + variant if variant else "")
        plain = r.random() < 0.45
        rate = r.choice([130, 140, 150, 160, 165, 175, 175, 180, 190]) if plain else int(_around(r, 170, 30, 95, 280))
        pitch = 50 if plain else int(_around(r, 50, 16, 5, 95))
        spread = 50 if plain else int(_around(r, 50, 15, 5, 95))
        return [self.espeak(text, voice, rate, pitch, spread) for text in texts]

    def _flite(self, r: random.Random, voice: str, texts: list[str]) -> list[voices.Utterance | None]:
        plain = r.random() < 0.4
        stretch = r.choice([0.85, 0.9, 1.0, 1.0, 1.1, 1.15]) if plain else _around(r, 1.0, 0.14, 0.68, 1.45)
        pitch_hz = voices.FLITE_PITCH_HZ[voice] * (1.0 if plain else _around(r, 1.0, 0.16, 0.65, 1.5))
        return [self.flite(text, voice, stretch, pitch_hz) for text in texts]


def _around(r: random.Random, mean: float, deviation: float, lowest: float, highest: float) -> float:
    return min(highest, max(lowest, r.gauss(mean, deviation)))


def broken_off(r: random.Random, sentence: str) -> str:
    """The beginning of a sentence, as a live session receives it."""
    words = sentence.split()
    if len(words) < 4:
        return sentence
    return " ".join(words[: r.randint(1, len(words) - 1)]).rstrip(",.?")


def normalised(samples: NDArray[np.int16]) -> NDArray[np.int16]:
    """The samples with a peak of 16,000."""
    peak = int(np.abs(samples.astype(np.int32)).max())
    return (samples.astype(np.float32) * (16_000.0 / max(peak, 1))).astype(np.int16)


def make_chunk(
    speakers: Speaks, r: random.Random, tokenizer: Tokenizer, sentences: list[str], kind: str
) -> dict[str, Any] | None:
    """Speak sentences. Returns audio, tokens and CTC classes in flat arrays, or `None` if all sentences failed."""
    if kind != "espeak":
        sentences = [broken_off(r, s) if r.random() < BROKEN_OFF else s for s in sentences]
    spoken = speakers.speak(r, kind, sentences)
    encodings = tokenizer.encode_batch([" " + sentence for sentence in sentences], add_special_tokens=False)
    gap = np.zeros(64, np.int16)
    audio: list[NDArray[np.int16]] = []
    rows: list[tuple[int, int, int]] = []  # offset, samples, words
    tokens: list[int] = []
    classes: list[int] = []
    words: list[tuple[int, int, int]] = []  # tokens and classes up to its end, start in samples or -1
    position, sample_rate = 0, 0
    for untrimmed, sentence, encoding in zip(spoken, sentences, encodings, strict=True):
        if untrimmed is None:
            continue
        utterance = voices.trimmed(untrimmed)
        n_samples, sample_rate = len(utterance.samples), utterance.sample_rate
        written = sentence.split()
        letters = [characters(word) for word in written]
        n_letters = sum(map(len, letters)) + len(letters) - 1
        # Implausibly fast speech is a failed synthesis, and a long sentence does not fit into a window.
        if not 0.15 * sample_rate <= n_samples <= LONGEST_S * sample_rate or len(encoding.ids) > 150:
            continue
        if n_letters < 1 or not all(letters) or n_letters > 30 * n_samples / sample_rate:
            continue
        starts = utterance.word_starts or [-1] * len(written)
        character, n_classes = 0, 0
        for index, (word, word_letters, start) in enumerate(zip(written, letters, starts, strict=True)):
            character += 1 + len(word)  # in " first second", with the space before each
            n_tokens = sum(1 for first, _ in encoding.offsets if first < character)
            classes += ([1] if index else []) + word_letters
            n_classes += (1 if index else 0) + len(word_letters)
            words.append((n_tokens, n_classes, start))
        tokens += encoding.ids
        rows.append((position, n_samples, len(written)))
        audio += [normalised(utterance.samples), gap]
        position += n_samples + len(gap)
    if not rows:
        return None
    return {
        "audio": np.concatenate(audio),
        "sample_rate": sample_rate,
        "rows": np.array(rows, np.int64),
        "tokens": np.array(tokens, np.int16),
        "classes": np.array(classes, np.int8),
        "words": np.array(words, np.int32),
        "kind": list(KINDS).index(kind),
    }


def save(file: Path, arrays: dict[str, Any]) -> None:
    """Write a chunk file. It gets its name only when it is complete, because the bank watches the folder."""
    partial = file.with_suffix(".tmp")
    with partial.open("wb") as stream:
        np.savez(stream, **arrays)
    partial.rename(file)


def produce(worker: int, n_workers: int, args: argparse.Namespace) -> None:
    """Write chunk files until the time is over or the bank is full. This is the main function of a worker."""
    os.nice(5)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    tokenizer = Tokenizer.from_file(str(args.tokenizer))
    sentences = read_sentences(args.text)
    random.Random(args.seed).shuffle(sentences)
    sentences = sentences[worker::n_workers]
    r = random.Random(args.seed * 1000 + worker)
    speakers = Speakers(args.root)
    weights = [share / count for share, count in KINDS.values()]
    started_at, at, job = time.monotonic(), 0, 0
    while time.monotonic() - started_at < args.seconds and not (args.out / FULL).exists():
        if time.monotonic() - started_at < _FIRST_SECONDS:
            kind = r.choice(["espeak", "espeak", "kal", "kal16"])
        else:
            kind = r.choices(list(KINDS), weights)[0]
        count = KINDS[kind][1]
        if at + count > len(sentences):
            r.shuffle(sentences)
            at = 0
        some, at, job = sentences[at : at + count], at + count, job + 1
        try:
            chunk = make_chunk(speakers, r, tokenizer, some, kind)
        except Exception:  # one failed chunk must not end the worker
            logger.exception("worker %d, %s", worker, kind)
            continue
        if chunk is not None:
            save(args.out / f"{worker:02d}_{args.seed}_{job:05d}.npz", chunk)


def read_sentences(file: Path) -> list[str]:
    """The sentences of a text file or of an .xz file: the last column of each line."""
    import lzma

    with lzma.open(file, "rt") if file.suffix == ".xz" else file.open() as stream:
        return [line.rstrip("\n").split("\t")[-1] for line in stream]


TESTS = ["espeak-seen", "espeak-unseen", "slt", "kal", "ked_diphone", voices.FESTIVAL_HELD_OUT]
"""Voices of the test clips."""


def make_tests(args: argparse.Namespace) -> None:
    """Make the clips for the tests during training, by voice: own sentences, then held-out ones of the corpus."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    own = [line for line in args.own.read_text().splitlines() if line]
    held_out = read_sentences(args.test_text)
    speakers = Speakers(args.root)
    for index, name in enumerate(TESTS):
        r = random.Random(index)
        texts = r.sample(own, min(40, len(own))) + r.sample(held_out, min(args.test_count, len(held_out)))
        kind = "espeak" if name.startswith("espeak") else name
        spoken = speakers.speak(r, kind, texts, held_out=name.endswith("unseen"))
        pairs = [
            (voices.trimmed(u), text) for u, text in zip(spoken, texts, strict=True) if u is not None and len(u.samples)
        ]
        clips = [normalised(u.samples) for u, _ in pairs]
        arrays = {
            "audio": np.concatenate(clips),
            "n_samples": np.array([len(clip) for clip in clips]),
            "sample_rate": pairs[0][0].sample_rate,
            "texts": np.array([text for _, text in pairs]),
        }
        save(args.test_out / f"{name}.npz", arrays)


def main() -> None:
    """Start the workers and wait for them."""
    parser = argparse.ArgumentParser(prog="python -m training.speech", description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="folder made by synthesisers.sh")
    parser.add_argument("--text", type=Path, required=True, help="sentences, one in a line; may be .xz")
    parser.add_argument("--tokenizer", type=Path, required=True, help="tokenizer.json of training.tokenizer")
    parser.add_argument("--out", type=Path, required=True, help="folder for chunk files")
    parser.add_argument("--workers", type=int, default=2, help="number of processes")
    parser.add_argument("--seconds", type=float, default=60, help="how long to make speech")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--test-text", type=Path, help="held-out sentences for test clips")
    parser.add_argument("--test-out", type=Path, help="folder for test clips")
    parser.add_argument("--test-count", type=int, default=80, help="held-out sentences in the test clips of a voice")
    own_sentences = Path(__file__).parents[1] / "text" / "own_sentences.txt"
    parser.add_argument("--own", type=Path, default=own_sentences, help="own sentences for test clips")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=produce, args=(i, args.workers, args)) for i in range(args.workers)]
    if args.test_text:
        args.test_out.mkdir(parents=True, exist_ok=True)
        processes.append(context.Process(target=make_tests, args=(args,)))

    def terminate(*_: object) -> None:
        for process in processes:
            process.terminate()

    signal.signal(signal.SIGTERM, terminate)
    for process in processes:
        process.start()
    for process in processes:
        process.join()
