"""Reads the checkpoints of whisper.cpp: a `.bin` file with sizes, tokens, and weights in blocks of 8 to 4 bits.

Source of the format: ggml-org/whisper.cpp, models/convert-pt-to-ggml.py, src/whisper.cpp, `whisper_model_load`, and
ggml/src/ggml-quants.c, `dequantize_row_q4_0` and its likes, `dequantize_row_iq4_xs` among them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tutti_server.engine.checkpoint import openai
from tutti_server.engine.checkpoint.contents import MAX_NAME_BYTES, BinaryFile, Contents, Weight
from tutti_server.engine.checkpoint.layout import GGML_WEIGHTS, read_json
from tutti_server.engine.checkpoint.tokenizer import Tokenizer
from tutti_server.engine.errors import CheckpointError

MAGIC = b"lmgg"
"""The first bytes of a file."""

_QUANTIZATION_VERSION = 2
"""The version of the blocks. Files of May 2023 and before have others, in which the bits have other places."""
_VERSION_FACTOR = 1_000
"""The version of the blocks is this many times in the number that names the type of the file."""
_MAX_DIMENSIONS = 4
_END = b"<|endoftext|>"
"""The last token of a vocabulary from `vocab.json`, as in whisper.cpp's own files of English models: no text token."""
_KERNEL = 3
"""The width of Whisper's convolutions."""
_BLOCK = 32
"""Numbers of a block, which have one scale."""

_SCALES = 8
"""Scales of a large block, which has a scale for these."""
_LEVELS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
"""What the numbers of IQ4_XS stand for."""

Blocks = NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Type:
    """A type of numbers: how a block is stored, and how it becomes floats."""

    name: str
    stored: np.dtype[Any]
    to_floats: Callable[[Blocks], NDArray[Any]]
    """Takes `(blocks,)` of `stored`, gives `(blocks, n_numbers)`."""
    n_numbers: int = _BLOCK


def _floats(blocks: Blocks) -> NDArray[Any]:
    return blocks


def _from_8_bits(blocks: Blocks) -> NDArray[Any]:
    numbers: NDArray[Any] = blocks["numbers"] * _column(blocks, "scale")
    return numbers


def _from_bits(centre: int) -> Callable[[Blocks], NDArray[Any]]:
    """Numbers of 4 bits, of 5 where the blocks have high bits: scaled from a centre, or from the block's least one."""

    def to_floats(blocks: Blocks) -> NDArray[Any]:
        fields = blocks.dtype.names or ()
        halves = blocks["numbers"]
        whole = np.concatenate([halves & 15, halves >> 4], axis=1).astype(np.float32)
        if "high" in fields:
            whole += np.unpackbits(blocks["high"], axis=1, bitorder="little") * np.float32(16)
        numbers: NDArray[Any] = (whole - np.float32(centre)) * _column(blocks, "scale")
        return numbers + _column(blocks, "least") if "least" in fields else numbers

    return to_floats


def _from_levels(blocks: Blocks) -> NDArray[Any]:
    """Numbers of 4 bits that name a level, with scales of 6 bits: four lower ones, and two upper ones."""
    places = np.arange(_SCALES, dtype=np.uint16)
    low = np.stack([blocks["scales_low"] & 15, blocks["scales_low"] >> 4], axis=2).reshape(-1, _SCALES)
    scales = (low | (blocks["scales_high"][:, None] >> 2 * places & 3) << 4).astype(np.float32) - np.float32(32)
    halves = blocks["numbers"]
    whole = _LEVELS[np.concatenate([halves & 15, halves >> 4], axis=2)]
    numbers: NDArray[Any] = whole * (_column(blocks, "scale") * scales)[:, :, None]
    return numbers.reshape(len(blocks), -1)


def _column(blocks: Blocks, field: str) -> NDArray[Any]:
    column: NDArray[Any] = blocks[field].astype(np.float32)[:, None]
    return column


