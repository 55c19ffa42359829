"""Speaks sentences that were never trained on, with trained and with unseen voices, and knows their true times."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soxr

from benchmarks.recordings import ReferenceUtterance
from engine.api import SAMPLE_RATE
from training.evaluation.clips import Clip
from training.speech import voices
from training.speech.speak import Job, speak

OWN_SENTENCES = Path(__file__).parents[1] / "text" / "own_sentences.txt"
EDGE_S = 0.02
"""Seconds of silence that trimming leaves on both sides of the speech."""
PEAK = 0.5
"""Peak level of every clip."""

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
"""Trained voices: the name in tables, and the name in a `Job`."""
UNSEEN = {f"espeak-ng {variant}": f"espeak:en-us+{variant}" for variant in voices.ESPEAK_HELD_OUT} | {
    f"festival {voices.FESTIVAL_HELD_OUT}": voices.FESTIVAL_HELD_OUT
}
"""Voices that were never trained on."""
VOICES = TRAINED | UNSEEN


def own_sentences() -> list[str]:
    """The sentences of this project that are never trained on."""
    return [line for line in OWN_SENTENCES.read_text(encoding="utf-8").splitlines() if line]


class Voices:
    """Makes clips with the synthesisers. Equal calls give equal clips."""

    def __init__(self, root: Path, seed: int) -> None:
        self._root, self._seed = root, seed

    def speak(self, texts: dict[str, list[str]]) -> list[Clip]:
        """Speak sentences, given by the name of their voice, which becomes their group. Failed ones are left out."""
        texts = {name: some for name, some in texts.items() if some}
        clips = self._clips(list(texts), [Job(some, VOICES[name]) for name, some in texts.items()])
        return list(itertools.chain.from_iterable(clips))

    def in_turn(self, texts: Sequence[str], names: Sequence[str]) -> list[Clip]:
        """Speak every sentence once, with the voices in turn. The clips are in the order of the sentences."""
        spoken = self.speak({name: list(texts[index :: len(names)]) for index, name in enumerate(names)})
        clips = {clip.text: clip for clip in spoken}
        return [clips[text] for text in texts if text in clips]

    def timed(self, texts: Sequence[Sequence[str]], settings: Sequence[tuple[str, int, int]]) -> list[list[Clip]]:
        """Speak texts with espeak-ng, for each voice, rate and pitch.

        Only sentences with known word starts are returned.
        """
        jobs = [
            Job(list(some), f"espeak:{voice}", rate, pitch)
            for some, (voice, rate, pitch) in zip(texts, settings, strict=True)
        ]
        clips = self._clips([f"{voice}@{rate}" for voice, rate, _ in settings], jobs)
        return [[clip for clip in some if clip.word_starts_s] for some in clips]

    def _clips(self, names: Sequence[str], jobs: Sequence[Job]) -> list[list[Clip]]:
        clips: list[list[Clip]] = []
        for name, job, utterances in zip(names, jobs, speak(self._root, self._seed, jobs), strict=True):
            made = [
                clip_of(f"{name}/{index}", name, text, utterance)
                for index, (text, utterance) in enumerate(zip(job.texts, utterances, strict=True))
                if utterance is not None
            ]
            clips.append([clip for clip in made if len(clip.samples)])
        return clips


def clip_of(name: str, group: str, text: str, utterance: voices.Utterance) -> Clip:
    """Make a clip of an utterance: at 16 kHz, at one level, and trimmed to its speech and `EDGE_S` around it."""
    samples, sample_rate, word_starts = voices.trimmed(utterance, keep_s=EDGE_S)
    if not len(samples):
        return Clip(name=name, group=group, samples=np.zeros(0, np.float32), text=text)
    resampled = soxr.resample(samples.astype(np.float32) / 32768, sample_rate, SAMPLE_RATE).astype(np.float32)
    resampled *= PEAK / max(float(np.abs(resampled).max()), 1e-6)
    spoken = ReferenceUtterance(text, ((EDGE_S, len(resampled) / SAMPLE_RATE - EDGE_S),))
    starts = tuple(start / sample_rate for start in word_starts or ())
    return Clip(name=name, group=group, samples=resampled, text=text, utterances=(spoken,), word_starts_s=starts)
