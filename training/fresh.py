"""Sentences that were never trained on, spoken by voices that were and by others, with true times."""

import os
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import soxr

from benchmarks.audio import Said
from engine.api import SAMPLE_RATE
from training import voices
from training.clips import Clip
from training.speech import Speakers

OWN_SENTENCES = Path(__file__).parent / "own_sentences.txt"
EDGE_S = 0.02
"""Quiet that trimming leaves on both sides of the speech."""
PEAK = 0.5

TRAINED = {
    "espeak-ng en-us": "espeak:en-us",
    "espeak-ng en (British)": "espeak:en",
    "espeak-ng, trained variants": "espeak",
    "flite slt": "slt",
    "flite rms": "rms",
    "flite awb": "awb",
    "flite kal": "kal",
    "flite kal16": "kal16",
    "festival ked_diphone": "ked_diphone",
    "festival cmu_us_slt_arctic_hts": "cmu_us_slt_arctic_hts",
}
"""How a trained voice is called in tables, and what `Voices.say` knows it by: rates and pitches as in training."""
UNSEEN = {f"espeak-ng {variant}": f"espeak:en-us+{variant}" for variant in voices.ESPEAK_HELD_OUT} | {
    f"festival {voices.FESTIVAL_HELD_OUT}": voices.FESTIVAL_HELD_OUT
}


def start_with_libraries(root: Path, module: str) -> None:
    """Begin this process again with the synthesisers' libraries on the loader's path, unless they are there."""
    folder = str((root / voices.LIBRARIES).resolve())
    path = os.environ.get("LD_LIBRARY_PATH", "")
    if folder in path.split(":") or not Path(folder).is_dir():
        return
    environment = os.environ | {"LD_LIBRARY_PATH": ":".join(filter(None, (folder, path)))}
    os.execve(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]], environment)


def has_synthesisers(root: Path) -> bool:
    return (root / voices.LIBRARIES / "libespeak-ng.so.1").exists()


def own_sentences() -> list[str]:
    return [line for line in OWN_SENTENCES.read_text(encoding="utf-8").splitlines() if line]


class Voices:
    """The synthesisers. Everything drawn comes from the seed, the voice and the first sentence."""

    def __init__(self, root: Path, seed: int) -> None:
        self._speakers = Speakers(root)
        self._seed = seed

    def say(self, texts: Sequence[str], voice: str, name: str) -> list[Clip]:
        """One clip for each sentence that the voice can say; `name` is the group they get."""
        r = random.Random(f"{self._seed} {voice} {texts[0]}")
        if voice.startswith("espeak:"):
            rate, pitch = r.choice([140, 160, 175, 190]), r.choice([35, 50, 65])
            speak: Callable[..., voices.Utterance] = self._speakers.espeak
            said: list[voices.Utterance | None] = [
                speak(text, voice.removeprefix("espeak:"), rate, pitch) for text in texts
            ]
        else:
            said = self._speakers.say(r, voice, list(texts))
        clips = (
            clip_of(f"{name}/{index}", name, text, utterance)
            for index, (text, utterance) in enumerate(zip(texts, said, strict=True))
            if utterance is not None
        )
        return [clip for clip in clips if len(clip.samples)]

    def in_turn(self, texts: Sequence[str], names: Sequence[str]) -> list[Clip]:
        """Every sentence once, by the voices in turn; in the order of the sentences."""
        known = TRAINED | UNSEEN
        clips = {
            clip.text: clip
            for index, name in enumerate(names)
            for clip in self.say(texts[index :: len(names)], known[name], name)
            if texts[index :: len(names)]
        }
        return [clips[text] for text in texts if text in clips]

    def timed(self, texts: Sequence[str], voice: str, rate: int, pitch: int = 50) -> list[Clip]:
        """By espeak-ng, those sentences alone of which it tells when every word begins."""
        said = [self._speakers.espeak(text, voice, rate, pitch) for text in texts]
        clips = [
            clip_of(f"{voice}@{rate}/{index}", voice, text, utterance)
            for index, (text, utterance) in enumerate(zip(texts, said, strict=True))
        ]
        return [clip for clip in clips if clip.word_starts_s]


def clip_of(name: str, group: str, text: str, utterance: voices.Utterance) -> Clip:
    """An utterance at 16 kHz and one level, trimmed to its speech and `EDGE_S` around it."""
    samples, sample_rate, word_starts = voices.trimmed(utterance, keep_s=EDGE_S)
    if not len(samples):
        return Clip(name, group, np.zeros(0, np.float32), text)
    heard = soxr.resample(samples.astype(np.float32) / 32768, sample_rate, SAMPLE_RATE).astype(np.float32)
    heard *= PEAK / max(float(np.abs(heard).max()), 1e-6)
    said = Said(text, ((EDGE_S, len(heard) / SAMPLE_RATE - EDGE_S),))
    starts = tuple(start / sample_rate for start in word_starts or ())
    return Clip(name, group, heard, text, said=(said,), word_starts_s=starts)
