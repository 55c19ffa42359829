"""Node.js, and the development packages of the JavaScript client, for the tests that need them."""

import fcntl
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

# What the tools in clients/js/package.json need.
OLDEST_NODE = (20, 19)
VERSION_TIMEOUT_S = 60
CLIENT = Path(__file__).parents[1] / "clients" / "js"
COMMAND_TIMEOUT_S = 300


def require_node() -> None:
    """Skip the test without Node.js and npm; fail it where `TUTTI_REQUIRE_NODE=1` says that they must be there."""
    problem = _problem()
    if problem is not None:
        if os.environ.get("TUTTI_REQUIRE_NODE") == "1":
            pytest.fail(problem)
        pytest.skip(problem)


def require_packages(folder: Path) -> Path:
    """Install the npm packages of a folder if they are missing or old. Returns the folder that they are in.

    A test that uses it is marked `node`, and is given the time that `npm ci` takes (`timeout`). Several test processes
    may call it at the same time.
    """
    require_node()
    packages, lock_file = folder / "node_modules", folder / "package-lock.json"
    installed = packages / ".package-lock.json"
    with lock_file.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not installed.exists() or installed.stat().st_mtime < lock_file.stat().st_mtime:
            run(folder, "npm", "ci", "--no-audit", "--no-fund")
    return packages


def require_client_packages() -> Path:
    """The development packages of the JavaScript client, as `require_packages` does it."""
    return require_packages(CLIENT)


def run(folder: Path, *command: str) -> str:
    """Run a command in a folder, and return what it prints. If it fails, the test fails with its output."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)}\n{done.stdout}{done.stderr}", pytrace=False)
    return done.stdout


def _problem() -> str | None:
    wanted = ".".join(map(str, OLDEST_NODE))
    if shutil.which("node") is None or shutil.which("npm") is None:
        return f"Node.js {wanted} or newer with npm is not installed: see https://nodejs.org"
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S).stdout
    version = re.match(r"v(\d+)\.(\d+)", said)
    if version is None or tuple(map(int, version.groups())) < OLDEST_NODE:
        return f"Node.js {wanted} or newer is needed, this is {said.strip()}"
    return None
