"""Reads checkpoints of CTranslate2, the format of faster-whisper, in every type that its converter writes.

Source of the format: OpenNMT/CTranslate2, python/ctranslate2/specs/model_spec.py and whisper_spec.py.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tutti_server.engine.checkpoint import openai
from tutti_server.engine.checkpoint.contents import MAX_NAME_BYTES, BinaryFile, Contents, Weight
from tutti_server.engine.checkpoint.layout import read_json, read_json_list
from tutti_server.engine.checkpoint.tokenizer import Tokenizer, token_bytes
from tutti_server.engine.errors import CheckpointError

_VERSION = 6
_SPEC = "WhisperSpec"
_BFLOAT16 = 5
_DTYPES = ("<f4", "i1", "<i2", "<i4", "<f2", "<u2")
"""Types of numbers by their code. NumPy has no bfloat16: its 16 bits are the upper half of a float32."""
_MAX_DIMENSIONS = 4

_PARTS = {"weight": "weight", "bias": "bias", "gamma": "weight", "beta": "bias", "encodings": "weight"}
_WHOLE = {
    "conv1": "conv1",
    "conv2": "conv2",
    "position_encodings": "embed_positions",
    "embeddings": "embed_tokens",
    "layer_norm": "layer_norm",
}
_OF_LAYERS: dict[str, tuple[str, ...]] = {
    "self_attention/layer_norm": ("self_attn_layer_norm",),
    "self_attention/linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention/linear_1": ("self_attn.out_proj",),
    "attention/layer_norm": ("encoder_attn_layer_norm",),
    "attention/linear_0": ("encoder_attn.q_proj",),
    "attention/linear_1": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "attention/linear_2": ("encoder_attn.out_proj",),
    "ffn/layer_norm": ("final_layer_norm",),
    "ffn/linear_0": ("fc1",),
    "ffn/linear_1": ("fc2",),
}
"""transformers' names of what a layer has: CTranslate2 joins queries, keys and values."""
_LAYERED = re.compile(r"(encoder|decoder)/layer_(\d+)/(.+)/(\w+)")
_PROJECTION = "decoder/projection/weight"


@dataclass(frozen=True, slots=True)
class _Variable:
    """An array in the file, or a single number, which has no shape."""

    shape: tuple[int, ...]
    dtype: int
    position: int


def read_folder(folder: Path) -> Contents:
    """Read all but the weights.

    Raises:
        CheckpointError: a file is missing or cannot be read, or it is the model of another kind.
    """
    file = folder / "model.bin"
    variables = _read_variables(file)
    tokenizer = read_tokenizer(folder)
    weights = dict(_weights(file, variables))
    n_heads = [_number(file, variables, f"{side}/num_heads") for side in ("encoder", "decoder")]
    config = openai.sizes(file, weights, *n_heads)
    listed = read_json(folder / "config.json") if (folder / "config.json").exists() else {}
    return Contents(config, _defaults(listed, openai.defaults(config, tokenizer)), tokenizer, lambda: weights)


def read_tokenizer(folder: Path) -> Tokenizer:
    """Read `tokenizer.json`. If it is missing, build the same tokenizer from the vocabulary.

    Raises:
        CheckpointError: a file cannot be read, or it is no vocabulary of Whisper.
    """
    if (folder / "tokenizer.json").exists():
        return Tokenizer.from_folder(folder)
    file = folder / "vocabulary.json"
    if file.exists():
        names = [str(name) for name in read_json_list(file)]
    elif (file := folder / "vocabulary.txt").exists():
        try:
            names = file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{file}: expected text in UTF-8, got: {error}") from error
    else:
        raise CheckpointError(
            f"{folder}: expected tokenizer.json, vocabulary.json or vocabulary.txt, got none; copy one from the model "
            "that this one was converted from"
        )
    try:
        n_texts = names.index("<|endoftext|>")
        texts = [token_bytes(name) for name in names[:n_texts]]
    except (ValueError, KeyError) as error:
        raise CheckpointError(f"{file}: expected the tokens of Whisper, got {len(names)} others: {error}") from error
    return Tokenizer.from_tokens(texts, names[n_texts:])


