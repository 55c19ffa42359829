"""The forward passes on an NVIDIA GPU, in 16 bits: fused kernels, captured as CUDA graphs for common batch sizes.

A graph has fixed shapes: a smaller batch is padded with rows of the padding slot, the last slot of the cache, which
never belongs to a window. All that changes from replay to replay is in tensors on the device.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tutti_server.engine.config import EngineConfig
from tutti_server.engine.cuda.device_beams import DeviceBeams
from tutti_server.engine.cuda.fused_model import Attend, AttendIn, FusedDecoder, FusedEncoder, Products
from tutti_server.engine.cuda.fused_sampling import FusedSampler
from tutti_server.engine.cuda.graph_capture import CapturedGraph, GraphPool
from tutti_server.engine.cuda.graph_sizes import GRAPH_SIZES, LEAST_SHARED_ROWS, GraphSizes, PackedSize
from tutti_server.engine.cuda.hopper_attention import load_hopper_attention
from tutti_server.engine.cuda.packed_windows import PackedWindows, places_of
from tutti_server.engine.cuda.row_step import RowStep, load_row_steps
from tutti_server.engine.decoding.slot_states import SlotStates
from tutti_server.engine.errors import CheckpointError
from tutti_server.engine.model.forward import n_rows_of, pad
from tutti_server.engine.model.host_transfer import HostTransfer, to_device
from tutti_server.engine.model.kv_cache import KVCache
from tutti_server.engine.model.log_mel import STATE_SAMPLES, LogMel
from tutti_server.engine.model.packing import Run
from tutti_server.engine.model.whisper import Whisper

if TYPE_CHECKING:
    from tutti_server.engine.cuda.flashinfer_attention import FlashInfer, FlashInferSteps

logger = logging.getLogger(__name__)


class CudaGraphForward:
    """A `ForwardPass` that replays CUDA graphs. Call `capture` before anything else."""

    def __init__(
        self,
        model: Whisper,
        cache: KVCache,
        tokens: Tensor,
        positions: Tensor,
        sampler: FusedSampler,
        products: Products[Any],
        config: EngineConfig,
        sizes: GraphSizes = GRAPH_SIZES,
    ) -> None:
        """Load the kernels that the configuration asks for.

        Args:
            cache: has one slot more than windows may use: the padding slot.
            tokens: `(n_rows_held,)`: the last token of every slot, and of rows that pad the largest graph.
            positions: `(n_rows_held,)`: the positions of these tokens.
            sampler: samples from the logits of the same rows, and updates the same tensors.
            products: compute the encoder's matrix products.
        """
        self.pool = GraphPool()
        self._model = model
        self._cache = cache
        self._captures_graphs = config.cuda_graphs
        self._uses_row_steps = config.one_kernel_steps and config.kernels != "flashinfer"
        self._decoder = FusedDecoder(model.decoder, cache)
        self.sampler = sampler
        """Samples from the logits of the steps, and from those of rows that are no slots."""
        flashinfer = load_flashinfer(model, cache) if config.kernels == "flashinfer" else None
        self.starts_slots = flashinfer is None
        """Whether `FusedSampler.start` may be used. FlashInfer plans steps with the positions that the host knows."""
        self._encoding = _EncoderGraphs(
            FusedEncoder(model.encoder, products),
            model.log_mel,
            self._decoder,
            products,
            cache,
            sizes,
            flashinfer.attend if flashinfer else load_hopper_attention(cache),
        )
        self._prefills = _PrefillGraphs(self._decoder, cache, sizes)
        self._steps = _StepGraphs(self._decoder, cache, sampler, tokens, positions, sizes, flashinfer)

    def capture(self, max_windows: int, max_short: int = 0) -> None:
        """Capture all graphs, the largest of each kind first. `max_short` is 0 where all windows are full."""
        if self._captures_graphs:
            row_steps = load_row_steps(self._model.decoder, self._decoder, self._cache) if self._uses_row_steps else {}
            self._steps.capture(self.pool, row_steps)
            self._prefills.capture(self.pool)
            self._encoding.capture(self.pool, max_windows, max_short)

    def encode(self, samples: Tensor, slots: Sequence[int], runs: Sequence[Run]) -> None:
        """Encode windows into their slots; see `ForwardPass.encode`."""
        for run in runs:
            for slot in slots[run.windows]:
                self._cache.set_length(slot, run.n_states)
        self._encoding.encode(samples, slots, runs)

    def prefill(self, tokens: Sequence[Sequence[int]], slots: Sequence[int]) -> Tensor:
        """Run whole sequences and return their hidden states; see `ForwardPass.prefill`."""
        self._cache.update()
        return self._prefills.run(tokens, slots)

    def step(self, positions: dict[int, int]) -> Tensor:
        """Run one token of each slot and return the logits; see `ForwardPass.step`."""
        self._cache.update()
        return self._steps.run(positions)

    def sample(self, logits: Tensor) -> Tensor:
        """Sample from the logits of the last `step`; see `FusedSampler`.

        Returns:
            `(2, rows)` float32: tokens and log-probabilities.
        """
        return self._steps.sample(logits)

    def beams(self, states: SlotStates, transfer: HostTransfer) -> DeviceBeams:
        """Return what decodes the beams of the slots whose states these are."""
        return DeviceBeams(states, self._cache, self.sampler, transfer)

    def logits(self, hidden: Tensor) -> Tensor:
        """`(rows, d_model)` to `(rows, vocab_size)` float32."""
        return self._decoder.logits(hidden)


class _StepGraphs:
    """Decode steps, and sampling from their logits: one graph of each for every number of rows."""

    def __init__(
        self,
        decoder: FusedDecoder,
        cache: KVCache,
        sampler: FusedSampler,
        tokens: Tensor,
        positions: Tensor,
        sizes: GraphSizes,
        flashinfer: "FlashInfer | None",
    ) -> None:
        self._decoder = decoder
        self._cache = cache
        self._sampler = sampler
        self._tokens = tokens
        self._positions = positions
        self._slots = torch.arange(tokens.shape[0], device=cache.device).clamp_(max=cache.padding_slot)
        self._sizes = sizes
        self._flashinfer = flashinfer
        self._attentions: dict[int, FlashInferSteps] = {}
        """FlashInfer's attention, by number of rows."""
        self._row_steps: dict[int, RowStep] = {}
        """Kept because graphs read tensors that these objects hold."""
        self._steps: dict[int, CapturedGraph[Tensor]] = {}
        self._samplings: dict[int, CapturedGraph[Tensor]] = {}

    def capture(self, pool: GraphPool, row_steps: dict[int, RowStep]) -> None:
        """Capture the steps, with one kernel for those numbers of rows that have one."""
        self._row_steps = row_steps
        for rows in self._sizes.steps(len(self._tokens)):
            if attention := self._attention(rows):
                attention.plan_longest()
            launch = partial(self._launch_one, row_steps[rows]) if rows in row_steps else partial(self._launch, rows)
            step = self._steps[rows] = pool.capture(launch)
            self._samplings[rows] = pool.capture(partial(self._sampler, step.out))

    def run(self, positions: dict[int, int]) -> Tensor:
        n_rows = max(n_rows_of(positions), LEAST_SHARED_ROWS if self._cache.has_borrowers else 0)
        rows = self._sizes.step(n_rows, len(self._tokens))
        if attention := self._attention(rows):
            attention.plan(positions)
        captured = self._steps.get(rows)
        return self._launch(rows) if captured is None else captured.replay()

    def sample(self, logits: Tensor) -> Tensor:
        captured = self._samplings.get(logits.shape[0])
        return self._sampler(logits) if captured is None else captured.replay()

    def _launch(self, rows: int) -> Tensor:
        tokens, positions = self._tokens[:rows, None], self._positions[:rows]
        hidden = self._decoder(tokens, positions, self._slots[:rows], self._attention(rows), rows_are_slots=True)
        return self._decoder.logits(hidden[:, 0])

    def _launch_one(self, step: RowStep) -> Tensor:
        rows = step.n_rows
        return step(self._tokens[:rows], self._positions[:rows], self._slots[:rows])

    def _attention(self, rows: int) -> "FlashInferSteps | None":
        """FlashInfer's attention for this number of rows; `None` if our own kernels compute it."""
        if self._flashinfer is None:
            return None
        if rows not in self._attentions:
            self._attentions[rows] = self._flashinfer.steps(rows)
        return self._attentions[rows]


