"""Prints where the time of the tests of a change goes: the slowest files, what each protects, and the time of folders.

    make test
    python -m tests.slowest_files > tests/slowest_files.md

The times are those in the reports that `make quick` and `make rest` leave in `build/tests`.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar
from xml.etree import ElementTree

T = TypeVar("T")
REPOSITORY = Path(__file__).parents[1]
REPORTS = REPOSITORY / "build" / "tests"
N_FILES = 40
N_FOLDER_PARTS = 2
"""Folders are told apart by this many names: `tests/app`, `tests/engine`."""


def file_of(classname: str) -> Path:
    """The file of a test by its class name in a report, `tests.app.test_words` or `tests.app.test_words.TestClass`.

    Raises:
        ValueError: there is no such file.
    """
    parts = classname.split(".")
    for n in range(len(parts), 0, -1):
        file = Path(*parts[:n]).with_suffix(".py")
        if (REPOSITORY / file).is_file():
            return file
    raise ValueError(f"expected a test of this checkout, got {classname}")


def seconds(reports: Iterable[Path]) -> dict[Path, float]:
    """The seconds of each file with tests, set-up and clean-up included, in reports in JUnit's format."""
    found: defaultdict[Path, float] = defaultdict(float)
    for report in reports:
        for case in ElementTree.parse(report).iter("testcase"):
            found[file_of(case.get("classname", ""))] += float(case.get("time", 0))
    return found


def protects(file: Path) -> str:
    """What a file with tests protects: the first sentence of its docstring."""
    text = ast.get_docstring(ast.parse((REPOSITORY / file).read_text())) or ""
    return text.partition("\n\n")[0].replace("\n", " ").partition(". ")[0].rstrip(".").replace("|", "\\|")


def slowest(times: Mapping[T, float]) -> list[tuple[T, float]]:
    """What took time, the slowest first."""
    return sorted(times.items(), key=lambda each: -each[1])


def table(found: Mapping[Path, float]) -> Iterator[str]:
    """The lines of the page."""
    folders: defaultdict[str, float] = defaultdict(float)
    for file, took_s in found.items():
        folders["/".join(file.parent.parts[:N_FOLDER_PARTS])] += took_s
    yield from ("# Where the time of the tests goes", "")
    yield from ("`python -m tests.slowest_files >tests/slowest_files.md` writes this page after `make test`.", "")
    yield from ("| the slowest files | s | protect |", "|---|--:|---|")
    for file, took_s in slowest(found)[:N_FILES]:
        yield f"| [{file.relative_to('tests')}]({file.relative_to('tests')}) | {took_s:.0f} | {protects(file)} |"
    yield from ("", "| folder | s |", "|---|--:|")
    for folder, took_s in slowest(folders):
        yield f"| {folder} | {took_s:.0f} |"
    yield f"| all | {sum(found.values()):.0f} |"


if __name__ == "__main__":
    every = sorted(REPORTS.glob("*.xml"))
    if not every:
        sys.exit(f"expected reports in {REPORTS}, got none: run `make test` first")
    print("\n".join(table(seconds(every))))
