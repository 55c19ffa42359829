"""Tests a network during the training: word error rates on clean clips, and words written for sounds without speech."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from training.model.frontend import Frontend
from training.model.network import Whisper
from training.speech import sounds
from training.speech.bank import resample
from training.speech.bank_index import SAMPLE_RATE
from training.tokenizer import Ids

logger = logging.getLogger(__name__)

BATCH = 64
"""Clips decoded together."""
MAX_TOKENS = 80
"""Longest text of a clip."""
SOUND_S = 6
"""Length of a sound without speech, in seconds."""
N_SOUNDS = 6
"""Sounds of each kind."""


class ClipTest:
    """Decodes test clips with a network, greedily and without timestamps."""

    def __init__(self, device: torch.device, ids: Ids, tokenizer: Tokenizer) -> None:
        self._device = device
        self._ids = ids
        self._tokenizer = tokenizer

    @torch.no_grad()
    def run(self, network: Whisper, frontend: Frontend, folder: Path) -> dict[str, Any]:
        """Test the clips of `folder` by voice, and made sounds by kind.

        Every voice is tested in windows of 10 s, and the voice "espeak-seen" also in full windows of 30 s.
        """
        results: dict[str, Any] = {}
        for file in sorted(folder.glob("*.npz")):
            arrays = np.load(file)
            for seconds in (10.0, 30.0) if file.stem == "espeak-seen" else (10.0,):
                clips, texts = self._load_clips(arrays, seconds)
                if not clips:
                    continue
                found = self._transcribe(network, frontend, clips, seconds)
                name = f"{file.stem}@{seconds:.0f}s"
                results[name] = round(word_error_rate(texts, found), 4)
                logger.info("%-24s WER %.3f of %d clips", name, results[name], len(clips))
                for expected, actual in list(zip(texts, found, strict=True))[:3]:
                    logger.info("    %s\n    %s", expected, actual)
        for kind in sounds.KINDS:
            random = sounds.Random(self._device, 7)
            clips = [sounds.make(kind, SOUND_S * SAMPLE_RATE, random) * 0.2 for _ in range(N_SOUNDS)]
            found = [text for text in self._transcribe(network, frontend, clips, 10.0) if text]
            results[f"sound-{kind}"] = len(found)
            logger.info("%-24s words on %d of %d %s", f"sound-{kind}", len(found), len(clips), found[:2])
        return results

    def _load_clips(self, arrays: Any, seconds: float) -> tuple[list[Tensor], list[str]]:
        """The clips that fit into a window of `seconds`, and their texts."""
        rate, position = int(arrays["sample_rate"]), 0
        clips, texts = [], []
        for n_samples, text in zip(arrays["n_samples"].tolist(), arrays["texts"].tolist(), strict=True):
            clip = torch.from_numpy(arrays["audio"][position : position + n_samples]).to(self._device).float() / 32768
            position += n_samples
            clip = clip if rate == SAMPLE_RATE else resample(clip, rate)
            if len(clip) < (seconds - 0.5) * SAMPLE_RATE:
                clips.append(F.pad(clip, (4000, 0)))
                texts.append(str(text))
        return clips, texts

    def _transcribe(self, network: Whisper, frontend: Frontend, clips: list[Tensor], seconds: float) -> list[str]:
        prefix = [self._ids.start, self._ids.english, self._ids.transcribe, self._ids.no_timestamps]
        n_samples = int(seconds * SAMPLE_RATE)
        texts: list[str] = []
        for start in range(0, len(clips), BATCH):
            batch = clips[start : start + BATCH]
            mel = frontend.log_mel(torch.stack([F.pad(clip, (0, n_samples - len(clip))) for clip in batch]))
            with torch.autocast(self._device.type, torch.bfloat16, enabled=self._device.type == "cuda"):
                states = network.model.encoder(mel)
                tokens = torch.tensor([prefix] * len(batch), device=self._device)
                ended = torch.zeros(len(batch), dtype=torch.bool, device=self._device)
                for _ in range(MAX_TOKENS):
                    logits = network.logits(network.model.decoder(tokens, states)[:, -1]).float()
                    logits[:, self._ids.first_timestamp :] = -1e9
                    best = logits.argmax(-1).masked_fill(ended, self._ids.end)
                    ended |= best == self._ids.end
                    tokens = torch.cat([tokens, best[:, None]], 1)
                    if bool(ended.all()):
                        break
            rows = ([token for token in row if token < self._ids.end] for row in tokens[:, len(prefix) :].tolist())
            texts += [self._tokenizer.decode(row).strip() for row in rows]
        return texts


def word_error_rate(references: list[str], hypotheses: list[str]) -> float:
    """Word errors of all texts as a fraction of their reference words."""
    errors = words = 0
    for reference, hypothesis in zip(references, hypotheses, strict=True):
        expected, actual = _words(reference), _words(hypothesis)
        distances = list(range(len(actual) + 1))
        for i, word in enumerate(expected, 1):
            diagonal, distances[0] = distances[0], i
            for j, other in enumerate(actual, 1):
                best = min(distances[j] + 1, distances[j - 1] + 1, diagonal + (word != other))
                diagonal, distances[j] = distances[j], best
        errors += distances[-1]
        words += len(expected)
    return errors / max(1, words)


def _words(text: str) -> list[str]:
    return "".join(letter if letter.isalnum() or letter == "'" else " " for letter in text.lower()).split()
