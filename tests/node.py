"""Node.js for the tests that need it."""

import os
import re
import shutil
import subprocess

import pytest

# What the tools in clients/js/package.json need.
OLDEST_NODE = (20, 19)
VERSION_TIMEOUT_S = 60


def require_node() -> None:
    """Skip the test without Node.js and npm; fail it where `TUTTI_REQUIRE_NODE=1` says that they must be there."""
    problem = _problem()
    if problem is not None:
        if os.environ.get("TUTTI_REQUIRE_NODE") == "1":
            pytest.fail(problem)
        pytest.skip(problem)


def _problem() -> str | None:
    wanted = ".".join(map(str, OLDEST_NODE))
    if shutil.which("node") is None or shutil.which("npm") is None:
        return f"Node.js {wanted} or newer with npm is not installed: see https://nodejs.org"
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S).stdout
    version = re.match(r"v(\d+)\.(\d+)", said)
    if version is None or tuple(map(int, version.groups())) < OLDEST_NODE:
        return f"Node.js {wanted} or newer is needed, this is {said.strip()}"
    return None
