"""The checkpoint in transformers: what the engine is compared with."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from engine.api import SAMPLE_RATE
from training.evaluation.clips import Clip

SAID = {"language": "en", "task": "transcribe", "num_beams": 1, "do_sample": False}


class Reference:
    def __init__(self, model: Path) -> None:
        from transformers import WhisperForConditionalGeneration, WhisperProcessor

        keep_quiet()
        self._network: Any = WhisperForConditionalGeneration.from_pretrained(model, dtype=torch.float32)
        self._processor: Any = WhisperProcessor.from_pretrained(model)

    @torch.inference_mode()
    def texts(self, clips: Sequence[Clip]) -> list[str]:
        """Greedily and without timestamps, as anybody would who has only the folder."""
        features = self._processor(
            [clip.samples for clip in clips], sampling_rate=SAMPLE_RATE, return_tensors="pt"
        ).input_features
        texts: list[str] = self._processor.batch_decode(
            self._network.generate(features, **SAID), skip_special_tokens=True
        )
        return texts


def keep_quiet() -> None:
    """No progress bars and no advice from transformers between our lines."""
    import transformers.utils.logging

    settings: Any = transformers.utils.logging
    settings.set_verbosity_error()
    settings.disable_progress_bar()
