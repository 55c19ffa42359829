"""The description of a run: the command that a reader can repeat."""

import sys
from importlib.machinery import ModuleSpec

import pytest

from benchmarks import machine


@pytest.mark.parametrize(
    ("module", "named"), [("benchmarks.live.__main__", "benchmarks.live"), ("benchmarks.asr", "benchmarks.asr")]
)
def test_the_command_is_the_one_that_was_typed(module: str, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python calls a package that was started with -m by the name of its module `__main__`."""
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec(module, None))
    monkeypatch.setattr(sys, "argv", ["a path", "--seconds", "5"])
    assert machine.describe()["command"] == f"python -m {named} --seconds 5"
