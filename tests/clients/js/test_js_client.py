"""The checks of the JavaScript client, and what its lock file must have."""

import json
import subprocess

import pytest

from tests.node import CLIENT, require_client_packages

COMMAND_TIMEOUT_S = 300

pytestmark = [pytest.mark.node, pytest.mark.timeout(2 * COMMAND_TIMEOUT_S)]


def run(*command: str) -> None:
    """Run a command in the client's folder. If it fails, the test fails with its output."""
    done = subprocess.run(command, cwd=CLIENT, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)}\n{done.stdout}{done.stderr}", pytrace=False)


@pytest.fixture(scope="module", autouse=True)
def packages() -> None:
    """Node.js with the client's development packages. Without Node.js the tests are skipped, unless it is required."""
    require_client_packages()


@pytest.mark.parametrize("script", ["check", "lint", "test"])
def test_script(script: str) -> None:
    """Types, lint and unit tests pass."""
    run("npm", "run", script)


def test_the_lock_file_has_every_package_for_every_platform() -> None:
    """`npm ci` refuses a lock file that lacks one, also one that is optional and for another platform.

    Every registry can be used: the file has versions and hashes, but no addresses of packages.
    """
    text = (CLIENT / "package-lock.json").read_text()
    assert '"resolved"' not in text
    locked = json.loads(text)["packages"]
    wanted = {name for package in locked.values() for name in package.get("optionalDependencies", {})}
    assert {name for name in wanted if f"node_modules/{name}" not in locked} == set()
    assert all("integrity" in package for path, package in locked.items() if path)
    packages = json.loads((CLIENT / "package.json").read_text())
    assert locked[""]["devDependencies"] == packages["devDependencies"]
