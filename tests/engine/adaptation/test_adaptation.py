"""From a checkpoint to an adapted one: what is written, what is refused, and the comparison between."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.engine.checkpoints import SHAPES, make_checkpoint
from tests.engine.engines import noise, read_clip
from tests.small_model import SMALL_MODEL
from tutti_server.engine.adaptation.adaptation import (
    Adaptation,
    AdaptationError,
    Training,
    adapt,
    check,
    write_checkpoint,
)
from tutti_server.engine.adaptation.evaluation import edit_distance, held_clips, objection, read, split_words
from tutti_server.engine.api import SAMPLE_RATE
from tutti_server.engine.checkpoint.checkpoint import AudioContext, read_checkpoint
from tutti_server.engine.checkpoint.transformers_folder import read_tensors

ELEVEN_MINUTES = [np.tile(noise(1), 3 * 74)]


def silent(_: object) -> None:
    """Reports nothing."""


def options(model: Path, output: Path, **changes: Any) -> Adaptation:
    training = Training(steps=1, batch=1, learning_rate=1e-9)
    return Adaptation(model=str(model), output=output, training=training, device="cpu", **changes)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("original"), replace(SHAPES[0], max_target_positions=60))


@pytest.mark.nightly
def test_a_worse_model_is_refused_and_its_work_stays(original: Path, tmp_path: Path) -> None:
    """A step at hardly any learning rate leaves a random model, which says other things in cut windows."""
    output = tmp_path / "adapted"
    (own,) = read(original, held_clips([(noise(2), "")])[:1], "cpu", "full")
    with pytest.raises(
        AdaptationError, match=r"word errors: expected at most 0\.30 % with cut windows.*candidate holds"
    ):
        adapt(options(original, output), ELEVEN_MINUTES, [(noise(2), own.text)], silent)
    assert {each.name for each in output.iterdir()} == {"work"}
    assert (output / "work" / "candidate" / "adaptation.json").exists()
    with pytest.raises(AdaptationError, match="it exists"):
        adapt(options(original, output), ELEVEN_MINUTES, [(noise(2), None)], silent)


def test_too_little_audio_and_nothing_to_resume_are_errors(original: Path, tmp_path: Path) -> None:
    with pytest.raises(AdaptationError, match=r"at least 10 minutes to train on, got 0\.1"):
        adapt(options(original, tmp_path / "new"), [noise(1)] * 2, [(noise(2), None)], silent)
    with pytest.raises(AdaptationError, match="expected at least a second"):
        adapt(options(original, tmp_path / "new"), ELEVEN_MINUTES, [(noise(2)[:100], None)], silent)
    with pytest.raises(AdaptationError, match="expected the work of an interrupted run"):
        adapt(options(original, tmp_path / "new", resumes=True), ELEVEN_MINUTES, [(noise(2), None)], silent)
    assert not (tmp_path / "new").exists()


def test_a_model_of_another_form_is_refused_before_any_audio_is_read(original: Path, tmp_path: Path) -> None:
    """Also a folder of whisper.cpp with the JSON files of transformers, but not a model of CTranslate2 beside its own.

    Transformers is what trains, and reads its own weights alone.
    """
    for name in (SMALL_MODEL, "tutti-base"):
        with pytest.raises(AdaptationError, match=r"expected a folder .* transformers, with model\.safetensors or"):
            check(options(Path(name), tmp_path / "new"))
    both = Path(shutil.copytree(original, tmp_path / "both"))
    (both / "model.bin").write_bytes(b"")
    assert check(options(both, tmp_path / "new")).path == both


def test_an_output_that_cannot_be_written_is_refused_before_any_audio_is_read(original: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AdaptationError, match=r"file/new: expected a folder that can be written, but .*file is none"):
        check(options(original, tmp_path / "file" / "new"))


def test_a_run_goes_on_with_its_own_options_alone(original: Path, tmp_path: Path) -> None:
    """And on a device of the same kind: a GPU would look for the texts of more clips than a CPU has read at once."""
    work = tmp_path / "new" / "work"
    work.mkdir(parents=True)
    own = {"model": str(original), "languages": [], "batch": 1, "learning_rate": 1e-9, "seed": 0, "device": "cpu"}
    own["audio"] = [len(ELEVEN_MINUTES), sum(map(len, ELEVEN_MINUTES))]
    for key, earlier, problem in (
        ("languages", ["de"], r"languages: expected \['de'\] as in the interrupted run, got \[\]"),
        ("device", "cuda", "device: expected 'cuda' as in the interrupted run, got 'cpu'"),
    ):
        (work / "settings.json").write_text(json.dumps(own | {key: earlier}))
        with pytest.raises(AdaptationError, match=problem):
            adapt(options(original, tmp_path / "new", resumes=True), ELEVEN_MINUTES, [(noise(2), None)], silent)


def test_the_written_checkpoint_has_the_types_of_the_original_and_cut_windows(original: Path, tmp_path: Path) -> None:
    half = tmp_path / "half"
    (half / "LICENSES").mkdir(parents=True)
    for name in ("config.json", "generation_config.json", "tokenizer.json"):
        (half / name).write_bytes((original / name).read_bytes())
    save_file({name: each.half() for name, each in read_tensors(original)}, half / "model.safetensors")
    encoder = {
        name.removeprefix("model.encoder."): torch.full_like(weight, 0.25, dtype=torch.float32)
        for name, weight in read_tensors(half)
        if name.startswith("model.encoder.")
    }
    write_checkpoint(half, encoder, tmp_path / "new")
    written = load_file(tmp_path / "new" / "model.safetensors")
    assert {weight.dtype for weight in written.values()} == {torch.float16}
    assert {name for name, weight in written.items() if (weight == 0.25).all()} == {
        name for name in written if name.startswith("model.encoder.")
    }
    generation = read_checkpoint(str(tmp_path / "new")).generation
    assert generation.audio_context == AudioContext(min_frames=300, margin_frames=50)
    (event,) = read(tmp_path / "new", held_clips([(noise(2), "some words")])[:1], "cpu", "auto")
    assert event.language in ("en", "de", "zh")


@pytest.mark.nightly
def test_a_model_that_uses_cut_windows_already_is_adapted(small_folder: Path, tmp_path: Path) -> None:
    """The small model is as good in cut windows before and after, so it is written, and the work is deleted."""
    speech = np.concatenate([read_clip(name) for name in ("call", "train", "names")])
    minutes = [np.tile(speech, 28)]
    result = adapt(options(small_folder, tmp_path / "new"), minutes, [(read_clip("hello"), None)], silent)
    assert (tmp_path / "new" / "adaptation.json").exists() and not (tmp_path / "new" / "work").exists()
    assert result["held_back"]["adapted_cut"]["words_differing"] < 5 and len(result["divergence"]) == 1
    assert read_checkpoint(str(tmp_path / "new")).generation.audio_context


def figures(**cut: float | None) -> dict[str, Any]:
    same = {"words_differing": 0.0, "word_errors": None, "repetitive": 1}
    return {
        "clips": 100, "original_full": same | {"word_errors": 10.0 if "word_errors" in cut else None},
        "original_shifted": same | {"words_differing": 4.0}, "adapted_cut": same | cut,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("cut", "named"),
    [
        ({"words_differing": 6.0}, None),
        ({"words_differing": 6.1}, "6.10 %"),
        ({"words_differing": 0.0, "repetitive": 2}, "repetitive"),
        ({"words_differing": None}, "expected speech"),
        # With transcripts, texts may differ as long as the errors are no more.
        ({"words_differing": 20.0, "word_errors": 10.3}, None),
        ({"words_differing": 0.0, "word_errors": 10.4}, "10.40 %"),
    ],
)
def test_what_is_refused(cut: dict[str, float | None], named: str | None) -> None:
    problem = objection(figures(**cut))
    assert problem is None if named is None else named in (problem or "")


def test_a_comparison_with_an_original_that_understands_nothing_is_refused() -> None:
    report = figures(words_differing=30.0)
    report["original_shifted"]["words_differing"] = 40.0
    assert "expected speech that the original understands, but 40.00 %" in (objection(report) or "")


def test_held_back_audio_is_cut_into_clips_of_many_lengths_unless_it_has_a_text() -> None:
    long = np.zeros(100 * SAMPLE_RATE, np.float32)
    held = held_clips([(long, None), (long, "too long"), (long[: 5 * SAMPLE_RATE], "five")])
    speech = [clip for clip in held if clip.is_speech]
    lengths = [len(clip.samples) / SAMPLE_RATE for clip in speech if clip.text is None]
    assert sum(lengths) == 100 and max(lengths) < 30 and len(set(lengths)) > 6
    assert [clip.text for clip in speech if clip.text is not None] == ["five"]


@pytest.mark.parametrize(
    ("left", "right", "distance"),
    [("Hello, World!", "hello world", 0), ("a b c", "a x c d", 2), ("", "one two", 2), ("你好", "你們好", 1)],
)
def test_words_that_differ_are_counted(left: str, right: str, distance: int) -> None:
    assert edit_distance(split_words(left), split_words(right)) == distance
