"""Runs the model on slots: encode windows, prefill prompts, step all running sequences by one token.

It knows nothing of requests, queues or text. One thread calls all of it.
"""

import itertools
import logging
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tutti_server.engine.api import WINDOW_SAMPLES, Sampling
from tutti_server.engine.checkpoint.checkpoint import Checkpoint
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.cores import n_usable_cores
from tutti_server.engine.cuda.build import (
    build_cuda_forward,
    pick_device_and_dtype,
    pick_int8_part,
    pick_n_slots,
    uses_fused_kernels,
)
from tutti_server.engine.cuda.graph_sizes import FILLING_WINDOWS, GRAPH_SIZES, LEAST_SHARE, n_rows_held
from tutti_server.engine.decoding.beam_search import BeamSearch, SampledToken
from tutti_server.engine.decoding.followed_search import FollowedSearch
from tutti_server.engine.decoding.prompt import Prompt
from tutti_server.engine.decoding.sampling import Draw
from tutti_server.engine.decoding.slot_states import SlotStates
from tutti_server.engine.decoding.word_timing import Alignment, sounding_states, states_of_cut_text, token_times_s
from tutti_server.engine.host_beams import HostBeams, peak_s
from tutti_server.engine.model.audio_context import WindowLengths
from tutti_server.engine.model.forward import EagerForward, ForwardPass, n_rows_of
from tutti_server.engine.model.host_transfer import HostRows, HostTransfer, to_device, to_host
from tutti_server.engine.model.int8 import Int8Part
from tutti_server.engine.model.kv_cache import KVCache, SlotAllocator
from tutti_server.engine.model.random_weights import open_checkpoint
from tutti_server.engine.model.slot_budget import slot_bytes
from tutti_server.engine.model.weights import load_model
from tutti_server.engine.probe import PROBE_S, PROBE_STEPS, PROBE_WINDOWS, USUAL_UTTERANCE_SAMPLES, Speed, shortest_s
from tutti_server.engine.process_memory import return_freed_memory
from tutti_server.engine.window_encoder import ThreadedEncoder, WindowEncoder

if TYPE_CHECKING:
    from tutti_server.engine.cuda.device_beams import DeviceBeams

logger = logging.getLogger(__name__)


WORTH_A_THREAD = 1.3
"""Steps with more threads are chosen where those with fewer take more than this many times as long."""
_usual_threads = cache(lambda: min(torch.get_num_threads(), n_usable_cores()))
"""The tensor threads of the process, read once: the steps of a model change the number that PyTorch returns.

PyTorch itself knows no quota of a container.
"""
FEW_ROWS = 8
"""Steps of more rows, and prefills of more tokens, are products large enough for all threads."""


@dataclass(frozen=True, slots=True)
class Prefilled:
    """What the prefill of a prompt gives."""

    tokens: tuple[SampledToken, ...]
    """The accepted draft tokens, and the token sampled after them. Of a search nothing, or its result if it is over."""
    no_speech_prob: float
    """The probability of `<|nospeech|>` after `<|startoftranscript|>`, before any rule."""


@dataclass(frozen=True, slots=True)
class LaunchedPrefill:
    """A prefill that the device computes, or has computed. `Runner.collect_prefill` returns what it gives."""

    slots: tuple[int, ...]
    prompts: tuple[Prompt, ...]
    results: list[Prefilled] | HostRows
    """What it gives; or the numbers of it, while they are copied to the host."""
    searches: dict[int, BeamSearch] = field(default_factory=dict)
    """The searches that the device has begun, by slot."""
    found: HostRows | None = None
    """What it has decided for them, while it is copied to the host."""


@dataclass(frozen=True, slots=True)
class LaunchedStep:
    """A decode step that the device computes, or has computed. `Runner.collect` returns its tokens."""

    slots: tuple[int, ...]
    """The slots that took part."""
    rows: HostRows
    """The numbers of the sampled tokens, one row for each slot from 0 on, while they are copied to the host."""
    searches: tuple[BeamSearch, ...] = ()
    """The searches whose beams took part."""
    found: HostRows | None = None
    """What the device has found for them, while it is copied to the host: the likeliest next tokens of their beams, or,
    where it decides itself, which of these they go on with. `None` without searches."""


