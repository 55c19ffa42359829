"""The offline comparison: its arithmetic, its turns, and an engine that is missing or fails."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import offline
from benchmarks.files.engines import OFFLINE_ENGINES, Job
from benchmarks.recordings import Recording
from tests.small_model import SMALL_MODEL
from tutti_server.engine.api import SAMPLE_RATE

RECORDINGS = [Recording("a", np.zeros(8 * SAMPLE_RATE, np.float32), "red green blue white")]


def make_job(engine: str, folder: str, audio: str) -> Job:
    return Job(engine=engine, n_threads=1, folder=folder, ct2_folder="", audio=audio, language="en")


def a_pass(wall_s: float, text: str = "red green white") -> dict[str, Any]:
    return {"wall_s": wall_s, "cpu_s": 2 * wall_s, "rss_max_mib": 100.0, "texts": [text]}


def test_a_row_is_the_median_of_the_passes() -> None:
    """Speed, CPU and word errors, and whether every pass gave the same text."""
    row = offline.row("tutti", 1, [a_pass(1.0), a_pass(4.0), a_pass(2.0)], RECORDINGS)
    assert (row["audio_s_per_s"], row["cpu_s_per_audio_s"]) == (4.0, 0.5)
    assert (row["wer"], row["words_lost"], row["words"]) == (0.25, 1, 4)
    assert row["same_text_each_pass"]
    assert not offline.row("tutti", 1, [a_pass(1.0), a_pass(1.0, "else")], RECORDINGS)["same_text_each_pass"]


def test_ratios_are_to_the_faster_batched_run_at_the_same_threads() -> None:
    rows = [
        offline.row("fw-batched-int8", 1, [a_pass(1.0)], RECORDINGS),
        offline.row("fw-batched-float32", 1, [a_pass(2.0)], RECORDINGS),
        offline.row("fw-batched-float32", 2, [], RECORDINGS),
        offline.row("tutti", 1, [a_pass(0.5)], RECORDINGS),
    ]
    assert offline.baseline_speed(rows, 1) == 8.0
    assert offline.baseline_speed(rows, 2) is None
    table = offline.table({"rows": rows, "audio_s": 8.0, "repeats": 1, "model": "m"})
    assert [row[4] for row in table.rows] == ["1.00", "0.50", "–", "2.00"]
    assert table.rows[2][2] == "failed"


def run_with(
    passes: dict[str, Any], monkeypatch: pytest.MonkeyPatch, path: Path, *arguments: str
) -> tuple[int, str, dict[str, Any]]:
    monkeypatch.setattr(offline, "run_interleaved", lambda jobs, repeats: passes)
    ran = CliRunner().invoke(offline.main, ["--threads", "1", "--seconds", "5", "--json", str(path), *arguments])
    return ran.exit_code, ran.output, json.loads(path.read_text())


def test_an_engine_that_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The table and a line say so, and the others are measured."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "faster_whisper" else name)
    code, output, result = run_with(
        {"tutti": [a_pass(1.0)]}, monkeypatch, tmp_path / "o.json", "--engines", "tutti,fw-int8"
    )
    assert code == 0
    assert [row["state"] for row in result["rows"]] == ["measured", "not installed"]
    assert "faster_whisper is not installed" in output


def test_an_engine_that_fails_fails_the_benchmark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code, _, result = run_with({"tutti": []}, monkeypatch, tmp_path / "o.json", "--engines", "tutti")
    assert code == 1
    assert result["rows"][0]["state"] == "failed"


def test_unknown_engines_are_told() -> None:
    ran = CliRunner().invoke(offline.main, ["--engines", "tutti,whatever"])
    assert ran.exit_code == 2
    assert "whatever" in ran.output


def test_an_engine_whose_process_ends_has_failed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Here for want of its audio; the others would go on."""
    job = make_job("tutti", "nowhere", str(tmp_path / "missing.npz"))
    assert offline.run_interleaved([job], repeats=1) == {"tutti": []}
    assert "tutti failed" in capfd.readouterr().err


def test_tutti_hears_a_clip_through_its_own_process(tmp_path: Path) -> None:
    """The small model, one short clip: both ways of using it say the same."""
    from benchmarks.recordings import load_bundled

    (clip,) = load_bundled(1.0, 1)
    audio = str(tmp_path / "audio.npz")
    np.savez(audio, clip.samples)
    names = ("tutti", "tutti-16")
    passes = offline.run_interleaved([make_job(name, SMALL_MODEL, audio) for name in names], repeats=1)
    for name in names:
        row = offline.row(name, 1, passes[name], [clip])
        assert (row["state"], row["wer"]) == ("measured", 0.0), row
    assert set(names) <= set(OFFLINE_ENGINES)
