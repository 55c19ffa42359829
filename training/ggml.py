"""Writes a Whisper in whisper.cpp's form, with matrices in 4 bits.

Source of the form: ggml-org/whisper.cpp, models/convert-pt-to-ggml.py. The encoder's positions are left out: they are
sinusoids, which the reader computes.
"""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from training.four_bits import BLOCK, BLOCKS, LEAST_SCALE, FourBitStudent, Matrix, codes
from tutti_server.engine.checkpoint import openai

_F32, _F16, _Q8_0, _IQ4_XS = 0, 1, 8, 23
"""Numbers of types in ggml."""
_FILE_TYPE = 2022
"""Blocks of the second version, mostly IQ4_XS."""


def write_model(student: FourBitStudent, config: dict[str, Any], file: Path, tokens: Sequence[bytes] = ()) -> None:
    """Write the weights of a student.

    Args:
        student: whose matrices are in 4 bits.
        config: its sizes, as in `config.json`.
        file: the file to write.
        tokens: the text tokens in the order of their ids; none if they are OpenAI's, or stand in `tokenizer.json`.
    """
    sides = (("encoder", "source"), ("decoder", "target"))
    sizes = [
        (config[f"max_{end}_positions"], config["d_model"], config[f"{side}_attention_heads"], config[f"{side}_layers"])
        for side, end in sides
    ]
    names = {openai.published_name(name): name for name in _names(config)}
    with file.open("wb") as opened:
        opened.write(b"lmgg" + struct.pack("<i", config["vocab_size"]))
        opened.write(struct.pack("<8i", *(size for side in sizes for size in side)))
        opened.write(struct.pack("<2i", config["num_mel_bins"], _FILE_TYPE))
        opened.write(struct.pack("<3i", 0, 0, len(tokens)))  # the reader has filters of its own
        for token in tokens:
            opened.write(struct.pack("<i", len(token)) + token)
        for name, weight in student.model.named_parameters():
            if name == "model.encoder.embed_positions.weight":
                continue
            if name in student.matrices:
                _write(opened, names[name], weight.shape, _IQ4_XS, pack(student.matrices[name]))
                continue
            values = weight.detach().float().cpu().numpy()
            if "conv" in name:
                values = values.reshape(len(values), -1)
            _write(opened, names[name], values.shape, *_small_weight(values))


def _small_weight(values: NDArray[np.float32]) -> tuple[int, bytes]:
    """The type and the bytes of a weight that is not rounded in training: 8 bits where its rows have whole blocks."""
    if 1 in (values.ndim, values.shape[-1]):
        return _F32, values.astype("<f4").tobytes()
    if values.shape[-1] % BLOCK:
        return _F16, values.astype("<f2").tobytes()
    rows = values.reshape(-1, BLOCK)
    blocks = np.zeros(len(rows), [("scale", "<f2"), ("numbers", "i1", (BLOCK,))])
    blocks["scale"] = np.abs(rows).max(1) / 127
    scale = blocks["scale"].astype(np.float32)[:, None]
    blocks["numbers"] = np.clip(np.rint(rows / np.where(scale == 0, 1, scale)), -127, 127)
    return _Q8_0, blocks.tobytes()


def pack(matrix: Matrix) -> bytes:
    """The blocks of a matrix: multiplier, upper and lower bits of the scales, and 128 bytes of numbers."""
    stored, scale = matrix.scales()
    six_bits = (stored.view(-1, BLOCKS).cpu().numpy() - LEAST_SCALE).astype(np.uint16)
    halves = codes(matrix.numbers.detach(), scale).cpu().numpy().astype(np.uint8).reshape(-1, BLOCKS, 2, BLOCK // 2)
    blocks = np.zeros(
        len(six_bits), [("multiplier", "<f2"), ("high", "<u2"), ("low", "u1", (4,)), ("numbers", "u1", (8, 16))]
    )
    blocks["multiplier"] = matrix.multiplier.view(-1).cpu().numpy()
    blocks["high"] = ((six_bits >> 4) << (2 * np.arange(BLOCKS, dtype=np.uint16))).sum(1)
    blocks["low"] = (six_bits[:, 0::2] & 15) | (six_bits[:, 1::2] & 15) << 4
    blocks["numbers"] = halves[:, :, 0] | halves[:, :, 1] << 4
    return blocks.tobytes()


def _write(file: BinaryIO, name: str, shape: Sequence[int] | Tensor, code: int, content: bytes) -> None:
    file.write(struct.pack(f"<3i{len(shape)}i", len(shape), len(name), code, *shape[::-1]))
    file.write(name.encode() + content)


def _names(config: dict[str, Any]) -> list[str]:
    """OpenAI's names of all weights."""
    norms, products = ("weight", "bias"), ("query", "key", "value", "out")
    names = ["decoder.token_embedding.weight", "decoder.positional_embedding"]
    names += [f"encoder.conv{number}.{part}" for number in (1, 2) for part in norms]
    names += [f"{place}.{part}" for place in ("encoder.ln_post", "decoder.ln") for part in norms]
    for side in ("encoder", "decoder"):
        attentions = ("attn", "cross_attn") if side == "decoder" else ("attn",)
        for layer in range(config[f"{side}_layers"]):
            modules = [
                f"{attention}{module}" for attention in attentions for module in ("_ln", *map(".".__add__, products))
            ]
            modules += ["mlp_ln", "mlp.0", "mlp.2"]
            names += [f"{side}.blocks.{layer}.{module}.{part}" for module in modules for part in norms]
    return names
