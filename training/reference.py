"""The checkpoint in transformers: what the engine is compared with."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.api import SAMPLE_RATE, WINDOW_SAMPLES
from engine.features import HOP_SAMPLES, log_mel, mel_filters
from training.clips import Clip
from training.export import AUDIO_CONTEXT

SAID = {"language": "en", "task": "transcribe", "num_beams": 1, "do_sample": False}


class Reference:
    def __init__(self, model: Path) -> None:
        from transformers import WhisperForConditionalGeneration, WhisperProcessor

        keep_quiet()
        self._network: Any = WhisperForConditionalGeneration.from_pretrained(model, dtype=torch.float32)
        self._processor: Any = WhisperProcessor.from_pretrained(model)
        settings = json.loads((model / "generation_config.json").read_text(encoding="utf-8"))
        self._context: dict[str, int] = settings.get("tutti_audio_context", AUDIO_CONTEXT)

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

    @torch.inference_mode()
    def texts_at(self, clips: Sequence[Clip], *, is_full: bool) -> list[str]:
        """With timestamps; encoded at 30 s, or at the audio's length and the checkpoint's margin."""
        from transformers.modeling_outputs import BaseModelOutput

        texts: list[str] = []
        for clip in clips:
            n_samples = WINDOW_SAMPLES if is_full else self._n_samples(len(clip.samples))
            states = BaseModelOutput(last_hidden_state=self._encode(clip, n_samples))
            tokens = self._network.generate(encoder_outputs=states, return_timestamps=True, **SAID)
            texts += self._processor.batch_decode(tokens, skip_special_tokens=True)
        return texts

    def _n_samples(self, n_audio: int) -> int:
        """An even number of frames, as two make one encoder state."""
        n_frames = max(self._context["min_frames"], -(-n_audio // HOP_SAMPLES) + self._context["margin_frames"])
        return min(WINDOW_SAMPLES, (n_frames + n_frames % 2) * HOP_SAMPLES)

    def _encode(self, clip: Clip, n_samples: int) -> Tensor:
        """The encoder of transformers with its positions cut, which itself takes full windows alone."""
        encoder = self._network.model.encoder
        padded = F.pad(torch.from_numpy(clip.samples), (0, n_samples - len(clip.samples)))[None]
        mel = log_mel(padded, mel_filters(self._network.config.num_mel_bins))
        x = F.gelu(encoder.conv2(F.gelu(encoder.conv1(mel)))).transpose(1, 2)
        x = x + encoder.embed_positions.weight[: x.shape[1]]
        for layer in encoder.layers:
            x = layer(x, None)
        states: Tensor = encoder.layer_norm(x)
        return states


def keep_quiet() -> None:
    """No progress bars and no advice from transformers between our lines."""
    import transformers.utils.logging

    settings: Any = transformers.utils.logging
    settings.set_verbosity_error()
    settings.disable_progress_bar()