def _stored(*fields: str, n_bytes: int = _BLOCK // 2, form: str = "u1") -> np.dtype[Any]:
    forms = {"scale": ("<f2",), "least": ("<f2",), "high": ("u1", (_BLOCK // 8,)), "numbers": (form, (n_bytes,))}
    return np.dtype([(field, *forms[field]) for field in (*fields, "numbers")])


TYPES = {
    0: _Type("f32", np.dtype("<f4"), _floats, n_numbers=1),
    1: _Type("f16", np.dtype("<f2"), _floats, n_numbers=1),
    2: _Type("q4_0", _stored("scale"), _from_bits(8)),
    3: _Type("q4_1", _stored("scale", "least"), _from_bits(0)),
    6: _Type("q5_0", _stored("scale", "high"), _from_bits(16)),
    7: _Type("q5_1", _stored("scale", "least", "high"), _from_bits(0)),
    8: _Type("q8_0", _stored("scale", n_bytes=_BLOCK, form="i1"), _from_8_bits),
    23: _Type(
        "iq4_xs",
        np.dtype(
            [
                ("scale", "<f2"),
                ("scales_high", "<u2"),
                ("scales_low", "u1", (_SCALES // 2,)),
                ("numbers", "u1", (_SCALES, _BLOCK // 2)),
            ]
        ),
        _from_levels,
        n_numbers=_SCALES * _BLOCK,
    ),
}
"""The types by their numbers in ggml."""

_SIZES = "n_vocab n_audio_ctx n_audio_state n_audio_head n_audio_layer n_text_ctx n_text_state n_text_head n_text_layer"
_NAMES = [*_SIZES.split(), "n_mels", "ftype"]
"""The numbers at the start of a file, in their order."""


def read_folder(folder: Path) -> Contents:
    """Read a folder with a file of whisper.cpp, and what such a file has no place for.

    `generation_config.json` holds defaults other than those of OpenAI's models, and `tokenizer.json` another tokenizer.

    Raises:
        CheckpointError: a file is broken.
    """
    own = Tokenizer.from_folder(folder) if (folder / "tokenizer.json").exists() else None
    contents = read_file(folder / GGML_WEIGHTS, own)
    listed = folder / "generation_config.json"
    return replace(contents, defaults={**contents.defaults, **(read_json(listed) if listed.exists() else {})})


def read_file(path: Path, own_tokenizer: Tokenizer | None = None) -> Contents:
    """Read all but the weights.

    Args:
        own_tokenizer: the tokenizer, if it is not that of the file's tokens.

    Raises:
        CheckpointError: the file is broken, or has another kind of model or another type of numbers.
    """
    with BinaryFile(path) as file:
        file.skip(len(MAGIC), "a magic number")
        sizes = dict(zip(_NAMES, file.numbers(f"{len(_NAMES)}i", "sizes"), strict=True))
        version = sizes["ftype"] // _VERSION_FACTOR
        if sizes["ftype"] % _VERSION_FACTOR > 1 and version != _QUANTIZATION_VERSION:
            raise CheckpointError(
                f"{path}: expected blocks of version {_QUANTIZATION_VERSION}, got version {version}; quantise the "
                "model again with a newer whisper.cpp"
            )
        n_mels, n_bins = file.numbers("2i", "sizes of filters")
        file.skip(4 * n_mels * n_bins, "filters")
        texts = [file.bytes(file.number("i", "a length"), "a token") for _ in range(file.number("i", "a vocabulary"))]
        if texts and texts[-1] == _END:
            texts.pop()
        weights: dict[str, Weight] = {}
        while not file.is_at_end():
            name, weight = _read_weight(file)
            weights[openai.published_name(name)] = weight
    positions = _sinusoids(sizes["n_audio_ctx"], sizes["n_audio_state"])
    weights.setdefault("model.encoder.embed_positions.weight", positions)
    config = openai.sizes(path, weights, sizes["n_audio_head"], sizes["n_text_head"])
    tokenizer = own_tokenizer or openai.tokenizer(path, config["vocab_size"], texts)
    return Contents(config, openai.defaults(config, tokenizer), tokenizer, lambda: weights)


def _sinusoids(n_positions: int, d_model: int) -> Weight:
    """The encoder's positions of all Whisper models. Source: openai/whisper, whisper/model.py, `sinusoids`.

    They are computed when they are read, as only then these sizes are known to be those of a model.
    """
    half = d_model // 2

    def read(first: int, last: int) -> NDArray[Any]:
        speeds = np.exp(-np.log(10_000) / max(1, half - 1) * np.arange(half, dtype=np.float32))
        angles = np.arange(first, last, dtype=np.float32)[:, None] * speeds
        return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)

    return Weight((n_positions, 2 * half), read)


def _read_weight(file: BinaryFile) -> tuple[str, Weight]:
    n_dimensions, n_name, code = file.numbers("3i", "a weight's form")
    if not (0 < n_dimensions <= _MAX_DIMENSIONS and 0 < n_name <= MAX_NAME_BYTES):
        got = f"{n_dimensions} and {n_name}"
        raise CheckpointError(f"{file.path}: expected a weight's number of dimensions and length of name, got {got}")
    shape = file.numbers(f"{n_dimensions}i", "a shape")[::-1]
    name = file.bytes(n_name, "a name").decode(errors="replace")
    if (form := TYPES.get(code)) is None:
        known = ", ".join(form.name for form in TYPES.values())
        raise CheckpointError(f"{file.path}: {name}: expected numbers as {known}, got ggml's type {code}")
    n_row = prod(shape[1:]) if n_dimensions > 1 else 1
    if min(shape) <= 0 or shape[-1] % form.n_numbers or n_row % form.n_numbers:
        expected = f"rows of whole blocks of {form.n_numbers}"
        raise CheckpointError(f"{file.path}: {name}: expected {expected}, got the shape {shape}")
    position = file.skip(prod(shape) // form.n_numbers * form.stored.itemsize, name)
    if name.endswith(".bias") and shape[1:] == (1,):
        shape = shape[:1]  # the convolutions' biases are stored as columns
    if name.startswith("encoder.conv") and len(shape) == 2:  # flat rows, which have whole blocks
        shape = (shape[0], shape[1] // _KERNEL, _KERNEL)
    return name, _weight(file.path, form, shape, n_row // form.n_numbers, position)


def _weight(path: Path, form: _Type, shape: tuple[int, ...], n_row_blocks: int, position: int) -> Weight:
    def read(first: int, last: int) -> NDArray[Any]:
        offset = position + first * n_row_blocks * form.stored.itemsize
        return form.to_floats(np.fromfile(path, form.stored, (last - first) * n_row_blocks, offset=offset))

    return Weight(shape, read)