def _defaults(listed: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """What `config.json` lists, and what Whisper's own program does for what it does not list."""
    ids = listed.get("lang_ids") or []
    if not isinstance(ids, list):
        raise CheckpointError(f"config.json: lang_ids: expected a list of token ids, got {ids!r}")
    languages = {name: token for name, token in usual["lang_to_id"].items() if token in ids}
    names = {
        "alignment_heads": "alignment_heads",
        "suppress_tokens": "suppress_ids",
        "begin_suppress_tokens": "suppress_ids_begin",
    }
    found = {name: listed[key] for name, key in names.items() if listed.get(key) is not None}
    return {**usual, **found, **({"lang_to_id": languages} if languages else {})}


def _read_variables(path: Path) -> dict[str, _Variable]:
    with BinaryFile(path) as file:
        version = file.number("I", "a version")
        spec = _text(file) if version == _VERSION else ""
        if spec != _SPEC:
            raise CheckpointError(
                f"{path}: expected a {_SPEC} of CTranslate2 in version {_VERSION}, got {spec or 'a file'} in version "
                f"{version}"
            )
        file.number("I", "a revision")
        variables = dict(_read_variable(file) for _ in range(file.number("I", "a number of variables")))
        for _ in range(file.number("I", "a number of aliases")):
            alias, name = _text(file), _text(file)
            if name not in variables:
                raise CheckpointError(f"{path}: expected {alias} to be the name of a variable, got {name}")
            variables[alias] = variables[name]
        return variables


def _read_variable(file: BinaryFile) -> tuple[str, _Variable]:
    name = _text(file)
    n_dimensions = file.number("B", name)
    if n_dimensions > _MAX_DIMENSIONS:
        raise CheckpointError(f"{file.path}: {name}: expected up to {_MAX_DIMENSIONS} dimensions, got {n_dimensions}")
    shape = file.numbers(f"{n_dimensions}I", name)
    dtype, n_bytes = file.number("B", name), file.number("I", name)
    if dtype >= len(_DTYPES):
        raise CheckpointError(f"{file.path}: {name}: expected a type of numbers below {len(_DTYPES)}, got {dtype}")
    if (expected := prod(shape) * np.dtype(_DTYPES[dtype]).itemsize) != n_bytes:
        raise CheckpointError(f"{file.path}: {name}: expected {expected} bytes for the shape {shape}, got {n_bytes}")
    return name, _Variable(shape, dtype, file.skip(n_bytes, name))


def _text(file: BinaryFile) -> str:
    """A text with its length before it and a zero at its end."""
    n_bytes = file.number("H", "a length")
    if not 0 < n_bytes <= MAX_NAME_BYTES:
        raise CheckpointError(f"{file.path}: expected a name of 1 to {MAX_NAME_BYTES} bytes, got one of {n_bytes}")
    return file.bytes(n_bytes, "a name")[:-1].decode(errors="replace")


def _number(path: Path, variables: Mapping[str, _Variable], name: str) -> int:
    variable = variables.get(name)
    if variable is None or variable.shape:
        raise CheckpointError(f"{path}: expected the number {name}, got none")
    return int(_read(path, variable, 0, 1)[0])


def _weights(path: Path, variables: Mapping[str, _Variable]) -> Iterator[tuple[str, Weight]]:
    """The weights by transformers' names; what has no such name keeps its own, and is refused later."""
    for name, variable in variables.items():
        is_tied = name.startswith("decoder/projection/") and variable is variables.get("decoder/embeddings/weight")
        if not variable.shape or name.endswith("_scale") or is_tied:
            continue
        scale = _read_scale(path, name, variable, variables.get(f"{name}_scale"))
        yield from _published(name, _weight(path, variable, scale))


def _published(name: str, weight: Weight) -> Iterator[tuple[str, Weight]]:
    if name == _PROJECTION:
        yield "proj_out.weight", weight
        return
    if found := _LAYERED.fullmatch(name):
        side, layer, module, part = found.groups()
        modules = tuple(f"layers.{layer}.{each}" for each in _OF_LAYERS.get(module, ()))
    else:
        side, _, rest = name.partition("/")
        module, _, part = rest.partition("/")
        modules = (_WHOLE[module],) if module in _WHOLE else ()
    if not modules or part not in _PARTS:
        yield name, weight
        return
    for each, piece in zip(modules, weight.split(len(modules)), strict=True):
        yield f"model.{side}.{each}.{_PARTS[part]}", piece


def _read_scale(path: Path, name: str, variable: _Variable, scale: _Variable | None) -> NDArray[np.float32] | None:
    """What whole numbers were multiplied by: one number for each row, or one for all; `None` for floats."""
    if variable.dtype not in (1, 2, 3):
        return None
    if scale is None or scale.shape not in ((), variable.shape[:1]):
        got = "none" if scale is None else f"those of shape {scale.shape}"
        raise CheckpointError(
            f"{path}: {name}: expected one scale, or one for each of {variable.shape[0]} rows, got {got}"
        )
    n_scales = scale.shape[0] if scale.shape else 1
    return np.broadcast_to(_read(path, scale, 0, n_scales).astype(np.float32), variable.shape[:1])


def _weight(path: Path, variable: _Variable, scale: NDArray[np.float32] | None) -> Weight:
    def read(first: int, last: int) -> NDArray[Any]:
        rows = _read(path, variable, first, last)
        return rows if scale is None else rows.reshape(last - first, -1) / scale[first:last, None]

    return Weight(variable.shape, read)


def _read(path: Path, variable: _Variable, first: int, last: int) -> NDArray[Any]:
    n_row, dtype = prod(variable.shape[1:]), np.dtype(_DTYPES[variable.dtype])
    position = variable.position + first * n_row * dtype.itemsize
    numbers = np.fromfile(path, dtype, (last - first) * n_row, offset=position)
    if variable.dtype == _BFLOAT16:
        return (numbers.astype(np.uint32) << 16).view(np.float32)
    return numbers
