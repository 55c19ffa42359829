"""Writes checkpoints of transformers again in the formats of other programs, without those programs.

`tests/engine/checkpoint` compares the files with those that the programs write, where they are installed.
"""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from tutti_server.engine.checkpoint.checkpoint import read_checkpoint

Array = NDArray[Any]

CTRANSLATE2_TYPES = (
    "float32",
    "float16",
    "bfloat16",
    "int8",
    "int8_float32",
    "int8_float16",
    "int8_bfloat16",
    "int16",
)
GIT_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3087130976\n"
"""What a clone has in place of a large file where Git LFS is not installed."""
_CODES = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4, "bfloat16": 5}


def write_transformers(name: str, folder: Path) -> Path:
    """Write a checkpoint of any form as a folder of transformers, with the JSON files of its own folder."""
    checkpoint = read_checkpoint(name)
    assert checkpoint.path
    for file in checkpoint.path.glob("*.json"):
        shutil.copy(file, folder)
    weights = {}
    for weight, numbers in checkpoint.weights().items():
        blocks = [torch.as_tensor(block).reshape(last - first, -1) for first, last, block in numbers.blocks()]
        weights[weight] = torch.cat(blocks).reshape(numbers.shape).float()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def published(folder: Path) -> dict[str, Array]:
    """The weights of a folder of transformers, without the prefix of their names."""
    weights = load_file(folder / "model.safetensors")
    return {name.removeprefix("model."): tensor.float().numpy() for name, tensor in weights.items()}


def write_ctranslate2(base: Path, folder: Path, quantization: str = "float32", *, vocabulary: str = "json") -> Path:
    """Write a folder of transformers as a folder of CTranslate2, with an alias for every variable that occurs twice."""
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((base / "config.json").read_text())
    defaults = json.loads((base / "generation_config.json").read_text())
    n_heads = (config["encoder_attention_heads"], config["decoder_attention_heads"])
    variables = _ctranslate2_variables(published(base))
    types = quantization.partition("_")
    with (folder / "model.bin").open("wb") as file:
        file.write(struct.pack("<I", 6))
        _write_text(file, "WhisperSpec")
        file.write(struct.pack("<I", 3))
        stored: dict[str, Array] = {
            "encoder/num_heads": np.array(n_heads[0], np.int16),
            "decoder/num_heads": np.array(n_heads[1], np.int16),
            "decoder/pre_norm": np.array(1, np.int8),
        }
        for name, values in variables.items():
            is_matrix = name.endswith("/weight")
            if types[0] in ("int8", "int16") and is_matrix:
                stored[name], stored[f"{name}_scale"] = _whole_numbers(values, types[0])
            else:
                stored[name] = _floats(values, types[2] or (types[0] if "float" in types[0] else "float32"))
        aliases: dict[str, str] = {}
        for name in sorted(stored):
            first = next(other for other in sorted(stored) if _is_same(stored[other], stored[name]))
            if first != name and stored[name].ndim:
                aliases[name] = first
        file.write(struct.pack("<I", len(stored) - len(aliases)))
        for name in sorted(stored.keys() - aliases.keys()):
            _write_variable(file, name, stored[name])
        file.write(struct.pack("<I", len(aliases)))
        for alias, name in aliases.items():
            _write_text(file, alias)
            _write_text(file, name)
    tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
    tokens = [tokenizer.id_to_token(number) for number in range(tokenizer.get_vocab_size())]
    text = json.dumps(tokens) if vocabulary == "json" else "".join(f"{token}\n" for token in tokens)
    (folder / f"vocabulary.{vocabulary}").write_text(text, encoding="utf-8")
    (folder / "tokenizer.json").write_bytes((base / "tokenizer.json").read_bytes())
    listed = {
        "alignment_heads": defaults.get("alignment_heads"),
        "lang_ids": sorted(defaults.get("lang_to_id", {}).values()),
        "suppress_ids": defaults.get("suppress_tokens"),
        "suppress_ids_begin": defaults.get("begin_suppress_tokens"),
    }
    (folder / "config.json").write_text(json.dumps(listed))
    return folder


