"""The checks of the JavaScript client, and a test that the page serves the same client."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.node import CLIENT, require_client_packages

REPOSITORY = Path(__file__).parents[3]
PAGE_MODULES = REPOSITORY / "app" / "static" / "tutti"
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


def test_the_page_serves_this_version_of_the_client(tmp_path: Path) -> None:
    """The committed modules are the result of building the sources; `npm run build:page` updates them."""
    # `npm run check` has checked the types.
    run("npx", "--no-install", "tsc", "-p", "tsconfig.page.json", "--noCheck", "--outDir", str(tmp_path))
    built, served = (
        {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.js")}
        for folder in (tmp_path, PAGE_MODULES)
    )
    assert built == served, "run `npm run build:page` in clients/js"


def test_the_lock_file_names_no_registry() -> None:
    """Every registry can be used: the lock file has versions and hashes, but no addresses of packages."""
    assert '"resolved"' not in (CLIENT / "package-lock.json").read_text()


def test_the_lock_file_has_every_package_for_every_platform() -> None:
    """`npm ci` refuses a lock file that lacks one, also one that is optional and for another platform."""
    locked = json.loads((CLIENT / "package-lock.json").read_text())["packages"]
    wanted = {name for package in locked.values() for name in package.get("optionalDependencies", {})}
    assert {name for name in wanted if f"node_modules/{name}" not in locked} == set()
    assert all("integrity" in package for path, package in locked.items() if path)
    packages = json.loads((CLIENT / "package.json").read_text())
    assert locked[""]["devDependencies"] == packages["devDependencies"]


def test_the_locked_packages_can_be_installed() -> None:
    """`npm ci` finds package.json and the lock file in step; nothing is fetched or installed here."""
    run("npm", "ci", "--dry-run", "--offline", "--no-audit", "--no-fund")
