"""Adapts libraries that support only OpenAI's checkpoints to other checkpoints."""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def pad_windows_with_silence() -> None:
    """Make faster-whisper pad short windows as Whisper's own code does.

    Call this before the peer imports faster-whisper.

    faster-whisper pads spectrograms with zeros, which is louder than silence. This checkpoint was not trained on that.
    """
    import faster_whisper.audio
    import faster_whisper.transcribe

    faster_whisper.audio.pad_or_trim = faster_whisper.transcribe.pad_or_trim = pad_with_silence


def make_multilingual(model_class: Any) -> None:
    """Make models of faster-whisper multilingual: it recognises such models by the size of OpenAI's vocabulary."""
    build = model_class.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        build(self, *arguments, **options)
        self.model = _Multilingual(self.model)

    model_class.__init__ = init


def ask_for_no_timestamps(model_class: Any) -> None:
    """Make models of faster-whisper write no times: those of random weights say that a text covers next to nothing.

    A text then covers all audio of its window.
    """
    prompt = model_class.get_prompt

    def get_prompt(self: Any, *arguments: Any, **options: Any) -> Any:
        return prompt(self, *arguments, **{**options, "without_timestamps": True})

    model_class.get_prompt = get_prompt


def pad_with_silence(array: NDArray[np.float32], length: int = 3000, *, axis: int = -1) -> NDArray[np.float32]:
    """Cut or pad a spectrogram to `length` frames. The padding is as quiet as the quietest value."""
    array = array.take(np.arange(min(length, array.shape[axis])), axis=axis)
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, length - array.shape[axis])
    return np.pad(array, widths, constant_values=array.min(initial=0.0))


def read_vocabulary(folder: Path) -> tuple[dict[bytes, int], dict[str, int]]:
    """The ranks of the byte pairs and the ids of the special tokens in `tokenizer.json`, which may leave out times."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    special = {each["content"]: each["id"] for each in tokenizer["added_tokens"]}
    first_time = special["<|notimestamps|>"] + 1
    special |= {f"<|{number * 0.02:.2f}|>": first_time + number for number in range(1501)}
    bytes_of = {letter: byte for byte, letter in _letters().items()}
    ranks = {
        bytes(bytes_of[letter] for letter in token): rank
        for token, rank in tokenizer["model"]["vocab"].items()
        if token not in special
    }
    return ranks, special


def alignment_heads(folder: Path) -> str:
    """The alignment heads of `generation_config.json` in the encoding of openai-whisper."""
    config = json.loads((folder / "config.json").read_text())
    mask = np.zeros((config["decoder_layers"], config["decoder_attention_heads"]), bool)
    for layer, head in json.loads((folder / "generation_config.json").read_text())["alignment_heads"]:
        mask[layer, head] = True
    return base64.b85encode(gzip.compress(mask.tobytes())).decode()


class _Multilingual:
    """A CTranslate2 model that reports that it is multilingual."""

    is_multilingual = True

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def _letters() -> dict[int, str]:
    """The letter for each byte in byte-level vocabularies: itself if it is printable, otherwise one above U+00FF."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in set(plain)]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(others)}
