"""Copies audio to the device and tokens to the host, without the host and the device waiting for each other."""

import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


class HostRows:
    """Numbers that are being copied to the host."""

    def __init__(
        self, columns: Tensor, landing: "_Landing | None" = None, free: "list[_Landing] | None" = None
    ) -> None:
        """Wait for numbers.

        Args:
            columns: `(columns, rows)` float32, on the host.
            landing: the memory that holds `columns`; `None` if the numbers were on the host already.
            free: takes the landing once they are read.
        """
        self._columns = columns
        self._landing = landing
        self._free = free
        self._read: NDArray[np.float32] | None = None

    def read(self) -> list[list[float]]:
        """Wait for the copy and return the rows. A step waits for the device only here.

        Float32 holds token ids exactly.
        """
        rows: list[list[float]] = self.array().T.tolist()
        return rows

    def array(self) -> NDArray[np.float32]:
        """Wait for the copy and return the columns."""
        if self._read is None:
            self._read = self._columns.numpy()
            if self._landing is not None and self._free is not None:
                self._landing.arrived.synchronize()
                self._read = self._read.copy()
                self._free.append(self._landing)
        return self._read


@dataclass(frozen=True, slots=True)
class _Landing:
    """Page-locked memory in which numbers of a GPU arrive. It is used over and over.

    To allocate such memory for each step takes longer than the copy.
    """

    memory: Tensor
    arrived: torch.cuda.Event
    """The CUDA event at the end of the last copy into it."""


class HostTransfer:
    """Copies audio on its own stream, so that a window is copied while the device encodes earlier ones."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.is_cuda = device.type == "cuda"
        """Whether the device is a GPU."""
        self._pinned = torch.empty(0)
        """Page-locked host memory, which the device can copy from without the host."""
        self._copied: torch.cuda.Event | None = None
        """The CUDA event at the end of the last copy from `_pinned`; `None` before the first copy, and on a CPU."""
        # Graphs are captured on streams of usual priority, of which PyTorch has 32: this can be none of them.
        self._stream = torch.cuda.Stream(device, priority=-1) if self.is_cuda else None  # type: ignore[no-untyped-call]
        self._landings: defaultdict[int, list[_Landing]] = defaultdict(list)
        """Memory for numbers of the device that is free, by the binary logarithm of its length."""

    def padded(self, windows: Sequence[NDArray[np.float32]], n_samples: int) -> Tensor:
        """Copy windows to the device, each padded with zeros.

        The current stream waits for the copy before it runs anything that is launched later.

        Returns:
            `(windows, n_samples)` float32.
        """
        if self._stream is None:
            padded = np.zeros((len(windows), n_samples), np.float32)
            for row, samples in zip(padded, windows, strict=True):
                row[: len(samples)] = samples
            return torch.from_numpy(padded)
        current = torch.cuda.current_stream()
        with torch.cuda.stream(self._stream):
            on_device = self._copy_padded(windows, n_samples)
        current.wait_stream(self._stream)
        on_device.record_stream(current)
        return on_device

    def _copy_padded(self, windows: Sequence[NDArray[np.float32]], n_samples: int) -> Tensor:
        # Only the audio is copied, not the padding.
        n_total = sum(map(len, windows))
        if self._copied:
            self._copied.synchronize()
        if len(self._pinned) < n_total:
            self._pinned = torch.empty(2 * n_total, pin_memory=True)
        np.concatenate(windows, out=self._pinned.numpy()[:n_total])
        packed = self._pinned[:n_total].to(self._device, non_blocking=True)
        self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._copied.record()
        padded_on_device = pad_sequence(
            list(torch.split(packed, [len(samples) for samples in windows])), batch_first=True
        )
        return F.pad(padded_on_device, (0, n_samples - padded_on_device.shape[1]))

    def start_copy_to_host(self, columns: Tensor) -> HostRows:
        """Start to copy `(columns, rows)` float32 to the host. `HostRows.read` waits for the copy."""
        if not self.is_cuda:
            return HostRows(columns)
        size = (columns.numel() - 1).bit_length()
        free = self._landings[size]
        landing = free.pop() if free else self._new_landing(size)
        host = landing.memory[: columns.numel()].view(columns.shape)
        host.copy_(columns, non_blocking=True)
        landing.arrived.record()
        return HostRows(host, landing, free)

    def _new_landing(self, size: int) -> _Landing:
        return _Landing(torch.empty(1 << size, pin_memory=True), torch.cuda.Event())  # type: ignore[no-untyped-call]


def to_device(numbers: Sequence[Any] | NDArray[np.int64], device: torch.device) -> Tensor:
    """Copy integers or booleans, rows or an array of them, to the device as int64 or bool.

    The host does not wait for the copy, but where the device is behind by all that `_Ring` holds.
    """
    if device.type != "cuda":
        return torch.tensor(numbers, device=device)
    array = np.array(numbers)
    ring = _ring(device, threading.get_ident())
    return ring.copy(array.astype(np.int64)).to(torch.bool if array.dtype == bool else torch.int64)


class _Ring:
    """Page-locked memory for integers on their way to a GPU, used over and over, of one thread and on one stream.

    From other memory a copy would wait until the GPU has finished all earlier work. To allocate such memory for each
    copy takes longer than the copy.
    """

    HALF = 1 << 17
    """Numbers that each half holds: 1 MB, some hundreds of prefills."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._memory = torch.empty(2 * self.HALF, dtype=torch.int64, pin_memory=True)
        self._array = self._memory.numpy()
        self._half, self._next = 0, 0
        """The half that is written to, and the place in it."""
        self._copied: list[torch.cuda.Event | None] = [None, None]
        """The CUDA events at the ends of the last copies from each half, before which it is not written to again."""

    def copy(self, numbers: NDArray[np.int64]) -> Tensor:
        if numbers.size > self.HALF:
            return torch.from_numpy(numbers).to(self._device)
        if self._next + numbers.size > self.HALF:
            self._change_halves()
        first = self._half * self.HALF + self._next
        part = slice(first, first + numbers.size)
        self._array[part] = numbers.ravel()
        self._next += numbers.size
        return self._memory[part].to(self._device, non_blocking=True).view(numbers.shape)

    def _change_halves(self) -> None:
        copied = self._copied[self._half] = torch.cuda.Event()  # type: ignore[no-untyped-call]
        copied.record()
        self._half, self._next = 1 - self._half, 0
        if before := self._copied[self._half]:
            before.synchronize()


@cache
def _ring(device: torch.device, thread: int) -> _Ring:
    return _Ring(device)


def to_host(columns: Sequence[Tensor]) -> list[list[float]]:
    """Copy columns of any lengths to the host in one transfer, and wait for it."""
    flat = iter(torch.cat([column.float() for column in columns]).tolist())
    return [list(islice(flat, len(column))) for column in columns]
