"""Virtual speakers: each is a synthesiser's voice with a pitch and a vocal tract of its own.

A voice is resampled to scale its formants. The synthesiser's rate and pitch are set against that, so that formants,
pitch and rate vary independently wherever the synthesiser can set them.
"""

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.speech import voices

SAMPLE_RATE = 16_000
FLITE = ("slt", "rms", "awb")
FLITE_HELD_OUT = ("kal", "kal16")
"""The voice of flite that is never trained on, at two sample rates. Its speaker is that of festival's kal_diphone."""
SHARES = {"espeak": 0.6, "flite": 0.28, "festival": 0.12}
"""The share of the virtual speakers of each synthesiser."""
FORMANTS = (0.82, 1.2)
"""Range of the factor by which formants are scaled."""
GAP_S = 0.12
"""Silence between two sentences of a speaker, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualSpeaker:
    """What all speech of a virtual speaker has in common."""

    kind: str
    """`espeak`, `flite` or `festival`."""
    voice: str
    formants: float
    """The factor of the formants."""
    pitch: float
    """The pitch after resampling, as a factor of the voice's own."""
    spread: int = 50
    """The range of the intonation, 0 to 99; for espeak-ng."""


def draw(r: random.Random, held_out: bool = False) -> VirtualSpeaker:
    """A random virtual speaker. `held_out` chooses among the voices that are never trained on."""
    kind = r.choices(list(SHARES), list(SHARES.values()))[0]
    formants, pitch = r.uniform(*FORMANTS), 2 ** r.uniform(-0.55, 0.65)
    if kind == "espeak":
        variants = voices.ESPEAK_HELD_OUT if held_out else ["", *voices.ESPEAK_VARIANTS]
        variant = r.choice(variants)
        voice = r.choice(voices.ESPEAK_ACCENTS) + ("+" + variant if variant else "")
        return VirtualSpeaker(kind=kind, voice=voice, formants=formants, pitch=pitch, spread=r.randint(20, 85))
    if kind == "flite":
        voice = r.choice(FLITE_HELD_OUT if held_out else FLITE)
        return VirtualSpeaker(kind=kind, voice=voice, formants=formants, pitch=pitch)
    voice = voices.FESTIVAL_HELD_OUT if held_out else r.choice(voices.FESTIVAL_VOICES)
    # Festival's diphone voices keep their pitch, so that it moves with the formants.
    return VirtualSpeaker(kind=kind, voice=voice, formants=formants, pitch=formants)


def speakers(count: int, seed: int, held_out: bool = False) -> list[VirtualSpeaker]:
    """The same virtual speakers for the same seed."""
    r = random.Random(f"{seed} {held_out}")
    return [draw(r, held_out) for _ in range(count)]


def resampled(samples: NDArray[np.int16], ratio: float) -> NDArray[np.float32]:
    """The samples stretched by `ratio`, without what lies above half the new sample rate."""
    n_in = 1 << max(1, len(samples) + 64 - 1).bit_length()
    n_out = round(n_in * ratio / 2) * 2
    spectrum = np.fft.rfft(samples.astype(np.float32), n_in)
    kept = np.zeros(n_out // 2 + 1, spectrum.dtype)
    n = min(len(kept), len(spectrum))
    kept[:n] = spectrum[:n]
    stretched = np.fft.irfft(kept, n_out) * (n_out / n_in)
    return stretched[: int(len(samples) * ratio)].astype(np.float32)


class Synthesis:
    """Speaks as virtual speakers. The process has the synthesisers' libraries in LD_LIBRARY_PATH."""

    def __init__(self, root: Path) -> None:
        """`root`: folder made by training/synthesisers.sh."""
        self._root = root
        self._espeak, self._flite = voices.Espeak(root), voices.Flite(root)

    def speak(self, r: random.Random, speaker: VirtualSpeaker, texts: list[str]) -> NDArray[np.int16]:
        """The sentences in a row, `(n,)` int16 at 16 kHz, each with a rate and a pitch near the speaker's own."""
        parts: list[NDArray[np.int16]] = []
        if speaker.kind == "festival":
            stretch = speaker.formants * r.uniform(0.85, 1.2)
            spoken = voices.festival(self._root, texts, speaker.voice, stretch)
        else:
            spoken = [self._sentence(r, speaker, text) for text in texts]
        for utterance in spoken:
            if utterance is None:
                continue
            samples, rate, _ = voices.trimmed(utterance)
            if len(samples) < rate // 5:
                continue
            formants = speaker.formants * r.uniform(0.99, 1.01)
            wave = resampled(samples, SAMPLE_RATE / rate / formants)
            wave *= 16_000 * r.uniform(0.6, 1.0) / max(float(np.abs(wave).max()), 1.0)
            parts += [wave.astype(np.int16), np.zeros(int(GAP_S * SAMPLE_RATE * r.uniform(0.2, 2)), np.int16)]
        return np.concatenate(parts) if parts else np.zeros(0, np.int16)

    def _sentence(self, r: random.Random, speaker: VirtualSpeaker, text: str) -> voices.Utterance:
        pitch = speaker.pitch / speaker.formants * 2 ** r.uniform(-0.1, 0.1)
        slower = speaker.formants * r.uniform(0.85, 1.2)
        if speaker.kind == "flite":
            base_hz = voices.FLITE_PITCH_HZ[speaker.voice]
            return self._flite(text, speaker.voice, slower, base_hz * pitch)
        # espeak-ng's pitch is linear: 50 is the voice's own, and 100 is about twice that of 0.
        setting = round(50 + 75 * (pitch - 1))
        spread = max(0, min(99, speaker.spread + r.randint(-10, 10)))
        return self._espeak(text, speaker.voice, round(168 / slower), max(0, min(99, setting)), spread)
