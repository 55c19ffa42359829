"""Runs the model on slots: encode windows, prefill prompts, step all running sequences by one token.

Knows nothing of requests, queues or text; whoever calls it does so from one thread.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.api import SAMPLE_RATE, WINDOW_SAMPLES
from engine.checkpoint.checkpoint import Checkpoint, ModelConfig, read_checkpoint
from engine.config import EngineConfig
from engine.cuda.graph_sizes import FILLING_WINDOWS, LEAST_SHARE, n_rows_held
from engine.decoding.hotwords import Hotwords
from engine.decoding.logit_rules import RuleState, make_rules
from engine.decoding.prompt import Prompt
from engine.decoding.sampling import Draw, Sampler
from engine.decoding.word_timing import Alignment, token_starts_s
from engine.errors import CheckpointError
from engine.model.audio_context import WindowLengths
from engine.model.forward import EagerForward, ForwardPass, n_rows_of
from engine.model.host_transfer import HostRows, HostTransfer, to_device, to_host
from engine.model.kv_cache import KVCache, SlotAllocator
from engine.model.log_mel import HOP_SAMPLES, log_mel, mel_filters
from engine.model.packing import cut, find_runs
from engine.model.random_weights import PREFIX, random_checkpoint
from engine.model.slot_budget import CPU_SLOTS, choose_slots, slot_bytes
from engine.model.weights import load_model
from engine.model.whisper import Whisper

if TYPE_CHECKING:
    from engine.cuda.graphs import CudaGraphForward

logger = logging.getLogger(__name__)

_STATE_SAMPLES = 2 * HOP_SAMPLES
"""An encoder state stands for two frames."""


@dataclass(frozen=True, slots=True)
class SampledToken:
    """One sampled token."""

    token: int
    logprob: float
    attention_peak_s: float | None = None
    """How far into the window the alignment heads looked, if its slot is watched."""


@dataclass(frozen=True, slots=True)
class Prefilled:
    """What prefilling a prompt gives."""

    samples: tuple[SampledToken, ...]
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

    A slot's life: `slots.allocate`, `encode`, (`detect_languages`,) `prefill`, any number of `launch`es and `collect`s,
    (`align`,) `release`.
    """

    @torch.inference_mode()
    def __init__(self, checkpoint: Checkpoint, config: EngineConfig) -> None:
        """Raises:
        CheckpointError: the weights cannot be used.
        """
        self.checkpoint = checkpoint
        self.device, self.dtype = pick_device_and_dtype(config)
        self.model = load_model(checkpoint, self.device, self.dtype)
        n_slots = self._choose_slots(config)
        self.slots = SlotAllocator(n_slots)
        self._max_encode_batch = config.max_encode_batch
        self._lengths = WindowLengths(
            config.audio_context, checkpoint.generation.audio_context, checkpoint.model.max_source_positions
        )
        self._filters = mel_filters(checkpoint.model.n_mels).to(self.device)
        self._rules = make_rules(checkpoint, self.device)
        self._sampler = Sampler(self.device)
        self._languages = list(checkpoint.generation.languages)
        self._language_ids = torch.tensor(
            list(checkpoint.generation.languages.values()), dtype=torch.long, device=self.device
        )
        self._first_timestamp = checkpoint.tokenizer.first_timestamp
        is_fused = can_fuse(self.device, self.dtype, checkpoint.model) and config.kernels != "torch"
        if config.encoder_dtype == "fp8" and not is_fused:
            raise CheckpointError(
                f"encoder_dtype fp8: expected 16 bits and our own kernels on a CUDA device, got {self.dtype} and "
                f"kernels {config.kernels} on {self.device}"
            )
        if config.kernels in ("triton", "flashinfer") and not is_fused:
            raise CheckpointError(
                f"kernels {config.kernels}: expected 16 bits on a CUDA device, got {self.dtype} on {self.device}"
            )
        n_rows = n_rows_held(n_slots) if is_fused else n_slots
        # The last slot is nobody's: it fills up the rows of a graph.
        self._cache = KVCache(checkpoint.model, n_slots + is_fused, self.device, self.dtype)
        self._hotwords = Hotwords(n_rows, self.device)
        # Per slot: the last token, where it will stand, and what the rules know.
        self._tokens = torch.zeros(n_rows, dtype=torch.long, device=self.device)
        self._positions = torch.zeros(n_rows, dtype=torch.long, device=self.device)
        self._rule_state = RuleState.blank(n_rows, self._first_timestamp, self.device)
        self._plain = EagerForward(self.model, self._cache, self._tokens, self._positions)
        self._passes: ForwardPass = self._plain
        self._graphed: CudaGraphForward | None = None
        if is_fused:
            self._graphed = build_cuda_forward(
                self.model,
                self._filters,
                self._cache,
                self._rule_state,
                self._tokens,
                self._positions,
                n_slots,
                checkpoint,
                config,
            )
            self._passes = self._graphed
        self.n_ahead = 1 if self.device.type == "cuda" and config.steps_ahead else 0
        """Steps that are launched before the tokens of the one before them are read."""
        self.n_filling = FILLING_WINDOWS if self._graphed else config.max_encode_batch
        """Windows that fill the device: more in one call take as long each."""
        self.least_share = LEAST_SHARE if self._graphed else 0.0
        """The time of an encoder call at least, in full windows."""
        self._encoded: torch.cuda.Event | None = None
        self._staging = HostTransfer(self.device)
        self._watched: dict[int, int] = {}
        """Encoder states that hold audio, by slot, where it is to be told what the alignment heads look at."""
        self._running: dict[int, int] = {}
        """Position of the last token of each running slot: the host's copy of `_positions`."""

    def _choose_slots(self, config: EngineConfig) -> int:
        if self.device.type != "cuda":
            return config.n_slots or CPU_SLOTS
        free_bytes, _ = torch.cuda.mem_get_info(self.device)
        model, itemsize = self.checkpoint.model, self.dtype.itemsize
        return choose_slots(model, itemsize, config.n_slots, free_bytes, config.gpu_memory_fraction)

    @property
    def n_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    @torch.inference_mode()
    def warm_up(self) -> float:
        """Run everything once, so that no window pays for first calls. Returns seconds per full window encoded."""
        silence = np.zeros(WINDOW_SAMPLES, np.float32)
        slots = [self.slots.allocate() for _ in range(min(self.n_filling, self.slots.n_free) if self._graphed else 1)]
        elapsed_s = 0.0
        model = self.checkpoint.model
        if self._graphed:
            features = (model.n_mels, 2 * model.max_source_positions)
            self._graphed.capture(self._max_encode_batch, features, self._lengths.ladder)
        for _ in range(2):
            start_s = time.perf_counter()
            self.encode([silence] * len(slots), slots)
            self._synchronize()
            elapsed_s = (time.perf_counter() - start_s) / len(slots)
        self.prefill(slots[:1], [Prompt((self.checkpoint.tokenizer.sot,), 0, 0)], [True], [Draw()])
        self.collect(self.launch())
        for slot in slots:
            self.release(slot)
        if self._graphed:
            pool, n_slots = self._graphed.pool, self.slots.n_free
            logger.info(
                "%d CUDA graphs captured in %.1f s; %.1f GiB of the GPU's memory taken, %.1f GiB of it by %d slots",
                pool.n_graphs,
                pool.seconds,
                torch.cuda.memory_reserved(self.device) / (1 << 30),
                n_slots * slot_bytes(model, self.dtype.itemsize) / (1 << 30),
                n_slots,
            )
        return elapsed_s

    @torch.inference_mode()
    def encode(
        self, windows: Sequence[NDArray[np.float32]], slots: Sequence[int], are_interims: Sequence[bool] = ()
    ) -> None:
        """Hear windows of up to 30 s in one encoder call and write their cross-attention keys and values.

        Args:
            are_interims: of which of them the text may still change; of none by default.
        """
        kinds = are_interims or [False] * len(windows)
        n_states = [self._lengths.n_states(len(samples), kind) for samples, kind in zip(windows, kinds, strict=True)]
        # Equal lengths side by side.
        order = sorted(range(len(windows)), key=n_states.__getitem__)
        windows, slots = [windows[index] for index in order], [slots[index] for index in order]
        n_states.sort()
        # In parts that each fill the device, so that it has begun with the first before the last is brought there.
        for part in cut(n_states, self.n_filling * self.checkpoint.model.max_source_positions):
            features = self._staging.prefetch(partial(self._features, windows[part], max(n_states[part])))
            self._passes.encode(features, slots[part], find_runs(n_states[part]))
        if self.device.type == "cuda":
            self._encoded = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._encoded.record()

    def _features(self, windows: Sequence[NDArray[np.float32]], n_states: int) -> Tensor:
        samples = self._staging.padded(windows, n_states * _STATE_SAMPLES)
        return log_mel(samples, self._filters).to(self.dtype)

    def is_encoding(self) -> bool:
        """Whether the device still works on the last `encode`."""
        return self._encoded is not None and not self._encoded.query()  # type: ignore[no-untyped-call]

    def encode_share(self, n_samples: int, is_interim: bool) -> float:
        """A window's part of the work of encoding a full one."""
        return self._lengths.n_states(n_samples, is_interim) / self.checkpoint.model.max_source_positions

    @torch.inference_mode()
    def detect_languages(self, slots: Sequence[int]) -> list[dict[str, float]]:
        """The probability of every language code for each encoded slot.

        Source: openai/whisper, whisper/decoding.py, `detect_language`.
        """
        hidden = self._passes.prefill([(self.checkpoint.tokenizer.sot,)] * len(slots), slots)
        rows = self._passes.logits(hidden[:, 0])[:, self._language_ids].softmax(dim=-1).tolist()
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
        for slot, prompt, draw in zip(slots, prompts, draws, strict=True):
            self._hotwords.begin(slot, prompt.hotwords, prompt.prefix)
            self._sampler.begin(slot, draw)
            self._watched.pop(slot, None)
            if draw.watched_samples:
                self._watched[slot] = max(1, draw.watched_samples // _STATE_SAMPLES)
        looks: Tensor | None = None
        if self._watched.keys().isdisjoint(slots):
            hidden = self._passes.prefill(sequences, slots)
        else:
            hidden, looks = self._plain.prefill_with_attention(
                sequences, slots, self.checkpoint.generation.alignment_heads
            )

        # A place is where a token is sampled: behind the prompt, and behind each token of its draft.
        places = [(row, at) for row, prompt in enumerate(prompts) for at in range(len(prompt.draft) + 1)]
        written = [prompts[row].prefix + prompts[row].draft[:at] for row, at in places]
        state = RuleState.begin(
            written, [with_timestamps[row] for row, _ in places], self._first_timestamp, self.device
        )
        owners = [slots[row] for row, _ in places]
        ends = [len(prompts[row].tokens) + at - 1 for row, at in places]
        each, at_end, owner = self._on_device([row for row, _ in places], ends, owners)
        logits = self._passes.logits(hidden[each, at_end])
        self._hotwords.apply(owner, logits)
        for rule in self._rules:
            rule.apply(logits, state)
        columns = [*self._sampler.sample(owners, logits)]
        if looks is not None:
            columns.append(self._attended(looks[each, :, at_end], owners))

        row, sot = self._on_device(range(len(slots)), [prompt.sot_index for prompt in prompts])
        sot_logits = self._passes.logits(hidden[row, sot])
        no_speech = sot_logits.softmax(dim=-1)[:, self.checkpoint.tokenizer.no_speech]
        *own_columns, no_speech_probs = to_host([*columns, no_speech])
        sampled = [_sample(*own) for own in zip(*own_columns, strict=True)]
        found: list[Prefilled] = []
        for prompt, no_speech_prob in zip(prompts, no_speech_probs, strict=True):
            own = sampled[: len(prompt.draft) + 1]
            del sampled[: len(own)]
            pairs = zip(prompt.draft, own, strict=False)
            n_right = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1].token, pairs))
            found.append(Prefilled(tuple(own[: n_right + 1]), no_speech_prob))
        self._go_on(slots, prompts, with_timestamps, [each.samples for each in found])
        return found

    def _go_on(
        self,
        slots: Sequence[int],
        prompts: Sequence[Prompt],
        with_timestamps: Sequence[bool],
        sampled: Sequence[Sequence[SampledToken]],
    ) -> None:
        """Have slots run behind what was prefilled and sampled."""
        new = [tuple(sample.token for sample in own) for own in sampled]
        lengths = [len(prompt.tokens) + len(own) - 1 for prompt, own in zip(prompts, new, strict=True)]
        written = [prompt.prefix + own for prompt, own in zip(prompts, new, strict=True)]
        rows, last, positions = self._on_device(slots, [own[-1] for own in new], lengths)
        self._tokens[rows] = last
        self._positions[rows] = positions
        self._rule_state.store(rows, RuleState.begin(written, with_timestamps, self._first_timestamp, self.device))
        self._hotwords.after(rows, last)
        self._running.update(zip(slots, lengths, strict=True))

    def _on_device(self, *columns: Sequence[int]) -> Tensor:
        """Numbers for the device in one transfer, `(columns, numbers)`."""
        return to_device([list(column) for column in columns], self.device)

    @torch.inference_mode()
    def launch(self) -> "Step":
        """Begin one more token for every running slot; `collect` waits for it."""
        n_rows = n_rows_of(self._running)
        looks: Tensor | None = None
        if self._watched.keys().isdisjoint(self._running):
            logits = self._passes.step(self._running)
        else:
            logits, looks = self._plain.step_with_attention(self._running, self.checkpoint.generation.alignment_heads)
        self._running = {slot: position + 1 for slot, position in self._running.items()}
        if self._graphed and looks is None and not (self._hotwords.are_any or self._sampler.draws_any):
            sampled = self._graphed.sample(logits)
        else:
            columns = [*self._sample(logits, logits.shape[0])]
            if looks is not None:
                columns.append(self._attended(looks[:, :, 0], range(n_rows)))
            sampled = torch.stack([column.float() for column in columns])
        return Step(tuple(self._running), self._staging.to_host(sampled[:, :n_rows]))

    def collect(self, step: "Step") -> dict[int, SampledToken]:
        """The tokens of a step, by slot."""
        host = step.rows.read()
        return {slot: _sample(*host[slot]) for slot in step.slots}

    @torch.inference_mode()
    def align(self, slots: Sequence[int], transcripts: Sequence[Transcribed]) -> list[Alignment]:
        """When the tokens of decoded slots were said, and how likely each was: one pass over whole transcripts.

        The slots must still hold their windows, and must not be stepped afterwards.
        """
        sequences = [(*each.control, *each.tokens) for each in transcripts]
        hidden, weights = self._plain.prefill_with_attention(
            sequences, slots, self.checkpoint.generation.alignment_heads
        )
        alignments = []
        for row, each in enumerate(transcripts):
            begin, end = len(each.control), len(each.control) + len(each.tokens)
            probabilities = self._plain.logits(hidden[row, begin - 1 : end - 1]).softmax(dim=-1)
            said = probabilities.gather(1, to_device(each.tokens, self.device)[:, None])[:, 0]
            n_states = max(1, each.n_samples // _STATE_SAMPLES)
            starts_s = token_starts_s(weights[row, :, begin:end, :n_states].cpu().numpy())
            alignments.append(Alignment(starts_s, tuple(said.tolist())))
        return alignments

    @torch.inference_mode()
    def release(self, slot: int) -> None:
        """Free a slot, at any stage of its life."""
        self._running.pop(slot, None)
        self._watched.pop(slot, None)
        self._cache.forget(slot)
        self._hotwords.end(slot)
        self._sampler.end(slot)
        self.slots.free(slot)

    def _attended(self, looks: Tensor, slots: Sequence[int]) -> Tensor:
        """For each of some tokens the state behind the one most looked at, `(tokens,)`; -1 if its slot is not watched.

        Args:
            looks: `(tokens, heads, states)`.

        Source of the idea: Papi, Turchi, Negri, "AlignAtt: Using Attention-based Audio-Translation Alignments as a
        Guide for Simultaneous Speech Translation", 2023.
        """
        n_states = to_device([self._watched.get(slot, 0) for slot in slots], self.device)
        holds_audio = torch.arange(looks.shape[2], device=self.device) < n_states[:, None]
        most = looks.mean(dim=1).masked_fill(~holds_audio, -1.0).argmax(dim=-1)
        return torch.where(n_states > 0, most + 1, -1)

    def _sample(self, logits: Tensor, n_rows: int) -> tuple[Tensor, Tensor]:
        """SampledToken `(n_rows, vocab_size)` under the rules; the tokens become the rows' next input."""
        rows = slice(0, n_rows)
        state = self._rule_state.select(rows)
        self._hotwords.apply(rows, logits)
        for rule in self._rules:
            rule.apply(logits, state)
        tokens, logprobs = self._sampler.sample(range(n_rows), logits)
        self._tokens[rows] = tokens
        self._hotwords.after(rows, tokens)
        self._rule_state.store(rows, state.after(tokens, self._first_timestamp))
        # A row that nobody uses walks on with the others, up to the last position.
        self._positions[rows].add_(1).clamp_(max=self.checkpoint.model.max_target_positions - 1)
        return tokens, logprobs

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


@dataclass(frozen=True, slots=True)
class Step:
    """A step that was launched."""

    slots: tuple[int, ...]
    """That took part."""
    rows: HostRows


def _sample(token: float, logprob: float, state: float = -1) -> SampledToken:
    """From a row of numbers on the host."""
    return SampledToken(int(token), logprob, None if state < 0 else state * _STATE_SAMPLES / SAMPLE_RATE)


def load_runner(config: EngineConfig) -> Runner:
    """Find, read and load the model of a configuration.

    Raises:
        CheckpointError: it cannot be used here.
    """
    if config.n_threads is not None:
        torch.set_num_threads(config.n_threads)
    is_random = config.model.startswith(PREFIX)
    return Runner(random_checkpoint(config.model) if is_random else read_checkpoint(config.model), config)


def build_cuda_forward(
    model: Whisper,
    filters: Tensor,
    cache: KVCache,
    rule_state: RuleState,
    tokens: Tensor,
    positions: Tensor,
    n_slots: int,
    checkpoint: Checkpoint,
    config: EngineConfig,
) -> "CudaGraphForward":
    # Imported here because they need Triton, which comes with PyTorch for CUDA only.
    from engine.cuda import fp8
    from engine.cuda.fused_model import FusedEncoder, HalfProducts, Products
    from engine.cuda.fused_sampling import FusedSampler
    from engine.cuda.graphs import CudaGraphForward

    products: Products[Any] = HalfProducts()
    if config.encoder_dtype == "fp8":
        fp8.require_device(cache.device)
        features = log_mel(fp8.sound().to(cache.device), filters).to(model.encoder.conv1.weight.dtype)
        runs = find_runs([checkpoint.model.max_source_positions])
        expected = FusedEncoder(model.encoder, products)(features, runs)
        products = fp8.Fp8Products(model)
        fp8.check(FusedEncoder(model.encoder, products)(features, runs), expected)
    sampler = FusedSampler(checkpoint, rule_state, tokens, positions)
    return CudaGraphForward(
        model,
        cache,
        tokens,
        positions,
        sampler,
        products,
        config,
    )


def can_fuse(device: torch.device, dtype: torch.dtype, model: ModelConfig) -> bool:
    """Whether the fused kernels are for this: 16 bits on an NVIDIA GPU of compute capability 8.0 or later, and sizes
    that their tiles divide, as those of all published models are.
    """
    if device.type != "cuda" or dtype not in (torch.bfloat16, torch.float16):
        return False
    sizes = (model.d_model, model.encoder_ffn_dim, model.decoder_ffn_dim)
    return torch.cuda.get_device_capability(device) >= (8, 0) and all(size % 128 == 0 for size in sizes)


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
