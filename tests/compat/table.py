"""Writes `docs/compatibility.md` from the marks on tests: `python -m tests.compat.table`.

It collects the tests and does not run them. A test run checks the page, and that the tests pass.
"""

import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from tests.compat.conformance import DIALECTS, Claim
from tests.media_corpus import table as corpus_table

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "compatibility.md"
MARKS = "tests.compat.conformance"
"""The import of every test module with marks. Other modules need not be collected."""
HEAD = """# Compatibility with other services' APIs

`python -m tests.compat.table` writes this page from the tests: a test shows each line.

- **Supported**: the option does what its vendor documents.
- **Approximated**: it does something close to that.
- **Refused**: it has no effect, and an error, a warning or a header tells the client.
"""


class _Collected:
    """A pytest plugin that keeps the claims of all tests."""

    def __init__(self) -> None:
        self.claims: set[Claim] = set()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the claims before pytest deselects the tests that this machine cannot run."""
        self.claims = {mark.args[0] for item in items for mark in item.iter_markers("option")}


def collected() -> set[Claim]:
    """The claims of all tests. Call it in a process of its own, because pytest does not nest.

    Raises:
        RuntimeError: a test module cannot be imported.
    """
    collector = _Collected()
    output = io.StringIO()
    modules = [str(path) for path in sorted((REPOSITORY / "tests").rglob("test_*.py")) if MARKS in path.read_text()]
    with redirect_stdout(output):
        arguments = ["--collect-only", "--quiet", "--assert=plain", "-p", "no:cacheprovider", *modules]
        code = pytest.main(["--rootdir", str(REPOSITORY), *arguments], plugins=[collector])
    if code != pytest.ExitCode.OK:
        raise RuntimeError(f"the tests cannot be collected\n{output.getvalue()}")
    return collector.claims


def page(claims: Iterable[Claim]) -> str:
    """The page as Markdown.

    Raises:
        ValueError: two tests contradict each other about one option.
    """
    rows: dict[str, dict[str, Claim]] = {dialect: {} for dialect in DIALECTS}
    for claim in sorted(claims):
        other = rows[claim.dialect].setdefault(claim.option, claim)
        if other != claim:
            raise ValueError(f"tests say different things of one option: {other} and {claim}")
    parts = [HEAD]
    for dialect, options in rows.items():
        if options:
            parts += [f"\n## {DIALECTS[dialect]}\n", *_section(options.values())]
    return "".join(parts)


def _section(claims: Iterable[Claim]) -> Iterator[str]:
    """A line for all supported options, and a row for the options of which the same is to be said."""
    same: dict[tuple[str, str], list[str]] = {}
    for each in claims:
        same.setdefault((each.level, each.how), []).append(f"`{_cell(each.option)}`")
    if supported := same.pop(("supported", ""), None):
        yield f"\nSupported: {', '.join(supported)}.\n"
    if same:
        yield "\n| option | | how |\n|---|---|---|\n"
    for (level, how), options in same.items():
        yield f"| {', '.join(options)} | {level} | {_cell(how)} |\n"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def main() -> int:
    """Write the page; with `--check`, only compare it, and return 1 if it is out of date."""
    written = page(collected()) + corpus_table()
    if sys.argv[1:] == ["--check"]:
        return 0 if PAGE.read_text() == written else 1
    PAGE.write_text(written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
