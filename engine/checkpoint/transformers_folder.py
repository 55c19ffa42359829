"""Reads checkpoints of transformers: JSON files, and weights as safetensors or in PyTorch's own format."""

import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tutti_server.engine.checkpoint.contents import Contents, Weight, refuse_git_pointer
from tutti_server.engine.checkpoint.layout import find_weights, listed_files, read_json
from tutti_server.engine.checkpoint.tokenizer import Tokenizer
from tutti_server.engine.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor


def read_folder(folder: Path) -> Contents:
    """Read all but the weights.

    Raises:
        CheckpointError: a file is missing or cannot be read.
    """
    config = read_json(folder / "config.json")
    if (model_type := config.get("model_type")) != "whisper":
        raise CheckpointError(
            f"{folder}: expected model_type whisper in config.json, got {model_type!r}; only Whisper models can be "
            "loaded"
        )
    if (activation := config.get("activation_function", "gelu")) != "gelu":
        raise CheckpointError(f"{folder}: expected activation_function gelu, got {activation!r}")
    defaults = folder / "generation_config.json"
    return Contents(
        config,
        # Before generation_config.json existed, config.json held the decoding defaults.
        read_json(defaults) if defaults.exists() else config,
        Tokenizer.from_folder(folder),
        lambda: {name: of_tensor(tensor) for name, tensor in read_tensors(folder)},
    )


def of_tensor(tensor: "Tensor") -> Weight:
    """A weight that PyTorch has mapped from its file, or has read."""
    return Weight(tuple(tensor.shape), lambda first, last: tensor[first:last])


def unpickle(file: Path) -> Any:
    """The content of a file in PyTorch's own format. No code that such a file may hold is run.

    Raises:
        CheckpointError: it is broken, or holds other objects than weights and plain values.
    """
    import torch

    try:
        # PyTorch before 1.6 wrote another form, which cannot be mapped into memory.
        is_archive = zipfile.is_zipfile(file)
        return torch.load(file, map_location="cpu", weights_only=True, mmap=is_archive)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{file}: expected weights only, got a file that is broken or holds other Python objects, which are not "
            "loaded because they may run code; convert it to model.safetensors where you trust it"
        ) from error
    except Exception as error:  # a broken pickle names objects, places and types that are not there
        raise unreadable(file, error) from error


def unreadable(file: Path, error: Exception) -> CheckpointError:
    """The error for a file of weights that a library cannot read."""
    return CheckpointError(
        f"{file}: expected readable weights, got: {error}; the file is incomplete or broken: delete it, and fetch it "
        "again"
    )


def read_tensors(folder: Path) -> Iterator[tuple[str, "Tensor"]]:
    """All weights of a folder by their names, in one file or in several with an index.

    Raises:
        CheckpointError: there are none, or they cannot be read.
    """
    name = find_weights({file.name for file in folder.iterdir()})
    if name is None:
        raise CheckpointError(f"{folder}: expected model.safetensors, its index, or pytorch_model.bin, got no weights")
    for file in listed_files(folder / name) if name.endswith(".json") else [name]:
        yield from _read_file(folder / file)


def _read_file(file: Path) -> Iterator[tuple[str, "Tensor"]]:
    from safetensors import SafetensorError, safe_open

    if not file.exists():
        raise CheckpointError(f"{file}: missing, although the index names it; download the checkpoint again")
    refuse_git_pointer(file)
    if file.suffix != ".safetensors":
        yield from named_tensors(unpickle(file), file).items()
        return
    try:
        with safe_open(file, framework="pt") as tensors:
            yield from ((name, tensors.get_tensor(name)) for name in tensors.keys())  # noqa: SIM118 - no dict: it cannot be iterated over
    except (SafetensorError, RuntimeError, ValueError, OSError, EOFError) as error:
        raise unreadable(file, error) from error


def named_tensors(content: Any, file: Path) -> dict[str, "Tensor"]:
    """Check that unpickled content is a dictionary of weights.

    Raises:
        CheckpointError: it is something else.
    """
    from torch import Tensor

    if not isinstance(content, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in content.items()
    ):
        raise CheckpointError(f"{file}: expected a dictionary of weights, got {type(content).__name__} of other values")
    return content
