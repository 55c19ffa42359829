"""A benchmark without one of its packages says in one line which extra installs it."""

import click
import pytest
from click.testing import CliRunner

from benchmarks import options
from benchmarks.options import benchmark_command


@pytest.fixture(autouse=True)
def an_extra_that_nobody_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "EXTRAS", {"no_such_package": "bench"})


@pytest.mark.parametrize("needs", [("no_such_package",), ()], ids=["before it begins", "where it is imported"])
def test_a_missing_package_is_one_line(needs: tuple[str, ...]) -> None:
    """The command may say that it needs the package, or find out on the way."""

    @benchmark_command(needs=needs)
    def main() -> None:
        """Measure."""
        import no_such_package.part  # type: ignore[import-not-found]  # noqa: F401

    ran = CliRunner().invoke(main, [])
    assert (ran.exit_code, ran.output) == (1, "Error: no_such_package is not installed: pip install -e '.[bench]'\n")


def test_other_modules_that_are_missing_stay_errors() -> None:
    """A mistake in a benchmark keeps its traceback."""

    @benchmark_command()
    def main() -> None:
        """Measure."""
        raise ModuleNotFoundError(name="other")

    assert isinstance(CliRunner().invoke(main, []).exception, ModuleNotFoundError)
    assert isinstance(main, click.Command)
