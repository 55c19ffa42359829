"""What libraries that take every checkpoint for one of OpenAI's have to be told of another one."""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np


def pad_windows_with_silence() -> None:
    """Let faster-whisper pad short windows as Whisper's own code does. Call it before the peer imports its parts.

    It pads spectrograms with zeros, which is louder than silence: this checkpoint was never shown that.
    """
    import faster_whisper.audio
    import faster_whisper.transcribe

    faster_whisper.audio.pad_or_trim = faster_whisper.transcribe.pad_or_trim = pad_with_silence


def make_multilingual(model_class: Any) -> None:
    """Let models of faster-whisper take language and task: it knows them by the size of OpenAI's vocabulary."""
    build = model_class.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        build(self, *arguments, **options)
        self.model = _Multilingual(self.model)

    model_class.__init__ = init


def pad_with_silence(array: Any, length: int = 3000, *, axis: int = -1) -> Any:
    """A spectrogram of `length` frames; what is missing is as quiet as its quietest place."""
    array = array.take(indices=range(min(length, array.shape[axis])), axis=axis)
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, length - array.shape[axis])
    return np.pad(array, widths, constant_values=array.min(initial=0.0))


def read_vocabulary(folder: Path) -> tuple[dict[bytes, int], dict[str, int]]:
    """The byte pairs by rank, and the special tokens, from `tokenizer.json`."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    special = {each["content"]: each["id"] for each in tokenizer["added_tokens"]}
    bytes_of = {letter: byte for byte, letter in _letters().items()}
    ranks = {
        bytes(bytes_of[letter] for letter in token): rank
        for token, rank in tokenizer["model"]["vocab"].items()
        if token not in special
    }
    return ranks, special


def alignment_heads(folder: Path) -> str:
    """Those of `generation_config.json`, as openai-whisper writes them down."""
    config = json.loads((folder / "config.json").read_text())
    mask = np.zeros((config["decoder_layers"], config["decoder_attention_heads"]), bool)
    for layer, head in json.loads((folder / "generation_config.json").read_text())["alignment_heads"]:
        mask[layer, head] = True
    return base64.b85encode(gzip.compress(mask.tobytes())).decode()


class _Multilingual:
    """A model of CTranslate2 that says that it is."""

    is_multilingual = True

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def _letters() -> dict[int, str]:
    """The letter that stands for each byte in byte-level vocabularies: itself if it can be printed, else one behind."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in set(plain)]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(others)}