@dataclass(frozen=True, slots=True)
class _PrefillGraph:
    tokens: Tensor
    """`(rows, n_tokens)`: input of the graph."""
    slots: Tensor
    """`(rows,)`: input of the graph."""
    hidden: CapturedGraph[Tensor]


class _PrefillGraphs:
    """Prefills: one graph for every number of rows and tokens."""

    def __init__(self, decoder: FusedDecoder, cache: KVCache, sizes: GraphSizes) -> None:
        self._decoder = decoder
        self._padding_slot = cache.padding_slot
        self._device = cache.device
        self._sizes = sizes
        self._starts = torch.zeros(max(sizes.prefill_rows), dtype=torch.long, device=cache.device)
        """The position of each row's first token, which is always 0."""
        self._graphs: dict[tuple[int, int], _PrefillGraph] = {}

    def capture(self, pool: GraphPool) -> None:
        for rows, n_tokens in self._sizes.prefills(n_slots=self._padding_slot):
            tokens = torch.zeros((rows, n_tokens), dtype=torch.long, device=self._device)
            slots = torch.full((rows,), self._padding_slot, dtype=torch.long, device=self._device)
            hidden = pool.capture(partial(self._decoder, tokens, self._starts[:rows], slots))
            self._graphs[rows, n_tokens] = _PrefillGraph(tokens, slots, hidden)

    def run(self, tokens: Sequence[Sequence[int]], slots: Sequence[int]) -> Tensor:
        n_tokens = max(map(len, tokens))
        size = self._sizes.prefill(len(slots), n_tokens)
        graph = self._graphs.get(size) if size else None
        if graph is None:
            starts = torch.zeros(len(slots), dtype=torch.long, device=self._device)
            padded = to_device(pad(tokens, n_tokens), self._device)
            return self._decoder(padded, starts, to_device(slots, self._device))
        n_rows, width = graph.tokens.shape
        graph.tokens.copy_(to_device(pad([*tokens, *([()] * (n_rows - len(slots)))], width), self._device))
        padding = [self._padding_slot] * (n_rows - len(slots))
        graph.slots.copy_(to_device([*slots, *padding], self._device))
        return graph.hidden.replay()[: len(slots), :n_tokens]


