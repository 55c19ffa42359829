"""Small ONNX models for tests, written byte by byte, so that tests need ONNX Runtime only.

The field numbers are those of onnx/onnx, onnx/onnx.proto. The encoding is that of Protocol Buffers.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

FLOAT = 1
INT, INTS = 2, 7
IR_VERSION, OPSET = 8, 13

Operator = tuple[str, Mapping[str, int | Sequence[int]]]
"""The name of an operator, and its attributes."""


def save_model(
    path: Path, operators: Sequence[Operator], n_samples: int | str, n_inputs: int = 1, n_bands: int | None = None
) -> Path:
    """Write a model that applies operators in a row to its first input, `(batch, n_samples)` float32.

    With `n_bands` the input is `(batch, n_samples, n_bands)`. A text as `n_samples` is the name of any number.
    """
    names = ["audio", *(f"x{index}" for index in range(len(operators)))]
    nodes = [
        _field(1, _node(name, before, after, attributes))
        for (name, attributes), before, after in zip(operators, names, names[1:], strict=False)
    ]
    length = _field(2, n_samples) if isinstance(n_samples, str) else _field(1, n_samples)
    shape = _field(1, _field(2, "batch")) + _field(1, length)
    shape += b"" if n_bands is None else _field(1, _field(1, n_bands))
    inputs = [_field(11, _value(name, _field(2, shape))) for name in ("audio", *map(str, range(n_inputs - 1)))]
    graph = b"".join(nodes) + _field(2, "turns") + b"".join(inputs) + _field(12, _value(names[-1]))
    path.write_bytes(_field(1, IR_VERSION) + _field(7, graph) + _field(8, _field(1, "") + _field(2, OPSET)))
    return path


def _node(name: str, before: str, after: str, attributes: Mapping[str, int | Sequence[int]]) -> bytes:
    return (
        _field(1, before)
        + _field(2, after)
        + _field(4, name)
        + b"".join(_field(5, _attribute(*each)) for each in attributes.items())
    )


def _attribute(name: str, value: int | Sequence[int]) -> bytes:
    if isinstance(value, int):
        return _field(1, name) + _field(3, value) + _field(20, INT)
    return _field(1, name) + b"".join(_field(8, each) for each in value) + _field(20, INTS)


def _value(name: str, shape: bytes = b"") -> bytes:
    """An input or an output of float32."""
    return _field(1, name) + _field(2, _field(1, _field(1, FLOAT) + shape))


def _field(number: int, value: int | str | bytes) -> bytes:
    """A field of a message: an integer, a text, or a message."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    """Seven bits in each byte, the lowest first; the highest bit says that more follow."""
    rest, low = divmod(value, 128)
    return bytes([low | 128]) + _varint(rest) if rest else bytes([low])
