"""Finds a checkpoint, reads it with the reader of its format, and checks everything except its weights.

Token ids come from the checkpoint wherever it holds them. What old checkpoints do not list is derived from their
tokenizer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tutti_server.engine.api import WINDOW_S
from tutti_server.engine.checkpoint import ctranslate2_folder, ggml_file, openai, openai_file, transformers_folder
from tutti_server.engine.checkpoint.catalog import EMBEDDED_MODEL, full_name, similar_names
from tutti_server.engine.checkpoint.contents import Contents, Weight, refuse_git_pointer
from tutti_server.engine.checkpoint.hub import HubName, fetch
from tutti_server.engine.checkpoint.layout import (
    CTRANSLATE2_WEIGHTS,
    GGML_WEIGHTS,
    describe_other_format,
    find_weights,
    read_json,
)
from tutti_server.engine.checkpoint.tokenizer import Tokenizer
from tutti_server.engine.errors import CheckpointError

EMBEDDED_FOLDER = Path(__file__).parents[1] / "assets" / EMBEDDED_MODEL
"""The folder of the checkpoint that the package contains."""


MAX_SHOWN_CHARS = 60
"""An error shows this many characters of a value."""


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


MOST = ModelConfig(
    d_model=8192,
    n_mels=512,
    encoder_layers=256,
    encoder_attention_heads=256,
    encoder_ffn_dim=65_536,
    decoder_layers=256,
    decoder_attention_heads=256,
    decoder_ffn_dim=65_536,
    vocab_size=1_000_000,
    max_source_positions=30_000,
    max_target_positions=65_536,
)
"""The largest sizes that are loaded: several times those of any Whisper. Others are mistakes, or an attack."""

LEAST_SOURCE_POSITIONS = 50 * WINDOW_S
"""The encoder states of a window of 30 s, which every model gets."""


@dataclass(frozen=True, slots=True)
class AudioContext:
    """How short the model's windows may be, in mel frames of 10 ms."""

    min_frames: int
    """Frames of the shortest window."""
    margin_frames: int
    """Frames that a window has after its audio."""


ADAPTED_AUDIO_CONTEXT = AudioContext(min_frames=300, margin_frames=50)
"""What a model states that `tutti adapt` has trained: windows of 3 s and more, with half a second after their audio."""


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
    """The value of `EngineConfig.model`, in full where that is a short name."""
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
        name: the embedded model, a folder of transformers or CTranslate2, a file of OpenAI's package or of whisper.cpp,
            or a model on the Hugging Face hub, `owner/name` or `owner/name@revision`, or a short name of a known one.
            From the hub it is downloaded if it is not in the local cache.

    Raises:
        CheckpointError: the checkpoint cannot be found, or a file is missing or unusable.
    """
    path = find_checkpoint(name)
    try:
        contents = _read_contents(path)
        model, tokenizer = _model_config(contents.config, path), contents.tokenizer
        _check_features(path, model)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    if tokenizer.first_timestamp >= model.vocab_size:
        raise CheckpointError(
            f"{path}: tokenizer and sizes disagree: expected vocab_size above {tokenizer.first_timestamp}, "
            f"the id of the first timestamp, got {model.vocab_size}"
        )
    return Checkpoint(
        name=name if local_path(name) else full_name(name),
        path=path,
        model=model,
        generation=_generation_config(contents.defaults, model, tokenizer),
        tokenizer=tokenizer,
        weights=contents.weights,
    )


def _read_contents(path: Path) -> Contents:
    if path.is_file():
        return _file_reader(path)(path)
    names = {file.name for file in path.iterdir()}
    if other := describe_other_format(names):
        raise CheckpointError(f"{path}: expected a Whisper checkpoint, got {other}")
    readers = {CTRANSLATE2_WEIGHTS: ctranslate2_folder.read_folder, GGML_WEIGHTS: ggml_file.read_folder}
    return readers.get(find_weights(names) or "", transformers_folder.read_folder)(path)


def _file_reader(path: Path) -> Callable[[Path], Contents]:
    refuse_git_pointer(path)
    with path.open("rb") as file:
        start = file.read(4)
    for begins, reader in _FILE_READERS.items():
        if start.startswith(begins):
            return reader
    raise CheckpointError(
        f"{path}: expected a .pt file of OpenAI's package whisper or a .bin file of whisper.cpp, got a file that "
        f"begins with {start!r}; of other formats, give the folder"
    )


_FILE_READERS: dict[bytes, Callable[[Path], Contents]] = {
    ggml_file.MAGIC: ggml_file.read_file,
    b"PK": openai_file.read_file,
    b"\x80": openai_file.read_file,
}
"""The readers of single files, by the bytes with which these begin. Of OpenAI's package, an archive or a pickle."""


