"""Makes the speech of virtual speakers in processes, during the training: a chunk file for each job of one speaker."""

import argparse
import logging
import multiprocessing
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

from training.speakers.virtual_voices import Synthesis, VirtualSpeaker, speakers
from training.text.templates import Grammar

logger = logging.getLogger(__name__)

PER_CHUNK = 8
"""Virtual speakers in one chunk file."""
HELD_OUT = "held_out"
"""Begins the names of the chunk files of held-out voices."""


def save(file: Path, audio: list[np.ndarray[tuple[int], np.dtype[np.int16]]], ids: list[int]) -> None:
    """Write a chunk file. It gets its name only when it is complete, because the bank watches the folder."""
    partial = file.with_suffix(".tmp")
    with partial.open("wb") as stream:
        lengths = np.array([len(each) for each in audio], np.int64)
        np.savez(stream, audio=np.concatenate(audio), lengths=lengths, speakers=np.array(ids, np.int64))
    partial.rename(file)


def produce(worker: int, args: argparse.Namespace) -> None:
    """Speak for every `args.workers`-th virtual speaker, round after round, until the time is over."""
    os.nice(5)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    began = time.monotonic()
    r = random.Random(args.seed * 1000 + worker)
    grammar = Grammar(r)
    sentences = [each for _ in range(3000) if 25 < len(each := grammar.sentence()) < 120]
    synthesis = Synthesis(args.root)
    everyone = speakers(args.speakers, args.seed)
    held_out = speakers(args.held_out, args.seed, held_out=True)
    mine = list(range(worker, len(everyone), args.workers))
    _round(synthesis, r, sentences, held_out, range(worker, len(held_out), args.workers), args, f"{HELD_OUT}_{worker}")
    for number in range(args.rounds):
        r.shuffle(mine)
        for start in range(0, len(mine), PER_CHUNK):
            if time.monotonic() - began > args.seconds:
                return
            chunk = mine[start : start + PER_CHUNK]
            _round(synthesis, r, sentences, everyone, chunk, args, f"{number:02d}_{worker:02d}_{start:05d}")


def _round(
    synthesis: Synthesis,
    r: random.Random,
    sentences: list[str],
    everyone: list[VirtualSpeaker],
    chunk: range | list[int],
    args: argparse.Namespace,
    name: str,
) -> None:
    """One job for each of some speakers."""
    audio, ids = [], []
    for index in chunk:
        texts = r.sample(sentences, args.sentences)
        try:
            samples = synthesis.speak(r, everyone[index], texts)
        except Exception:  # one voice that fails must not end the worker
            logger.exception("%s", everyone[index])
            continue
        if len(samples) > 5 * 16_000:
            audio.append(samples)
            ids.append(index)
    if audio:
        save(args.out / f"{name}.npz", audio, ids)


def main() -> None:
    """Start the workers and wait for them."""
    parser = argparse.ArgumentParser(prog="python -m training.speakers.production", description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="folder made by synthesisers.sh")
    parser.add_argument("--out", type=Path, required=True, help="folder for chunk files")
    parser.add_argument("--speakers", type=int, default=4000, help="virtual speakers")
    parser.add_argument("--held-out", type=int, default=60, help="virtual speakers of voices never trained on")
    parser.add_argument("--sentences", type=int, default=12, help="sentences of a speaker in a round")
    parser.add_argument("--rounds", type=int, default=6, help="how often each speaker speaks")
    parser.add_argument("--workers", type=int, default=2, help="number of processes")
    parser.add_argument("--seconds", type=float, default=60, help="how long to make speech")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=produce, args=(worker, args)) for worker in range(args.workers)]

    def terminate(*_: object) -> None:
        for process in processes:
            process.terminate()

    signal.signal(signal.SIGTERM, terminate)
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