@dataclass(frozen=True, slots=True)
class _EncoderGraph:
    samples: Tensor
    """`(windows, n_samples)` float32: input of the graph."""
    slots: Tensor
    """`(windows,)`: input of the graph."""
    attend: Attend | None
    """Kept because the graph reads tensors that this object holds."""
    graph: CapturedGraph[None]


@dataclass(frozen=True, slots=True)
class _PackedGraph:
    samples: Tensor
    """`(windows, n_samples)` float32: input of the graph."""
    windows: Tensor
    """`(2, windows + 1)`: input of the graph: the encoder states of each window, and its slot. The last is padding."""
    graph: CapturedGraph[None]


class _EncoderGraphs:
    """Encodes windows into the cross-attention cache.

    There is one graph for every number of full windows, and one for every number of states of shorter ones, packed.
    """

    def __init__(
        self,
        encoder: FusedEncoder,
        log_mel: LogMel,
        decoder: FusedDecoder,
        products: Products[Any],
        cache: KVCache,
        sizes: GraphSizes,
        attend_in: AttendIn | None,
    ) -> None:
        """Keep the parts. cuDNN computes the attention over full windows without `attend_in`."""
        self._encoder = encoder
        self._log_mel = log_mel
        self._decoder = decoder
        self._products = products
        self._cache = cache
        self._sizes = sizes
        self._attend_in = attend_in
        self._n_full_states = cache.cross_attention.shape[4]
        self._full: dict[int, _EncoderGraph] = {}
        """The graphs of full windows, by their number."""
        self._packed: dict[PackedSize, _PackedGraph] = {}
        """The graphs of shorter windows."""

    def capture(self, pool: GraphPool, max_windows: int, max_short: int) -> None:
        for windows in self._sizes.encoder_batches(max_windows):
            self._full[windows] = self._capture(pool, windows)
        for size in self._sizes.packed_sizes(max_windows, max_short):
            self._packed[size] = self._capture_packed(pool, size)

    def _capture(self, pool: GraphPool, windows: int) -> _EncoderGraph:
        device, n_states = self._cache.device, self._n_full_states
        samples = torch.zeros((windows, n_states * STATE_SAMPLES), device=device)
        slots = torch.full((windows,), self._cache.padding_slot, dtype=torch.long, device=device)
        runs = [Run(slice(0, windows), windows, n_states, 0)]

        def encode() -> None:
            states = self._encoder(self._log_mel(samples), runs, attend)
            self._decoder.write_cross_attention(states, places_of(slots, n_states), self._products)

        attend = self._attend(runs)
        return _EncoderGraph(samples, slots, attend, pool.capture(encode))

    def _capture_packed(self, pool: GraphPool, size: PackedSize) -> _PackedGraph:
        device = self._cache.device
        samples = torch.zeros((size.windows, size.longest * STATE_SAMPLES), device=device)
        windows = torch.zeros((2, size.windows + 1), dtype=torch.long, device=device)
        windows[1] = self._cache.padding_slot

        def encode() -> None:
            packed = PackedWindows(windows[0, :-1], size.states, size.longest)
            states = self._encoder.encode_packed(self._log_mel(samples), packed)
            self._decoder.write_cross_attention(states, packed.places(windows[1]), self._products)

        return _PackedGraph(samples, windows, pool.capture(encode))

    def encode(self, samples: Tensor, slots: Sequence[int], runs: Sequence[Run]) -> None:
        lengths = [run.n_states for run in runs for _ in range(run.n_windows)]
        if lengths[0] == self._n_full_states and len(slots) in self._full:
            self._replay(self._full[len(slots)], samples, slots)
        elif size := self._sizes.packed_size(lengths, self._packed):
            self._replay_packed(self._packed[size], samples, slots, lengths)
        else:
            self._launch(samples, slots, runs)

    def _launch(self, samples: Tensor, slots: Sequence[int], runs: Sequence[Run]) -> None:
        states = self._encoder(self._log_mel(samples), runs, self._attend(runs))
        on_device = to_device(slots, self._cache.device)
        for run in runs:
            part = states[run.start : run.start + run.n_windows * run.n_states]
            places = places_of(on_device[run.windows], run.n_states)
            self._decoder.write_cross_attention(part, places, self._products)

    def _replay(self, graph: _EncoderGraph, samples: Tensor, slots: Sequence[int]) -> None:
        graph.samples.copy_(samples)
        graph.slots.copy_(to_device(slots, self._cache.device))
        graph.graph.replay()

    def _replay_packed(
        self, graph: _PackedGraph, samples: Tensor, slots: Sequence[int], lengths: Sequence[int]
    ) -> None:
        n_windows, n_samples = len(lengths), min(samples.shape[1], graph.samples.shape[1])
        n_more = graph.windows.shape[1] - n_windows
        padded = [[*lengths, *([0] * n_more)], [*slots, *([self._cache.padding_slot] * n_more)]]
        graph.windows.copy_(to_device(padded, self._cache.device))
        graph.samples[:n_windows, :n_samples].copy_(samples[:, :n_samples])
        graph.samples[:n_windows, n_samples:].zero_()
        graph.graph.replay()

    def _attend(self, runs: Sequence[Run]) -> Attend | None:
        """The attention over these windows; `None` if PyTorch computes it, with cuDNN."""
        return self._attend_in(runs) if self._attend_in else None


def load_flashinfer(model: Whisper, cache: KVCache) -> "FlashInfer":
    """Load and compile FlashInfer's attention.

    Raises:
        CheckpointError: FlashInfer is not installed or does not work here.
    """
    try:
        from tutti_server.engine.cuda.flashinfer_attention import FlashInfer

        flashinfer = FlashInfer(model, cache)
        logger.info("attention uses FlashInfer, which compiles for a minute or two at the first start")
        flashinfer.compile()
        return flashinfer
    except ImportError as error:
        raise CheckpointError(
            f"kernels flashinfer: expected the package flashinfer, which the extra cuda installs, got: {error}"
        ) from error
    except Exception as error:
        # The compiler can fail in many ways.
        raise CheckpointError(f"kernels flashinfer: expected it to work on this machine, got: {error}") from error