def local_path(name: str) -> Path | None:
    """The folder or the file with this name; `None` if there is none.

    Raises:
        CheckpointError: it cannot be looked for: there is no such home, a folder may not be searched, or the name is
            too long.
    """
    try:
        path = Path(name).expanduser()
        return path if path.exists() else None
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"{name}: cannot be looked for: {error}") from error


def find_checkpoint(name: str) -> Path:
    """Find the folder or the file of a checkpoint, fetching it if it is on the hub only.

    Args:
        name: as in `read_checkpoint`.

    Raises:
        CheckpointError: there is neither such a folder or file nor such a model on the hub, the name cannot be looked
            for, or the hub cannot be reached.
    """
    if name == EMBEDDED_MODEL:
        return EMBEDDED_FOLDER
    if path := local_path(name):
        return path
    expected = (
        f"{EMBEDDED_MODEL}, a short name like small, a folder, a file, or a hub name like openai/whisper-small or "
        "openai/whisper-small@main"
    )
    hub_name = HubName.parse(full_name(name))
    if hub_name is None:
        raise CheckpointError(f"{name}: no such folder or file; expected {expected}{similar_names(name)}")
    return fetch(hub_name, _check_configuration)


def is_hub_name(name: str) -> bool:
    """Whether this is the name of a model on the hub, which may have to be fetched.

    Raises:
        CheckpointError: as in `local_path`.
    """
    return name != EMBEDDED_MODEL and local_path(name) is None and HubName.parse(full_name(name)) is not None


def _check_configuration(folder: Path, weights: str) -> None:
    """Refuse a model that cannot be loaded, before its weights are fetched."""
    if weights == CTRANSLATE2_WEIGHTS:
        ctranslate2_folder.read_tokenizer(folder)
        return
    _model_config(transformers_folder.read_folder(folder).config, folder)


def _model_config(config: Mapping[str, Any], path: Path) -> ModelConfig:
    # Only transformers states the sizes in this file, and the type of the model beside them.
    file = path / "config.json" if "model_type" in config else path
    names = {field.name: field.name for field in fields(ModelConfig)} | {"n_mels": "num_mel_bins"}
    sizes = {name: size for name, key in names.items() if type(size := config.get(key)) is int and size > 0}
    if wrong := [key for name, key in names.items() if name not in sizes]:
        found = ", ".join(f"{key} {_shortened(config.get(key))}" for key in wrong)
        raise CheckpointError(f"{file}: expected positive whole numbers, got {found}")
    if large := [name for name, size in sizes.items() if size > getattr(MOST, name)]:
        expected = ", ".join(f"{names[name]} of at most {getattr(MOST, name)}" for name in large)
        found = ", ".join(_shortened(sizes[name]) for name in large)
        raise CheckpointError(f"{file}: expected {expected}, got {found}")
    if (n_states := sizes["max_source_positions"]) < LEAST_SOURCE_POSITIONS:
        expected = f"max_source_positions of at least {LEAST_SOURCE_POSITIONS}, for windows of {WINDOW_S} s"
        raise CheckpointError(f"{file}: expected {expected}, got {n_states}")
    for key in ("encoder_attention_heads", "decoder_attention_heads"):
        if sizes["d_model"] % sizes[key]:
            expected = f"a d_model that {key} divides"
            raise CheckpointError(f"{file}: expected {expected}, got {sizes['d_model']} and {sizes[key]}")
    return ModelConfig(**sizes)


