"""Converts a checkpoint for CTranslate2, which faster-whisper and the servers built on it run."""

from pathlib import Path

COPIED_FILES = ("tokenizer.json", "preprocessor_config.json")
"""Files of the checkpoint that faster-whisper reads as they are."""


def convert_for_ctranslate2(folder: str, target: Path) -> str:
    """Write the checkpoint in `folder` to `target` in float32, and return its path. Loading quantises it."""
    from ctranslate2.converters import TransformersConverter

    copied = [name for name in COPIED_FILES if (Path(folder) / name).is_file()]
    TransformersConverter(folder, copy_files=copied).convert(str(target), quantization="float32")
    return str(target)
