"""The kinds of model that users name: forms of one small checkpoint that can be loaded, and folders that cannot.

    base = make_checkpoint(tmp_path / "base", KINDS_SHAPE)
    for kind in KINDS:
        folder = kind.make(base, tmp_path / kind.name)

A folder's text is gibberish, because the weights are random.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from tests.engine.checkpoint_writers import GIT_POINTER, write_ctranslate2
from tests.engine.checkpoints import SHAPES, edit_json

KINDS_SHAPE = SHAPES[0]
"""The shape of the checkpoint that the kinds are made of."""


@dataclass(frozen=True)
class Kind:
    """A kind of model."""

    name: str
    change: Callable[[Path], object]
    """Makes a folder of this kind of a copy of the plain checkpoint."""
    error: str | None = None
    """Part of the error, as a regular expression; `None`: it can be loaded."""
    files: tuple[str, ...] = ("model.safetensors",)
    """The files that are fetched from the hub for its weights."""
    tolerance: float | None = 0.0
    """How far a number may be from the plain one, as `assert_same_weights` has it; `None`: some weights are missing."""

    def make(self, base: Path, folder: Path) -> Path:
        """Make a folder of this kind of a plain checkpoint, and return it."""
        shutil.copytree(base, folder)
        self.change(folder)
        return folder


def _leave_only(folder: Path, **files: object) -> None:
    """Replace everything in a folder by these files. Underscores in names are for dots; values are JSON, or bytes."""
    for file in folder.iterdir():
        file.unlink()
    for name, content in files.items():
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        (folder / name.replace("__", ".")).write_bytes(data)


def _pop_weights(folder: Path) -> dict[str, torch.Tensor]:
    file = folder / "model.safetensors"
    # Copied, because the loaded tensors are mapped from the file.
    weights = {name: tensor.clone() for name, tensor in load_file(file).items()}
    file.unlink()
    return weights


def _shard(folder: Path, whole: str = "model.safetensors", save: Callable[..., object] = save_file) -> None:
    weights = _pop_weights(folder)
    names, (stem, _, ending) = list(weights), whole.partition(".")
    parts = {f"{stem}-00001-of-00002.{ending}": names[:20], f"{stem}-00002-of-00002.{ending}": names[20:]}
    for file, held in parts.items():
        save({name: weights[name] for name in held}, folder / file)
    index = {"metadata": {}, "weight_map": {name: file for file, held in parts.items() for name in held}}
    (folder / f"{whole}.index.json").write_text(json.dumps(index))


def _pickle(folder: Path, *, extra: dict[str, object] | None = None, is_new: bool = True) -> None:
    content = {**_pop_weights(folder), **(extra or {})}
    torch.save(content, folder / "pytorch_model.bin", _use_new_zipfile_serialization=is_new)


class _Unexpected:
    """What a pickled file may hold besides weights."""


def _halve(folder: Path, name: str) -> None:
    weights = _pop_weights(folder)
    save_file({key: tensor.half() for key, tensor in weights.items()}, folder / name)


def _add_variants(folder: Path) -> None:
    """As openai/whisper-large-v3: in half precision, beside it in full precision, in parts, and for other libraries."""
    weights = _pop_weights(folder)
    save_file({name: tensor.half() for name, tensor in weights.items()}, folder / "model.safetensors")
    save_file(weights, folder / "model.fp32-00001-of-00001.safetensors")
    index = {"weight_map": dict.fromkeys(weights, "model.fp32-00001-of-00001.safetensors")}
    (folder / "model.safetensors.index.fp32.json").write_text(json.dumps(index))
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "flax_model.msgpack").write_bytes(bytes(20_000))


def _use_slow_tokenizer(folder: Path) -> None:
    file = folder / "tokenizer.json"
    backend = Tokenizer.from_file(str(file))
    model = json.loads(backend.to_str())["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]))
    added = {token.content: number for number, token in backend.get_added_tokens_decoder().items()}
    (folder / "added_tokens.json").write_text(json.dumps(added))
    file.unlink()


def _list_added_tokens_in_config(folder: Path) -> None:
    _use_slow_tokenizer(folder)
    added = json.loads((folder / "added_tokens.json").read_text())
    listed = {str(number): {"content": name, "special": True} for name, number in added.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": listed}))
    (folder / "added_tokens.json").unlink()


def _distil(folder: Path) -> None:
    """One decoder layer, as the distilled models have two of 32."""
    weights = _pop_weights(folder)
    kept = {name: tensor for name, tensor in weights.items() if not name.startswith("model.decoder.layers.1.")}
    save_file(kept, folder / "model.safetensors")
    edit_json(folder / "config.json", decoder_layers=1)


def _truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _truncate_pickle(folder: Path) -> None:
    _pickle(folder)
    _truncate(folder / "pytorch_model.bin")


def _ctranslate2(folder: Path) -> None:
    write_ctranslate2(folder, folder)
    for name in ("model.safetensors", "generation_config.json"):
        (folder / name).unlink()


KINDS = (
    Kind("plain", lambda _: None),
    Kind("sharded", _shard, files=("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")),
    Kind(
        "sharded-pytorch",
        lambda folder: _shard(folder, "pytorch_model.bin", torch.save),
        files=("pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"),
    ),
    Kind("pytorch", _pickle, files=("pytorch_model.bin",)),
    Kind("old-pytorch", lambda folder: _pickle(folder, is_new=False), files=("pytorch_model.bin",)),
    Kind("half-precision", lambda folder: _halve(folder, "model.safetensors"), tolerance=1e-3),
    Kind(
        "fp16-variant",
        lambda folder: _halve(folder, "model.fp16.safetensors"),
        files=("model.fp16.safetensors",),
        tolerance=1e-3,
    ),
    Kind("with-variants", _add_variants, tolerance=1e-3),
    Kind("slow-tokenizer", _use_slow_tokenizer),
    Kind("slow-tokenizer-with-config", _list_added_tokens_in_config),
    Kind("distilled", _distil, tolerance=None),
    Kind(
        "lora",
        lambda folder: _leave_only(
            folder, adapter_config__json={"peft_type": "LORA"}, adapter_model__safetensors=bytes(20_000)
        ),
        error=r"got a LoRA adapter, .* merge it",
        files=(),
    ),
    Kind(
        "bert",
        lambda folder: edit_json(folder / "config.json", model_type="bert"),
        error="expected model_type whisper in config.json, got 'bert'",
        files=(),
    ),
    Kind("ctranslate2", _ctranslate2, files=("model.bin",)),
    Kind(
        "ggml",
        lambda folder: _leave_only(folder, **{"ggml-base__bin": bytes(20_000)}),
        error=r"got files of whisper\.cpp; give one of the \.bin files itself",
        files=(),
    ),
    Kind(
        "flax",
        lambda folder: (folder / "model.safetensors").rename(folder / "flax_model.msgpack"),
        error=r"got weights for Flax, TensorFlow, ONNX or MLX only",
        files=(),
    ),
    Kind(
        "no-tokenizer",
        lambda folder: (folder / "tokenizer.json").unlink(),
        error=r"expected tokenizer\.json, or vocab\.json, .*; missing: vocab\.json, merges\.txt, .*; copy them from",
        files=(),
    ),
    Kind(
        "truncated",
        lambda folder: _truncate(folder / "model.safetensors"),
        error=r"model\.safetensors: expected readable weights, .*delete it, and fetch it",
    ),
    Kind(
        "truncated-pytorch",
        _truncate_pickle,
        error=r"pytorch_model\.bin: expected .*broken",
        files=("pytorch_model.bin",),
    ),
    Kind(
        "pytorch-with-code",
        lambda folder: _pickle(folder, extra={"extra": _Unexpected()}),
        error=r"pytorch_model\.bin: expected weights only, got a file that .* may run code",
        files=("pytorch_model.bin",),
    ),
    Kind(
        "git-pointer",
        lambda folder: (folder / "model.safetensors").write_bytes(GIT_POINTER),
        error=r"got a pointer of Git LFS; run `git lfs pull`",
    ),
)  # fmt: skip
"""Every kind, with what is expected of it."""
