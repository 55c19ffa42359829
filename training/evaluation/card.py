"""The table of the evaluation: measured values beside their targets, and its place in the model card."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.report import NO_VALUE

BEGIN = "<!-- evaluation: begin -->"
END = "<!-- evaluation: end -->"

Unit = Literal["%", "points", "s", "words", "windows", "MB", "probability"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured value. The rows of a part are adjacent."""

    part: str
    what: str
    value: float | None
    """`None` if it could not be measured. Rates are fractions, like `WordErrors.rate`."""
    unit: Unit
    target: float | None = None
    """The largest value that meets the target; `None` if the value is only reported."""
    at_least: bool = False
    """Whether the target is the smallest value instead."""
    of: str = ""
    """What it was measured on, such as "79 clips, 790 words"."""

    @property
    def is_met(self) -> bool | None:
        """Whether the value meets its target; `None` without a target or a value."""
        if self.target is None or self.value is None:
            return None
        shown, target = round(self.value, 4), round(self.target, 4)
        return shown >= target if self.at_least else shown <= target


class CardError(Exception):
    """The model card cannot take the table."""

    def __init__(self, card: Path, reason: str) -> None:
        super().__init__(card, reason)
        self.card, self.reason = card, reason

    def __str__(self) -> str:
        return f"{self.card}: {self.reason}"


def make_row(
    part: str,
    what: str,
    value: float | None,
    unit: Unit,
    target: float | None = None,
    *,
    at_least: bool = False,
    of: str = "",
) -> Row:
    """A row, with its fields in the order of the table."""
    return Row(part=part, what=what, value=value, unit=unit, target=target, at_least=at_least, of=of)


FORMATS: dict[Unit, Callable[[float], str]] = {
    "%": lambda value: f"{100 * value:.1f} %",
    "points": lambda value: f"{100 * value:+.2f} points",
    "s": lambda value: f"{value:.3f} s",
    "probability": lambda value: f"{value:.3f}",
    "MB": lambda value: f"{value:.1f} MB",
    "words": lambda value: f"{value:.0f} words",
    "windows": lambda value: f"{value:.0f} windows",
}
"""How a value of each unit is written."""


def shown(value: float | None, unit: Unit) -> str:
    """A table cell for a value."""
    return NO_VALUE if value is None else FORMATS[unit](value)


def markdown(rows: Sequence[Row], notes: Sequence[str] = ()) -> str:
    """One table for all parts. The name of a part stands in its first row. `notes` follow as a list."""
    lines = ["| | | measured | target | | on |", "| --- | --- | --: | --: | --- | --- |"]
    part = None
    for row in rows:
        sign = "≥" if row.at_least else "≤"
        bound = shown(row.target, row.unit).lstrip("+")
        target = "" if row.target is None else bound if row.target == 0 else f"{sign} {bound}"
        verdict = {True: "met", False: "**not met**", None: "" if row.target is None else "not measured"}[row.is_met]
        name = "" if row.part == part else row.part
        cells = (name, row.what, shown(row.value, row.unit), target, verdict, row.of)
        lines.append("| " + " | ".join(cells) + " |")
        part = row.part
    if notes:
        lines += ["", *(f"- {note}" for note in notes)]
    return "\n".join(lines)


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows as the result file holds them."""
    return [{**asdict(row), "is_met": row.is_met} for row in rows]


def read_around(card: Path) -> tuple[str, str]:
    """The text of the card up to its first mark, and from its second mark on.

    Raises:
        CardError: there is no card, or it does not hold both marks once and in their order.
    """
    if not card.is_file():
        raise CardError(card, f"no such file; expected a model card with the lines {BEGIN} and {END}")
    text = card.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise CardError(card, f"expected one line {BEGIN} and after it one line {END}")
    return text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]


def replace_table(card: Path, table: str) -> None:
    """Replace the text between the two marks of the card by the table.

    Raises:
        CardError: as `read_around`.
    """
    before, after = read_around(card)
    card.write_text(f"{before}\n{table.strip()}\n{after}", encoding="utf-8")
