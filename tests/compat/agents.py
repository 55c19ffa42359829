"""Runs the scripts of `tests/compat/python`, which use the classes of frameworks for voice agents.

The frameworks have many dependencies, so a test is skipped where its framework is not installed.
"""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

PYTHON = Path(__file__).parent / "python"
SCRIPT_TIMEOUT_S = 60


def run_agent(script: str, package: str, **arguments: object) -> Any:
    """What a script prints, given these as one JSON object; skips the test where the package is not installed."""
    if not _is_installed(package):
        pytest.skip(f"{package} is not installed: pip install 'tutti-asr[agents]'")
    command = [sys.executable, str(PYTHON / script), json.dumps(arguments)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SCRIPT_TIMEOUT_S)
    if done.returncode != 0:
        pytest.fail(f"{script}\n{done.stdout}{done.stderr}", pytrace=False)
    return json.loads(done.stdout.splitlines()[-1])


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False
