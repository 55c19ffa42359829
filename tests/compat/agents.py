"""Runs the scripts of `tests/compat/python`, which use the classes of frameworks for voice agents.

The frameworks have many dependencies, so `make agents` installs them in an environment of their own.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parent / "python"
PYTHON = Path(__file__).parents[2] / ".venv" / "agents" / "bin" / "python"
SCRIPT_TIMEOUT_S = 60


def agents_python() -> Path:
    """The Python that has the frameworks. The test is skipped without it, and fails where it is required."""
    if not PYTHON.exists():
        problem = "the frameworks of voice agents are not installed: run `make agents`"
        if os.environ.get("TUTTI_REQUIRE_AGENTS") == "1":
            pytest.fail(problem)
        pytest.skip(problem)
    return PYTHON


def run_agent(script: str, **arguments: object) -> Any:
    """What a script prints, given these as one JSON object."""
    command: list[str | Path] = [agents_python(), SCRIPTS / script, json.dumps(arguments)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SCRIPT_TIMEOUT_S)
    if done.returncode != 0:
        pytest.fail(f"{script}\n{done.stdout}{done.stderr}", pytrace=False)
    return json.loads(done.stdout.splitlines()[-1])
