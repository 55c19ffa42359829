"""The frozen original as a teacher: its encoder states for windows of any length, and what it reads in clips."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tutti_server.engine.checkpoint.checkpoint import Checkpoint
from tutti_server.engine.decoding.logit_rules import RuleState, make_rules
from tutti_server.engine.decoding.repetition import repeated_tokens
from tutti_server.engine.errors import EngineError
from tutti_server.engine.model.log_mel import log_mel, mel_filters

MIN_TOKENS, STATES_PER_TOKEN = 16, 5
"""A text may have this many tokens, and one more for each of these encoder states (0.1 s)."""
MAX_UNENDED = 0.02
"""The share of texts that need not end: a few that repeat themselves would keep all others waiting."""


class AdaptationError(EngineError):
    """A checkpoint cannot be adapted, or was not made better. The message says why, and names the figure."""

    code = "not_adapted"


def find_whisper() -> Any:
    """Import transformers' Whisper.

    Raises:
        AdaptationError: transformers is not installed.
    """
    try:
        from transformers import WhisperForConditionalGeneration
        from transformers.utils import logging
    except ImportError as error:
        raise AdaptationError(
            "transformers: expected at least version 4.57 to train with, got none; install tutti-asr[adapt]"
        ) from error
    logging.disable_progress_bar()
    return WhisperForConditionalGeneration


def load_whisper(folder: Path, device: torch.device) -> Any:
    """Load a checkpoint as transformers' Whisper, in float32, for passes without dropout. Raises as `find_whisper`."""
    model = find_whisper().from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    return model.to(device).eval().requires_grad_(False)


def check_languages(checkpoint: Checkpoint, languages: Sequence[str]) -> None:
    """Raise an `AdaptationError` if the model does not know one of these languages."""
    known = checkpoint.generation.languages
    if unknown := [each for each in languages if each not in known]:
        expected = f"some of {', '.join(known)}" if known else "none, as the model is English-only"
        raise AdaptationError(f"languages: expected {expected}, got {', '.join(unknown)}")


