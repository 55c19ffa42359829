"""Pictures of results."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from benchmarks import plot
from benchmarks.plot import Curve, curves


def level(streams: int, p95: float | None) -> dict[str, Any]:
    late = {"n": 0 if p95 is None else 9, "p50": p95 and p95 / 2, "p95": p95}
    return {"streams": streams, "word_shown_s": late, "word_stable_s": late}


LIVE = {"benchmark": "live", "levels": [level(1, 0.5), level(4, 0.75), level(8, None)]}
CAPACITY = {
    "benchmark": "live_capacity",
    "title": "short",
    "levels": [{"streams": n, "interim_lag_s": {"n": 9, "p50": 0.1, "p95": 0.2}, "final_s": {"n": 0}} for n in (8, 16)],
}
RACE = {"benchmark": "live_peers", "runs": [{"title": t, **level(n, n / 2)} for t in ("a", "b") for n in (1, 2)]}
MEMORY = {
    "benchmark": "memory",
    "rows": [
        {"n_sessions": n, "memory_mib": mib} for n, mib in ((None, 300.0), (5, 400.0), (10, 401.0), (None, 310.0))
    ],
}


def test_levels_without_words_are_left_out() -> None:
    assert curves(LIVE, "word_shown_s") == [Curve("tutti", [1, 4], [0.25, 0.375], [0.5, 0.75])]


def test_every_server_of_a_race_has_its_curve() -> None:
    assert curves(RACE, "word_stable_s") == [
        Curve("a", [1, 2], [0.25, 0.5], [0.5, 1.0]),
        Curve("b", [1, 2], [0.25, 0.5], [0.5, 1.0]),
    ]


def test_capacity_has_curves_of_its_own() -> None:
    assert curves(CAPACITY, "interim_lag_s") == [Curve("short", [8, 16], [0.1, 0.1], [0.2, 0.2])]


def test_other_results_are_refused() -> None:
    with pytest.raises(click.ClickException, match="got offline"):
        curves({"benchmark": "offline"}, "word_shown_s")


def test_memory_without_figures_is_not_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(click.ClickException, match="no memory"):
        plot.draw([MEMORY | {"rows": MEMORY["rows"][:1]}], tmp_path / "memory.svg")


@pytest.mark.parametrize("result", [LIVE, RACE, CAPACITY, MEMORY])
def test_a_picture_is_drawn_from_a_result(result: dict[str, Any], tmp_path: Path) -> None:
    """The same result gives the same file."""
    pytest.importorskip("matplotlib")
    path = tmp_path / "live.json"
    path.write_text(json.dumps(result))
    for out in ("a.svg", "b.svg"):
        ran = CliRunner().invoke(plot.main, [str(path), "--out", str(tmp_path / out)])
        assert ran.exit_code == 0, ran.output
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "live.json"
    path.write_text(json.dumps(LIVE))
    ran = CliRunner().invoke(plot.main, [str(path), "--out", "live.txt"])
    assert ran.exit_code == 1
    assert "ends in one of .svg" in ran.output
