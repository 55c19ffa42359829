"""Tells how much memory a model would take, and how much of it the device has left."""

from collections.abc import Iterator
from mmap import PAGESIZE
from pathlib import Path

import torch

from tutti_server.engine.checkpoint.checkpoint import ModelConfig
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.cuda.build import pick_device_and_dtype, pick_int8_part
from tutti_server.engine.model.int8 import Int8Part
from tutti_server.engine.model.random_weights import open_checkpoint
from tutti_server.engine.model.slot_budget import SCRATCH_BYTES, slot_bytes

CPU_WORK_BYTES = 300 << 20
"""Memory beside the weights on a CPU, in bytes: as much as eight windows of the embedded model were seen to take."""
CGROUPS = Path("/sys/fs/cgroup")


class DeviceMemory:
    """The memory in which the models of one server are: that of a GPU, or of the machine."""

    def __init__(self, config: EngineConfig) -> None:
        """Begin with the configuration of any of the models: all are on one device."""
        self._device, _ = pick_device_and_dtype(config)

    def bytes_left(self) -> int:
        """The memory that one more model could have.

        Of the machine it is no more than control groups leave, such as that of a container.
        """
        if self._device.type == "cuda":
            return torch.cuda.mem_get_info(self._device)[0]
        return min([_machine_bytes(), *_group_bytes()])

    def bytes_taken(self) -> int:
        """The memory that is taken: all of a GPU's, but of the machine's that of this process."""
        if self._device.type == "cuda":
            left, total = torch.cuda.mem_get_info(self._device)
            return total - left
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGESIZE


def needed_bytes(config: EngineConfig) -> int:
    """The memory that the model of a configuration needs at least, in bytes, to be loaded and to decode.

    It is that of its weights in the type that they would have, of one slot, and of the work itself. Weights of 8 bits
    are in float32, too, while they are loaded: base takes 650 MB then, and small 1480 MB.

    Raises:
        CheckpointError: the model cannot be used here.
    """
    model = open_checkpoint(config.model).model
    device, dtype = pick_device_and_dtype(config)
    encoder, decoder = _n_weights(model)
    slot = slot_bytes(model, dtype.itemsize, config.cross_cache)
    if device.type == "cuda":
        return (encoder + decoder) * dtype.itemsize + int((slot + SCRATCH_BYTES) / config.gpu_memory_fraction)
    part = pick_int8_part(config, model, device)
    weights = (encoder + decoder) * dtype.itemsize
    if part is not Int8Part.NOTHING:
        # Where only the decoder has 8 bits, the encoder has 16. Token embeddings stay beside their product.
        embedding = model.vocab_size * model.d_model * dtype.itemsize
        weights += encoder * (2 if part is Int8Part.DECODER else 1) + decoder + embedding
    return weights + slot + CPU_WORK_BYTES


def _n_weights(model: ModelConfig) -> tuple[int, int]:
    """The number of weights in the encoder and in the decoder; biases and norms are too few to count."""
    d, width = model.d_model, model.d_model**2
    encoder_layer = 4 * width + 2 * d * model.encoder_ffn_dim
    decoder_layer = 8 * width + 2 * d * model.decoder_ffn_dim
    convolutions = 3 * d * (model.n_mels + d)
    encoder = model.encoder_layers * encoder_layer + convolutions + model.max_source_positions * d
    decoder = model.decoder_layers * decoder_layer + (model.vocab_size + model.max_target_positions) * d
    return encoder, decoder


def _machine_bytes() -> int:
    """What Linux says that programs could still have without swapping, in bytes."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    raise RuntimeError("/proc/meminfo: expected MemAvailable, which Linux has since 3.14")


def _group_bytes(groups: str | None = None, root: Path = CGROUPS) -> Iterator[int]:
    """What each control group of this process that has a limit leaves, in bytes.

    Args:
        groups: the content of `/proc/self/cgroup`, where each line is a number, controllers and a path.
        root: where the system shows the groups.
    """
    for line in (groups or Path("/proc/self/cgroup").read_text()).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        base = root / controllers
        limit, used = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else ("memory.max", "memory.current")
        )
        cache = "total_inactive_file" if controllers else "inactive_file"
        # A container sees its own group as the root, whatever its path says.
        group = base / path.lstrip("/")
        for folder in (group, *group.parents):
            if (folder / limit).is_file() and (most := (folder / limit).read_text().strip()) != "max":
                stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                yield int(most) - int((folder / used).read_text()) + int(stat[cache])
            if folder == base:
                break
