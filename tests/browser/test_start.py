"""How a browser is started: a start that fails is repeated once, and reported."""

import io
import sys
from pathlib import Path

import pytest

from tests.browser.page import PageError, start_browser

FAILS_FIRST = """
import sys
from pathlib import Path
mark = Path(sys.argv[1])
if not mark.exists():
    mark.touch()
    sys.exit("no display")
print("listening on ws://here", file=sys.stderr, flush=True)
"""


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is reported on the standard error of the test run."""
    told = io.StringIO()
    monkeypatch.setattr(sys, "__stderr__", told)
    return told


async def test_a_start_that_fails_is_repeated_and_reported(tmp_path: Path, told: io.StringIO) -> None:
    command = [sys.executable, "-c", FAILS_FIRST, str(tmp_path / "mark")]
    process, url = await start_browser("Browser", command, "listening on ")
    await process.wait()
    assert url == "ws://here"
    assert "Browser did not start, and is started again" in told.getvalue() and "no display" in told.getvalue()


async def test_a_second_failure_is_an_error(told: io.StringIO) -> None:
    with pytest.raises(PageError, match="no display"):
        await start_browser("Browser", [sys.executable, "-c", "import sys; sys.exit('no display')"], "listening on ")
    assert told.getvalue().count("is started again") == 1
