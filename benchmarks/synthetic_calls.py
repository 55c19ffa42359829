"""Makes calls of two synthetic voices, with the times at which each of them speaks.

The voices are those of `training/speakers/virtual_voices.py`. espeak-ng and flite must be installed.
"""

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from app.media.pcm import Samples
from engine.api import SAMPLE_RATE
from training.speakers.virtual_voices import Synthesis, VirtualSpeaker, draw
from training.speech.speak import has_synthesisers
from training.text.templates import Grammar

NOISE = 0.002
"""Standard deviation of the noise under a call."""
INTERRUPTS = 0.12
"""The share of the turns that begin before the last one has ended."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A stretch of speech of one speaker."""

    start_s: float
    end_s: float
    speaker: str


@dataclass(frozen=True, slots=True)
class Call:
    """A recording of several speakers."""

    name: str
    channels: list[Samples]
    """One for each side, at 16 kHz; one for all where there are no sides."""
    turns: list[Turn]

    @property
    def mono(self) -> Samples:
        """All sides in one channel."""
        mixed: Samples = np.sum(self.channels, axis=0, dtype=np.float32)
        return mixed


class CallMaker:
    """Makes calls; the same for the same seed."""

    def __init__(self, root: Path, seed: int, held_out: bool) -> None:
        """Start the synthesisers.

        Args:
            root: `/`, or the folder made by training/synthesisers.sh.
            seed: of the voices and the sentences.
            held_out: whether the voices are those that the speaker network was never trained on.

        Raises:
            FileNotFoundError: the synthesisers are not there.
        """
        if not has_synthesisers(root):
            raise FileNotFoundError(f"{root}: expected espeak-ng and flite; apt-get install espeak-ng flite")
        self._r = random.Random(f"calls {seed}")
        self._synthesis = Synthesis(root)
        self._grammar = Grammar(self._r)
        self._held_out = held_out

    def make(self, name: str, seconds: float) -> Call:
        """A call of about this length, in which two voices take turns of one to three sentences."""
        voices = self._two_voices()
        sides = [np.zeros(int((seconds + 30) * SAMPLE_RATE), np.float32) for _ in voices]
        turns: list[Turn] = []
        at, side = SAMPLE_RATE // 2, 0
        while at < seconds * SAMPLE_RATE:
            for _ in range(self._r.randint(1, 3)):
                spoken = self._synthesis.speak(self._r, voices[side], [self._sentence()]).astype(np.float32) / 32768
                spoken = spoken[: int(np.flatnonzero(np.abs(spoken) > 1e-3)[-1]) + 1]
                sides[side][at : at + len(spoken)] += spoken
                turns.append(Turn(at / SAMPLE_RATE, (at + len(spoken)) / SAMPLE_RATE, str(side)))
                at += len(spoken) + int(self._r.uniform(0.1, 0.4) * SAMPLE_RATE)
            gap_s = -self._r.uniform(0.4, 0.9) if self._r.random() < INTERRUPTS else self._r.uniform(0.0, 0.8)
            at, side = at + int(gap_s * SAMPLE_RATE), 1 - side
        noise = np.random.default_rng(self._r.randrange(1 << 30))
        return Call(name, [each[:at] + noise.normal(0, NOISE, at).astype(np.float32) for each in sides], turns)

    def _two_voices(self) -> list[VirtualSpeaker]:
        """Two virtual speakers of different base voices, without festival, which is seldom installed."""
        found: list[VirtualSpeaker] = []
        while len(found) < 2:
            each = draw(self._r, self._held_out)
            if each.kind != "festival" and _base(each) not in map(_base, found):
                found.append(each)
        return found

    def _sentence(self) -> str:
        return next(each for each in iter(self._grammar.sentence, "") if 20 < len(each) < 110)


def _base(voice: VirtualSpeaker) -> str:
    return voice.voice.split("+")[-1].removesuffix("16")
