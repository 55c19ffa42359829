"""Between the host and the device: audio in, tokens out, without either waiting for the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, slots=True)
class HostRows:
    """Numbers on their way to the host."""

    columns: Tensor
    """`(columns, rows)` float32."""
    arrived: torch.cuda.Event | None

    def read(self) -> list[list[float]]:
        """The one place where a step waits for the device. Token ids are exact in float32."""
        if self.arrived:
            self.arrived.synchronize()
        rows: list[list[float]] = self.columns.T.tolist()
        return rows


class HostTransfer:
    """Brings audio on a stream of its own, so that it travels and is made ready while the device still encodes."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._is_cuda = device.type == "cuda"
        self._pinned = torch.empty(0)
        self._taken: torch.cuda.Event | None = None
        self._stream = torch.cuda.Stream(device) if self._is_cuda else None  # type: ignore[no-untyped-call]

    def prefetch(self, make: Callable[[], Tensor]) -> Tensor:
        """What `make` gives, which calls `padded`; what is done with it comes after it on the present stream."""
        if self._stream is None:
            return make()
        present = torch.cuda.current_stream()
        with torch.cuda.stream(self._stream):
            made = make()
        present.wait_stream(self._stream)
        made.record_stream(present)
        return made

    def padded(self, windows: Sequence[NDArray[np.float32]], n_samples: int) -> Tensor:
        """Windows one under the other on the device, zeros behind each: `(windows, n_samples)` float32."""
        if not self._is_cuda:
            padded = np.zeros((len(windows), n_samples), np.float32)
            for row, samples in zip(padded, windows, strict=True):
                row[: len(samples)] = samples
            return torch.from_numpy(padded)
        # Only what holds audio travels, through memory that the device reads by itself.
        n_total = sum(map(len, windows))
        if self._taken:
            self._taken.synchronize()
        if len(self._pinned) < n_total:
            self._pinned = torch.empty(2 * n_total, pin_memory=True)
        np.concatenate(windows, out=self._pinned.numpy()[:n_total])
        moved = self._pinned[:n_total].to(self._device, non_blocking=True)
        self._taken = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._taken.record()
        on_device, at = torch.zeros((len(windows), n_samples), device=self._device), 0
        for row, samples in zip(on_device, windows, strict=True):
            row[: len(samples)] = moved[at : at + len(samples)]
            at += len(samples)
        return on_device

    def to_host(self, columns: Tensor) -> HostRows:
        """Begin to bring `(columns, rows)` float32 to the host."""
        if not self._is_cuda:
            return HostRows(columns, None)
        host = torch.empty(columns.shape, pin_memory=True)
        host.copy_(columns, non_blocking=True)
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        arrived.record()
        return HostRows(host, arrived)


def to_device(numbers: Sequence[Any], device: torch.device) -> Tensor:
    """Integers, in rows if they come in rows, as int64 on the device.

    A GPU takes them when it comes to them: the host goes on. From memory that is not pinned it would wait until the GPU
    has done all that it was given before.
    """
    if device.type != "cuda":
        return torch.tensor(numbers, device=device)
    return torch.tensor(numbers, pin_memory=True).to(device, non_blocking=True)


def to_host(columns: Sequence[Tensor]) -> list[list[float]]:
    """Columns of any lengths, waited for, in one transfer."""
    flat = iter(torch.cat([column.float() for column in columns]).tolist())
    return [list(islice(flat, len(column))) for column in columns]
