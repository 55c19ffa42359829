"""The passes of an NVIDIA GPU, in 16 bits: fused kernels, captured as CUDA graphs wherever shapes come back.

A graph is captured for a number of rows; fewer rows are filled up with a slot that nobody owns and that holds nothing.
Everything that changes from replay to replay lies in tensors on the device.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from torch import Tensor

from engine.config import Kernels
from engine.cuda.fused_model import Attend, FusedDecoder, FusedEncoder, Products
from engine.cuda.fused_sampling import FusedSampler
from engine.errors import CheckpointError
from engine.model.forward import FILLING_WINDOWS, ROWS, least, n_rows_of, pad
from engine.model.host_transfer import to_device
from engine.model.kv_cache import KVCache
from engine.model.packing import Run
from engine.model.whisper import Whisper

if TYPE_CHECKING:
    from engine.cuda.flashinfer_attention import FlashInfer, FlashInferSteps

T = TypeVar("T")

logger = logging.getLogger(__name__)

READ_ROWS = (1, 2, 4, 8, 16, 32, 64)
READ_TOKENS = (4, 8, 16, 32)
"""Prompts with their drafts: rows and tokens for which there is a graph."""
ENCODE_WINDOWS = (FILLING_WINDOWS, 2, 1)
"""Full windows for which there is a graph; more are encoded in several parts."""
FEW_STATES = 1_600
"""So many encoder states take a GPU little longer than fewer: windows are filled up to the next graph, not split."""
SHORT_WINDOWS = (16, 8)
"""Of shorter windows so many too, where they hold no more states than the most full ones."""
FLASHINFER_FOR = (9, 0)
"""The compute capability on which FlashInfer's attention over full windows was measured to be faster than cuDNN's."""


@dataclass(frozen=True, slots=True)
class Captured(Generic[T]):
    """A graph and where its results lie after a replay."""

    graph: torch.cuda.CUDAGraph
    out: T

    def replay(self) -> T:
        self.graph.replay()
        return self.out


class GraphPool:
    """Captures graphs that share their memory: they are replayed one after another, on one stream."""

    def __init__(self) -> None:
        self._pool: Any = None
        self.n_graphs = 0
        self.seconds = 0.0

    def capture(self, body: Callable[[], T]) -> Captured[T]:
        start_s = time.perf_counter()
        # Once without capturing: kernels are compiled, and libraries allocate their workspaces.
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            body()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            out = body()
        self._pool = graph.pool()
        self.n_graphs += 1
        self.seconds += time.perf_counter() - start_s
        return Captured(graph, out)


@dataclass(frozen=True, slots=True)
class _Encoding:
    features: Tensor
    slots: Tensor
    attend: Attend | None
    """Kept because the graph reads what it holds."""
    graph: Captured[None]


@dataclass(frozen=True, slots=True)
class _Reading:
    tokens: Tensor
    slots: Tensor
    hidden: Captured[Tensor]


class CudaGraphForward:
    """See `ForwardPass`. `capture` comes first."""

    def __init__(
        self,
        model: Whisper,
        cache: KVCache,
        tokens: Tensor,
        positions: Tensor,
        sampler: FusedSampler,
        products: Products[Any],
        *,
        nobody: int,
        with_graphs: bool,
        kernels: Kernels,
    ) -> None:
        """Args:
        tokens, positions: the last token of every slot and its position, for as many rows as there are slots, and
            more up to the next of `ROWS`.
        sampler: over the same tensors.
        products: those of the encoder.
        nobody: a slot that holds nothing.
        """
        self._cache = cache
        self._tokens = tokens
        self._positions = positions
        self._sampler = sampler
        self._nobody = nobody
        self._with_graphs = with_graphs
        self._products = products
        self._encoder = FusedEncoder(model.encoder, products)
        self._decoder = FusedDecoder(model.decoder, cache)
        self._slots = torch.arange(tokens.shape[0], device=cache.device).clamp_(max=nobody)
        self._starts = torch.zeros(max(READ_ROWS), dtype=torch.long, device=cache.device)
        self.pool = GraphPool()
        self._steps: dict[int, Captured[Tensor]] = {}
        self._samples: dict[int, Captured[Tensor]] = {}
        self._readings: dict[tuple[int, int], _Reading] = {}
        self._encodings: dict[int, dict[int, _Encoding]] = {}
        """By states of a window, then by windows, the most first."""
        self._flashinfer = load_flashinfer(model, cache, kernels)
        """For full windows, and for the rest too where it was asked for by name."""
        self._all_by_flashinfer = kernels == "flashinfer"
        self._plans: dict[int, FlashInferSteps] = {}

    def capture(self, max_windows: int, features: tuple[int, int], shorter: Sequence[int] = ()) -> None:
        """Capture all graphs, the largest first.

        Args:
            max_windows: in one encoder call.
            features: mel bands and frames of a full window.
            shorter: encoder states of shorter windows that come back, from short to long.
        """
        if not self._with_graphs:
            return
        for rows in reversed([each for each in ROWS if each <= self._tokens.shape[0]]):
            if self._all_by_flashinfer:
                self._plan(rows).plan_longest()
            step = self._steps[rows] = self.pool.capture(partial(self._step, rows))
            self._samples[rows] = self.pool.capture(partial(self._sampler, step.out))
        most = least(READ_ROWS, self._nobody) or READ_ROWS[-1]
        for rows in reversed([each for each in READ_ROWS if each <= most]):
            for n_tokens in reversed(READ_TOKENS):
                self._readings[rows, n_tokens] = self._capture_reading(rows, n_tokens)
        for n_states in (self._n_full_states, *reversed(shorter)):
            fitting = [each for each in SHORT_WINDOWS if each * n_states <= ENCODE_WINDOWS[0] * self._n_full_states]
            self._encodings[n_states] = {
                windows: self._capture_encoding(windows, (features[0], 2 * n_states))
                for windows in (*fitting, *ENCODE_WINDOWS)
                if windows <= max_windows
            }

    def _capture_encoding(self, windows: int, features: tuple[int, int]) -> _Encoding:
        held = torch.zeros((windows, *features), device=self._cache.device, dtype=self._cache.dtype)
        slots = torch.full((windows,), self._nobody, dtype=torch.long, device=self._cache.device)
        runs = [Run(slice(0, windows), windows, features[1] // 2, 0)]

        def body() -> None:
            self._decoder.write_cross_attention(self._encoder(held, runs, attend), slots, self._products)

        attend = self._attention(runs)
        return _Encoding(held, slots, attend, self.pool.capture(body))

    def _capture_reading(self, rows: int, n_tokens: int) -> _Reading:
        device = self._cache.device
        tokens = torch.zeros((rows, n_tokens), dtype=torch.long, device=device)
        slots = torch.full((rows,), self._nobody, dtype=torch.long, device=device)
        hidden = self.pool.capture(partial(self._decoder, tokens, self._starts[:rows], slots))
        return _Reading(tokens, slots, hidden)

    def encode(self, features: Tensor, slots: Sequence[int], runs: Sequence[Run]) -> None:
        for run in runs:
            for slot in slots[run.windows]:
                self._cache.set_length(slot, run.n_states)
        own = to_device(slots, self._cache.device)
        if any(run.n_states not in self._encodings for run in runs):
            states = self._encoder(features, runs, self._attention(runs))
            for run in runs:
                part = states[run.start : run.start + run.n_windows * run.n_states]
                self._decoder.write_cross_attention(part, own[run.windows], self._products)
            return
        for run in runs:
            captured, at = self._encodings[run.n_states], run.windows.start
            while at < run.windows.stop:
                n_left = run.windows.stop - at
                n_filled = least(sorted(captured), n_left)
                if n_filled is None or n_filled * run.n_states > FEW_STATES:
                    n_filled = next(each for each in captured if each <= n_left)
                encoding, n_windows = captured[n_filled], min(n_filled, n_left)
                encoding.features[:n_windows].copy_(features[at : at + n_windows, :, : 2 * run.n_states])
                encoding.slots[:n_windows].copy_(own[at : at + n_windows])
                encoding.slots[n_windows:].fill_(self._nobody)
                encoding.graph.replay()
                at += n_windows

    def _attention(self, runs: Sequence[Run]) -> Attend | None:
        """FlashInfer's over these windows; `None` for cuDNN's."""
        are_full = all(run.n_states == self._n_full_states for run in runs)
        return self._flashinfer.attend(runs) if self._flashinfer and (are_full or self._all_by_flashinfer) else None

    @property
    def _n_full_states(self) -> int:
        return self._cache.cross_attention.shape[4]

    def read(self, tokens: Sequence[Sequence[int]], slots: Sequence[int]) -> Tensor:
        self._cache.update()
        n_tokens = max(map(len, tokens))
        rows, length = least(READ_ROWS, len(slots)), least(READ_TOKENS, n_tokens)
        reading = self._readings.get((rows or 0, length or 0))
        if reading is None:
            starts = torch.zeros(len(slots), dtype=torch.long, device=self._cache.device)
            padded = to_device(pad(tokens, n_tokens), self._cache.device)
            return self._decoder(padded, starts, to_device(slots, self._cache.device))
        n_more = reading.tokens.shape[0] - len(slots)
        reading.tokens.copy_(to_device(pad([*tokens, *([()] * n_more)], reading.tokens.shape[1]), self._cache.device))
        reading.slots.copy_(to_device([*slots, *([self._nobody] * n_more)], self._cache.device))
        return reading.hidden.replay()[: len(slots), :n_tokens]

    def step(self, positions: dict[int, int]) -> Tensor:
        self._cache.update()
        rows = least(ROWS, n_rows_of(positions)) or len(self._tokens)
        if self._all_by_flashinfer:
            self._plan(rows).plan(positions)
        captured = self._steps.get(rows)
        return self._step(rows) if captured is None else captured.replay()

    def _plan(self, rows: int) -> "FlashInferSteps":
        assert self._flashinfer
        if rows not in self._plans:
            self._plans[rows] = self._flashinfer.steps(rows)
        return self._plans[rows]

    def sample(self, logits: Tensor) -> Tensor:
        """Tokens and log-probabilities, `(2, rows)` float32, from the logits of the last `step`; see `FusedSampler`."""
        captured = self._samples.get(logits.shape[0])
        return self._sampler(logits) if captured is None else captured.replay()

    def logits(self, hidden: Tensor) -> Tensor:
        return self._decoder.logits(hidden)

    def _step(self, rows: int) -> Tensor:
        tokens, positions = self._tokens[:rows, None], self._positions[:rows]
        attention = self._plan(rows) if self._all_by_flashinfer else None
        return self._decoder.logits(self._decoder(tokens, positions, self._slots[:rows], attention)[:, 0])


def load_flashinfer(model: Whisper, cache: KVCache, kernels: Kernels) -> "FlashInfer | None":
    """FlashInfer's attention, compiled; `None` where it is not wanted, or not asked for by name and not to be had.

    Raises:
        CheckpointError: it was asked for by name, and is missing or does not work here.
    """
    is_asked_for = kernels == "flashinfer"
    if not is_asked_for and (kernels != "auto" or torch.cuda.get_device_capability(cache.device) != FLASHINFER_FOR):
        return None
    try:
        from engine.cuda.flashinfer_attention import FlashInfer

        flashinfer = FlashInfer(model, cache)
        logger.info("attention over windows is FlashInfer's, which takes a minute or two to compile at the first start")
        flashinfer.compile()
        return flashinfer
    except ImportError as error:
        if is_asked_for:
            raise CheckpointError(
                f"kernels flashinfer: expected the package, as the extra cuda has it; {error}"
            ) from error
        logger.info("attention over windows is cuDNN's; FlashInfer's, of the extra cuda, would be faster: %s", error)
    except Exception as error:
        # Compiling fails in many ways, and cuDNN's kernels do the same.
        if is_asked_for:
            raise CheckpointError(f"kernels flashinfer: expected it to work on this machine, got {error}") from error
        logger.warning("attention over windows is cuDNN's, since FlashInfer does not work here: %s", error)
    return None
