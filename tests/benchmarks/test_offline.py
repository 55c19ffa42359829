"""The offline comparison: its arithmetic, its turns, and an engine that is missing or fails."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import offline
from benchmarks.files.engines import Job
from benchmarks.own_process import Turn
from benchmarks.recordings import Recording, load_bundled
from tests.small_model import SMALL_MODEL
from tutti_server.engine.api import SAMPLE_RATE

RECORDINGS = [Recording("a", np.zeros(8 * SAMPLE_RATE, np.float32), "red green blue white")]


def make_job(engine: str, folder: str, audio: str) -> Job:
    return Job(engine=engine, n_threads=1, folder=folder, ct2_folder="", audio=audio)


def turn(wall_s: float) -> Turn:
    return Turn(["red green white"], wall_s, 2 * wall_s)


def test_a_row_is_the_median_of_the_passes() -> None:
    row = offline.row("tutti", 1, [turn(1.0), turn(4.0), turn(2.0)], RECORDINGS)
    assert (row["audio_s_per_s"], row["cpu_s_per_audio_s"]) == (4.0, 0.5)
    assert (row["wer"], row["words_lost"], row["words"]) == (0.25, 1, 4)


def test_ratios_are_to_the_faster_batched_run_at_the_same_threads() -> None:
    rows = [
        offline.row("fw-batched-int8", 1, [turn(1.0)], RECORDINGS),
        offline.row("fw-batched-float32", 1, [turn(2.0)], RECORDINGS),
        offline.row("fw-batched-float32", 2, [], RECORDINGS),
        offline.row("tutti", 1, [turn(0.5)], RECORDINGS),
    ]
    assert offline.baseline_speed(rows, 2) is None
    table = offline.table({"rows": rows, "audio_s": 8.0, "repeats": 1, "model": "m"})
    assert [row[4] for row in table.rows] == ["1.00", "0.50", "–", "2.00"]
    assert table.rows[2][2] == "failed"


@pytest.mark.parametrize(
    ("turns", "state", "exit_code"), [([turn(1.0)], "measured", 0), ([], "failed", 1), (None, "not installed", 0)]
)
def test_an_engine_that_fails_fails_the_benchmark(
    turns: list[Turn] | None, state: str, exit_code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One that is not installed is left out."""
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "faster_whisper" else found(name))
    monkeypatch.setattr(offline, "take_turns", lambda jobs, repeats: {} if turns is None else {"tutti": turns})
    monkeypatch.setattr(offline, "load_bundled", lambda seconds, n: RECORDINGS)
    path = tmp_path / "o.json"
    engine = "fw-int8" if turns is None else "tutti"
    ran = CliRunner().invoke(offline.main, ["--threads", "1", "--engines", engine, "--json", str(path)])
    assert ran.exit_code == exit_code, ran.output
    assert [row["state"] for row in json.loads(path.read_text())["rows"]] == [state]
    assert ("faster_whisper is not installed" in ran.output) == (turns is None)


def test_tutti_hears_a_clip_through_its_own_process(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The small model, one short clip; an engine whose process ends has failed, here for want of its audio."""
    (clip,) = load_bundled(1.0, 1)
    np.savez(tmp_path / "audio.npz", clip.samples)
    jobs = [make_job("tutti", SMALL_MODEL, str(tmp_path / "audio.npz"))]
    jobs.append(make_job("tutti-16", SMALL_MODEL, str(tmp_path / "missing.npz")))
    turns = offline.take_turns(jobs, repeats=1)
    row = offline.row("tutti", 1, turns["tutti"], [clip])
    assert (row["state"], row["wer"], turns["tutti-16"]) == ("measured", 0.0, [])
    assert "tutti-16 failed" in capfd.readouterr().err
