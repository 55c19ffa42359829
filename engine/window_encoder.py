"""Encodes windows into the cross-attention cache of their slots: audio in, encoder calls."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from tutti_server.engine.model.audio_context import WindowLengths
from tutti_server.engine.model.forward import ForwardPass
from tutti_server.engine.model.host_transfer import HostTransfer
from tutti_server.engine.model.log_mel import STATE_SAMPLES
from tutti_server.engine.model.packing import find_runs

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
            forward: makes the encoder's passes.
            lengths: decides how much of each window is encoded.
            transfer: brings the audio to the device.
            n_full_states: encoder states of a full window.
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
        n_states = [
            self.lengths.n_states(len(samples), is_interim)
            for samples, is_interim in zip(windows, are_interims, strict=True)
        ]
        # Windows of equal length lie side by side.
        order = sorted(range(len(windows)), key=n_states.__getitem__)
        windows, slots = [windows[index] for index in order], [slots[index] for index in order]
        n_states.sort()
        # The device works on the first part while the host brings the next one. All windows of a part are brought at
        # the length of its longest.
        for part in self._cut(n_states) if self._cut else [slice(0, len(n_states))]:
            samples = self._transfer.padded(windows[part], max(n_states[part]) * STATE_SAMPLES)
            self._forward.encode(samples, slots[part], find_runs(n_states[part]))
        if self._transfer.is_cuda:
            self._encoded = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._encoded.record()

    def is_encoding(self) -> bool:
        """Return whether the device still works on the last call."""
        return self._encoded is not None and not self._encoded.query()  # type: ignore[no-untyped-call]

    def encode_share(self, n_samples: int, is_interim: bool) -> float:
        """Return the work of encoding a window, as a fraction of a full window's."""
        return self.lengths.n_states(n_samples, is_interim) / self._n_full_states
