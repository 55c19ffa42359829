"""Runs the model on slots: encode windows, prefill prompts, step all running sequences by one token.

Knows nothing of requests, queues or text; whoever calls it does so from one thread.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.alignment import Alignment, token_starts_s
from engine.api import SAMPLE_RATE, WINDOW_SAMPLES
from engine.attention import DecodeAttention, DecoderAttention, PrefillAttention, WatchedAttention
from engine.checkpoint import Checkpoint, read_checkpoint
from engine.config import EngineConfig
from engine.errors import CheckpointError
from engine.features import HOP_SAMPLES, log_mel, mel_filters
from engine.hotwords import Hotwords
from engine.kv_cache import KVCache, SlotAllocator
from engine.packing import find_runs
from engine.prompt import Prompt
from engine.rules import RuleState, make_rules
from engine.sampling import Draw, Sampler
from engine.weights import load_model

_STATE_SAMPLES = 2 * HOP_SAMPLES
"""An encoder state stands for two frames."""
_STATES_STEP = 10
"""Windows are encoded at lengths of multiples of 0.2 s, so that neighbours may share one."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sampled token."""

    token: int
    logprob: float
    attended_s: float | None = None
    """How far into the window the alignment heads looked, if its slot is watched."""


@dataclass(frozen=True, slots=True)
class Prefilled:
    """What prefilling a prompt gives."""

    samples: tuple[Sample, ...]
    """The tokens of the draft that were right, and the one behind them."""
    no_speech_prob: float
    """Probability of `<|nospeech|>` behind `<|startoftranscript|>`, before any rule."""


@dataclass(frozen=True, slots=True)
class Transcribed:
    """What a window was decoded to."""

    control: tuple[int, ...]
    """The tokens before the first one of the output."""
    tokens: tuple[int, ...]
    """The output without its end token; at least one."""
    n_samples: int


