"""Speaks sentences in a process of its own, which starts with the synthesisers' libraries and from the same state.

espeak-ng's voice depends a little on all that it said before: the same jobs in a new process give the same samples.
"""

import ctypes
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from training.speech import voices
from training.speech.production import Speakers

TIMEOUT_S = 600.0
RATES, PITCHES = (140, 160, 175, 190), (35, 50, 65)
"""Of a voice of espeak-ng named by itself, where a job names none."""


class Job(NamedTuple):
    """Sentences for one voice."""

    texts: list[str]
    voice: str
    """`espeak:` and espeak-ng's name for it, or what `Speakers.say` knows: then rate and pitch are as in training."""
    rate: int | None = None
    pitch: int | None = None


Said = list[voices.Utterance | None]


def has_synthesisers(root: Path) -> bool:
    return (root / voices.LIBRARIES / "libespeak-ng.so.1").exists()


def say(root: Path, seed: int, jobs: Sequence[Job]) -> list[Said]:
    """What every job's sentences sound like; None for one that a synthesiser failed at."""
    libraries = [str((root / voices.LIBRARIES).resolve()), os.environ.get("LD_LIBRARY_PATH", "")]
    run = subprocess.run(
        [sys.executable, "-m", "training.speech.speak"],
        input=pickle.dumps((root, seed, [tuple(job) for job in jobs])),
        stdout=subprocess.PIPE,
        env=os.environ | {"LD_LIBRARY_PATH": ":".join(filter(None, libraries))},
        timeout=TIMEOUT_S,
        check=True,
    )
    said: list[Said] = [
        [each if each is None else voices.Utterance(*each) for each in some] for some in pickle.loads(run.stdout)
    ]
    return said


def _say(speakers: Speakers, seed: int, job: Job) -> Said:
    r = random.Random(f"{seed} {job.voice} {job.texts[:1]}")
    # espeak-ng and flite draw from the C library's random numbers.
    ctypes.CDLL(None).srand(seed)
    if not job.voice.startswith("espeak:"):
        return speakers.say(r, job.voice, job.texts)
    rate, pitch = job.rate or r.choice(RATES), job.pitch or r.choice(PITCHES)
    return [speakers.espeak(text, job.voice.removeprefix("espeak:"), rate, pitch) for text in job.texts]


def main() -> None:
    root, seed, jobs = pickle.load(sys.stdin.buffer)
    # What the libraries print must not come between.
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    speakers = Speakers(root)
    said = [[each and tuple(each) for each in _say(speakers, seed, Job(*job))] for job in jobs]
    with out:
        pickle.dump(said, out)


if __name__ == "__main__":
    main()
