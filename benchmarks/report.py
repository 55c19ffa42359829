"""Shows and stores results: tables for the terminal, Markdown for docs/results/, and JSON."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.table import Table as RichTable

NO_VALUE = "–"
"""Stands in a table where there is no value."""
PIPE_COLUMNS = 200
"""Width of the output in characters when it does not go to a terminal."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a result, for the terminal and for Markdown."""

    title: str
    columns: tuple[str, ...]
    """Headings. A line break in a heading applies to the terminal only."""
    rows: Sequence[tuple[str, ...]]

    def rich(self) -> RichTable:
        table = RichTable(title=self.title, title_justify="left", title_style="bold", box=None, pad_edge=False)
        for index, column in enumerate(self.columns):
            table.add_column(column, justify="right" if index else "left", no_wrap=True)
        for row in self.rows:
            table.add_row(*row)
        return table

    def markdown(self) -> str:
        """The table in Markdown, below its title in bold."""
        headings = tuple(column.replace("\n", " ") for column in self.columns)
        lines = [headings, ("---", *["--:"] * (len(self.columns) - 1)), *self.rows]
        return "\n".join([f"**{self.title}**", "", *("| " + " | ".join(line) + " |" for line in lines), ""])


def show(tables: list[Table], result: dict[str, Any], *, as_markdown: bool, path: Path) -> None:
    """Print the tables, write the result as JSON to `path`, and write the tables as Markdown beside it."""
    text = "\n".join([*(table.markdown() for table in tables), origin(result), ""])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    path.with_suffix(".md").write_text(text)
    if as_markdown:
        print(text)
        return
    console = Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else PIPE_COLUMNS)
    for table in tables:
        console.print(table.rich(), "")
    console.print(origin(result), markup=False)
    console.print(f"Written: {path} and {path.with_suffix('.md')}", markup=False)


def finish(
    tables: list[Table], result: dict[str, Any], complaints: Sequence[str], *, as_markdown: bool, path: Path
) -> NoReturn:
    """Show the result and what is wrong with it, and end the command: with status 1 if anything is."""
    show(tables, result, as_markdown=as_markdown, path=path)
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    sys.exit(1 if complaints else 0)


def origin(result: dict[str, Any]) -> str:
    """One sentence that says how, where and with which versions the figures were measured."""
    machine, versions = result["machine"], result["versions"]
    packages = ", ".join(f"{name} {number}" for name, number in versions.items() if number)
    return (
        f"`{result['command']}` at {result['revision'] or 'an unknown revision'}, {result['started']}, on "
        f"{machine['cpu'] or 'an unknown CPU'}, {machine['cores']} cores, {machine['memory_gib']} GiB "
        f"(load {machine['load_before']} before); {packages}."
    )


def number(value: float | None, digits: int = 2) -> str:
    """A table cell for a number with this many decimals."""
    return NO_VALUE if value is None else f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    """A table cell for a fraction in percent, with one decimal."""
    return NO_VALUE if value is None else f"{100 * value:.1f}"


def percents(values: Mapping[str, float]) -> str:
    """A table cell for fractions side by side, in percent, without decimals."""
    return "/".join(number(100 * value, 0) for value in values.values())


def spread(summary: dict[str, Any]) -> str:
    """A table cell with the p50, p95 and p99 of a `scoring.summary`."""
    return "/".join(number(summary[name]) for name in ("p50", "p95", "p99")) if summary["n"] else NO_VALUE
