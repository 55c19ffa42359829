"""The reference: transformers, one window at a time, with its own logits processors."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration
from transformers.generation import GenerateEncoderDecoderOutput
from transformers.generation.logits_process import (
    LogitsProcessor,
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
    WhisperTimeStampLogitsProcessor,
)


class Reference:
    """A checkpoint loaded by transformers."""

    def __init__(self, folder: Path) -> None:
        self.model = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
        self._extractor = WhisperFeatureExtractor(feature_size=self.model.config.num_mel_bins)

    def features(self, samples: NDArray[np.float32]) -> Tensor:
        """`(1, n_mels, 3000)`."""
        features: Tensor = self._extractor(samples, sampling_rate=16_000, return_tensors="pt").input_features
        return features

    @torch.inference_mode()
    def logits(self, samples: NDArray[np.float32], tokens: Sequence[int]) -> Tensor:
        """`(tokens, vocab_size)`."""
        logits: Tensor = self.model(self.features(samples), decoder_input_ids=torch.tensor([list(tokens)])).logits[0]
        return logits

    @torch.inference_mode()
    def greedy(
        self,
        samples: NDArray[np.float32],
        control: Sequence[int],
        *,
        max_tokens: int,
        timestamps: bool,
        prefix: Sequence[int] = (),
    ) -> list[int]:
        """The first pass of `generate`: tokens behind the control tokens, the forced prefix included, without the end.

        `generate` itself may start again where the last segment ended, so it is not used for this.
        """
        states = self.model.model.encoder(self.features(samples))
        processors = self._processors(len(control), timestamps)
        tokens = new = torch.tensor([[*control, *prefix]])
        cache = None
        while tokens.shape[1] < len(control) + max_tokens:
            output = self.model(encoder_outputs=states, decoder_input_ids=new, past_key_values=cache, use_cache=True)
            logits, cache = output.logits[:, -1], output.past_key_values
            for processor in processors:
                logits = processor(tokens, logits)
            new = logits.argmax(dim=-1, keepdim=True)
            if new.item() == self.model.generation_config.eos_token_id:
                break
            tokens = torch.cat((tokens, new), dim=1)
        sampled: list[int] = tokens[0, len(control) :].tolist()
        return sampled

    @torch.inference_mode()
    def detect_language(self, samples: NDArray[np.float32]) -> int:
        return int(self.model.detect_language(self.features(samples)).item())

    @torch.inference_mode()
    def token_starts_s(
        self,
        samples: NDArray[np.float32],
        control: Sequence[int],
        tokens: Sequence[int],
        heads: Sequence[tuple[int, int]],
    ) -> list[float]:
        """When `generate` says that each token of its output was said, for an output that is known already."""
        before = self.model.config._attn_implementation
        self.model.set_attn_implementation("eager")  # the others do not tell their weights
        output = self.model(
            self.features(samples), decoder_input_ids=torch.tensor([[*control, *tokens]]), output_attentions=True
        )
        self.model.set_attn_implementation(before)
        generated = GenerateEncoderDecoderOutput(
            sequences=torch.tensor([[*control, *tokens, 0]]),  # type: ignore[arg-type]
            cross_attentions=(output.cross_attentions,),
        )
        n_frames = torch.tensor([len(samples) // 160])
        found = self.model._extract_token_timestamps(generated, heads, num_frames=n_frames, num_input_ids=len(control))
        starts_s: list[float] = found[0, len(control) : -1].tolist()
        return starts_s

    def _processors(self, begin_index: int, timestamps: bool) -> list[LogitsProcessor]:
        """In the order of `WhisperGenerationMixin._retrieve_logit_processors`."""
        config = self.model.generation_config
        processors: list[LogitsProcessor] = []
        if config.begin_suppress_tokens is not None:
            processors.append(SuppressTokensAtBeginLogitsProcessor(config.begin_suppress_tokens, begin_index))
        if config.suppress_tokens is not None:
            processors.append(SuppressTokensLogitsProcessor(config.suppress_tokens))
        if timestamps:
            processors.append(WhisperTimeStampLogitsProcessor(config, begin_index))
        return processors
