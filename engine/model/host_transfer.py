"""Copies audio to the device and tokens to the host, without the host and the device waiting for each other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


@dataclass(frozen=True, slots=True)
class HostRows:
    """Numbers that are being copied to the host."""

    columns: Tensor
    """`(columns, rows)` float32."""
    arrived: torch.cuda.Event | None
    """The CUDA event at the end of the copy; `None` if the numbers were on the host already."""

    def read(self) -> list[list[float]]:
        """Wait for the copy and return the rows. A step waits for the device only here.

        Float32 holds token ids exactly.
        """
        if self.arrived:
            self.arrived.synchronize()
        rows: list[list[float]] = self.columns.T.tolist()
        return rows


class HostTransfer:
    """Copies audio on its own stream, so that a window is copied and prepared while the device encodes earlier ones."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._is_cuda = device.type == "cuda"
        self._pinned = torch.empty(0)
        """Page-locked host memory, which the device can copy from without the host."""
        self._copied: torch.cuda.Event | None = None
        """The CUDA event at the end of the last copy from `_pinned`; `None` before the first copy, and on a CPU."""
        self._stream = torch.cuda.Stream(device) if self._is_cuda else None  # type: ignore[no-untyped-call]

    def prefetch(self, make: Callable[[], Tensor]) -> Tensor:
        """Run a function on the transfer's stream, and return the tensor that it makes.

        The current stream waits for the tensor before it runs anything that is launched later.

        Args:
            make: calls `padded`, and computes features from the result.
        """
        if self._stream is None:
            return make()
        current = torch.cuda.current_stream()
        with torch.cuda.stream(self._stream):
            made = make()
        current.wait_stream(self._stream)
        made.record_stream(current)
        return made

    def padded(self, windows: Sequence[NDArray[np.float32]], n_samples: int) -> Tensor:
        """Copy windows to the device, each padded with zeros.

        Returns:
            `(windows, n_samples)` float32.
        """
        if not self._is_cuda:
            padded = np.zeros((len(windows), n_samples), np.float32)
            for row, samples in zip(padded, windows, strict=True):
                row[: len(samples)] = samples
            return torch.from_numpy(padded)
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
        if not self._is_cuda:
            return HostRows(columns, None)
        host = torch.empty(columns.shape, pin_memory=True)
        host.copy_(columns, non_blocking=True)
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        arrived.record()
        return HostRows(host, arrived)


def to_device(numbers: Sequence[Any], device: torch.device) -> Tensor:
    """Copy integers or booleans, or rows of them, to the device as int64 or bool.

    The host does not wait. It would if the memory were not page-locked: until the GPU has finished all earlier work.
    """
    if device.type != "cuda":
        return torch.tensor(numbers, device=device)
    return torch.tensor(numbers, pin_memory=True).to(device, non_blocking=True)


def to_host(columns: Sequence[Tensor]) -> list[list[float]]:
    """Copy columns of any lengths to the host in one transfer, and wait for it."""
    flat = iter(torch.cat([column.float() for column in columns]).tolist())
    return [list(islice(flat, len(column))) for column in columns]
