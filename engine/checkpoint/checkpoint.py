"""Finds a checkpoint and reads everything but its weights: sizes, token ids, decoding defaults.

Reads the files that transformers writes. Token ids come from the checkpoint, never from this code; where old
checkpoints leave something out, it is derived from the tokenizer.
"""

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from engine.checkpoint.catalog import EMBEDDED_MODEL
from engine.checkpoint.tokenizer import Tokenizer
from engine.errors import CheckpointError

EMBEDDED_FOLDER = Path(__file__).parents[1] / "assets" / EMBEDDED_MODEL

_HUB_FILES = ("*.json", "merges.txt")
"""What to fetch besides the weights, which many repositories hold in several formats."""

OPENAI_MULTILINGUAL_VOCAB_SIZE = 51_865
"""From this size on, OpenAI's checkpoints are multilingual (openai/whisper, whisper/model.py, `is_multilingual`)."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The sizes of a Whisper model, named as in `config.json` where it has names for them."""

    d_model: int
    n_mels: int
    encoder_layers: int
    encoder_attention_heads: int
    encoder_ffn_dim: int
    decoder_layers: int
    decoder_attention_heads: int
    decoder_ffn_dim: int
    vocab_size: int
    max_source_positions: int
    """Encoder states of a full window, 20 ms each."""
    max_target_positions: int
    """Most tokens of a sequence, its prompt included."""


@dataclass(frozen=True, slots=True)
class AudioContext:
    """How short a window the model may be given: mel frames of 10 ms, counted from the window's start."""

    min_frames: int
    margin_frames: int
    """Kept behind the audio."""


@dataclass(frozen=True, slots=True)
class GenerationConfig:
    """How the checkpoint wants to be decoded."""

    is_multilingual: bool
    """Its prompt names a language and a task."""
    languages: dict[str, int]
    """Token ids of the languages it can be told, by code; empty unless multilingual."""
    suppress_tokens: tuple[int, ...]
    """Never sampled."""
    begin_suppress_tokens: tuple[int, ...]
    """Not sampled first."""
    max_initial_timestamp_index: int | None
    """The latest first timestamp, in steps of 20 ms."""
    alignment_heads: tuple[tuple[int, int], ...]
    """(decoder layer, head) whose cross-attention follows the audio; for word times."""
    audio_context: AudioContext | None = None
    """Of a model trained on windows of any length (`tutti_audio_context`); `None` for one that needs full windows."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint folder, read and checked, without its weights."""

    name: str
    folder: Path | None
    """`None` where the weights are random."""
    model: ModelConfig
    generation: GenerationConfig
    tokenizer: Tokenizer


def read_checkpoint(name: str) -> Checkpoint:
    """Find `name` (embedded, a folder, or on the hub, fetching it if need be) and read its configuration.

    Raises:
        CheckpointError: it cannot be found, or a file is missing or unusable.
    """
    folder = find_checkpoint(name)
    tokenizer = Tokenizer.from_folder(folder)
    config = _read_json(folder / "config.json")
    defaults_file = folder / "generation_config.json"
    # Before generation_config.json existed, config.json held the decoding defaults.
    defaults = _read_json(defaults_file) if defaults_file.exists() else config
    model = _model_config(config, folder)
    if tokenizer.first_timestamp >= model.vocab_size:
        raise CheckpointError(f"{folder}: tokenizer and config.json disagree: the model has {model.vocab_size} tokens")
    _check_features(folder, model)
    return Checkpoint(name, folder, model, _generation_config(defaults, model, tokenizer), tokenizer)


def find_checkpoint(name: str) -> Path:
    """The folder of a checkpoint: embedded, local, or in the hub's cache, fetched if it is not there yet."""
    if name == EMBEDDED_MODEL:
        return EMBEDDED_FOLDER
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if folder.is_absolute() or name.count("/") != 1 or name.startswith((".", "~")):
        raise CheckpointError(
            f"{name}: no such folder; expected {EMBEDDED_MODEL}, a folder, or a hub name like openai/whisper-small"
        )
    return _fetch(name)


