"""The JavaScript client's own checks, and that the page serves what they checked."""

import subprocess
from pathlib import Path

import pytest

from tests.node import require_node

REPOSITORY = Path(__file__).parents[3]
CLIENT = REPOSITORY / "clients" / "js"
PAGE_MODULES = REPOSITORY / "app" / "static" / "tutti"
COMMAND_TIMEOUT_S = 300

pytestmark = [pytest.mark.node, pytest.mark.timeout(2 * COMMAND_TIMEOUT_S)]


def run(*command: str) -> None:
    """Runs a command in the client's folder; the test fails with what it printed."""
    done = subprocess.run(command, cwd=CLIENT, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)}\n{done.stdout}{done.stderr}", pytrace=False)


@pytest.fixture(scope="module", autouse=True)
def packages() -> None:
    """Node.js with the client's development packages; skips without Node.js unless it is required."""
    require_node()
    if not (CLIENT / "node_modules").exists():
        # Not `npm ci`: it wants every optional binary of other platforms in the lock file.
        run("npm", "install", "--no-save", "--no-audit", "--no-fund")


@pytest.mark.parametrize("script", ["check", "lint", "test"])
def test_script(script: str) -> None:
    """Types, lint and unit tests pass."""
    run("npm", "run", script)


def test_the_page_serves_the_present_client(tmp_path: Path) -> None:
    """The committed modules are what the sources build to; `npm run build:page` brings them up to date."""
    run("npx", "--no-install", "tsc", "-p", "tsconfig.page.json", "--outDir", str(tmp_path))
    built, served = ({path.name: path.read_text() for path in folder.iterdir()} for folder in (tmp_path, PAGE_MODULES))
    assert built == served, "run `npm run build:page` in clients/js"


def test_the_lock_file_names_no_registry() -> None:
    """Anybody's registry can be used: the lock file has versions and hashes, no addresses of packages."""
    assert '"resolved"' not in (CLIENT / "package-lock.json").read_text()
