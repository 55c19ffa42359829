"""The evaluation's table: measured values beside their targets, as Markdown, and its place in the model card."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.report import NO_VALUE

BEGIN = "<!-- evaluation: begin -->"
END = "<!-- evaluation: end -->"

Unit = Literal["%", "points", "s", "words", "windows", "MB", "probability"]


@dataclass(frozen=True, slots=True)
class Row:
    """One measured value. Rows of a part stand together."""

    part: str
    what: str
    value: float | None
    """`None` where it could not be measured. Rates are fractions, as `WordErrors.rate`."""
    unit: Unit
    target: float | None = None
    """Most that the value may be; `None` where it is only reported."""
    at_least: bool = False
    """The target is the least that the value may be."""
    of: str = ""
    """What it was measured on, such as "79 clips, 790 words"."""

    @property
    def is_met(self) -> bool | None:
        """`None` where there is no target, or nothing was measured."""
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


def shown(value: float | None, unit: Unit) -> str:
    if value is None:
        return NO_VALUE
    match unit:
        case "%":
            return f"{100 * value:.1f} %"
        case "points":
            return f"{100 * value:+.2f} points"
        case "s":
            return f"{value:.3f} s"
        case "probability":
            return f"{value:.3f}"
        case "MB":
            return f"{value:.1f} MB"
        case _:
            return f"{value:.0f} {unit}"


def markdown(rows: Sequence[Row], notes: Sequence[str] = ()) -> str:
    """One table for all parts; a part's name stands at its first row. `notes` follow as a list."""
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
    return [{**asdict(row), "is_met": row.is_met} for row in rows]


def read_around(card: Path) -> tuple[str, str]:
    """The card's text up to its first mark and from its second one on.

    Raises:
        CardError: there is no card, or not one mark of each kind in their order.
    """
    if not card.is_file():
        raise CardError(card, f"no such file; expected a model card with the lines {BEGIN} and {END}")
    text = card.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise CardError(card, f"expected one line {BEGIN} and behind it one line {END}")
    return text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]


def replace_table(card: Path, table: str) -> None:
    """Put the table between the two marks of the card, in place of what stands there. Raises as `read_around`."""
    before, after = read_around(card)
    card.write_text(f"{before}\n{table.strip()}\n{after}", encoding="utf-8")
