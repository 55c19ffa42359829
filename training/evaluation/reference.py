"""Runs a checkpoint in transformers, as the reference for the engine."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from engine.api import SAMPLE_RATE
from training.evaluation.clips import Clip

GENERATE_OPTIONS = {"language": "en", "task": "transcribe", "num_beams": 1, "do_sample": False}
"""Options of `generate`: greedy decoding."""


class Reference:
    """A checkpoint in transformers."""

    def __init__(self, model: Path) -> None:
        from transformers import WhisperForConditionalGeneration, WhisperProcessor

        silence_transformers()
        self._network: Any = WhisperForConditionalGeneration.from_pretrained(model, dtype=torch.float32)
        self._processor: Any = WhisperProcessor.from_pretrained(model)

    @torch.inference_mode()
    def texts(self, clips: Sequence[Clip]) -> list[str]:
        """The texts of clips, decoded greedily and without timestamps, with nothing but the checkpoint folder."""
        features = self._processor(
            [clip.samples for clip in clips], sampling_rate=SAMPLE_RATE, return_tensors="pt"
        ).input_features
        texts: list[str] = self._processor.batch_decode(
            self._network.generate(features, **GENERATE_OPTIONS), skip_special_tokens=True
        )
        return texts


def silence_transformers() -> None:
    """Switch off the progress bars and the warnings of transformers."""
    import transformers.utils.logging

    settings: Any = transformers.utils.logging
    settings.set_verbosity_error()
    settings.disable_progress_bar()
