"""Loads a checkpoint's weights into our modules. A weight that is missing or left over is an error."""

import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.checkpoint.checkpoint import Checkpoint
from engine.checkpoint.layout import find_weights, listed_files
from engine.errors import CheckpointError
from engine.model.int8 import Int8Part
from engine.model.random_weights import fill, shape_output
from engine.model.whisper import Whisper, build

_GIT_POINTER = b"version https://git-lfs"
"""The first bytes of the text that Git keeps in place of a large file."""

_MAX_NAMES_SHOWN = 8
"""An error lists at most this many weights, and says how many more there are."""


def load_model(
    checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype, int8_part: Int8Part = Int8Part.NOTHING
) -> Whisper:
    """Build the checkpoint's model and load its weights, so that it is ready to run.

    Args:
        checkpoint: the checkpoint.
        device: where the model runs.
        dtype: the type of its weights.
        int8_part: the part whose weights are brought into 8 bits then.

    Raises:
        CheckpointError: weights are missing, left over, or have other shapes than config.json says. It names them.
    """
    model = build(checkpoint.model, device, dtype)
    if checkpoint.folder is None:
        fill(model)
        shape_output(model, checkpoint.tokenizer)
        model.pack(int8_part)
        return model
    published = {name.removeprefix("model."): tensor for name, tensor in read_weights(checkpoint.folder)}
    missing: list[str] = []
    misshapen: list[str] = []
    for name, target in model.state_dict().items():
        tensor = _pop_tensor(published, name, missing)
        if tensor is None:
            continue
        if tensor.shape != target.shape:
            misshapen.append(f"{name}: expected shape {tuple(target.shape)}, got {tuple(tensor.shape)}")
            continue
        target.copy_(tensor)
    projection = published.pop("proj_out.weight", None)
    if projection is not None and not torch.equal(projection.to(device, dtype), model.decoder.embed_tokens.weight):
        misshapen.append("proj_out.weight differs from decoder.embed_tokens.weight, but in Whisper they are the same")
    for problem, names in (("missing", missing), ("wrong", misshapen), ("left over", list(published))):
        if names:
            raise CheckpointError(f"{checkpoint.folder}: weights {problem}: {_enumerate(names)}")
    model.pack(int8_part)
    return model


def read_weights(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """All weights of a folder, by their published names.

    The folder holds safetensors or PyTorch's own format, each in one file or in several with an index.

    Raises:
        CheckpointError: the folder holds no weights, or a file is missing or cannot be read.
    """
    name = find_weights({file.name for file in folder.iterdir()})
    if name is None:
        raise CheckpointError(f"{folder}: expected model.safetensors, its index, or pytorch_model.bin, got no weights")
    files = listed_files(folder / name) if name.endswith(".json") else [name]
    for file in files:
        yield from _read_file(folder / file)


def _read_file(file: Path) -> Iterator[tuple[str, Tensor]]:
    if not file.exists():
        raise CheckpointError(f"{file}: missing, although the index names it; download the checkpoint again")
    try:
        if _is_git_pointer(file):
            raise CheckpointError(
                f"{file}: expected weights, got a pointer of Git LFS; run `git lfs pull` in its folder"
            )
        if file.suffix == ".safetensors":
            with safe_open(file, framework="pt") as tensors:
                yield from ((name, tensors.get_tensor(name)) for name in tensors.keys())  # noqa: SIM118 - no dict: it cannot be iterated over
        else:
            yield from _unpickle(file).items()
    except (SafetensorError, RuntimeError, ValueError, OSError, EOFError) as error:
        raise CheckpointError(
            f"{file}: expected readable weights, got: {error}; the file is incomplete or broken: delete it, and fetch "
            "it again"
        ) from error


def _is_git_pointer(file: Path) -> bool:
    """Whether this is the text that Git keeps in place of a large file that was not fetched."""
    with file.open("rb") as opened:
        return opened.read(len(_GIT_POINTER)) == _GIT_POINTER


def _unpickle(file: Path) -> dict[str, Tensor]:
    """The weights of a file in PyTorch's own format. No code that such a file may hold is run.

    Raises:
        CheckpointError: it holds something else than weights.
    """
    is_archive = zipfile.is_zipfile(file)  # PyTorch before 1.6 wrote another form, which cannot be mapped into memory
    try:
        weights = torch.load(file, map_location="cpu", weights_only=True, mmap=is_archive)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{file}: expected weights only, got a file that is broken or holds other Python objects, which are not "
            "loaded because they may run code; convert it to model.safetensors where you trust it"
        ) from error
    if not isinstance(weights, dict) or not all(isinstance(tensor, Tensor) for tensor in weights.values()):
        raise CheckpointError(f"{file}: expected a dictionary of weights, got {type(weights).__name__} of other values")
    return weights


def _pop_tensor(published: dict[str, Tensor], name: str, missing: list[str]) -> Tensor | None:
    """Remove the published parts of one of our parameters, and join them; add parts that are absent to `missing`."""
    names = _published_names(name)
    parts = [published.pop(part, None) for part in names]
    # Whisper's key projections have no bias: zeros take its place.
    absent = [
        part for part, tensor in zip(names, parts, strict=True) if tensor is None and not part.endswith("k_proj.bias")
    ]
    if absent:
        missing += absent
        return None
    found = [tensor for tensor in parts if tensor is not None]
    return torch.cat([torch.zeros_like(found[0]) if tensor is None else tensor for tensor in parts])


def _published_names(name: str) -> list[str]:
    """The published names of the parts of one of our parameters: we keep some projections in one matrix."""
    name = name.replace(".mlp.", ".")
    for fused, parts in ((".qkv_proj.", "qkv"), (".kv_proj.", "kv")):
        if fused in name:
            return [name.replace(fused, f".{part}_proj.") for part in parts]
    return [name]


def _enumerate(names: list[str]) -> str:
    rest = len(names) - _MAX_NAMES_SHOWN
    return ", ".join(names[:_MAX_NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
