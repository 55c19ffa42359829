"""Adapts a checkpoint: trains it, compares it with its original, and writes it if it is as good."""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from tutti_server.engine.adaptation.clips import Clips, Samples
from tutti_server.engine.adaptation.evaluation import evaluate, held_clips, objection
from tutti_server.engine.adaptation.reader import AdaptationError, Reader, check_languages, find_whisper, load_whisper
from tutti_server.engine.adaptation.trainer import EncoderStudent, Progress, Trainer, Training
from tutti_server.engine.api import SAMPLE_RATE
from tutti_server.engine.checkpoint.checkpoint import ADAPTED_AUDIO_CONTEXT, Checkpoint, read_checkpoint
from tutti_server.engine.checkpoint.layout import read_json
from tutti_server.engine.checkpoint.transformers_folder import read_tensors

MIN_MINUTES = 10.0
"""The least audio to train on: with less, a model learns the voices and not the short windows."""
__all__ = ["Adaptation", "AdaptationError", "Progress", "Training", "adapt", "check", "write_checkpoint"]

WORK = "work"
"""The folder, in the output, of what is needed to go on: deleted when the checkpoint is written."""
SETTINGS_FILE = "settings.json"
REPORT_FILE = "adaptation.json"
LOSSES_REPORTED = 200
_COPIED = {".json", ".txt", ".md"}
_TRAINABLE = tuple(f"{name}{end}" for name in ("model.safetensors", "pytorch_model.bin") for end in ("", ".index.json"))
"""The weights that transformers loads, one of which a folder needs: no variants, and not those of other programs."""
_OLD_DEFAULTS = (
    "alignment_heads", "begin_suppress_tokens", "forced_decoder_ids", "lang_to_id", "is_multilingual",
    "max_initial_timestamp_index", "suppress_tokens",
)  # fmt: skip
"""What `config.json` may say in place of `generation_config.json`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptation:
    """What to adapt, and how."""

    model: str
    """The model to adapt, as in `EngineConfig.model`."""
    output: Path
    training: Training = field(default_factory=Training)
    device: str = "auto"
    languages: tuple[str, ...] = ()
    """The candidates when the language of a clip is detected; empty for all of the model."""
    resumes: bool = False
    """Whether the output holds the work of a run that was interrupted."""


def check(adaptation: Adaptation) -> Checkpoint:
    """Check everything that needs no audio, and write nothing. Returns what is known of the model.

    Raises:
        AdaptationError: an option is wrong, or transformers is not installed.
        CheckpointError: the checkpoint cannot be read.
    """
    _device(adaptation.device)
    _check_output(adaptation)
    checkpoint = read_checkpoint(adaptation.model)
    if checkpoint.path is None or not any((checkpoint.path / name).exists() for name in _TRAINABLE):
        raise AdaptationError(
            "model: expected a folder in the form of transformers, with model.safetensors or pytorch_model.bin, got "
            f"{adaptation.model}"
        )
    check_languages(checkpoint, adaptation.languages)
    find_whisper()
    return checkpoint


def adapt(
    adaptation: Adaptation,
    recordings: Sequence[Samples],
    held: Sequence[tuple[Samples, str | None]],
    report: Callable[[Progress], None],
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Adapt a checkpoint and write it.

    Args:
        recordings: mono audio at 16 kHz to train on.
        held: audio that is held back for the comparison, each with its transcript if there is one.
        say: called with a line for people, where something else begins.

    Returns:
        what `adaptation.json` holds.

    Raises:
        AdaptationError: there is too little audio, or the result is worse than the original. The work folder stays.
            Or as `check`.
        CheckpointError: the checkpoint cannot be read.
    """
    checkpoint = check(adaptation)
    minutes = sum(map(len, recordings)) / SAMPLE_RATE / 60
    if minutes < MIN_MINUTES:
        raise AdaptationError(f"audio: expected at least {MIN_MINUTES:.0f} minutes to train on, got {minutes:.1f}")
    clips = held_clips(held)
    if not any(clip.is_speech for clip in clips):
        raise AdaptationError(
            "held-back audio: expected at least a second, or a transcribed file of up to 30 s, got none"
        )
    device = _device(adaptation.device)
    work = _work_folder(adaptation, recordings)
    weights, trained = _train(adaptation, checkpoint, recordings, device, work, report)
    assert checkpoint.path is not None
    candidate = work / "candidate"
    write_checkpoint(checkpoint.path, weights, candidate)
    if device.type == "cuda":
        torch.cuda.empty_cache()
    result = {
        "model": adaptation.model,
        "minutes_of_audio": round(minutes, 1),
        **trained,
        "held_back": evaluate(checkpoint.path, candidate, clips, device.type, say),
        "versions": {name: version(name) for name in ("torch", "transformers", "numpy")},
    }
    (candidate / REPORT_FILE).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if (problem := objection(result["held_back"])) is not None:
        raise AdaptationError(f"{problem}; nothing is written, and {candidate} holds what was trained")
    for file in candidate.iterdir():
        file.replace(adaptation.output / file.name)
    shutil.rmtree(work)
    return result


