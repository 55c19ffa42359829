"""`python -m tests.fuzz` tries every kind of input, and reports what breaks."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import strategies as st

from tests.fuzz import __main__ as command


def test_every_kind_has_its_turn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Even if the time is short."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "EXAMPLES_PER_ROUND", 3)
    result = CliRunner().invoke(command.main, ["--minutes", "0", "--seed", "7"])
    assert result.exit_code == 0, result.output
    first, last = result.output.splitlines()
    assert first == "seed 7"
    assert all(f"{name}" in last for name in ("recordings", "messages", "frames", "requests"))


def test_an_unknown_kind_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(command.main, ["--only", "pictures"])
    assert result.exit_code == 2
    assert "expected one of recordings, messages, frames, requests, got pictures" in result.output


def test_the_smallest_input_that_breaks_something_is_raised(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    tried: list[int] = []

    def check(number: int) -> None:
        tried.append(number)
        assert number < 100

    with pytest.raises(AssertionError):
        command.run_round(st.integers(0, 10_000), check, 1, 50)
    assert tried[-1] == 100
