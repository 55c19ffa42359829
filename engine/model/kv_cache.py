"""The decoder's caches, which are allocated once: keys and values (or encoder states) of every slot, and free slots."""

import heapq
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from tutti_server.engine.checkpoint.checkpoint import ModelConfig
from tutti_server.engine.model.host_memory import HostMemory
from tutti_server.engine.model.host_transfer import to_device
from tutti_server.engine.model.packing import Run

Rows = slice | Tensor
"""Slots, in order. Consecutive slots are a slice, so that indexing gives a view; other slots are an index tensor."""
ProjectStates = Callable[[int, Tensor], Tensor]
"""A layer's keys and values of encoder states: from `(..., d_model)` to `(..., 2, heads, head_dim)`."""


INT8_MAX = 127
"""The largest integer of a key or value in 8 bits, and with a minus the smallest."""
MAX_SHARERS = 16
"""The most slots that attend to one window: more than a search has beams, and a power of two for the kernels."""
MIN_SCALE = 1e-6
"""The scale of keys and values that are all zero, or nearly: a positive number in 16 bits, too."""


class KVCache:
    """Self-attention and cross-attention keys and values of all slots.

    The buffers start as zeros and are never cleared. Positions beyond a slot's length hold what earlier windows left
    there. Attention masks these positions, so they must hold finite numbers: zero times NaN is NaN.
    """

    def __init__(
        self,
        model: ModelConfig,
        n_slots: int,
        device: torch.device,
        dtype: torch.dtype,
        *,
        has_int8_cross: bool = False,
        has_columns: bool = False,
        project_states: ProjectStates | None = None,
    ) -> None:
        """Allocate the buffers.

        Args:
            has_int8_cross: whether those of cross-attention are kept in 8 bits; see `quantise`.
            has_columns: whether those of cross-attention lie by column: see `has_columns`.
            project_states: if given, encoder states are kept instead of their keys and values, which this computes: see
                `encoder_states`.
        """
        head_dim = model.d_model // model.decoder_attention_heads
        shape = (model.decoder_layers, 2, n_slots, model.decoder_attention_heads)
        # (layers, keys | values, slots, heads, positions, head_dim)
        self._memory = memory = HostMemory(n_slots, n_parts=2 * model.decoder_layers)
        self.self_attention = memory.zeros((*shape, model.max_target_positions, head_dim), device, dtype)
        cross_shape, cross_dtype = (*shape, model.max_source_positions), torch.int8 if has_int8_cross else dtype
        self.encoder_states: Tensor | None = None
        """The encoder states of every slot, `(slots, states, d_model)`, if they are kept instead of keys and values.

        Then `cross_attention` has its shape, but no slots.
        """
        self._project_states = project_states
        if project_states:
            states_shape = (n_slots, model.max_source_positions, model.d_model)
            self.encoder_states = torch.zeros(states_shape, device=device, dtype=dtype)
            self.cross_attention = torch.zeros((*shape[:2], 0, *cross_shape[3:], head_dim), device=device, dtype=dtype)
        elif has_columns:
            columns = memory.zeros((*shape, head_dim, model.max_source_positions), device, cross_dtype)
            self.cross_attention = columns.mT
        else:
            self.cross_attention = memory.zeros((*cross_shape, head_dim), device, cross_dtype)
        self.cross_scales: Tensor | None = None
        """The scale of every key and value in 8 bits: `(layers, 2, slots, heads, positions)`."""
        if has_int8_cross:
            self.cross_scales = memory.zeros(cross_shape, device, dtype)
        self.encoder_lengths = [0] * n_slots
        """The number of encoder states of each slot's window; 0 for a slot without a window."""
        self.lengths = torch.zeros(n_slots, dtype=torch.int32, device=device)
        """`encoder_lengths` on the device, as they were at the last `update`."""
        self.window_slots = torch.arange(n_slots, device=device)
        """`window_slot` of every slot on the device, `(slots,)`, as they were at the last `update`."""
        self.sharers = torch.full((n_slots, MAX_SHARERS), -1, device=device)
        """The slots that attend to the window of each slot, itself among them, and -1: `(slots, MAX_SHARERS)`. A slot
        that borrows a window has none."""
        self._sharers = np.full((n_slots, MAX_SHARERS), -1)
        self._sharers[:, 0] = range(n_slots)
        self.sharers[:, 0] = torch.arange(n_slots, device=device)
        self._have_lengths_changed = False
        self._have_lenders_changed = False
        self._views: dict[int, list[tuple[Tensor, Tensor]]] = {}
        """What `cross_views` returned for slots whose length has not changed since."""
        self._reserved: set[int] = set()
        """Slots whose windows are being encoded: their memory is not given back."""
        self._lenders: dict[int, int] = {}
        """The slot whose window is read, by the slot that has none of its own; see `lend`."""
        self.dtype = dtype

    @property
    def device(self) -> torch.device:
        """The device of the buffers."""
        return self.self_attention.device

    @property
    def has_columns(self) -> bool:
        """Whether the numbers of a cross-attention key or value lie apart, and one number of all states together.

        In this order a CPU attends to full windows from one query in half the time. In windows of few states the
        numbers are too far apart. Shapes are the same in both orders.
        """
        return self.cross_attention.stride(-1) != 1

    @property
    def is_read_by_row(self) -> bool:
        """Whether cross-attention reads the window of each row by itself: on a CPU, in float32."""
        is_plain = self.cross_scales is None and self.encoder_states is None
        return self.device.type == "cpu" and self.dtype == torch.float32 and is_plain

    @property
    def padding_slot(self) -> int:
        """The last slot, which belongs to no sequence.

        The fused forward passes, on a GPU, pad their batches with it, and it never belongs to a window. Where the plain
        forward pass is used, for example on a CPU, it is a slot like the others, and nothing asks for it.
        """
        return len(self.encoder_lengths) - 1

    def rows(self, slots: Sequence[int]) -> Rows:
        """The index of slots in the buffers."""
        first = slots[0]
        if list(slots) == list(range(first, first + len(slots))):
            return slice(first, first + len(slots))
        return to_device(slots, self.device)

    def write_cross_attention(self, layer: int, slots: Sequence[int], keys_values: Tensor, runs: Sequence[Run]) -> None:
        """Store one layer's `(states, 2, heads, head_dim)` of packed windows. `set_length` makes them visible."""
        for run in runs:
            own = slots[run.windows]
            values = run.unpack(keys_values)
            values = by_column(values) if self.has_columns else values
            values = values.permute(2, 0, 3, 1, 4)  # (2, windows, heads, states, head_dim)
            rows = self.rows(own)
            if self.cross_scales is not None:
                values, self.cross_scales[layer, :, rows, :, : run.n_states] = quantise(values)
            self.cross_attention[layer, :, rows, :, : run.n_states] = values

    def write_states(self, slots: Sequence[int], states: Tensor, runs: Sequence[Run]) -> None:
        """Store packed encoder states of windows, `(states, d_model)`, in the slot of each window.

        `set_length` makes them visible afterwards.
        """
        assert self.encoder_states is not None
        for run in runs:
            self.encoder_states[self.rows(slots[run.windows]), : run.n_states] = run.unpack(states)

    def read_cross_attention(self, layer: int, rows: Rows, n_states: int) -> Tensor:
        """One layer's keys and values of some slots, `(2, slots, heads, n_states, head_dim)` of the cache's dtype."""
        if self.encoder_states is not None:
            assert self._project_states
            return self._project_states(layer, self.encoder_states[rows, :n_states]).permute(2, 0, 3, 1, 4)
        values = self.cross_attention[layer][:, rows, :, :n_states]
        if self.cross_scales is None:
            return values
        return values.to(self.dtype) * self.cross_scales[layer][:, rows, :, :n_states, None]

    def cross_views(self, slot: int) -> list[tuple[Tensor, Tensor]]:
        """Every layer's keys, `(heads, head_dim, n_states)`, and values, `(heads, n_states, head_dim)`, of a slot.

        They are views, which are kept while the slot has this length: to make them takes longer than a short product.
        """
        if slot not in self._views:
            layers = self.cross_attention[:, :, slot, :, : self.encoder_lengths[slot]]
            self._views[slot] = [(keys.mT, values) for keys, values in layers]
        return self._views[slot]

    def reserve(self, slots: Iterable[int]) -> None:
        """Keep the memory of slots whose windows are being encoded, until `set_length`."""
        self._reserved.update(slots)

    def set_length(self, slot: int, n_states: int) -> None:
        """Set how many encoder states a slot holds."""
        self._reserved.discard(slot)
        if self.encoder_lengths[slot] != n_states:
            self.encoder_lengths[slot] = n_states
            self._views.pop(slot, None)
            self._have_lengths_changed = True
        if n_states:
            self._memory.use(slot)

    def lend(self, slot: int, borrowers: Sequence[int]) -> None:
        """Let other slots attend to the window of a slot, until `forget`."""
        for borrower in borrowers:
            self.set_length(borrower, self.encoder_lengths[slot])
            self._lenders[borrower] = slot
            self._sharers[borrower] = -1
        self._sharers[slot, : len(borrowers) + 1] = slot, *borrowers
        self._have_lenders_changed = True

    @property
    def has_borrowers(self) -> bool:
        """Whether any slot attends to the window of another one."""
        return bool(self._lenders)

    def window_slot(self, slot: int) -> int:
        """The slot that holds the window to which a slot attends: itself, if no other one lends its window."""
        return self._lenders.get(slot, slot)

    def copy_tokens(self, slots: Sequence[int], sources: Sequence[int], positions: slice) -> None:
        """Copy self-attention keys and values of some positions from slots to others, all at the same time."""
        into, source = to_device([list(slots), list(sources)], self.device)
        self.self_attention[:, :, into, :, positions] = self.self_attention[:, :, source, :, positions]

    def update(self) -> None:
        """Copy to the device what has changed since the last copy: lengths, and who lends its window to whom."""
        if self._have_lengths_changed:
            self.lengths.copy_(to_device(self.encoder_lengths, self.device))
            self._have_lengths_changed = False
        if self._have_lenders_changed:
            windows = [self.window_slot(slot) for slot in range(len(self.encoder_lengths))]
            self.window_slots.copy_(to_device(windows, self.device))
            self.sharers.copy_(to_device(self._sharers, self.device))
            self._have_lenders_changed = False

    def forget(self, slot: int) -> None:
        """Set a slot's length to 0, because its window is finished. Its keys and values stay in the buffers."""
        self.set_length(slot, 0)
        lender = self._lenders.pop(slot, None)
        if lender is not None:
            shared = self._sharers[lender]
            shared[shared == slot] = -1
            self._sharers[slot, 0] = slot
            self._have_lenders_changed = True

    def return_free_memory(self, *, keeps_recent: bool = False) -> int:
        """Give memory to the system, on a CPU: that of slots without a window, which become zeros.

        The next window in such a slot waits a few milliseconds for its memory.

        Args:
            keeps_recent: whether slots that had a window since the last call keep theirs, because there is a load and
                the next window is expected soon.

        Returns:
            The number of slots whose memory was given back.
        """
        used = self._reserved | {slot for slot, n_states in enumerate(self.encoder_lengths) if n_states}
        return self._memory.give_back(used, keeps_recent=keeps_recent)