def _fetch(name: str) -> Path:
    # Imported here because it is slow to import and only needed for hub names.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    try:
        folder = Path(snapshot_download(name, allow_patterns=[*_HUB_FILES, "model*.safetensors"]))
        if not any(folder.glob("model*.safetensors")):
            folder = Path(snapshot_download(name, allow_patterns=[*_HUB_FILES, "pytorch_model*.bin"]))
    except RepositoryNotFoundError as error:
        raise CheckpointError(f"{name}: neither a folder here nor a model on the hub (or it needs a login)") from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise CheckpointError(
            f"{name}: not in the local cache, and the hub cannot be reached; "
            f"download it where there is a network and give its folder, or use {EMBEDDED_MODEL}"
        ) from error
    return folder


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{file}: missing; a Whisper checkpoint folder needs it") from error
    except ValueError as error:
        raise CheckpointError(f"{file}: not readable as JSON") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{file}: expected an object")
    return content


def _model_config(config: dict[str, Any], folder: Path) -> ModelConfig:
    if config.get("model_type") != "whisper":
        raise CheckpointError(f"{folder}: expected model_type whisper, got {config.get('model_type')!r}")
    if config.get("activation_function", "gelu") != "gelu":
        raise CheckpointError(f"{folder}: expected activation_function gelu, got {config['activation_function']!r}")
    names = {field.name: field.name for field in fields(ModelConfig)} | {"n_mels": "num_mel_bins"}
    sizes = {name: size for name, key in names.items() if isinstance(size := config.get(key), int) and size > 0}
    if wrong := [key for name, key in names.items() if name not in sizes]:
        raise CheckpointError(f"{folder}/config.json: missing or not a positive number: {', '.join(wrong)}")
    return ModelConfig(**sizes)


def _check_features(folder: Path, model: ModelConfig) -> None:
    """The features are computed one way only; a checkpoint that wants others must not be heard wrongly."""
    file = folder / "preprocessor_config.json"
    if not file.exists():
        return
    preprocessor = _read_json(file)
    expected = {"feature_size": model.n_mels, "sampling_rate": 16_000, "n_fft": 400, "hop_length": 160}
    for key, value in expected.items():
        if preprocessor.get(key, value) != value:
            raise CheckpointError(f"{file}: {key}: expected {value}, got {preprocessor[key]!r}")


def _generation_config(defaults: dict[str, Any], model: ModelConfig, tokenizer: Tokenizer) -> GenerationConfig:
    is_multilingual = _is_multilingual(defaults, model, tokenizer)
    listed = defaults.get("lang_to_id")
    languages = {key.strip("<|>"): token for key, token in listed.items()} if listed else tokenizer.languages
    heads = defaults.get("alignment_heads") or _upper_half_heads(model)
    return GenerationConfig(
        is_multilingual,
        dict(sorted(languages.items(), key=lambda item: item[1])) if is_multilingual else {},
        tuple(defaults.get("suppress_tokens") or ()),
        tuple(defaults.get("begin_suppress_tokens") or ()),
        defaults.get("max_initial_timestamp_index"),
        tuple((layer, head) for layer, head in heads),
        _audio_context(defaults.get("tutti_audio_context"), model),
    )


def _audio_context(listed: Any, model: ModelConfig) -> AudioContext | None:
    if listed is None:
        return None
    names, most = [field.name for field in fields(AudioContext)], 2 * model.max_source_positions
    given = listed if isinstance(listed, dict) else {}
    sizes = {name: size for name in names if isinstance(size := given.get(name), int) and 0 <= size <= most}
    if len(sizes) < len(names):
        expected = f"{' and '.join(names)}, 0 to {most}"
        raise CheckpointError(f"generation_config.json: tutti_audio_context: expected {expected}, got {listed!r}")
    return AudioContext(**sizes)


def _is_multilingual(defaults: dict[str, Any], model: ModelConfig, tokenizer: Tokenizer) -> bool:
    """English-only tokenizers hold the language tokens too, so it takes other evidence."""
    if "is_multilingual" in defaults:
        return bool(defaults["is_multilingual"])
    if defaults.get("lang_to_id"):
        return True
    if forced := defaults.get("forced_decoder_ids"):
        # Old checkpoints force [[1, language or null], [2, task], ...], English-only ones [[1, <|notimestamps|>]].
        return bool(forced[0][1] != tokenizer.no_timestamps)
    return model.vocab_size >= OPENAI_MULTILINGUAL_VOCAB_SIZE


def _upper_half_heads(model: ModelConfig) -> list[tuple[int, int]]:
    """All heads of the upper half of the layers (openai/whisper, whisper/model.py, `Whisper.__init__`)."""
    layers = range(model.decoder_layers // 2, model.decoder_layers)
    return [(layer, head) for layer in layers for head in range(model.decoder_attention_heads)]