@dataclass(frozen=True, slots=True)
class Transcribed:
    """The tokens that a window was decoded to, as `Runner.align` needs them."""

    control: tuple[int, ...]
    """The control tokens of the prompt of the attempt that counts; `AttemptOutput.control` is any attempt's."""
    tokens: tuple[int, ...]
    """The forced prefix and the tokens sampled after it, without the end token; at least one token."""
    samples: NDArray[np.float32]
    """The window's audio."""
    is_cut: bool = False
    """Whether the text ends before the model ended it, and so before the audio."""


class Runner:
    """A loaded model with its slots.

    The stages of a slot: `slots.allocate`, `encode`, (`detect_languages`,) `launch_prefill` and `collect_prefill`, any
    number of `launch`es and `collect`s, (`align`,) (`end_decoding`, a prefill, `launch`es and `collect`s,) `release`.
    """

    @torch.inference_mode()
    def __init__(self, checkpoint: Checkpoint, config: EngineConfig) -> None:
        """Load the model and allocate the memory of all slots. Raises `CheckpointError`."""
        self.checkpoint = checkpoint
        self._config = config
        self._n_threads = config.n_threads or _usual_threads()
        torch.set_num_threads(self._n_threads)
        model_config = checkpoint.model
        self.device, dtype = pick_device_and_dtype(config)
        int8_part = pick_int8_part(config, model_config, self.device)
        self.dtype = str(dtype).removeprefix("torch.") if int8_part is Int8Part.NOTHING else "int8"
        """What `dtype` of the configuration means here, in its words."""
        self.model = load_model(checkpoint, self.device, dtype, int8_part)
        n_slots = pick_n_slots(config, model_config, self.device, dtype)
        self.slots = SlotAllocator(n_slots)
        is_fused = uses_fused_kernels(config, model_config, self.device, dtype)
        lengths = WindowLengths(
            config.audio_context, checkpoint.generation.audio_context, model_config.max_source_positions
        )
        # The fused forward pass has a padding slot, the last one: it fills up the rows of a graph.
        self.cache = KVCache(
            model_config,
            n_slots + is_fused,
            self.device,
            dtype,
            has_int8_cross=config.cross_cache == "int8",
            project_states=self.model.decoder.cross_keys_values if config.cross_cache == "states" else None,
            has_columns=lengths.are_full and self.device.type == "cpu" and dtype == torch.float32,
        )
        self.states = SlotStates(checkpoint, n_rows_held(n_slots) if is_fused else n_slots, self.device)
        self._eager = EagerForward(
            self.model,
            self.cache,
            self.states.tokens,
            self.states.positions,
            encodes_alone=dtype == torch.float32 and self.model.encoder.conv1.weight.dtype == torch.bfloat16,
        )
        self.cuda_forward = (
            build_cuda_forward(checkpoint, config, self.model, self.cache, self.states) if is_fused else None
        )
        """The fused forward pass; `None` where the plain one is used."""
        self._forward: ForwardPass = self.cuda_forward or self._eager
        self._transfer = HostTransfer(self.device)
        self._encoder = WindowEncoder(
            self._forward,
            lengths,
            self._transfer,
            n_full_states=model_config.max_source_positions,
            n_filling=FILLING_WINDOWS if is_fused else config.max_encode_batch,
            cut=partial(GRAPH_SIZES.cut, model_config.max_source_positions, config.max_encode_batch)
            if is_fused
            else None,
        )

        self._n_step_threads = self._n_threads
        """The tensor threads of steps of few rows: as many as `warm_up` has found worth their cores."""
        self._beside: ThreadedEncoder | None = None
        if self.device.type == "cpu":
            self._beside = ThreadedEncoder(self._encoder, self._eager, self.cache, self._transfer)

    @property
    def n_parameters(self) -> int:
        """The number of the model's weights."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def n_ahead(self) -> int:
        """The number of steps that are launched before the tokens of the step before them are collected.

        Where the host chooses the tokens of beams, a search is never ahead.
        """
        waits = self.states.searches and self._device_beams is None
        is_ahead = self.device.type == "cuda" and self._config.steps_ahead and not waits
        return 1 if is_ahead else 0

    @cached_property
    def _beams(self) -> HostBeams:
        return HostBeams(self.states, self.cache, self._transfer)

    @cached_property
    def _device_beams(self) -> "DeviceBeams | None":
        """What decides searches on the device; `None` where the host does."""
        return self.cuda_forward.beams(self.states, self._transfer) if self.cuda_forward else None

    @property
    def search_type(self) -> type[BeamSearch]:
        """The searches that it makes."""
        return FollowedSearch if self._device_beams else BeamSearch

    @property
    def n_filling(self) -> int:
        """The number of full windows that fill the device: more in one call take as long each."""
        return self._encoder.n_filling

    @property
    def min_encode_work(self) -> float:
        """The least work of an encoder call, in full windows."""
        return 0.0 if self.cuda_forward is None else LEAST_SHARE

    @torch.inference_mode()
    def warm_up(self) -> Speed:
        """Run everything once, so that no window pays for first calls, and measure how fast the device is.

        The shortest of several times counts: other programs only add to them. Afterwards no memory is kept that only
        this took.
        """
        model = self.checkpoint.model
        if self.cuda_forward:
            self.cuda_forward.capture(self._config.max_encode_batch, self._encoder.lengths.max_short)
        slots, is_cpu = list[int](), self.device.type == "cpu"
        silence = np.zeros(USUAL_UTTERANCE_SAMPLES if is_cpu else WINDOW_SAMPLES, np.float32)
        n_windows = 1 if self.cuda_forward is None else min(self.n_filling, self.slots.n_free)

        def encode() -> None:
            # A CPU encodes one after another, and a GPU as many in a call as fill it.
            if is_cpu or not slots:
                slots.extend(self.slots.allocate() for _ in range(n_windows))
            self.encode([silence] * n_windows, slots[-n_windows:])
            self.synchronize()

        n_calls, max_s = (min(PROBE_WINDOWS, self.slots.n_free), PROBE_S) if is_cpu else (2, math.inf)
        window_s = shortest_s(encode, n_calls, max_s) / n_windows / self.encode_work(len(silence), False)
        prompt = Prompt(tokens=(self.checkpoint.tokenizer.sot,), sot_index=0, n_prefix=0)
        n = len(slots)
        self.collect_prefill(self.launch_prefill(slots, [prompt] * n, [Draw()] * n))
        step_s = self._choose_step_threads() if is_cpu else self._shortest_step_s()
        if self._device_beams and n > 1:
            self._search_once(slots[:2], prompt)
        for slot in slots:
            self.release(slot)
        if self.cuda_forward:
            pool, n_slots = self.cuda_forward.pool, self.slots.n_free
            logger.info(
                "%d CUDA graphs captured in %.1f s; %.1f GiB of the GPU's memory taken, %.1f GiB of it by %d slots",
                pool.n_graphs,
                pool.seconds,
                torch.cuda.memory_reserved(self.device) / (1 << 30),
                n_slots * slot_bytes(model, self.cache.dtype.itemsize, self._config.cross_cache) / (1 << 30),
                n_slots,
            )
        self.return_free_memory()
        return Speed(window_s, step_s, n)

    def _search_once(self, slots: Sequence[int], prompt: Prompt) -> None:
        """Run a step of a search, whose kernels nothing else runs, in slots of which the first holds a window."""
        options, eot = Sampling(beam_size=len(slots)), self.checkpoint.tokenizer.eot
        search = self.search_type(options, eot=eot, max_tokens=2, slots=slots)
        self.collect_prefill(self.launch_prefill(slots[:1], [prompt], [Draw(search=search)]))
        self.collect(self.launch())

    def _shortest_step_s(self) -> float:
        return shortest_s(lambda: self.collect(self.launch()), PROBE_STEPS)

    def _choose_step_threads(self) -> float:
        """Find the fewest threads with which steps are nearly the fastest. Returns the seconds of a step."""
        times_s: dict[int, float] = {}
        for n_threads in (1 << power for power in range(self._n_threads.bit_length())):
            self._n_step_threads = n_threads
            times_s[n_threads] = self._shortest_step_s()
        bound_s = WORTH_A_THREAD * min(times_s.values())
        self._n_step_threads = min(n_threads for n_threads, time_s in times_s.items() if time_s <= bound_s)
        return times_s[self._n_step_threads]

    def _use_threads(self, n_rows: int) -> None:
        """Set the tensor threads of what comes next in this thread, on a CPU. A core is left to windows under way."""
        if self._beside:
            n_most = max(1, self._n_threads - 1) if self._beside.is_encoding() else self._n_threads
            torch.set_num_threads(min(n_most, self._n_step_threads) if n_rows <= FEW_ROWS else n_most)

    def return_free_memory(self) -> None:
        """Give memory of the host that is not in use back to the system. Call it when no window is expected."""
        self.cache.return_free_memory()
        return_freed_memory()

    def return_unused_slots(self) -> None:
        """Give the memory of slots back that had no window since the last call. It takes less than a millisecond each.

        Call it now and then during a load.
        """
        self.cache.return_free_memory(keeps_recent=True)

    @torch.inference_mode()
    def encode(
        self, windows: Sequence[NDArray[np.float32]], slots: Sequence[int], are_interims: Sequence[bool] = ()
    ) -> None:
        """Encode windows of up to 30 s, of which some may be interims, and write what cross-attention reads."""
        are_interims = are_interims or [False] * len(windows)
        if self._beside:
            self._beside.begin(windows, slots, are_interims, self._n_threads)
            self._beside.finish()
        else:
            self._encoder.encode(windows, slots, are_interims)

    @property
    def encodes_beside_steps(self) -> bool:
        """Whether `begin_encoding` returns at once, so that steps are computed while windows are encoded: on a CPU."""
        return self._beside is not None

    def begin_encoding(
        self, windows: Sequence[NDArray[np.float32]], slots: Sequence[int], are_interims: Sequence[bool]
    ) -> None:
        """Begin to encode windows where `encodes_beside_steps`; see `encode`. One call may be under way at a time.

        Until `finish_encoding` their slots take part in nothing else. A core is left to the steps while slots run.
        """
        assert self._beside
        self._beside.begin(windows, slots, are_interims, self._n_encode_threads)

    @property
    def _n_encode_threads(self) -> int:
        """The tensor threads of an encoder call that begins now: all, less those of steps while slots run."""
        return max(1, self._n_threads - self._n_step_threads) if self.states.running else self._n_threads

    @property
    def encode_device_share(self) -> float:
        """The part of the device that an encoder call has that begins now."""
        return self._n_encode_threads / self._n_threads if self._beside else 1.0

    @property
    def step_device_share(self) -> float:
        """The part of the device that a step of few rows has."""
        return min(1.0, self._n_step_threads / self._n_threads) if self._beside else 1.0

    def finish_encoding(self) -> None:
        """Wait until the windows of `begin_encoding` are encoded, if a call is under way."""
        if self._beside:
            self._beside.finish()

    def is_encoding(self) -> bool:
        """Return whether the device still works on the last `encode` or `begin_encoding`."""
        return self._beside.is_encoding() if self._beside else self._encoder.is_encoding()

    def encode_work(self, n_samples: int, is_interim: bool) -> float:
        """Return the work of encoding a window, in full windows."""
        return self._encoder.encode_work(n_samples, is_interim)

    @torch.inference_mode()
    def detect_languages(self, slots: Sequence[int], candidates: Sequence[Collection[str]]) -> list[dict[str, float]]:
        """Return the probability of every candidate, by its language code, for each encoded slot.

        Args:
            candidates: the language codes that are possible in each slot; all that the model knows where empty.

        Source: openai/whisper, whisper/decoding.py, `detect_language`.
        """
        self._use_threads(len(slots))
        hidden = self._forward.prefill([(self.checkpoint.tokenizer.sot,)] * len(slots), slots)
        language_ids = to_device(list(self.checkpoint.generation.languages.values()), self.device)
        logits = self._forward.logits(hidden[:, 0])[:, language_ids]
        languages = tuple(self.checkpoint.generation.languages)
        possible = [chosen or languages for chosen in candidates]
        if any(candidates):
            is_possible = to_device([[each in chosen for each in languages] for chosen in possible], self.device)
            logits = logits.masked_fill(~is_possible, -torch.inf)
        rows = logits.softmax(dim=-1).tolist()
        return [
            {language: share for language, share in zip(languages, row, strict=True) if language in chosen}
            for row, chosen in zip(rows, possible, strict=True)
        ]

    @torch.inference_mode()
    def launch_prefill(self, slots: Sequence[int], prompts: Sequence[Prompt], draws: Sequence[Draw]) -> LaunchedPrefill:
        """Run the prompts of encoded slots in one call, with their draft tokens, and set the slots running.

        One token is sampled after each prompt, and one after each of its draft tokens; `_accept_drafts` says which of
        them count. A slot that is running begins anew. Steps may be launched before `collect_prefill` waits for the
        tokens: the device verifies drafts where the forward pass is fused and no slot has hotwords, a temperature
        or attention peaks. Otherwise, and with FlashInfer, which plans steps on the host, this call waits itself.
        """
        self._use_threads(sum(len(prompt.tokens) + len(prompt.draft) for prompt in prompts))
        for slot, prompt, draw in zip(slots, prompts, draws, strict=True):
            self._beams.end(slot)
            self.states.begin(slot, prompt, draw)
        hidden, weights = self._run_prompts(slots, prompts)
        places = [(row, n_drafted) for row, prompt in enumerate(prompts) for n_drafted in range(len(prompt.draft) + 1)]
        owners = [slots[row] for row, _ in places]
        rows, positions, owner_rows, drafted = _on_device(
            self.device,
            [row for row, _ in places],
            [len(prompts[row].tokens) + n_drafted - 1 for row, n_drafted in places],
            owners,
            [token for prompt in prompts for token in (*prompt.draft, 0)],
        )
        state = self.states.rules_after(
            [prompts[row] for row, _ in places],
            [prompts[row].prefix + prompts[row].draft[:n_drafted] for row, n_drafted in places],
        )
        logits = self._forward.logits(hidden[rows, positions])
        no_speech_probs = self._no_speech_probs(hidden, prompts)
        cuda, is_plain = self.cuda_forward, self.states.are_plain
        results: list[Prefilled] | HostRows
        # With attention weights, steps are those of the plain forward pass, which reads the host's positions.
        may_start = cuda and cuda.starts_slots and not self.states.want_attention([*slots, *self.states.running])
        starts = _on_device(self.device, *_starts(slots, prompts))
        begun: dict[int, BeamSearch] = {}
        found: HostRows | None = None
        if cuda and is_plain and may_start:
            sampled = cuda.sampler.sample_apart(logits, state)
            cuda.sampler.start(sampled, state, drafted, starts)
            self.states.expect_running(slots, prompts)
            results = self._transfer.start_copy_to_host(torch.cat([sampled.flatten(), no_speech_probs])[None])
            if self._device_beams and self.states.searches:
                begun = {slot: self.states.searches[slot] for slot in slots if slot in self.states.searches}
                found = self._device_beams.begin(slots, prompts, logits[starts[1]], are_ruled=False)
        else:
            if cuda and is_plain:
                columns = [*cuda.sampler.sample_apart(logits, state)]
            else:
                columns = [*self.states.sample_apart(owner_rows, owners, state, logits)]
            if weights is not None:
                columns.append(self.states.attention_peaks(weights[rows, :, positions], owners))
            if self.states.searches:
                self._begin_searches(slots, prompts, logits, starts[1], columns)
            results = self._start_on_host(slots, prompts, columns, no_speech_probs)
        return LaunchedPrefill(tuple(slots), tuple(prompts), results, begun, found)

    def collect_prefill(self, launched: LaunchedPrefill) -> list[Prefilled]:
        """Wait for what a prefill gives. Call it before anything but a step is done with its slots."""
        if not isinstance(launched.results, HostRows):
            return launched.results
        numbers = [number for (number,) in launched.results.read()]
        n_places = sum(len(prompt.draft) + 1 for prompt in launched.prompts)
        tokens, logprobs, no_speech_probs = (
            numbers[:n_places],
            numbers[n_places : 2 * n_places],
            numbers[2 * n_places :],
        )
        prefilled = _accept_drafts(launched.prompts, list(map(_sampled_token, tokens, logprobs)), no_speech_probs)
        for slot, prompt, result in zip(launched.slots, launched.prompts, prefilled, strict=True):
            self.states.correct(slot, len(prompt.draft) + 1 - len(result.tokens))
        if self._device_beams and launched.found:
            self._device_beams.follow(launched.searches.values(), launched.found, None)
        return [
            Prefilled(launched.searches[slot].result, result.no_speech_prob) if slot in launched.searches else result
            for slot, result in zip(launched.slots, prefilled, strict=True)
        ]

    @torch.inference_mode()
    def launch(self) -> LaunchedStep:
        """Begin one more token for every running slot; `collect` waits for it."""
        states = self.states
        n_rows = n_rows_of(states.running)
        self._use_threads(n_rows)
        searches = tuple(states.searches.values())
        if self._device_beams:
            self._device_beams.update(searches)
        weights: Tensor | None = None
        if states.want_attention(states.running):
            logits, weights = self._eager.step_with_attention(
                states.running, self.checkpoint.generation.alignment_heads
            )
        else:
            logits = self._forward.step(states.running)
        states.advance()
        is_fused = weights is None and states.are_plain
        if self.cuda_forward and is_fused:
            sampled = self.cuda_forward.sample(logits)
        else:
            columns = [*states.sample_step(logits)]
            if weights is not None:
                columns.append(states.attention_peaks(weights[:, :, 0], range(n_rows)))
            sampled = torch.stack([column.float() for column in columns])
        found: HostRows | None = None
        if searches and self._device_beams:
            found = self._device_beams.step(searches, None if is_fused else logits)
        elif searches:
            found = self._beams.find_candidates(logits[states.beam_rows])
        on_host = self._transfer.start_copy_to_host(sampled[:, :n_rows])
        return LaunchedStep(states.sequences, on_host, searches, found)

    @torch.inference_mode()
    def collect(self, step: LaunchedStep) -> dict[int, SampledToken]:
        """Return the tokens of a step, by slot. A slot with a search has none: the search has advanced."""
        host = step.rows.read()
        sampled = {slot: _sampled_token(*host[slot]) for slot in step.slots}
        if step.found:
            for search in step.searches:
                del sampled[search.slots[0]]
            peaks_s = [peak_s(*row[2:]) for row in host] if len(host[0]) > 2 else None
            if self._device_beams:
                self._device_beams.follow(step.searches, step.found, peaks_s)
            else:
                self._beams.advance(step.searches, step.found, peaks_s)
        return sampled

    @torch.inference_mode()
    def align(self, slots: Sequence[int], transcripts: Sequence[Transcribed]) -> list[Alignment]:
        """Find when the tokens of decoded slots were spoken, and how likely each was: one pass over whole transcripts.

        The slots must still hold their windows, and must not be stepped afterwards.
        """
        sequences = [(*each.control, *each.tokens) for each in transcripts]
        self._use_threads(sum(map(len, sequences)))
        hidden, weights = self._eager.prefill_with_attention(
            sequences, slots, self.checkpoint.generation.alignment_heads
        )
        alignments = []
        for row, each in enumerate(transcripts):
            begin, end = len(each.control), len(each.control) + len(each.tokens)
            probabilities = self._eager.logits(hidden[row, begin - 1 : end - 1]).softmax(dim=-1)
            token_probabilities = probabilities.gather(1, to_device(each.tokens, self.device)[:, None])[:, 0]
            # The row before a token's position predicts the token: the decoder listens there for what it writes next.
            rows = weights[row, :, begin - 1 : end - 1].cpu().numpy()
            sounding = sounding_states(each.samples)
            times_s = token_times_s(rows, states_of_cut_text(rows, sounding) if each.is_cut else sounding)
            alignments.append(Alignment(*times_s, tuple(token_probabilities.tolist())))
        return alignments

    def end_decoding(self, slot: int) -> None:
        """Take a slot out of the steps. It keeps its window, which another `prefill` can decode."""
        self._beams.end(slot)
        self.states.end(slot)

    @torch.inference_mode()
    def release(self, slot: int) -> None:
        """Free a slot, at any of its stages."""
        self.cache.forget(slot)
        self._beams.end(slot)
        self.states.end(slot)
        self.slots.free(slot)

    def synchronize(self) -> None:
        """Wait until the device has done everything that was launched."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _run_prompts(self, slots: Sequence[int], prompts: Sequence[Prompt]) -> tuple[Tensor, Tensor | None]:
        """Return hidden states, and the attention weights if any of the slots wants them."""
        sequences = [prompt.tokens + prompt.draft for prompt in prompts]
        if self.states.want_attention(slots):
            heads = self.checkpoint.generation.alignment_heads
            return self._eager.prefill_with_attention(sequences, slots, heads)
        return self._forward.prefill(sequences, slots), None

    def _no_speech_probs(self, hidden: Tensor, prompts: Sequence[Prompt]) -> Tensor:
        rows, sot_positions = _on_device(self.device, range(len(prompts)), [prompt.sot_index for prompt in prompts])
        logits = self._forward.logits(hidden[rows, sot_positions])
        return logits.softmax(dim=-1)[:, self.checkpoint.tokenizer.no_speech]

    def _begin_searches(
        self,
        slots: Sequence[int],
        prompts: Sequence[Prompt],
        logits: Tensor,
        first: Tensor,
        columns: Sequence[Tensor],
    ) -> None:
        """Begin the searches of a prefill whose tokens the host waits for.

        Args:
            first: the first row of each slot in `logits` and `columns`.
            columns: what was sampled there: tokens, log-probabilities and, if any slot wants them, attention peaks.
        """
        peaks = [column[first] for column in columns[2:]]
        if self._device_beams is None:
            self._beams.begin(slots, prompts, logits[first], peaks)
            return
        are_ruled = not self.states.are_plain
        found = self._device_beams.begin(slots, prompts, logits[first], are_ruled=are_ruled)
        if found:
            begun = {slot: self.states.searches[slot] for slot in slots if slot in self.states.searches}
            peaks_s = {
                each: peak_s(state)
                for column in peaks
                for slot, state in zip(slots, column.tolist(), strict=True)
                for each in (begun[slot].slots if slot in begun else ())
            }
            self._device_beams.follow(begun.values(), found, peaks_s)

    def _start_on_host(
        self,
        slots: Sequence[int],
        prompts: Sequence[Prompt],
        columns: Sequence[Tensor],
        no_speech_probs: Tensor,
    ) -> list[Prefilled]:
        """Wait for what was sampled after prompts, `columns` of numbers, and set their slots running."""
        *sampled_columns, on_host = to_host([*columns, no_speech_probs])
        prefilled = _accept_drafts(prompts, list(map(_sampled_token, *sampled_columns)), on_host)
        starts: list[tuple[int, int, tuple[int, ...]]] = []
        for row, slot in enumerate(slots):
            search = self.states.searches.get(slot)
            if search is None:
                starts.append((row, slot, tuple(each.token for each in prefilled[row].tokens)))
                continue
            # The tokens of a search are certain at its end only.
            prefilled[row] = Prefilled(search.result, prefilled[row].no_speech_prob)
            if self._device_beams:
                continue
            beams = zip(search.slots, search.beams, strict=True)
            starts += [(row, own, (beam.sampled[-1].token,)) for own, beam in beams]
        if not starts:
            return prefilled
        self.states.set_running(
            [slot for _, slot, _ in starts],
            [prompts[row] for row, _, _ in starts],
            [tokens for _, _, tokens in starts],
        )
        return prefilled


