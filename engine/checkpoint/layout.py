"""The files of a checkpoint in a folder: which ones are needed, and what a folder with others holds."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar

from tutti_server.engine.errors import CheckpointError

T = TypeVar("T")

CONFIGURATION_FILES = (
    "config.json",
    "generation_config.json",
    "preprocessor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "vocabulary.json",
    "vocabulary.txt",
)
"""The files that are read besides the weights. No checkpoint needs all of them."""

CTRANSLATE2_WEIGHTS = "model.bin"
"""The weights of a CTranslate2 model."""

GGML_WEIGHTS = "ggml-model.bin"
"""The weights of a folder in whisper.cpp's form."""

_VARIANTS = ("", ".fp16", ".bf16", ".fp32")
"""Parts of the names of weights: files without one come first, then the smallest."""

_CONVERSION = "name the checkpoint that it was converted from, such as openai/whisper-small"


def find_weights(names: Collection[str]) -> str | None:
    """The file to load the weights from: one with all of them, or the index of several; `None` if there is neither.

    Safetensors come before PyTorch's own format, and variants in another precision after both. Those of other programs
    come last.
    """
    for variant in _VARIANTS:
        for name in (
            f"model{variant}.safetensors",
            f"model.safetensors.index{variant}.json",
            f"pytorch_model{variant}.bin",
            f"pytorch_model.bin.index{variant}.json",
        ):
            if name in names:
                return name
    return next((name for name in (CTRANSLATE2_WEIGHTS, GGML_WEIGHTS) if name in names), None)


def listed_files(index: Path) -> list[str]:
    """The names of the weight files that an index lists.

    Raises:
        CheckpointError: the index cannot be read, or names a file outside its folder.
    """
    listed = read_json(index).get("weight_map")
    files = sorted({str(file) for file in listed.values()}) if isinstance(listed, dict) else []
    if not files or any(Path(file).name != file for file in files):
        raise CheckpointError(f"{index}: expected weight_map to name files of the same folder, got {files or listed!r}")
    return files


def describe_other_format(names: Collection[str]) -> str | None:
    """What files are that tutti cannot load, and what to do instead; `None` if they are of no known other format."""
    if find_weights(names) is not None:
        return None
    endings = {Path(name).suffix for name in names}
    is_ggml = ".gguf" in endings or any(name.startswith("ggml") and name.endswith(".bin") for name in names)
    formats = (
        (
            "adapter_config.json" in names,
            "a LoRA adapter, which holds only changes to another model; merge it with PEFT's merge_and_unload(), save "
            "the result and its processor with save_pretrained(), and give that folder",
        ),
        (is_ggml, "files of whisper.cpp; give one of the .bin files itself; .gguf files cannot be read"),
        (
            ".pt" in endings and "config.json" not in names,
            "files of OpenAI's package whisper; give one of the .pt files itself",
        ),
        (
            bool(endings & {".msgpack", ".h5", ".onnx", ".npz"}),
            "weights for Flax, TensorFlow, ONNX or MLX only; expected model.safetensors or pytorch_model.bin; "
            f"{_CONVERSION}",
        ),
    )
    return next((description for is_found, description in formats if is_found), None)


def read_json(file: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        CheckpointError: the file is missing, or holds something else.
    """
    return _parse(file, dict, "object")


def read_json_list(file: Path) -> list[Any]:
    """The JSON list in a file.

    Raises:
        CheckpointError: the file is missing, or holds something else.
    """
    return _parse(file, list, "list")


def _parse(file: Path, kind: type[T], name: str) -> T:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{file}: missing; the folder of a Whisper checkpoint needs it") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: expected JSON, got: {error}") from error
    if not isinstance(content, kind):
        raise CheckpointError(f"{file}: expected a JSON {name}, got {type(content).__name__}")
    return content
