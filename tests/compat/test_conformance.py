"""`docs/compatibility.md` says what the marks of the tests say."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
COMMAND_TIMEOUT_S = 60


@pytest.mark.nightly
def test_the_page_is_up_to_date() -> None:
    """`docs/compatibility.md` matches the marks; `python -m tests.compat.table` writes it."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.compat.table", "--check"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
    )
    assert done.returncode == 0, f"run `python -m tests.compat.table`\n{done.stdout}{done.stderr}"


def test_the_lock_file_names_no_registry() -> None:
    """The lock file has versions and hashes, and no addresses of packages, so any registry can be used."""
    assert '"resolved"' not in (Path(__file__).parent / "js" / "package-lock.json").read_text()
