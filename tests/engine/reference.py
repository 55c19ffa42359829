"""The reference: transformers, one window at a time, with its own logits processors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration
from transformers.convert_slow_tokenizer import bytes_to_unicode
from transformers.generation.logits_process import (
    LogitsProcessor,
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
    WhisperTimeStampLogitsProcessor,
)
from transformers.generation.utils import GenerateEncoderDecoderOutput
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.whisper.generation_whisper import _median_filter

from tutti_server.engine.decoding.word_timing import sounding_states

FIRST_BONUS, NEXT_BONUS = 3.0, 5.0
"""The bonuses of hotwords; repeated here, so that a change of the engine's values is noticed."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A window decoded greedily."""

    tokens: list[int]
    """The tokens after the control tokens, with the forced prefix and without the end token."""
    logprobs: list[float]
    """The log-probabilities of the sampled tokens under all rules, the end token included."""
    margins: list[float]
    """For each sampled token, its logit minus that of the next best choice."""
    is_ended: bool
    """The end token ended it, not a limit."""


class HotwordBonus(LogitsProcessor):  # type: ignore[misc]  # mypy does not read transformers
    """The bonus of hotwords, from all that was written, hotword by hotword and place by place."""

    def __init__(self, hotwords: Sequence[Sequence[int]], begin_index: int) -> None:
        self._hotwords = hotwords
        self._begin_index = begin_index

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        bonuses = torch.zeros_like(scores)
        for hotword in self._hotwords:
            n_written = 0
            for token in input_ids[0, self._begin_index :].tolist():
                is_next = n_written < len(hotword) and token == hotword[n_written]
                n_written = n_written + 1 if is_next else int(token == hotword[0])
            if n_written < len(hotword):
                awaited, bonus = hotword[n_written], NEXT_BONUS if n_written else FIRST_BONUS
                bonuses[0, awaited] = max(bonuses[0, awaited].item(), bonus)
        return scores + bonuses


