"""The evaluation as one command, on a folder of two recordings and without synthesisers."""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from engine.api import DoneEvent, Segment
from engine.checkpoint.checkpoint import EMBEDDED_FOLDER
from training.evaluate import PARTS, evaluate, notes, parse_arguments
from training.evaluation import non_speech
from training.evaluation.agreement import NAMED, share_of_names_found
from training.evaluation.bench import error_row, rows_by_group
from training.evaluation.clips import Clip
from training.evaluation.subjects import DecodedClip

AUDIO = Path(__file__).parents[1] / "audio"
TEXTS = {
    "train": "The next train to the city leaves from platform seven at a quarter past nine.",
    "hello": "Hello everyone, and welcome to the morning meeting.",
}


def clip(name: str, text: str, seconds: int = 1) -> Clip:
    return Clip(name=name, group="kind", samples=np.zeros(seconds * 16_000, np.float32), text=text)


def heard(name: str, said: str, text: str, no_speech_prob: float = 0.0, avg_logprob: float = 0.0) -> DecodedClip:
    segment = Segment(
        start_s=0.0,
        end_s=1.0,
        text=text,
        tokens=(),
        avg_logprob=avg_logprob,
        compression_ratio=1.0,
        no_speech_prob=no_speech_prob,
    )
    done = DoneEvent(
        text=text,
        pieces=(),
        segments=(segment,) if text else (),
        language="en",
        no_speech_prob=no_speech_prob,
        avg_logprob=avg_logprob,
        compression_ratio=1.0,
        is_truncated=False,
        n_steps=1,
    )
    return DecodedClip(clip(name, said), done)


@pytest.fixture
def audio(tmp_path: Path) -> Path:
    """Two recordings of the tests, one listed as a sentence and one as a dialogue."""
    lines = []
    for (name, text), kind in zip(TEXTS.items(), ("synth-call", "synth-dialogue"), strict=True):
        shutil.copy(AUDIO / f"{name}.flac", tmp_path)
        lines.append({"file": f"{name}.flac", "text": text, "kind": kind, "seconds": 200.0})
    (tmp_path / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def arguments(tmp_path: Path, audio: Path, only: str) -> argparse.Namespace:
    return parse_arguments(
        f"--model {EMBEDDED_FOLDER} --audio {audio} --root {tmp_path}/none --json {tmp_path}/out/table.json "
        f"--only {only}".split()
    )


async def test_listed_recordings_are_heard_and_kept(tmp_path: Path, audio: Path) -> None:
    """By the engine and through the service; hypotheses are written for the shared scoring tool."""
    rows = {(row.part, row.what): row for row in await evaluate(arguments(tmp_path, audio, "sentences,dialogues"))}
    sentences = rows["Synthetic sentences, shared audio", "together"]
    dialogues = rows["Streamed through the service", "dialogues together"]
    for row in (sentences, dialogues):
        assert row.value is not None and row.value <= 0.3 and row.target is not None
    lines = (tmp_path / "out/table.hypotheses.jsonl").read_text().splitlines()
    hypotheses = {line["file"]: line["hyp"] for line in map(json.loads, lines)}
    assert set(hypotheses) == {"train.flac", "hello.flac"} and "platform" in hypotheses["train.flac"]


async def test_what_is_missing_is_reported(tmp_path: Path) -> None:
    """Without audio and synthesisers nothing is measured, no target is met, and the notes say why."""
    args = arguments(tmp_path, tmp_path / "nowhere", "sentences,telephone,noise,segments,words,context,prompts,parity")
    rows = await evaluate(args)
    assert len(rows) > 10 and {row.is_met for row in rows} == {None}
    said = " ".join(notes(args))
    assert "nowhere holds no manifest" in said and "Without the synthesisers" in said and "people" in said


def test_parts_run_in_their_order_and_unknown_ones_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_arguments(["--only", "parity,voices"]).only == ["voices", "parity"]
    assert parse_arguments([]).only == list(PARTS)
    with pytest.raises(SystemExit):
        parse_arguments(["--only", "voices,moon"])
    assert "moon" in capsys.readouterr().err


def test_errors_add_up_over_clips_by_group() -> None:
    """Rates are over all words, not means of the clips' rates."""
    results = [heard("a", "the cat sat", ""), heard("b", "stop", " Stop.")]
    row = error_row("part", "together", results, 0.5)
    assert row.value == 0.75 and row.of == "2 clips, 4 words" and not row.is_met
    assert [each.what for each in rows_by_group("part", results)] == ["kind"]
    assert error_row("part", "together", []).value is None


def test_names_count_word_by_word() -> None:
    text, names = NAMED[0]
    assert names == "Siobhan Gallagher"
    assert share_of_names_found([heard("a", text, " Please put me through to Siobhan Galaxy.")]) == 0.5
    for text, names in NAMED:
        assert all(name in text for name in names.split(", "))


def test_windows_without_speech_come_whole_and_in_pieces() -> None:
    """Nothing is longer than a window or shorter than a second."""
    windows = non_speech.windows_of([clip("noise", "", 65)])
    assert [window.audio_s for window in windows][:3] == [30.0, 30.0, 5.0]
    assert len(windows) > 4 and all(1.0 <= window.audio_s <= 30.0 for window in windows)


def test_calibration_counts_both_sides_of_the_threshold() -> None:
    """Speech taken for silence, and silence taken for speech."""
    spoken = [heard("a", "one", " One.", 0.1), heard("b", "two", " Two.", 0.7)]
    silent = [heard("c", "", "", 0.9), heard("d", "", "", 0.95)]
    rows = {row.what: row for row in non_speech.calibration(spoken, silent)}
    assert (rows["speech: worst"].value, rows["speech: worst"].is_met) == (0.7, False)
    assert (rows["no speech: worst"].value, rows["no speech: worst"].is_met) == (0.9, True)
    assert rows["speech above 0.6"].value == 0.5 and rows["no speech below 0.6"].value == 0.0


def test_the_hallucination_filter_drops_doubtful_segments_only() -> None:
    """Text of which the model is sure is kept, however likely silence is: the service would show it."""
    assert heard("a", "", " You.", 0.9, -1.5).filtered_text == ""
    assert heard("a", "", " You.", 0.9, -0.2).filtered_text == " You."
