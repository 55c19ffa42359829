"""Encodes windows into the cross-attention cache of their slots: audio in, encoder calls."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray

from tutti_server.engine.model.audio_context import WindowLengths
from tutti_server.engine.model.forward import EagerForward, ForwardPass
from tutti_server.engine.model.host_transfer import HostTransfer
from tutti_server.engine.model.kv_cache import KVCache
from tutti_server.engine.model.log_mel import STATE_SAMPLES
from tutti_server.engine.model.packing import Run, find_runs

CutWindows = Callable[[Sequence[int]], Sequence[slice]]
"""Cuts the windows of a call into parts that are encoded together, by their encoder states, from short to long."""


class WindowEncoder:
    """Knows how much of each window is encoded, and in which parts."""

    def __init__(
        self,
        forward: ForwardPass,
        lengths: WindowLengths,
        transfer: HostTransfer,
        *,
        n_full_states: int,
        n_filling: int,
        cut: CutWindows | None,
    ) -> None:
        """Create an encoder of windows.

        Args:
            n_filling: the number of full windows that fill the device; more in one call take about as long each.
            cut: cuts a call into parts; `None` where all windows are one part.
        """
        self.lengths = lengths
        self.n_filling = n_filling
        self._cut = cut
        self._forward = forward
        self._transfer = transfer
        self._n_full_states = n_full_states
        self._encoded: torch.cuda.Event | None = None
        """The CUDA event that is recorded after the last encoder call; `None` before the first call, and on a CPU."""

    def encode(
        self, windows: Sequence[NDArray[np.float32]], slots: Sequence[int], are_interims: Sequence[bool]
    ) -> None:
        """Encode windows of up to 30 s into their slots."""
        windows, slots, n_states = self.in_order(windows, slots, are_interims)
        # The device works on the first part while the host brings the next one. All windows of a part are brought at
        # the length of its longest.
        for part in self._cut(n_states) if self._cut else [slice(0, len(n_states))]:
            samples = self._transfer.padded(windows[part], max(n_states[part]) * STATE_SAMPLES)
            self._forward.encode(samples, slots[part], find_runs(n_states[part]))
        if self._transfer.is_cuda:
            self._encoded = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._encoded.record()

    def in_order(
        self, windows: Sequence[NDArray[np.float32]], slots: Sequence[int], are_interims: Sequence[bool]
    ) -> tuple[list[NDArray[np.float32]], list[int], list[int]]:
        """Return windows, slots and numbers of encoder states, so that windows of equal length lie side by side."""
        n_states = [
            self.lengths.n_states(len(samples), is_interim)
            for samples, is_interim in zip(windows, are_interims, strict=True)
        ]
        order = sorted(range(len(windows)), key=n_states.__getitem__)
        return (
            [windows[index] for index in order],
            [slots[index] for index in order],
            [n_states[index] for index in order],
        )

    def is_encoding(self) -> bool:
        """Return whether the device still works on the last call."""
        return self._encoded is not None and not self._encoded.query()  # type: ignore[no-untyped-call]

    def encode_work(self, n_samples: int, is_interim: bool) -> float:
        """Return the work of encoding a window, in full windows."""
        return self.lengths.n_states(n_samples, is_interim) / self._n_full_states


class ThreadedEncoder:
    """Encodes windows on a CPU in a thread of its own, one call at a time, while the engine's thread decodes others.

    Two threads that each work alone keep two cores busier than one thread after the other on both: the operations of a
    decode step are so short that a second core costs nearly as much as it saves.
    """

    def __init__(self, encoder: WindowEncoder, forward: EagerForward, cache: KVCache, transfer: HostTransfer) -> None:
        self._encoder = encoder
        self._forward = forward
        self._cache = cache
        self._transfer = transfer
        # Its thread ends when nothing refers to it any more.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tutti-encoder")
        self._call: tuple[Future[None], list[int], Sequence[Run]] | None = None
        """The call under way, its slots and its windows."""

    def begin(
        self,
        windows: Sequence[NDArray[np.float32]],
        slots: Sequence[int],
        are_interims: Sequence[bool],
        n_threads: int,
    ) -> None:
        """Begin a call with a number of tensor threads. `finish` ends it."""
        assert self._call is None, "the last call was not finished"
        windows, slots, n_states = self._encoder.in_order(windows, slots, are_interims)
        self._cache.reserve(slots)
        runs = find_runs(n_states)
        call = self._thread.submit(self._write, windows, slots, runs, max(n_states) * STATE_SAMPLES, n_threads)
        self._call = call, slots, runs

    def is_encoding(self) -> bool:
        """Return whether a call is under way that has not ended by itself."""
        return self._call is not None and not self._call[0].done()

    def finish(self) -> None:
        """Wait for the call under way, if there is one, and make its windows visible to the steps.

        Raises:
            Exception: what the call raised. It is over then.
        """
        if self._call is None:
            return
        call, slots, runs = self._call
        self._call = None
        call.result()
        for run in runs:
            for slot in slots[run.windows]:
                self._cache.set_length(slot, run.n_states)

    def _write(
        self,
        windows: Sequence[NDArray[np.float32]],
        slots: Sequence[int],
        runs: Sequence[Run],
        n_samples: int,
        n_threads: int,
    ) -> None:
        torch.set_num_threads(n_threads)
        with torch.inference_mode():
            self._forward.write_windows(self._transfer.padded(windows, n_samples), slots, runs)