def encode(encoder: nn.Module, features: Tensor, n_states: int) -> Tensor:
    """Encode the first part of windows, by the modules of transformers' encoder, which itself takes full windows only.

    Args:
        encoder: a `WhisperEncoder`.
        features: `(windows, n_mels, n_frames)`.
        n_states: the encoder states of the part; it has two frames for each.

    Returns:
        `(windows, n_states, d_model)`.
    """
    modules: Any = encoder
    x = F.gelu(modules.conv2(F.gelu(modules.conv1(features[..., : 2 * n_states])))).transpose(1, 2)
    x = x + modules.embed_positions.weight[:n_states]
    for layer in modules.layers:
        normed, attention = layer.self_attn_layer_norm(x), layer.self_attn
        shape = (len(x), n_states, attention.num_heads, -1)
        queries, keys, values = (
            project(normed).view(shape).transpose(1, 2)
            for project in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        attended = F.scaled_dot_product_attention(queries, keys, values)
        x = x + attention.out_proj(attended.transpose(1, 2).reshape(x.shape))
        x = x + layer.fc2(F.gelu(layer.fc1(layer.final_layer_norm(x))))
    states: Tensor = modules.layer_norm(x)
    return states


class Reader:
    """Reads clips with the original, padded to full windows, by the engine's own rules of decoding."""

    def __init__(self, model: Any, checkpoint: Checkpoint, languages: Sequence[str]) -> None:
        """Use a model that stays as it is.

        Args:
            model: of `load_whisper`.
            checkpoint: the same checkpoint.
            languages: the candidates of the detection; empty for all.

        Raises:
            AdaptationError: the model does not know one of the languages.
        """
        check_languages(checkpoint, languages)
        known = checkpoint.generation.languages
        self.model = model
        self.device: torch.device = model.device
        self._checkpoint = checkpoint
        self._rules = make_rules(checkpoint, self.device)
        self._filters = mel_filters(checkpoint.model.n_mels).to(self.device)
        candidates = [known[each] for each in languages] or list(known.values())
        self._candidates = torch.tensor(candidates, dtype=torch.long, device=self.device)

    @property
    def eot(self) -> int:
        """The token that ends a text, and pads shorter ones."""
        return self._checkpoint.tokenizer.eot

    def features(self, samples: Tensor) -> Tensor:
        """The engine's log-mel spectrograms of full windows. The first frames are those of the cut windows."""
        # Never in 16 bits, whatever the passes around it are computed in: the engine does the same.
        with torch.autocast(self.device.type, enabled=False):
            return log_mel(samples, self._filters)

    def states(self, features: Tensor) -> Tensor:
        """The original's encoder states of full windows."""
        return encode(self.model.model.encoder, features, self._checkpoint.model.max_source_positions)

    def hidden(self, states: Tensor, tokens: Tensor) -> Tensor:
        """The frozen decoder's states: `(clips, tokens, d_model)`. Gradients pass through it to the encoder states."""
        hidden: Tensor = self._decode(states, tokens, use_cache=False).last_hidden_state
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """The vocabulary's product of decoder states."""
        logits: Tensor = self.model.proj_out(hidden)
        return logits

    def _decode(self, states: Tensor, tokens: Tensor, **options: Any) -> Any:
        return self.model.model.decoder(input_ids=tokens, encoder_hidden_states=states, **options)

    @torch.no_grad()
    def read(self, samples: Tensor, n_states: int, with_timestamps: bool) -> Tensor:
        """The prompts of clips and the original's greedy texts after them.

        Args:
            samples: `(clips, WINDOW_SAMPLES)`.
            n_states: of the cut windows; it bounds the length of the texts.
            with_timestamps: whether the texts mark times.

        Returns:
            `(clips, tokens)` int64, padded with `eot`. What only repeats itself at the end of a text is left out.
        """
        states = self.states(self.features(samples))
        tokens = prompts = self._prompts(states, with_timestamps)
        first_time, positions = self._checkpoint.tokenizer.first_timestamp, self._checkpoint.model.max_target_positions
        rules = RuleState.begin([()] * len(samples), [with_timestamps] * len(samples), first_time, self.device)
        is_done = torch.zeros(len(samples), dtype=torch.bool, device=self.device)
        cache, newest = None, prompts
        n_most = min(MIN_TOKENS + n_states // STATES_PER_TOKEN, positions // 2, positions - prompts.shape[1])
        for _ in range(n_most):
            output = self._decode(states, newest, past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            logits = self.logits(output.last_hidden_state[:, -1]).float()
            for rule in self._rules:
                rule.apply(logits, rules)
            sampled = torch.where(is_done, self.eot, logits.argmax(-1))
            rules = rules.after(sampled, first_time)
            is_done |= sampled == self.eot
            newest = sampled[:, None]
            tokens = torch.cat([tokens, newest], dim=1)
            if (~is_done).sum() <= MAX_UNENDED * len(samples):
                break
        return self._without_repetition(tokens, prompts.shape[1])

    def _prompts(self, states: Tensor, with_timestamps: bool) -> Tensor:
        tokenizer, n_clips = self._checkpoint.tokenizer, len(states)
        columns = [torch.full((n_clips,), tokenizer.sot, device=self.device)]
        if self._checkpoint.generation.is_multilingual:
            logits = self.logits(self.hidden(states, columns[0][:, None])[:, -1])
            columns.append(self._candidates[logits[:, self._candidates].argmax(-1)])
            columns.append(torch.full_like(columns[0], tokenizer.transcribe))
        if not with_timestamps:
            columns.append(torch.full_like(columns[0], tokenizer.no_timestamps))
        return torch.stack(columns, dim=1)

    def _without_repetition(self, tokens: Tensor, n_prompt: int) -> Tensor:
        rows = tokens.tolist()
        for row in rows:
            text = [token for token in row[n_prompt:] if token != self.eot]
            if n_repeated := repeated_tokens(text):
                row[n_prompt:] = text[:-n_repeated]
        longest = max(len(row) for row in rows)
        return torch.tensor([row + [self.eot] * (longest - len(row)) for row in rows], device=self.device)
