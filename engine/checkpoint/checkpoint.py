"""Finds a checkpoint and reads everything except its weights: sizes, token ids, decoding defaults.

It reads the files that transformers writes. All token ids come from the checkpoint, none from this code. What old
checkpoints do not list is derived from their tokenizer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from engine.checkpoint import transformers_folder
from engine.checkpoint.catalog import EMBEDDED_MODEL
from engine.checkpoint.contents import Weight
from engine.checkpoint.hub import HubName, fetch
from engine.checkpoint.layout import describe_other_format, read_json
from engine.checkpoint.tokenizer import Tokenizer
from engine.errors import CheckpointError

EMBEDDED_FOLDER = Path(__file__).parents[1] / "assets" / EMBEDDED_MODEL
"""The folder of the checkpoint that the package contains."""

OPENAI_MULTILINGUAL_VOCAB_SIZE = 51_865
"""The smallest vocabulary of OpenAI's multilingual checkpoints.

Source: openai/whisper, whisper/model.py, `is_multilingual`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The sizes of a Whisper model. They are named as in `config.json`, where `n_mels` is `num_mel_bins`."""

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
    """The most tokens of a sequence, including its prompt."""


@dataclass(frozen=True, slots=True)
class AudioContext:
    """How short the model's windows may be, in mel frames of 10 ms."""

    min_frames: int
    """Frames of the shortest window."""
    margin_frames: int
    """Frames that a window has after its audio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationConfig:
    """The decoding defaults of a checkpoint."""

    is_multilingual: bool
    """Whether the prompt names a language and a task."""
    languages: dict[str, int]
    """Token ids of the languages that the prompt may name, by language code. Empty if the model is not multilingual."""
    suppress_tokens: tuple[int, ...]
    """Tokens that are never sampled."""
    begin_suppress_tokens: tuple[int, ...]
    """Tokens that are not sampled first."""
    max_initial_timestamp_index: int | None
    """The latest first timestamp, in steps of 20 ms; `None` if any timestamp may come first."""
    alignment_heads: tuple[tuple[int, int], ...]
    """`(decoder layer, head)` of the heads whose cross-attention follows the audio. Word times come from them."""
    audio_context: AudioContext | None = None
    """The shortest windows of a model that was trained on windows of any length, from the key `tutti_audio_context`.

    `None` if the model needs full windows.
    """
    adaptive_endpointing: bool = False
    """Adaptive endpointing was measured for this model, as the key `tutti_adaptive_endpointing` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint that was read and checked, without its weights."""

    name: str
    """The value of `EngineConfig.model`."""
    path: Path | None
    """The folder or the file of the checkpoint; `None` if the weights are random."""
    model: ModelConfig
    generation: GenerationConfig
    tokenizer: Tokenizer
    weights: Callable[[], dict[str, Weight]]
    """Finds the weights, by the names that transformers gives them. Random weights are not in any file."""


def read_checkpoint(name: str) -> Checkpoint:
    """Find a checkpoint and read its configuration.

    Args:
        name: the embedded model, a folder, or a model on the Hugging Face hub, `owner/name` or `owner/name@revision`.
            From the hub it is downloaded if it is not in the local cache.

    Raises:
        CheckpointError: the checkpoint cannot be found, or a file is missing or unusable.
    """
    folder = find_checkpoint(name)
    if other := describe_other_format({file.name for file in folder.iterdir()}):
        raise CheckpointError(f"{folder}: expected a Whisper checkpoint in the Hugging Face layout, got {other}")
    contents = transformers_folder.read_folder(folder)
    model, tokenizer = _model_config(contents.config, folder), contents.tokenizer
    if tokenizer.first_timestamp >= model.vocab_size:
        raise CheckpointError(
            f"{folder}: tokenizer and config.json disagree: expected vocab_size above {tokenizer.first_timestamp}, "
            f"the id of the first timestamp, got {model.vocab_size}"
        )
    _check_features(folder, model)
    return Checkpoint(
        name=name,
        path=folder,
        model=model,
        generation=_generation_config(contents.defaults, model, tokenizer),
        tokenizer=tokenizer,
        weights=contents.weights,
    )


def find_checkpoint(name: str) -> Path:
    """Find the folder of a checkpoint, fetching it if it is on the hub only.

    Args:
        name: as in `read_checkpoint`.

    Raises:
        CheckpointError: there is neither such a folder nor such a model on the hub, or the hub cannot be reached.
    """
    if name == EMBEDDED_MODEL:
        return EMBEDDED_FOLDER
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    expected = f"{EMBEDDED_MODEL}, a folder, or a hub name like openai/whisper-small or openai/whisper-small@main"
    if folder.is_file():
        raise CheckpointError(f"{name}: expected {expected}, got {describe_other_format([folder.name]) or 'a file'}")
    hub_name = HubName.parse(name)
    if hub_name is None:
        raise CheckpointError(f"{name}: no such folder; expected {expected}")
    return fetch(hub_name, _check_configuration)


def is_hub_name(name: str) -> bool:
    """Whether this is the name of a model on the hub, which may have to be fetched."""
    return name != EMBEDDED_MODEL and not Path(name).expanduser().exists() and HubName.parse(name) is not None


def _check_configuration(folder: Path) -> None:
    """Refuse a model that cannot be loaded, before its weights are fetched."""
    _model_config(transformers_folder.read_folder(folder).config, folder)


def _model_config(config: Mapping[str, Any], folder: Path) -> ModelConfig:
    names = {field.name: field.name for field in fields(ModelConfig)} | {"n_mels": "num_mel_bins"}
    sizes = {name: size for name, key in names.items() if isinstance(size := config.get(key), int) and size > 0}
    if wrong := [key for name, key in names.items() if name not in sizes]:
        found = ", ".join(f"{key} {config.get(key)!r}" for key in wrong)
        raise CheckpointError(f"{folder}/config.json: expected positive whole numbers, got {found}")
    return ModelConfig(**sizes)


def _check_features(folder: Path, model: ModelConfig) -> None:
    """Refuse a checkpoint that needs other features than `log_mel` computes, because it would transcribe wrongly."""
    file = folder / "preprocessor_config.json"
    if not file.exists():
        return
    preprocessor = read_json(file)
    expected = {"feature_size": model.n_mels, "sampling_rate": 16_000, "n_fft": 400, "hop_length": 160}
    for key, value in expected.items():
        if preprocessor.get(key, value) != value:
            raise CheckpointError(f"{file}: {key}: expected {value}, got {preprocessor[key]!r}")


def _generation_config(defaults: Mapping[str, Any], model: ModelConfig, tokenizer: Tokenizer) -> GenerationConfig:
    is_multilingual = _is_multilingual(defaults, model, tokenizer)
    listed = defaults.get("lang_to_id")
    languages = {key.strip("<|>"): token for key, token in listed.items()} if listed else tokenizer.languages
    heads = defaults.get("alignment_heads") or _upper_half_heads(model)
    return GenerationConfig(
        is_multilingual=is_multilingual,
        languages=dict(sorted(languages.items(), key=lambda item: item[1])) if is_multilingual else {},
        suppress_tokens=tuple(defaults.get("suppress_tokens") or ()),
        begin_suppress_tokens=tuple(defaults.get("begin_suppress_tokens") or ()),
        max_initial_timestamp_index=defaults.get("max_initial_timestamp_index"),
        alignment_heads=tuple((layer, head) for layer, head in heads),
        audio_context=_audio_context(defaults.get("tutti_audio_context"), model),
        adaptive_endpointing=_flag(defaults, "tutti_adaptive_endpointing"),
    )


def _flag(defaults: Mapping[str, Any], key: str) -> bool:
    value = defaults.get(key, False)
    if not isinstance(value, bool):
        raise CheckpointError(f"generation_config.json: {key}: expected true or false, got {value!r}")
    return value


def _audio_context(listed: Any, model: ModelConfig) -> AudioContext | None:
    if listed is None:
        return None
    names, max_frames = [field.name for field in fields(AudioContext)], 2 * model.max_source_positions
    given = listed if isinstance(listed, dict) else {}
    sizes = {name: size for name in names if isinstance(size := given.get(name), int) and 0 <= size <= max_frames}
    if len(sizes) < len(names):
        expected = f"{' and '.join(names)}, 0 to {max_frames}"
        raise CheckpointError(f"generation_config.json: tutti_audio_context: expected {expected}, got {listed!r}")
    return AudioContext(**sizes)


def _is_multilingual(defaults: Mapping[str, Any], model: ModelConfig, tokenizer: Tokenizer) -> bool:
    """Whether the model is multilingual. Language tokens do not show it: English-only tokenizers hold them too."""
    if "is_multilingual" in defaults:
        return bool(defaults["is_multilingual"])
    if defaults.get("lang_to_id"):
        return True
    if forced := defaults.get("forced_decoder_ids"):
        # Old checkpoints force [[1, language or null], [2, task], ...], English-only ones [[1, <|notimestamps|>]].
        return bool(forced[0][1] != tokenizer.no_timestamps)
    return model.vocab_size >= OPENAI_MULTILINGUAL_VOCAB_SIZE


def _upper_half_heads(model: ModelConfig) -> list[tuple[int, int]]:
    """All heads in the upper half of the decoder layers.

    Source: openai/whisper, whisper/model.py, `Whisper.__init__`.
    """
    layers = range(model.decoder_layers // 2, model.decoder_layers)
    return [(layer, head) for layer in layers for head in range(model.decoder_attention_heads)]
