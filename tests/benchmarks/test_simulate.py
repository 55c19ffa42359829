"""The command that plans for many GPUs: the files it reads, and the tables it makes."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from benchmarks.simulate import main
from benchmarks.simulation.measured import BUNDLED, read_measurements
from benchmarks.simulation.stage_times import FULL_STATES, H200, read_times

STAGES = [
    {"model": "m", "stage": stage, "size": size, "ms": ms}
    for stage, size, ms in (
        ("encode", 1, 4.0),
        ("encode", 2, 6.0),
        ("encode", 4, 12.0),
        ("prefill", 1, 1.0),
        ("step", 1, 2.0),
        ("step", 8, 4.0),
    )
]


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_times_between_measured_sizes_are_interpolated(tmp_path: Path) -> None:
    """Beyond the largest size the last slope goes on."""
    times = read_times(write(tmp_path / "times.json", {"stages": STAGES}), "m", 8)
    assert times.step_s(8) == pytest.approx(0.004)
    assert times.step_s(15) == pytest.approx(0.006)
    assert times.window_s == pytest.approx(0.003)


def test_steps_ahead_count_where_they_were_measured(tmp_path: Path) -> None:
    """The engine launches steps ahead, so that time is the one that it needs."""
    stages = [*STAGES, {"model": "m", "stage": "steps ahead", "size": 1, "ms": 1.5}]
    assert read_times(write(tmp_path / "times.json", {"stages": stages}), "m", 8).step_s(1) == pytest.approx(0.0015)


def test_short_windows_are_encoded_together(tmp_path: Path) -> None:
    """Whatever their lengths, and apart from full ones. A short window takes more than its share of a full one."""
    times = read_times(write(tmp_path / "times.json", {"stages": STAGES}), "m", 8)
    assert times.encode_s([FULL_STATES] * 4) == pytest.approx(0.012)
    assert times.encode_s([300]) > 0.004 * 300 / FULL_STATES
    assert times.encode_s([300, 1_000]) < times.encode_s([300]) + times.encode_s([1_000])
    assert times.encode_s([300, 1_000]) == times.encode_s([750, 750])
    assert times.encode_s([300, FULL_STATES]) == times.encode_s([300]) + times.encode_s([FULL_STATES])
    assert times.encode_s([FULL_STATES] * 5) == pytest.approx(0.016)


@pytest.mark.parametrize("content", [{}, [], {"stages": [{"model": "m"}]}])
def test_a_file_without_times_is_refused(tmp_path: Path, content: Any) -> None:
    with pytest.raises(click.ClickException, match=r"expected the JSON of benchmarks\.engine_throughput --stages"):
        read_times(write(tmp_path / "times.json", content), "m", 8)


def test_a_model_without_times_is_refused() -> None:
    with pytest.raises(
        click.ClickException, match="expected times of encode, prefill, step for m; it has random:large-v3"
    ):
        read_times(H200, "m", 8)


def test_the_bundled_measurements_can_be_read() -> None:
    """Each has what the simulation needs, and the levels that were held are among them."""
    found = read_measurements(BUNDLED)
    assert {each.config.audio_context for each in found} == {"full", "interims"}
    assert {each.model for each in found} == {"random:turbo"}
    assert all(each.n_gateways == 9 and each.n_engines == 1 and each.levels for each in found)


def test_a_measurement_of_two_gpus_is_simulated_with_two(tmp_path: Path) -> None:
    """The server's arguments say how many engines it had, and its counters how many steps windows took."""
    result = {**json.loads(BUNDLED.read_text())[0], "serve_arguments": ["--engines=2", "--audio-context", "full"]}
    engine = {"windows_done": 10, "tokens": 260, "draft_tokens": {"accepted": 50}}
    result["levels"] = [{**result["levels"][0], "engine": engine}]
    (found,) = read_measurements(write(tmp_path / "two.json", result))
    assert (found.n_engines, found.n_gateways, found.habits.n_steps) == (2, 1, 20)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match=r"expected the JSON of benchmarks\.live_capacity"):
        read_measurements(write(tmp_path / "other.json", {"levels": []}))


def test_unknown_parts_are_refused() -> None:
    answer = CliRunner().invoke(main, ["--parts", "check,weather"])
    assert answer.exit_code == 2
    assert "expected some of check,capacity,routing,loss,day, got weather" in answer.output


def test_the_check_compares_with_a_measurement(tmp_path: Path) -> None:
    """Its table has the measured and the simulated figures, and the result goes to the file."""
    measured = json.loads(BUNDLED.read_text())[0]
    short = {**measured, "seconds": 8.0, "ramp_s": 1.0, "title": "short"}
    short["levels"] = [{**measured["levels"][0], "streams": n} for n in (4, 8)]
    arguments = ["--parts", "check", "--measured", str(write(tmp_path / "measured.json", short))]
    pictures = ["--images", str(tmp_path)] if _has_matplotlib() else []
    answer = CliRunner().invoke(main, [*arguments, *pictures, "--markdown", "--json", str(tmp_path / "out.json")])
    assert answer.exit_code == 0, answer.output
    assert "| 8, short | 0.08/0.14 → " in answer.output
    (row,) = json.loads((tmp_path / "out.json").read_text())["check"]
    assert [level["failed"] for level in row["simulated"]] == [0, 0]
    assert (tmp_path / "planning_check.png").exists() == bool(pictures)


def _has_matplotlib() -> bool:
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return False
    return True
