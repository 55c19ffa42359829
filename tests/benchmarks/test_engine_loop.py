"""The measurement of the engine process's event loop, in short: real processes, and a stand-in for the engine."""

import json
from pathlib import Path

from click.testing import CliRunner

from benchmarks import engine_loop


def test_all_windows_are_answered_and_costs_are_reported(tmp_path: Path) -> None:
    """Also those that are cancelled: a gateway ends only when it has nothing open."""
    path = tmp_path / "engine_loop.json"
    arguments = ["--gateways", "2", "--rate", "60", "--seconds", "1", "--json", str(path)]
    done = CliRunner().invoke(engine_loop.main, arguments)
    assert done.exit_code == 0, done.output
    assert "engine process, event loop" in done.output
    result = json.loads(path.read_text())
    assert result["n_windows"] == 60
    assert result["gateway_us"] > 0