class Runner:
    """A loaded model with its slots.

    A slot's life: `slots.allocate`, `encode`, (`detect_languages`,) `prefill`, any number of `step`s, (`align`,)
    `release`.
    """

    @torch.inference_mode()
    def __init__(self, checkpoint: Checkpoint, config: EngineConfig) -> None:
        """
        Raises:
            CheckpointError: the weights cannot be used.
        """
        self.checkpoint = checkpoint
        self.device, self.dtype = pick_device_and_dtype(config)
        self.model = load_model(checkpoint, self.device, self.dtype)
        self.slots = SlotAllocator(config.n_slots)
        self._cache = KVCache(checkpoint.model, config.n_slots, self.device, self.dtype)
        self._audio_context = checkpoint.generation.audio_context if config.audio_context == "auto" else None
        self._filters = mel_filters(checkpoint.model.n_mels).to(self.device)
        self._rules = make_rules(checkpoint, self.device)
        self._hotwords = Hotwords(config.n_slots, self.device)
        self._sampler = Sampler(self.device)
        self._languages = list(checkpoint.generation.languages)
        self._language_ids = torch.tensor(
            list(checkpoint.generation.languages.values()), dtype=torch.long, device=self.device
        )
        self._first_timestamp = checkpoint.tokenizer.first_timestamp
        # Per slot: the last token, where it will stand, and what the rules know.
        self._tokens = torch.zeros(config.n_slots, dtype=torch.long, device=self.device)
        self._positions = torch.zeros(config.n_slots, dtype=torch.long, device=self.device)
        self._rule_state = RuleState.blank(config.n_slots, self._first_timestamp, self.device)
        self._watched: dict[int, int] = {}
        """Encoder states that hold audio, by slot, where it is to be told what the alignment heads look at."""
        self._running: dict[int, int] = {}
        """Position of the last token of each running slot: the host's copy of `_positions`."""

    @property
    def n_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    @torch.inference_mode()
    def warm_up(self) -> float:
        """Run everything once, so that no window pays for first calls. Returns seconds per full window encoded."""
        silence = np.zeros(WINDOW_SAMPLES, np.float32)
        slot = self.slots.allocate()
        elapsed_s = 0.0
        for _ in range(2):
            start_s = time.perf_counter()
            self.encode([silence], [slot])
            self._synchronize()
            elapsed_s = time.perf_counter() - start_s
        self.prefill([slot], [Prompt((self.checkpoint.tokenizer.sot,), 0, 0)], [True], [Draw()])
        self.step()
        self.release(slot)
        return elapsed_s

    @torch.inference_mode()
    def encode(self, windows: Sequence[NDArray[np.float32]], slots: Sequence[int]) -> None:
        """Hear windows of up to 30 s in one encoder call and write their cross-attention keys and values."""
        n_states = [self.n_states(len(samples)) for samples in windows]
        padded = np.zeros((len(windows), max(n_states) * _STATE_SAMPLES), np.float32)
        for row, samples in zip(padded, windows, strict=True):
            row[: len(samples)] = samples
        features = log_mel(torch.from_numpy(padded).to(self.device), self._filters)
        runs = find_runs(n_states)
        states = self.model.encoder(features.to(self.dtype), runs)
        for layer in range(self.checkpoint.model.decoder_layers):
            keys_values = self.model.decoder.cross_keys_values(layer, states)
            self._cache.write_cross_attention(layer, slots, keys_values, runs)

    def n_states(self, n_samples: int) -> int:
        """Encoder states of a window with so much audio: all of a full window's, unless the checkpoint takes less."""
        full = self.checkpoint.model.max_source_positions
        if self._audio_context is None:
            return full
        n_frames = -(-n_samples // HOP_SAMPLES) + self._audio_context.margin_frames
        n_states = -(-max(n_frames, self._audio_context.min_frames) // 2)
        return min(full, -(-n_states // _STATES_STEP) * _STATES_STEP)

    def encode_share(self, n_samples: int) -> float:
        """A window's part of the work of encoding a full one."""
        return self.n_states(n_samples) / self.checkpoint.model.max_source_positions

    @torch.inference_mode()
    def detect_languages(self, slots: Sequence[int]) -> list[dict[str, float]]:
        """The probability of every language code for each encoded slot.

        Source: openai/whisper, whisper/decoding.py, `detect_language`.
        """
        tokens = torch.full((len(slots), 1), self.checkpoint.tokenizer.sot, device=self.device)
        positions = torch.zeros(1, dtype=torch.long, device=self.device)
        hidden = self.model.decoder(tokens, positions, PrefillAttention(self._cache, slots))
        rows = self.model.decoder.logits(hidden[:, 0])[:, self._language_ids].softmax(dim=-1).tolist()
        return [dict(zip(self._languages, row, strict=True)) for row in rows]

    @torch.inference_mode()
    def prefill(
        self,
        slots: Sequence[int],
        prompts: Sequence[Prompt],
        with_timestamps: Sequence[bool],
        draws: Sequence[Draw],
    ) -> list[Prefilled]:
        """Run the prompts of encoded slots in one call, drafts included, and set the slots running.

        Every token of a draft is compared with the one sampled in its place; the first that differs ends the draft. A
        slot that runs already begins anew.
        """
        sequences = [prompt.tokens + prompt.draft for prompt in prompts]
        n_tokens = max(map(len, sequences))
        tokens = torch.tensor([row + (0,) * (n_tokens - len(row)) for row in sequences], device=self.device)
        positions = torch.arange(n_tokens, device=self.device)
        for slot, prompt, draw in zip(slots, prompts, draws, strict=True):
            self._hotwords.begin(slot, prompt.hotwords, prompt.prefix)
            self._sampler.begin(slot, draw)
            self._watched.pop(slot, None)
            if draw.watched_samples:
                self._watched[slot] = max(1, draw.watched_samples // _STATE_SAMPLES)
        attention = self._watching(PrefillAttention(self._cache, slots), slots)
        hidden = self.model.decoder(tokens, positions, attention)

        # A place is where a token is sampled: behind the prompt, and behind each token of its draft.
        places = [(row, at) for row, prompt in enumerate(prompts) for at in range(len(prompt.draft) + 1)]
        written = [prompts[row].prefix + prompts[row].draft[:at] for row, at in places]
        state = RuleState.begin(
            written, [with_timestamps[row] for row, _ in places], self._first_timestamp, self.device
        )
        each = torch.tensor([row for row, _ in places], device=self.device)
        ends = torch.tensor([len(prompts[row].tokens) + at - 1 for row, at in places], device=self.device)
        logits = self.model.decoder.logits(hidden[each, ends])
        owners = [slots[row] for row, _ in places]
        self._hotwords.apply(torch.tensor(owners, device=self.device), logits)
        for rule in self._rules:
            rule.apply(logits, state)
        tokens_found, logprobs = self._sampler.sample(owners, logits)
        host = self._to_host(tokens_found, logprobs, *self._attended(attention, owners, each, ends))
        sampled = [_sample(*row) for row in host]

        sots = torch.tensor([prompt.sot_index for prompt in prompts], device=self.device)
        sot_logits = self.model.decoder.logits(hidden[torch.arange(len(slots), device=self.device), sots])
        no_speech_probs = sot_logits.softmax(dim=-1)[:, self.checkpoint.tokenizer.no_speech].tolist()
        found: list[Prefilled] = []
        for row, prompt in enumerate(prompts):
            own = sampled[: len(prompt.draft) + 1]
            del sampled[: len(own)]
            pairs = zip(prompt.draft, own, strict=False)
            n_right = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1].token, pairs))
            found.append(Prefilled(tuple(own[: n_right + 1]), no_speech_probs[row]))
        self._go_on(slots, prompts, with_timestamps, [each.samples for each in found])
        return found

    def _go_on(
        self,
        slots: Sequence[int],
        prompts: Sequence[Prompt],
        with_timestamps: Sequence[bool],
        sampled: Sequence[Sequence[Sample]],
    ) -> None:
        """Have slots run behind what was prefilled and sampled."""
        rows = self._cache.rows(slots)
        new = [tuple(sample.token for sample in own) for own in sampled]
        lengths = [len(prompt.tokens) + len(own) - 1 for prompt, own in zip(prompts, new, strict=True)]
        written = [prompt.prefix + own for prompt, own in zip(prompts, new, strict=True)]
        last = torch.tensor([own[-1] for own in new], device=self.device)
        self._tokens[rows] = last
        self._positions[rows] = torch.tensor(lengths, device=self.device)
        self._rule_state.store(rows, RuleState.begin(written, with_timestamps, self._first_timestamp, self.device))
        self._hotwords.after(rows, last)
        self._running.update(zip(slots, lengths, strict=True))

    @torch.inference_mode()
    def step(self) -> dict[int, Sample]:
        """One more token for every running slot."""
        n_rows = self.slots.n_rows
        positions = self._positions[:n_rows]
        at = self._running.values()
        attention = DecodeAttention(
            self._cache, n_rows, positions, n_positions=max(at) + 1, is_ragged=min(at) != max(at)
        )
        watching = self._watching(attention, self._running)
        hidden = self.model.decoder(self._tokens[:n_rows, None], positions[:, None], watching)
        sampled, logprobs = self._sample(self.model.decoder.logits(hidden[:, 0]), n_rows)
        each = torch.arange(n_rows, device=self.device)
        # A row that nobody uses walks on with the others, up to the last position.
        positions.add_(1).clamp_(max=self.checkpoint.model.max_target_positions - 1)
        self._running = {slot: position + 1 for slot, position in self._running.items()}
        host = self._to_host(sampled, logprobs, *self._attended(watching, range(n_rows), each, torch.zeros_like(each)))
        return {slot: _sample(*host[slot]) for slot in self._running}

    @torch.inference_mode()
    def align(self, slots: Sequence[int], transcripts: Sequence[Transcribed]) -> list[Alignment]:
        """When the tokens of decoded slots were said, and how likely each was: one pass over whole transcripts.

        The slots must still hold their windows, and must not be stepped afterwards.
        """
        sequences = [(*each.control, *each.tokens) for each in transcripts]
        n_tokens = max(map(len, sequences))
        tokens = torch.tensor([row + (0,) * (n_tokens - len(row)) for row in sequences], device=self.device)
        attention = WatchedAttention(PrefillAttention(self._cache, slots), self.checkpoint.generation.alignment_heads)
        hidden = self.model.decoder(tokens, torch.arange(n_tokens, device=self.device), attention)
        weights = attention.weights
        alignments = []
        for row, each in enumerate(transcripts):
            begin, end = len(each.control), len(each.control) + len(each.tokens)
            probabilities = self.model.decoder.logits(hidden[row, begin - 1 : end - 1]).softmax(dim=-1)
            said = probabilities.gather(1, tokens[row, begin:end, None])[:, 0]
            n_states = max(1, each.n_samples // _STATE_SAMPLES)
            starts_s = token_starts_s(weights[row, :, begin:end, :n_states].cpu().numpy())
            alignments.append(Alignment(starts_s, tuple(said.tolist())))
        return alignments

    def release(self, slot: int) -> None:
        """Free a slot, at any stage of its life."""
        self._running.pop(slot, None)
        self._watched.pop(slot, None)
        self._cache.forget(slot)
        self._hotwords.end(slot)
        self._sampler.end(slot)
        self.slots.free(slot)

    def _watching(self, plan: PrefillAttention | DecodeAttention, slots: Iterable[int]) -> DecoderAttention:
        """The plan, watched if any of its slots is."""
        if self._watched.keys().isdisjoint(slots):
            return plan
        return WatchedAttention(plan, self.checkpoint.generation.alignment_heads)

    def _attended(
        self, attention: DecoderAttention, slots: Sequence[int], rows: Tensor, tokens: Tensor
    ) -> tuple[Tensor, ...]:
        """For each of some tokens, `rows` and `tokens` of the pass, the state behind the one most looked at; -1 where
        its slot is not watched. Nothing if none is.

        Source of the idea: Papi, Turchi, Negri, "AlignAtt: Using Attention-based Audio-Translation Alignments as a
        Guide for Simultaneous Speech Translation", 2023.
        """
        if not isinstance(attention, WatchedAttention):
            return ()
        looks = attention.weights[rows, :, tokens].mean(dim=1)  # (tokens, states)
        n_states = torch.tensor([self._watched.get(slot, 0) for slot in slots], device=self.device)
        holds_audio = torch.arange(looks.shape[1], device=self.device) < n_states[:, None]
        most = looks.masked_fill(~holds_audio, -1.0).argmax(dim=-1)
        return (torch.where(n_states > 0, most + 1, -1),)

    def _sample(self, logits: Tensor, n_rows: int) -> tuple[Tensor, Tensor]:
        """Sample `(n_rows, vocab_size)` under the rules; the tokens become the rows' next input."""
        rows = slice(0, n_rows)
        state = self._rule_state.select(rows)
        self._hotwords.apply(rows, logits)
        for rule in self._rules:
            rule.apply(logits, state)
        tokens, logprobs = self._sampler.sample(range(n_rows), logits)
        self._tokens[rows] = tokens
        self._hotwords.after(rows, tokens)
        self._rule_state.store(rows, state.after(tokens, self._first_timestamp))
        return tokens, logprobs

    def _to_host(self, *columns: Tensor) -> list[list[float]]:
        """The one place where a step waits for the device. Token ids are exact in float32."""
        host: list[list[float]] = torch.stack([column.float() for column in columns], dim=1).tolist()
        return host

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _sample(token: float, logprob: float, state: float = -1) -> Sample:
    """From a row of numbers on the host."""
    return Sample(int(token), logprob, None if state < 0 else state * _STATE_SAMPLES / SAMPLE_RATE)


def load_runner(config: EngineConfig) -> Runner:
    """Find, read and load the model of a configuration.

    Raises:
        CheckpointError: it cannot be used here.
    """
    if config.n_threads is not None:
        torch.set_num_threads(config.n_threads)
    return Runner(read_checkpoint(config.model), config)


def pick_device_and_dtype(config: EngineConfig) -> tuple[torch.device, torch.dtype]:
    """What `auto` means on this machine.

    Raises:
        CheckpointError: the configuration asks for what this machine does not have.
    """
    has_cuda = torch.cuda.is_available()
    if config.device == "cuda" and not has_cuda:
        raise CheckpointError("device cuda: no CUDA device is visible to PyTorch; use cpu or auto")
    device = torch.device("cuda" if has_cuda and config.device != "cpu" else "cpu")
    match config.dtype:
        case "auto":
            return device, torch.bfloat16 if device.type == "cuda" else torch.float32
        case "float16" if device.type == "cpu":
            raise CheckpointError("dtype float16: the CPU runs float32 or bfloat16")
        case name:
            dtype: torch.dtype = getattr(torch, name)
            return device, dtype
