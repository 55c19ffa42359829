"""Copies of audio to the device, and of numbers to the host."""

import numpy as np
import pytest
import torch

from engine.model.host_transfer import HostTransfer, to_host

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def test_windows_are_padded_with_silence() -> None:
    """The second time too: nothing of the earlier windows is left in the buffer."""
    transfer = HostTransfer(DEVICE)
    for value in (0.5, 0.25):
        padded = transfer.padded([np.full(3, value, np.float32), np.full(5, -value, np.float32)], 6)
        expected = [[value] * 3 + [0.0] * 3, [-value] * 5 + [0.0]]
        assert padded.tolist() == expected


def test_what_was_prefetched_can_be_used_at_once() -> None:
    transfer = HostTransfer(DEVICE)
    windows = [np.full(3, 0.5, np.float32), np.full(5, 0.25, np.float32)]
    for _ in range(3):
        made = transfer.prefetch(lambda: 2 * transfer.padded(windows, 6))
        assert (made + 1).tolist() == [[2.0] * 3 + [1.0] * 3, [1.5] * 5 + [1.0]]


def test_rows_come_back_as_they_were() -> None:
    columns = torch.tensor([[1.0, 51865.0], [-0.5, -2.0]], device=DEVICE)
    assert HostTransfer(DEVICE).start_copy_to_host(columns).read() == [[1.0, -0.5], [51865.0, -2.0]]


def test_columns_of_any_lengths_are_copied_together() -> None:
    first, second = torch.arange(3, device=DEVICE), torch.tensor([0.25], device=DEVICE)
    assert to_host([first, second]) == [[0.0, 1.0, 2.0], pytest.approx([0.25])]
