"""What `make flaky` reports."""

from pathlib import Path

import pytest

from tests import flaky

pytestmark = pytest.mark.nightly

FAILS_IN_EVERY_OTHER_RUN = """
from pathlib import Path

def test_chance():
    mark = Path(__file__).with_name("mark")
    if mark.exists():
        mark.unlink()
        raise AssertionError
    mark.touch()

def test_certain():
    pass
"""


def options(file: Path) -> list[str]:
    return [str(file), "--quiet", "-p", "no:cacheprovider", "--rootdir", str(file.parent), "--config-file", "/dev/null"]


def test_a_failure_in_one_of_several_runs_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "test_chance.py"
    file.write_text(FAILS_IN_EVERY_OTHER_RUN)
    assert flaky.main(3, options(file)) == 1
    assert capsys.readouterr().out.splitlines() == [
        "1 tests failed in 3 runs beside 2 busy loops",
        "1 of 3: test_chance::test_chance",
    ]


def test_a_run_that_is_no_run_is_no_success(tmp_path: Path) -> None:
    """A folder without tests proves nothing."""
    file = tmp_path / "test_nothing.py"
    file.write_text("")
    with pytest.raises(SystemExit, match="status 5"):
        flaky.main(1, options(file))