def _device(name: str) -> torch.device:
    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        raise AdaptationError("device: expected a GPU for cuda, got none")
    return torch.device("cuda" if has_cuda and name != "cpu" else "cpu")


def _options(adaptation: Adaptation) -> dict[str, Any]:
    """What must be the same when an interrupted run goes on.

    So must its device: a GPU reads more clips at once, and the texts of a group of clips are kept together.
    """
    training = adaptation.training
    return {
        "model": adaptation.model, "languages": list(adaptation.languages), "batch": training.batch,
        "learning_rate": training.learning_rate, "seed": training.seed, "device": _device(adaptation.device).type,
    }  # fmt: skip


def _check_output(adaptation: Adaptation) -> None:
    """Check that the output can be written, and is empty, or with `resumes` that it holds a run with the same options.

    Folders around it that do not exist are made.
    """
    output = adaptation.output
    if adaptation.resumes:
        _check_same(adaptation, _options(adaptation))
    elif output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise AdaptationError(f"{output}: expected no such folder, or an empty one; it exists")
    nearest = next(each for each in (output, *output.parents) if each.exists())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK)):
        raise AdaptationError(f"{output}: expected a folder that can be written, but {nearest} is none")


def _check_same(adaptation: Adaptation, options: Mapping[str, Any]) -> None:
    work = adaptation.output / WORK
    if not (file := work / SETTINGS_FILE).exists():
        raise AdaptationError(f"{work}: expected the work of an interrupted run to go on with, got none")
    earlier = read_json(file)
    for key, value in options.items():
        # Earlier releases have not written the device.
        if earlier.get(key, value) != value:
            raise AdaptationError(f"{key}: expected {earlier[key]!r} as in the interrupted run, got {value!r}")


def _work_folder(adaptation: Adaptation, recordings: Sequence[Samples]) -> Path:
    """Return the work folder. With `resumes` it is that of the interrupted run, whose audio must be the same."""
    work = adaptation.output / WORK
    audio = {"audio": [len(recordings), sum(map(len, recordings))]}
    if adaptation.resumes:
        _check_same(adaptation, audio)
    else:
        work.mkdir(parents=True)
        (work / SETTINGS_FILE).write_text(json.dumps(_options(adaptation) | audio), encoding="utf-8")
    return work


def _train(
    adaptation: Adaptation,
    checkpoint: Checkpoint,
    recordings: Sequence[Samples],
    device: torch.device,
    work: Path,
    report: Callable[[Progress], None],
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Train; returns the encoder's weights and what is reported of the training. Its memory is free afterwards."""
    training = adaptation.training
    assert checkpoint.path is not None
    reader = Reader(load_whisper(checkpoint.path, device), checkpoint, adaptation.languages)
    clips = Clips(recordings, device, training.seed, checkpoint.model.max_source_positions)
    student = EncoderStudent(reader)
    trainer = Trainer(reader, student, clips, training, work)
    trainer.train(report)
    weights = {name: weight.detach().cpu() for name, weight in student.encoder.state_dict().items()}
    parts = np.array_split(np.array(trainer.losses), min(LOSSES_REPORTED, len(trainer.losses)))
    return weights, {
        "steps": len(trainer.losses),
        "seconds": round(trainer.seconds, 1),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "options": asdict(training) | {"languages": list(adaptation.languages)},
        # Means over steps, in their order.
        "divergence": [round(float(part[:, 0].mean()), 5) for part in parts],
        "states_difference": [round(float(part[:, 1].mean()), 5) for part in parts],
    }


def write_checkpoint(original: Path, encoder: dict[str, Tensor], folder: Path) -> None:
    """Write a checkpoint that has another encoder than the original, and its windows may be short.

    Weights keep the type that they have in the original.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for file in original.iterdir():
        is_copied = (file.suffix in _COPIED and ".index." not in file.name) or file.name.startswith("LICENSE")
        if is_copied and file.is_file():
            shutil.copyfile(file, folder / file.name)
    tensors = {}
    for name, tensor in read_tensors(original):
        if name == "proj_out.weight":
            continue  # the token embedding once more
        plain = name.removeprefix("model.")
        trained = encoder[plain.removeprefix("encoder.")].to(tensor.dtype) if plain.startswith("encoder.") else tensor
        tensors[f"model.{plain}"] = trained.clone().contiguous()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    defaults_file = folder / "generation_config.json"
    if defaults_file.exists():
        defaults = read_json(defaults_file)
    else:
        config = read_json(folder / "config.json")
        defaults = {key: config[key] for key in _OLD_DEFAULTS if key in config}
    defaults["tutti_audio_context"] = asdict(ADAPTED_AUDIO_CONTEXT)
    defaults_file.write_text(json.dumps(defaults, indent=2) + "\n", encoding="utf-8")
