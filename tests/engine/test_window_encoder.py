"""Which windows are encoded together."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from tutti_server.engine.checkpoint.checkpoint import AudioContext
from tutti_server.engine.model.audio_context import WindowLengths
from tutti_server.engine.model.host_transfer import HostTransfer
from tutti_server.engine.model.log_mel import STATE_SAMPLES
from tutti_server.engine.model.packing import Run
from tutti_server.engine.window_encoder import CutWindows, WindowEncoder

FULL = 30
"""Encoder states of a full window."""


class Seen:
    """Stands in for the forward pass, and keeps the lengths of the windows of each part."""

    def __init__(self) -> None:
        self.parts: list[list[int]] = []

    def encode(self, samples: torch.Tensor, slots: Sequence[int], runs: Sequence[Run]) -> None:
        lengths = [run.n_states for run in runs for _ in range(run.n_windows)]
        assert samples.shape == (len(lengths), STATE_SAMPLES * max(lengths)) and len(slots) == len(lengths)
        self.parts.append(lengths)


def two_parts(n_states: Sequence[int]) -> list[slice]:
    return [slice(0, 2), slice(2, len(n_states))]


@pytest.mark.parametrize(
    ("cut", "expected"),
    [(None, [[10, 10, 30, 30, 30]]), (two_parts, [[10, 10], [30, 30, 30]])],
)
def test_windows_are_encoded_in_the_parts_that_they_are_cut_into(
    cut: CutWindows | None, expected: list[list[int]]
) -> None:
    """Sorted by length. A part is brought to the device at the length of its longest window."""
    lengths = [30, 10, 30, 10, 30]
    forward, device = Seen(), torch.device("cpu")
    encoder = WindowEncoder(
        forward,  # type: ignore[arg-type]  # it has what the encoder calls
        WindowLengths("auto", AudioContext(margin_frames=0, min_frames=0), FULL),
        HostTransfer(device),
        n_full_states=FULL,
        n_filling=2,
        cut=cut,
    )
    windows = [np.zeros(length * STATE_SAMPLES, np.float32) for length in lengths]
    encoder.encode(windows, list(range(len(windows))), [False] * len(windows))
    assert forward.parts == expected