class Reference:
    """A checkpoint loaded by transformers."""

    def __init__(self, folder: Path) -> None:
        # Of any type: its configuration has fields that transformers does not declare.
        self.model: Any = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
        self.model.train(False)
        self._extractor = WhisperFeatureExtractor(feature_size=self.model.config.num_mel_bins)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._bytes = {character: byte for byte, character in bytes_to_unicode().items()}

    @property
    def languages(self) -> dict[str, int]:
        """Token ids by code; empty for an English-only checkpoint."""
        listed = getattr(self.model.generation_config, "lang_to_id", None) or {}
        return {key.strip("<|>"): token for key, token in listed.items()}

    def encode_text(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def encode_hotwords(self, words: Sequence[str], control: Sequence[int]) -> list[list[int]]:
        """Hotwords after the space that languages write between words, and translations into English."""
        without_spaces = {self.languages.get(code) for code in ("zh", "ja", "th", "lo", "my", "yue")}
        is_transcript = bool(self.languages) and self.model.generation_config.task_to_id["transcribe"] in control
        space = "" if is_transcript and not without_spaces.isdisjoint(control) else " "
        return [self.encode_text(space + word.strip()) for word in words]

    def decode_text(self, tokens: Sequence[int]) -> str:
        """A timestamp ends a character that is not whole yet."""
        first = self.model.generation_config.no_timestamps_token_id + 1
        times = [at for at, token in enumerate(tokens) if token >= first]
        parts = [tokens[begin:end] for begin, end in pairwise([0, *times, len(tokens)])]
        return "".join(b"".join(map(self._token_bytes, part)).decode(errors="replace") for part in parts)

    def control(
        self,
        *,
        language: str | None,
        task: str,
        timestamps: bool,
        previous_text: str = "",
    ) -> list[int]:
        """The tokens before the output, as `_prepare_decoder_input_ids` lays them out: of the text the last ones."""
        config = self.model.generation_config
        n_most = self.model.config.max_target_positions // 2 - 1
        text = self.encode_text(" " + previous_text.strip())[-n_most:] if previous_text.strip() else []
        tokens = [config.prev_sot_token_id, *text] if text else []
        tokens.append(config.decoder_start_token_id)
        if language is not None and config.is_multilingual:
            tokens += [config.lang_to_id[f"<|{language}|>"], config.task_to_id[task]]
        return tokens if timestamps else [*tokens, config.no_timestamps_token_id]

    def sot_index(self, control: Sequence[int]) -> int:
        """Where `<|startoftranscript|>` stands."""
        return list(control).index(self.model.generation_config.decoder_start_token_id)

    @torch.inference_mode()
    def states(self, samples: NDArray[np.float32]) -> BaseModelOutput:
        """Encoder states, to be used several times."""
        states: BaseModelOutput = self.model.model.encoder(self.features(samples))
        return states

    @torch.inference_mode()
    def language_probabilities(self, states: BaseModelOutput) -> dict[str, float]:
        """The probabilities that `detect_language` compares, after `<|startoftranscript|>` alone."""
        start = torch.tensor([[self.model.generation_config.decoder_start_token_id]])
        logits = self.model(encoder_outputs=states, decoder_input_ids=start).logits[0, -1]
        probabilities = logits[list(self.languages.values())].softmax(dim=-1).tolist()
        return dict(zip(self.languages, probabilities, strict=True))

    @torch.inference_mode()
    def probabilities(self, states: BaseModelOutput, tokens: Sequence[int]) -> Tensor:
        """The probabilities of the token after each token, before any rule: `(tokens, vocab_size)`."""
        logits = self.model(encoder_outputs=states, decoder_input_ids=torch.tensor([list(tokens)])).logits[0]
        probabilities: Tensor = logits.softmax(dim=-1)
        return probabilities

    @torch.inference_mode()
    def decode(
        self,
        states: BaseModelOutput,
        control: Sequence[int],
        *,
        max_tokens: int,
        timestamps: bool,
        prefix: Sequence[int] = (),
        hotwords: Sequence[str] = (),
        is_enough: Callable[[list[int]], bool] = lambda _: False,
    ) -> Decoded:
        """The first pass of `generate`. `is_enough` is asked after every sampled token whether to stop.

        `generate` itself may start again where the last segment ended, so it is not used for this.
        """
        config, begin = self.model.generation_config, len(control)
        bonus = HotwordBonus(self.encode_hotwords(hotwords, control), begin)
        suppressing, times = self.processors(begin, timestamps)
        tokens = new = torch.tensor([[*control, *prefix]])
        cache = None
        logprobs: list[float] = []
        margins: list[float] = []
        is_ended = False
        while tokens.shape[1] < begin + max_tokens and not is_ended:
            output = self.model(encoder_outputs=states, decoder_input_ids=new, past_key_values=cache, use_cache=True)
            logits, cache = bonus(tokens, output.logits[:, -1]), output.past_key_values
            for processor in suppressing:
                logits = processor(tokens, logits)
            margin = float("inf")
            for processor in times:
                margin = self._margin_of_times(tokens, logits, begin)
                logits = processor(tokens, logits)
            new = logits.argmax(dim=-1, keepdim=True)
            best, second = logits[0].topk(2).values.tolist()
            margins.append(min(margin, best - second))
            logprobs.append(logits.log_softmax(dim=-1).gather(1, new).item())
            is_ended = new.item() == config.eos_token_id
            if not is_ended:
                tokens = torch.cat((tokens, new), dim=1)
                if is_enough(tokens[0, begin:].tolist()):
                    break
        return Decoded(tokens[0, begin:].tolist(), logprobs, margins, is_ended)

    def _margin_of_times(self, tokens: Tensor, logits: Tensor, begin_index: int) -> float:
        """How far all timestamps together are from being as likely as the likeliest text."""
        config = self.model.generation_config
        pairs = WhisperTimeStampLogitsProcessor(config, begin_index, _detect_timestamp_from_logprob=False)
        first = config.no_timestamps_token_id + 1
        allowed = pairs(tokens, logits)[0]
        apart = (allowed[first:].logsumexp(dim=-1) - allowed[:first].amax()).abs().item()
        return apart if np.isfinite(apart) else float("inf")

    def _token_bytes(self, token: int) -> bytes:
        if token >= self.model.generation_config.eos_token_id:
            return b""
        return bytes(self._bytes[character] for character in self._tokenizer.id_to_token(token) or "")

    def features(self, samples: NDArray[np.float32]) -> Tensor:
        """`(1, n_mels, 3000)`."""
        features: Tensor = self._extractor(samples, sampling_rate=16_000, return_tensors="pt").input_features
        return features

    @torch.inference_mode()
    def token_starts_s(
        self,
        samples: NDArray[np.float32],
        control: Sequence[int],
        tokens: Sequence[int],
        heads: Sequence[tuple[int, int]],
        states: BaseModelOutput | None = None,
    ) -> list[float]:
        """The times of the tokens of an output, by the rows of attention that predict them.

        transformers aligns the rows whose input the tokens are, so that its words come a token too late; here it is
        given the tokens before these. openai/whisper aligns the same rows as we do.
        """
        inputs, n_before = [*control, *tokens[:-1]], len(control) - 1
        sounding = sounding_states(samples)
        cross_attentions = tuple(
            layer[..., sounding] for layer in self._cross_attentions(states or self.states(samples), inputs)
        )
        generated = GenerateEncoderDecoderOutput(
            sequences=torch.tensor([[*inputs, 0]]),
            cross_attentions=(cross_attentions,),
        )
        n_frames = torch.tensor([2 * len(sounding)])
        found = self.model._extract_token_timestamps(generated, heads, num_frames=n_frames, num_input_ids=n_before)
        return [round(int(sounding[round(at_s / 0.02)]) * 0.02, 2) for at_s in found[0, n_before:-1].tolist()]

    @torch.inference_mode()
    def path_losses(
        self,
        samples: NDArray[np.float32],
        control: Sequence[int],
        tokens: Sequence[int],
        heads: Sequence[tuple[int, int]],
        states: BaseModelOutput,
    ) -> NDArray[np.float64]:
        """How much less the best path of `token_starts_s` would weigh, had a token to begin at a frame of 20 ms.

        Returns:
            `(tokens, frames)`; 0 on the best path, and close to 0 where rounding decides.
        """
        attentions = self._cross_attentions(states, [*control, *tokens[:-1]])
        sounding = sounding_states(samples)
        chosen = torch.stack([attentions[layer][0, head, len(control) - 1 :, sounding] for layer, head in heads])
        deviation = chosen.std(dim=-2, keepdim=True, unbiased=False).clamp_min(1e-10)
        scaled = (chosen - chosen.mean(dim=-2, keepdim=True)) / deviation
        weights = _median_filter(scaled, self.model.config.median_filter_width).mean(dim=0).double().numpy()
        until, since = _best_until(weights), _best_until(weights[::-1, ::-1])[::-1, ::-1]
        arrival = np.full_like(weights, -np.inf)
        arrival[0, 0] = 0.0
        arrival[1:] = until[:-1]
        arrival[1:, 1:] = np.maximum(until[:-1, 1:], until[:-1, :-1])
        losses: NDArray[np.float64] = until[-1, -1] - (arrival + since)
        return losses

    def _cross_attentions(self, states: BaseModelOutput, tokens: Sequence[int]) -> tuple[Tensor, ...]:
        """Of each layer, `(1, heads, tokens, states)`."""
        before = self.model.config._attn_implementation
        self.model.set_attn_implementation("eager")  # the others do not tell their weights
        output = self.model(
            encoder_outputs=states, decoder_input_ids=torch.tensor([list(tokens)]), output_attentions=True
        )
        self.model.set_attn_implementation(before)
        attentions: tuple[Tensor, ...] = output.cross_attentions
        return attentions

    def processors(self, begin_index: int, timestamps: bool) -> tuple[list[LogitsProcessor], list[LogitsProcessor]]:
        """Those that suppress tokens and those of timestamps, in the order of `_retrieve_logit_processors`."""
        config = self.model.generation_config
        suppressing: list[LogitsProcessor] = []
        if config.begin_suppress_tokens is not None:
            suppressing.append(SuppressTokensAtBeginLogitsProcessor(config.begin_suppress_tokens, begin_index))
        if config.suppress_tokens is not None:
            suppressing.append(SuppressTokensLogitsProcessor(config.suppress_tokens))
        return suppressing, [WhisperTimeStampLogitsProcessor(config, begin_index)] if timestamps else []


def _best_until(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """The most that a path from the first token and frame to each entry weighs."""
    best = np.full((weights.shape[0] + 1, weights.shape[1] + 1), -np.inf)
    best[0, 0] = 0.0
    for token, row in enumerate(weights.tolist()):
        for frame, weight in enumerate(row):
            before = max(best[token, frame], best[token, frame + 1], best[token + 1, frame])
            best[token + 1, frame + 1] = before + weight
    return best[1:, 1:]
