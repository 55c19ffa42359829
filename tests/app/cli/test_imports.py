"""What a command imports before it has work to do: a start is quick because it does not import the rest."""

import subprocess
import sys

import pytest

SLOW = {"asyncio", "av", "httpx", "numpy", "prometheus_client", "rich", "soxr", "starlette", "torch", "uvicorn", "zmq"}
"""Packages that take a noticeable part of a start."""
PROGRAM = """
import sys
from app.cli.commands import main
sys.argv[1:] = {arguments!r}
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def imported(arguments: list[str]) -> set[str]:
    """The top-level packages that a command line has imported when it ends."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(arguments=arguments)], capture_output=True, text=True, timeout=100
    )
    modules = done.stderr.split()
    assert "app.cli.commands" in modules, done.stderr
    return {module.partition(".")[0] for module in modules}


@pytest.mark.parametrize(
    "arguments", [["--version"], ["--help"], ["serve", "--help"], ["serve", "--port", "99999"], ["nonsense"]], ids=str
)
def test_an_answer_without_work_needs_none_of_the_slow_packages(arguments: list[str]) -> None:
    assert not imported(arguments) & SLOW