def _shortened(value: object) -> str:
    """The `repr` of a value in a file, cut so that an error stays a line."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…"


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
    languages = _listed_languages(defaults.get("lang_to_id"), model) or tokenizer.languages
    return GenerationConfig(
        is_multilingual=is_multilingual,
        languages=dict(sorted(languages.items(), key=lambda item: item[1])) if is_multilingual else {},
        suppress_tokens=_tokens(defaults, "suppress_tokens", model),
        begin_suppress_tokens=_tokens(defaults, "begin_suppress_tokens", model),
        max_initial_timestamp_index=_max_initial_timestamp_index(defaults),
        alignment_heads=_alignment_heads(defaults.get("alignment_heads"), model),
        audio_context=_audio_context(defaults.get("tutti_audio_context"), model),
        adaptive_endpointing=_flag(defaults, "tutti_adaptive_endpointing"),
    )


def _tokens(defaults: Mapping[str, Any], key: str, model: ModelConfig) -> tuple[int, ...]:
    listed = defaults.get(key) or []
    if not isinstance(listed, list) or not all(_is_token(each, model) for each in listed):
        raise _wrong_default(key, f"a list of token ids below {model.vocab_size}", listed)
    return tuple(listed)


def _listed_languages(listed: Any, model: ModelConfig) -> dict[str, int]:
    """Token ids by language code; `listed` has them by token, such as `<|en|>`."""
    by_token = listed or {}
    if not isinstance(by_token, dict) or not all(_is_token(each, model) for each in by_token.values()):
        raise _wrong_default("lang_to_id", f"token ids below {model.vocab_size} by language", listed)
    return {token.strip("<|>"): id_ for token, id_ in by_token.items()}


def _max_initial_timestamp_index(defaults: Mapping[str, Any]) -> int | None:
    key = "max_initial_timestamp_index"
    index = defaults.get(key)
    if index is not None and not (type(index) is int and index >= 0):
        raise _wrong_default(key, "a whole number of at least 0, or null", index)
    return index


def _is_token(value: object, model: ModelConfig) -> bool:
    return type(value) is int and 0 <= value < model.vocab_size


def _wrong_default(key: str, expected: str, value: object) -> CheckpointError:
    return CheckpointError(f"generation_config.json: {key}: expected {expected}, got {_shortened(value)}")


def _alignment_heads(listed: Any, model: ModelConfig) -> tuple[tuple[int, int], ...]:
    """The heads for word times. Distilled models list those of the model they were made from, which has more layers."""
    pairs = listed or []
    is_right = isinstance(pairs, list) and all(
        isinstance(pair, list) and len(pair) == 2 and all(type(each) is int for each in pair) for pair in pairs
    )
    if not is_right:
        raise _wrong_default("alignment_heads", "pairs of a decoder layer and a head", listed)
    layers, heads = range(model.decoder_layers), range(model.decoder_attention_heads)
    inside = [(layer, head) for layer, head in pairs if layer in layers and head in heads]
    return tuple(inside or _upper_half_heads(model))


def _flag(defaults: Mapping[str, Any], key: str) -> bool:
    value = defaults.get(key, False)
    if not isinstance(value, bool):
        raise _wrong_default(key, "true or false", value)
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
    if defaults.get("is_multilingual") is not None:
        return _flag(defaults, "is_multilingual")
    if defaults.get("lang_to_id"):
        return True
    if forced := defaults.get("forced_decoder_ids"):
        # Old checkpoints force [[1, language or null], [2, task], ...], English-only ones [[1, <|notimestamps|>]].
        try:
            return bool(forced[0][1] != tokenizer.no_timestamps)
        except (LookupError, TypeError) as error:
            raise _wrong_default("forced_decoder_ids", "pairs of a position and a token id", forced) from error
    return model.vocab_size >= openai.MULTILINGUAL_VOCAB_SIZE


def _upper_half_heads(model: ModelConfig) -> list[tuple[int, int]]:
    """All heads in the upper half of the decoder layers.

    Source: openai/whisper, whisper/model.py, `Whisper.__init__`.
    """
    layers = range(model.decoder_layers // 2, model.decoder_layers)
    return [(layer, head) for layer in layers for head in range(model.decoder_attention_heads)]
