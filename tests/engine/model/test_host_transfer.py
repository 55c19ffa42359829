"""Copies of audio to the device, and of numbers to the host."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from tutti_server.engine.cuda.graph_capture import GraphPool
from tutti_server.engine.model.host_transfer import HostTransfer, to_device, to_host

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def test_windows_are_padded_with_silence() -> None:
    """The second time too: nothing of the earlier windows is left in the buffer."""
    transfer = HostTransfer(DEVICE)
    for value in (0.5, 0.25):
        padded = transfer.padded([np.full(3, value, np.float32), np.full(5, -value, np.float32)], 6)
        expected = [[value] * 3 + [0.0] * 3, [-value] * 5 + [0.0]]
        assert padded.tolist() == expected


@pytest.mark.parametrize("numbers", [[[1, 2, 3], [4, 5, 1 << 40]], [7, -1], [[True, False]], [3] * 5_000])
def test_numbers_come_to_the_device_as_they_are(numbers: list[int] | list[list[int]]) -> None:
    copied = to_device(numbers, DEVICE)
    assert copied.device.type == DEVICE.type and torch.equal(copied.cpu(), torch.tensor(numbers))


@pytest.mark.gpu
def test_numbers_that_are_being_copied_are_not_overwritten() -> None:
    """Many copies wait for a device that is busy; the ring is used several times meanwhile."""
    busy = torch.ones(8_000, 8_000, device=DEVICE)
    for _ in range(20):
        busy = busy @ busy
    copies = [to_device([index] * 1_000, DEVICE) for index in range(1_000)]
    for index, copied in enumerate(copies):
        assert copied.tolist() == [index] * 1_000


@pytest.mark.gpu
def test_numbers_on_their_way_to_the_host_are_not_overwritten() -> None:
    """Many copies run at the same time. Later copies arrive in the memory of those that were read."""
    transfer = HostTransfer(DEVICE)
    for offset in (0, 1_000):
        copies = [
            transfer.start_copy_to_host(torch.full((2, 3), float(offset + index), device=DEVICE)) for index in range(64)
        ]
        arrays = [copied.array() for copied in copies]
        transfer.start_copy_to_host(torch.zeros((2, 3), device=DEVICE)).read()
        assert [array.tolist() for array in arrays] == [[[offset + index] * 3] * 2 for index in range(64)]
        assert copies[0].array() is arrays[0]


@pytest.mark.gpu
def test_audio_is_copied_while_another_thread_captures_a_graph() -> None:
    """By more transfers than PyTorch has streams: none of them copies on the stream that is captured."""
    transfers = [HostTransfer(DEVICE) for _ in range(40)]

    def copy() -> list[float]:
        return [transfer.padded([np.full(1, index, np.float32)], 1).item() for index, transfer in enumerate(transfers)]

    with ThreadPoolExecutor(1) as other:
        captured = GraphPool().capture(lambda: other.submit(copy).result())
    assert captured.out == list(range(40))


def test_columns_of_any_lengths_are_copied_together() -> None:
    first, second = torch.arange(3, device=DEVICE), torch.tensor([0.25], device=DEVICE)
    assert to_host([first, second]) == [[0.0, 1.0, 2.0], pytest.approx([0.25])]