def _on_device(device: torch.device, *columns: Sequence[int]) -> Tensor:
    """Bring numbers to the device in one transfer: `(columns, numbers)`."""
    return to_device([list(column) for column in columns], device)


def _starts(slots: Sequence[int], prompts: Sequence[Prompt]) -> tuple[Sequence[int], ...]:
    """The columns that `FusedSampler.start` takes: slots, first places, numbers of draft and of prompt tokens."""
    n_drafted = [len(prompt.draft) for prompt in prompts]
    first_places = [0, *itertools.accumulate(n + 1 for n in n_drafted)][:-1]
    return slots, first_places, n_drafted, [len(prompt.tokens) for prompt in prompts]


def _sampled_token(token: float, logprob: float, state: float = -1) -> SampledToken:
    return SampledToken(int(token), logprob, None if state < 0 else peak_s(state))


def _accept_drafts(
    prompts: Sequence[Prompt], sampled: Sequence[SampledToken], no_speech_probs: Sequence[float]
) -> list[Prefilled]:
    """Accept the tokens of each prompt that equal its draft, up to and with the first that differs.

    This is the checking half of speculative decoding.
    """
    prefilled: list[Prefilled] = []
    begin = 0
    for prompt, no_speech_prob in zip(prompts, no_speech_probs, strict=True):
        own = sampled[begin : begin + len(prompt.draft) + 1]
        begin += len(own)
        right = itertools.takewhile(lambda pair: pair[0] == pair[1].token, zip(prompt.draft, own, strict=False))
        n_accepted = sum(1 for _ in right)
        prefilled.append(Prefilled(tuple(own[: n_accepted + 1]), no_speech_prob))
    return prefilled


def load_runner(config: EngineConfig) -> Runner:
    """Find, read and load the model of a configuration.

    Raises:
        CheckpointError: it cannot be used here.
    """
    return Runner(open_checkpoint(config.model), config)