def patch(position: int, form: str, number: int) -> Callable[[bytes], bytes]:
    """Put another number into a file."""

    def change(content: bytes) -> bytes:
        packed = struct.pack(form, number)
        return content[:position] + packed + content[position + len(packed) :]

    return change


def _ctranslate2_variables(weights: dict[str, Array]) -> dict[str, Array]:
    variables = {"decoder/projection/weight": weights["decoder.embed_tokens.weight"]}
    parts: dict[str, list[Array]] = {}
    for name, values in weights.items():
        if name.endswith("k_proj.weight"):
            weights = weights | {name.replace("weight", "bias"): np.zeros(len(values), np.float32)}
    for name in sorted(weights, key=lambda name: ("q_proj" not in name, "k_proj" not in name, name)):
        place, _, part = name.rpartition(".")
        place = place.replace(".layers.", "/layer_")
        for ours, theirs in (
            ("self_attn_layer_norm", "self_attention/layer_norm"),
            ("encoder_attn_layer_norm", "attention/layer_norm"),
            ("final_layer_norm", "ffn/layer_norm"),
            ("fc1", "ffn/linear_0"),
            ("fc2", "ffn/linear_1"),
            ("self_attn.out_proj", "self_attention/linear_1"),
            ("encoder_attn.q_proj", "attention/linear_0"),
            ("encoder_attn.out_proj", "attention/linear_2"),
            *((f"self_attn.{letter}_proj", "self_attention/linear_0") for letter in "qkv"),
            *((f"encoder_attn.{letter}_proj", "attention/linear_1") for letter in "kv"),
            ("embed_tokens", "embeddings"),
            ("embed_positions", "position_encodings"),
        ):
            if place.endswith(ours):
                place = place.removesuffix(ours) + theirs
                break
        if place.endswith("layer_norm"):
            part = {"weight": "gamma", "bias": "beta"}[part]
        elif place.endswith("position_encodings"):
            part = "encodings"
        parts.setdefault(f"{place}/{part}".replace(".", "/"), []).append(weights[name])
    return variables | {name: np.concatenate(values) for name, values in parts.items()}


def _whole_numbers(values: Array, dtype: str) -> tuple[Array, Array]:
    if dtype == "int16":
        scale = np.float32(1024 / np.abs(values).max())
        return np.rint(values * scale).astype(np.int16), np.asarray(scale)
    rows = values.reshape(len(values), -1)
    peaks = np.abs(rows).max(axis=1)
    scales = np.float32(127) / np.where(peaks == 0, 127, peaks).astype(np.float32)
    return np.rint(rows * scales[:, None]).astype(np.int8).reshape(values.shape), scales


def _floats(values: Array, dtype: str) -> Array:
    if dtype == "bfloat16":
        # NumPy has no such type: its numbers are kept as they are in memory.
        return torch.from_numpy(values).bfloat16().view(torch.uint16).numpy()
    return values.astype(dtype)


def _is_same(one: Array, other: Array) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and bool(np.array_equal(one, other))


def _write_text(file: BinaryIO, text: str) -> None:
    file.write(struct.pack("<H", len(text) + 1) + text.encode() + b"\0")


def _write_variable(file: BinaryIO, name: str, values: Array) -> None:
    _write_text(file, name)
    file.write(struct.pack(f"<B{values.ndim}I", values.ndim, *values.shape))
    code = 5 if values.dtype == np.uint16 else _CODES[values.dtype.name]
    file.write(struct.pack("<BI", code, values.nbytes) + values.tobytes())


def write_openai(base: Path, file: Path) -> Path:
    """Write a folder of transformers as a `.pt` file of OpenAI's package."""
    config = json.loads((base / "config.json").read_text())
    weights = {name: torch.from_numpy(values) for name, values in _openai_weights(published(base)).items()}
    torch.save({"dims": dict(zip(_DIMS, _sizes(config), strict=True)), "model_state_dict": weights}, file)
    return file


_DIMS = (
    "n_vocab n_audio_ctx n_audio_state n_audio_head n_audio_layer n_text_ctx n_text_state n_text_head n_text_layer "
    "n_mels"
).split()


