"""`docs/compatibility.md`, made of the marks that tests carry: `python -m tests.compat.table` writes it.

The tests are collected by pytest, not run; that they pass is seen in the same run that checks the page.
"""

import io
import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from tests.compat.conformance import DIALECTS, Claim

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "compatibility.md"
# What a module with marks imports; the rest of the suite need not be collected.
MARKS = "tests.compat.conformance"
HEAD = """# What works of other services' APIs

Made of the tests by `python -m tests.compat.table`: every line is what a test shows. *Supported* does what the vendor
documents, *approximated* something close to it, and *refused* has no effect, which the client is told.
"""


class _Collected:
    """A pytest plugin that keeps the claims of all tests."""

    def __init__(self) -> None:
        self.claims: set[Claim] = set()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        # Before any test is deselected, whatever the machine has.
        self.claims = {mark.args[0] for item in items for mark in item.iter_markers("option")}


def collected() -> set[Claim]:
    """The claims of all tests. Call it in a process of its own: pytest does not nest.

    Raises:
        RuntimeError: a test module cannot be imported.
    """
    collector = _Collected()
    said = io.StringIO()
    modules = [str(path) for path in sorted((REPOSITORY / "tests").rglob("test_*.py")) if MARKS in path.read_text()]
    with redirect_stdout(said):
        arguments = ["--collect-only", "--quiet", "--assert=plain", "-p", "no:cacheprovider", *modules]
        code = pytest.main(["--rootdir", str(REPOSITORY), *arguments], plugins=[collector])
    if code != pytest.ExitCode.OK:
        raise RuntimeError(f"the tests cannot be collected\n{said.getvalue()}")
    return collector.claims


def page(claims: Iterable[Claim]) -> str:
    """The page as Markdown.

    Raises:
        ValueError: tests say different things of one option.
    """
    rows: dict[str, dict[str, Claim]] = {dialect: {} for dialect in DIALECTS}
    for claim in sorted(claims):
        other = rows[claim.dialect].setdefault(claim.option, claim)
        if other != claim:
            raise ValueError(f"tests say different things of one option: {other} and {claim}")
    parts = [HEAD]
    for dialect, options in rows.items():
        if options:
            parts += [f"\n## {DIALECTS[dialect]}\n\n| option | | how |\n|---|---|---|\n"]
            parts += [f"| `{_cell(each.option)}` | {each.level} | {_cell(each.how)} |\n" for each in options.values()]
    return "".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def main() -> int:
    """Write the page, or with `--check` say whether it is up to date."""
    written = page(collected())
    if sys.argv[1:] == ["--check"]:
        return 0 if PAGE.read_text() == written else 1
    PAGE.write_text(written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
