"""The checks of the JavaScript client, and what its lock file must have."""

import json

import pytest

from tests.node import CLIENT, COMMAND_TIMEOUT_S, require_client_packages, run

pytestmark = [pytest.mark.node, pytest.mark.timeout(2 * COMMAND_TIMEOUT_S)]


@pytest.fixture(scope="module", autouse=True)
def packages() -> None:
    """Node.js with the client's development packages. Without Node.js the tests are skipped, unless it is required."""
    require_client_packages()


@pytest.mark.parametrize("script", ["check", "lint", "test"])
def test_script(script: str) -> None:
    """Types, lint and unit tests pass."""
    run(CLIENT, "npm", "run", script)


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
