"""Speaks sentences in a process of its own, which starts with the synthesisers' libraries and always in the same state.

The output of espeak-ng depends a little on everything it has spoken before. Equal jobs in a new process give equal
samples.
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
"""Longest time of the process, in seconds."""
RATES = (140, 160, 175, 190)
"""Rates of an espeak-ng voice, in words per minute, if a job names none."""
PITCHES = (35, 50, 65)
"""Pitches of an espeak-ng voice, from 0 to 99, if a job names none."""


class Job(NamedTuple):
    """Sentences for one voice."""

    texts: list[str]
    voice: str
    """`espeak:` and a voice of espeak-ng; or a voice of `Speakers.speak`, with rate and pitch as in training."""
    rate: int | None = None
    pitch: int | None = None


Utterances = list[voices.Utterance | None]
"""The audio of each sentence; `None` if the synthesiser failed."""


def has_synthesisers(root: Path) -> bool:
    """Whether synthesisers.sh has made this folder."""
    return (root / voices.LIBRARIES / "libespeak-ng.so.1").exists()


def speak(root: Path, seed: int, jobs: Sequence[Job]) -> list[Utterances]:
    """Speak the sentences of every job."""
    libraries = [str((root / voices.LIBRARIES).resolve()), os.environ.get("LD_LIBRARY_PATH", "")]
    run = subprocess.run(
        [sys.executable, "-m", "training.speech.speak"],
        input=pickle.dumps((root, seed, [tuple(job) for job in jobs])),
        stdout=subprocess.PIPE,
        env=os.environ | {"LD_LIBRARY_PATH": ":".join(filter(None, libraries))},
        timeout=TIMEOUT_S,
        check=True,
    )
    spoken: list[Utterances] = [
        [each if each is None else voices.Utterance(*each) for each in some] for some in pickle.loads(run.stdout)
    ]
    return spoken


def _speak(speakers: Speakers, seed: int, job: Job) -> Utterances:
    r = random.Random(f"{seed} {job.voice} {job.texts[:1]}")
    # espeak-ng and flite use the random numbers of the C library.
    ctypes.CDLL(None).srand(seed)
    if not job.voice.startswith("espeak:"):
        return speakers.speak(r, job.voice, job.texts)
    rate, pitch = job.rate or r.choice(RATES), job.pitch or r.choice(PITCHES)
    return [speakers.espeak(text, job.voice.removeprefix("espeak:"), rate, pitch) for text in job.texts]


def main() -> None:
    """Speak the jobs that arrive on standard input, pickled, and write the audio to standard output."""
    root, seed, jobs = pickle.load(sys.stdin.buffer)
    # Standard output carries the audio alone: what libraries print goes to standard error.
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    speakers = Speakers(root)
    spoken = [[each and tuple(each) for each in _speak(speakers, seed, Job(*job))] for job in jobs]
    with out:
        pickle.dump(spoken, out)


if __name__ == "__main__":
    main()
