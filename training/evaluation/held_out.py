"""Sentences that were never trained on, spoken by voices that were and by others, with true times."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soxr

from benchmarks.recordings import Said
from engine.api import SAMPLE_RATE
from training.evaluation.clips import Clip
from training.speech import voices
from training.speech.speak import Job, say

OWN_SENTENCES = Path(__file__).parents[1] / "text" / "own_sentences.txt"
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
"""How a trained voice is called in tables, and in a `Job`."""
UNSEEN = {f"espeak-ng {variant}": f"espeak:en-us+{variant}" for variant in voices.ESPEAK_HELD_OUT} | {
    f"festival {voices.FESTIVAL_HELD_OUT}": voices.FESTIVAL_HELD_OUT
}
VOICES = TRAINED | UNSEEN


def own_sentences() -> list[str]:
    return [line for line in OWN_SENTENCES.read_text(encoding="utf-8").splitlines() if line]


class Voices:
    """The synthesisers. The same call gives the same clips."""

    def __init__(self, root: Path, seed: int) -> None:
        self._root, self._seed = root, seed

    def say(self, texts: dict[str, list[str]]) -> list[Clip]:
        """Sentences by the name of the voice, which becomes their group; those that a voice fails at are left out."""
        texts = {name: some for name, some in texts.items() if some}
        clips = self._clips(list(texts), [Job(some, VOICES[name]) for name, some in texts.items()])
        return list(itertools.chain.from_iterable(clips))

    def in_turn(self, texts: Sequence[str], names: Sequence[str]) -> list[Clip]:
        """Every sentence once, by the voices in turn; in the order of the sentences."""
        said = self.say({name: list(texts[index :: len(names)]) for index, name in enumerate(names)})
        clips = {clip.text: clip for clip in said}
        return [clips[text] for text in texts if text in clips]

    def timed(self, texts: Sequence[Sequence[str]], settings: Sequence[tuple[str, int, int]]) -> list[list[Clip]]:
        """By espeak-ng, the sentences of which it tells when every word begins: for each voice, rate and pitch."""
        jobs = [
            Job(list(some), f"espeak:{voice}", rate, pitch)
            for some, (voice, rate, pitch) in zip(texts, settings, strict=True)
        ]
        clips = self._clips([f"{voice}@{rate}" for voice, rate, _ in settings], jobs)
        return [[clip for clip in some if clip.word_starts_s] for some in clips]

    def _clips(self, names: Sequence[str], jobs: Sequence[Job]) -> list[list[Clip]]:
        clips: list[list[Clip]] = []
        for name, job, said in zip(names, jobs, say(self._root, self._seed, jobs), strict=True):
            made = [
                clip_of(f"{name}/{index}", name, text, utterance)
                for index, (text, utterance) in enumerate(zip(job.texts, said, strict=True))
                if utterance is not None
            ]
            clips.append([clip for clip in made if len(clip.samples)])
        return clips


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
