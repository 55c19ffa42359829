"""The examples as a user runs them: programs, against one server with the small model."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.app.cli.child import ENVIRONMENT
from tests.compat.conftest import host, server  # noqa: F401  # fixtures

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAM_TIMEOUT_S = 100


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the recordings to try the examples with. Tests only read it."""
    folder = tmp_path_factory.mktemp("recordings")
    done = run("recordings.py", folder)
    assert done.returncode == 0, done.stderr
    return folder


def run(
    program: str, *arguments: object, python: str | Path = sys.executable, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a Python program of `examples`. A warning of ours is an error."""
    return subprocess.run(
        [python, EXAMPLES / program, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        env=ENVIRONMENT | {"PYTHONWARNINGS": "error"} | environment,
    )
