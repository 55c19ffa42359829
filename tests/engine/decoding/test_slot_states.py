"""What decoding holds for every slot: the host's copy of positions."""

import torch

from tutti_server.engine.checkpoint.checkpoint import Checkpoint
from tutti_server.engine.decoding.slot_states import SlotStates


@torch.inference_mode()
def test_the_host_and_the_device_stop_at_the_last_position(small_checkpoint: Checkpoint) -> None:
    """A search that ends there is stepped further before the host knows of its end."""
    states, last = SlotStates(small_checkpoint, 1, torch.device("cpu")), small_checkpoint.model.max_target_positions - 1
    states.running[0] = last - 1
    states.positions[0] = last - 1
    for _ in range(3):
        states.sample_step(torch.zeros(1, small_checkpoint.model.vocab_size))
        states.advance()
    assert states.positions.tolist() == [states.running[0]] == [last]