def _sizes(config: dict[str, int]) -> list[int]:
    audio, text = (
        [
            config[f"max_{end}_positions"],
            config["d_model"],
            config[f"{side}_attention_heads"],
            config[f"{side}_layers"],
        ]
        for end, side in (("source", "encoder"), ("target", "decoder"))
    )
    return [config["vocab_size"], *audio, *text, config["num_mel_bins"]]


def _openai_weights(weights: dict[str, Array]) -> dict[str, Array]:
    named = {}
    for name, values in weights.items():
        for theirs, ours in (
            ("self_attn_layer_norm", "attn_ln"),
            ("encoder_attn_layer_norm", "cross_attn_ln"),
            ("final_layer_norm", "mlp_ln"),
            ("encoder_attn", "cross_attn"),
            ("self_attn", "attn"),
            ("q_proj", "query"),
            ("k_proj", "key"),
            ("v_proj", "value"),
            ("out_proj", "out"),
            ("fc1", "mlp.0"),
            ("fc2", "mlp.2"),
            ("layers", "blocks"),
            ("embed_positions.weight", "positional_embedding"),
            ("embed_tokens", "token_embedding"),
            ("encoder.layer_norm", "encoder.ln_post"),
            ("decoder.layer_norm", "decoder.ln"),
        ):
            name = name.replace(theirs, ours)  # noqa: PLW2901
        named[name] = values
    return named


GGML_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8}
"""Types of numbers by name."""
_GGML_FILE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2002, "q4_1": 2003, "q8_0": 2007, "q5_0": 2008, "q5_1": 2009}
"""Types of files, after the version of their blocks, in thousands."""


def write_ggml(base: Path, file: Path, kind: str = "f16", tokens: list[bytes] | None = None) -> Path:
    """Write a folder of transformers as a `.bin` file of whisper.cpp. Blocks are of the second version."""
    config = json.loads((base / "config.json").read_text())
    tokens = tokens if tokens is not None else [b"%d" % number for number in range(50_257)]
    with file.open("wb") as opened:
        opened.write(b"lmgg" + struct.pack("<11i", *_sizes(config), _GGML_FILE_TYPES[kind]))
        opened.write(struct.pack("<2i", 2, 3) + bytes(4 * 2 * 3))
        opened.write(struct.pack("<i", len(tokens)))
        for token in tokens:
            opened.write(struct.pack("<i", len(token)) + token)
        for name, values in _openai_weights(published(base)).items():
            is_small = values.ndim < 2 or "positional" in name
            own = "f32" if is_small else "f16" if kind.startswith("q") and values.ndim > 2 else kind
            shape = (len(values), 1) if "conv" in name and values.ndim == 1 else values.shape
            opened.write(struct.pack(f"<3i{len(shape)}i", len(shape), len(name), GGML_TYPES[own], *shape[::-1]))
            opened.write(name.encode() + pack_blocks(values, own))
    return file


def pack_blocks(values: Array, kind: str) -> bytes:
    """The bytes of numbers in one of ggml's types, block by block."""
    if kind in ("f32", "f16"):
        return values.astype(kind.replace("f", "float")).tobytes()
    n_bits, has_least = int(kind[1]), kind.endswith("1")
    content = bytearray()
    for block in values.reshape(-1, 32):
        least = block.min() if has_least else 0.0
        reach = (block.max() - least) / (2**n_bits - 1) if has_least else np.abs(block).max() / (2 ** (n_bits - 1) - 1)
        scale = np.float16(reach)
        whole = np.rint((block - np.float16(least)) / np.float32(scale or 1)).astype(int)
        content += scale.tobytes() + (np.float16(least).tobytes() if has_least else b"")
        if n_bits == 8:
            content += np.clip(whole, -127, 127).astype(np.int8).tobytes()
            continue
        whole = np.clip(whole + (0 if has_least else 2 ** (n_bits - 1)), 0, 2**n_bits - 1)
        if n_bits == 5:
            content += struct.pack("<I", sum(int(number >> 4) << place for place, number in enumerate(whole)))
        content += bytes(int(low & 15) | int(high & 15) << 4 for low, high in zip(whole[:16], whole[16:], strict=True))
    return bytes(content)
