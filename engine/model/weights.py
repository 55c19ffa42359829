"""Loads a checkpoint's weights into our modules. A weight that is missing or left over is an error."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from tutti_server.engine.checkpoint.checkpoint import Checkpoint
from tutti_server.engine.checkpoint.contents import Weight
from tutti_server.engine.errors import CheckpointError
from tutti_server.engine.model.int8 import Int8Part
from tutti_server.engine.model.random_weights import fill, shape_output
from tutti_server.engine.model.whisper import Whisper, allocate, outline

_MAX_NAMES_SHOWN = 8
"""An error lists at most this many weights, and says how many more there are."""

_PROJECTION = "proj_out.weight"
"""The published name of the projection to the vocabulary, which is the token embedding."""


def load_model(
    checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype, int8_part: Int8Part = Int8Part.NOTHING
) -> Whisper:
    """Build the checkpoint's model and load its weights, so that it is ready to run.

    Args:
        int8_part: the part whose weights are brought into 8 bits then.

    Raises:
        CheckpointError: weights are missing, left over, or have other shapes than config.json says. It names them. Or a
            file cannot be read.
    """
    model = outline(checkpoint.model)
    if checkpoint.path is None:
        allocate(model, device, dtype)
        fill(model)
        shape_output(model, checkpoint.tokenizer)
    else:
        try:
            published = {name.removeprefix("model."): weight for name, weight in checkpoint.weights().items()}
        except OSError as error:
            raise CheckpointError(f"{checkpoint.path}: cannot be read: {error}") from error
        # Sizes that the weights do not have must not take memory.
        _check(model, checkpoint, published)
        _load(allocate(model, device, dtype), checkpoint, published)
    model.pack(int8_part)
    return model


def _check(model: Whisper, checkpoint: Checkpoint, published: Mapping[str, Weight]) -> None:
    """Compare the names and shapes of the weights with those of the model."""
    targets = dict(published_parameters(model.state_dict()))
    # Whisper's key projections have no bias: zeros take its place.
    missing = [name for name in targets if name not in published and not name.endswith("k_proj.bias")]
    wrong = [
        f"{name}: expected shape {tuple(target.shape)}, got {published[name].shape}"
        for name, target in targets.items()
        if name in published and published[name].shape != target.shape
    ]
    left_over = sorted(published.keys() - targets - {_PROJECTION})
    _refuse(checkpoint, ("missing", missing), ("wrong", wrong), ("left over", left_over))


def _load(model: Whisper, checkpoint: Checkpoint, published: Mapping[str, Weight]) -> None:
    targets = dict(published_parameters(model.state_dict()))
    for name, target in targets.items():
        if name not in published:
            target.zero_()
            continue
        for first, last, numbers in published[name].blocks():
            target[first:last].copy_(torch.as_tensor(numbers).view(target[first:last].shape))
    projection = published.get(_PROJECTION)
    if projection is not None and not _is_equal(projection, model.decoder.embed_tokens.weight):
        differs = f"{_PROJECTION} differs from decoder.embed_tokens.weight, but in Whisper they are the same"
        _refuse(checkpoint, ("wrong", [differs]))


def published_parameters(parameters: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Our parameters by their published names: we keep some projections in one matrix. Keys have a bias of zeros."""
    for ours, parameter in parameters.items():
        name = ours.replace(".mlp.", ".")
        for fused, letters in ((".qkv_proj.", "qkv"), (".kv_proj.", "kv")):
            if fused in name:
                names = [name.replace(fused, f".{letter}_proj.") for letter in letters]
                yield from zip(names, parameter.chunk(len(letters)), strict=True)
                break
        else:
            yield name, parameter


def _is_equal(weight: Weight, loaded: Tensor) -> bool:
    return weight.shape == loaded.shape and all(
        torch.equal(torch.as_tensor(numbers).view(loaded[first:last].shape).to(loaded), loaded[first:last])
        for first, last, numbers in weight.blocks()
    )


def _refuse(checkpoint: Checkpoint, *problems: tuple[str, list[str]]) -> None:
    for problem, names in problems:
        if names:
            raise CheckpointError(f"{checkpoint.path}: weights {problem}: {_enumerate(names)}")


def _enumerate(names: list[str]) -> str:
    rest = len(names) - _MAX_NAMES_SHOWN
    return ", ".join(names[:_MAX_NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