def by_column(values: Tensor) -> Tensor:
    """Copy `(windows, states, ...)` so that one number of all states of a window lies together.

    PyTorch transposes a matrix in blocks, and copies other shapes number by number: that takes three times as long.
    """
    columns = values.new_empty(len(values), values[0, 0].numel(), values.shape[1])
    for own, window in zip(columns, values, strict=True):
        own.copy_(window.flatten(1).t())
    return columns.view(len(values), *values.shape[2:], values.shape[1]).movedim(-1, 1)


def quantise(values: Tensor) -> tuple[Tensor, Tensor]:
    """Bring keys or values into 8 bits. Each has its own scale, so that none depends on another.

    Args:
        values: `(..., head_dim)`.

    Returns:
        Integers from -127 to 127, int8 of the same shape; and the scales to multiply them by, `(...)` of the dtype of
        `values`.
    """
    scales = (values.float().abs().amax(-1) / INT8_MAX).clamp(min=MIN_SCALE).to(values.dtype)
    integers = (values.float() / scales.float()[..., None] + 0.5).floor()
    return integers.clamp(-INT8_MAX, INT8_MAX).to(torch.int8), scales


class SlotAllocator:
    """Allocates the lowest free slot first, so that the slots in use are close together in the buffers."""

    def __init__(self, n_slots: int) -> None:
        self._free = list(range(n_slots))
        self._used: set[int] = set()

    @property
    def n_free(self) -> int:
        """The number of free slots."""
        return len(self._free)

    def allocate(self) -> int:
        """Take the lowest free slot. The caller checks first that one is free."""
        slot = heapq.heappop(self._free)
        self._used.add(slot)
        return slot

    def free(self, slot: int) -> None:
        """Return a slot that is in use."""
        self._used.remove(slot)
        heapq.heappush(self._free, slot)
