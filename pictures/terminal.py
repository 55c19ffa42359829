"""Records what a program shows in a terminal, and when. The output is a list of screens, each with its time."""

import asyncio
import codecs
import fcntl
import os
import pty
import re
import struct
import termios
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, takewhile
from typing import NamedTuple

SCREEN_INTERVAL_S = 0.1
"""Seconds between two screens at least. `rich` draws twelve times a second, and a change lasts two of its frames."""
TIMEOUT_S = 180
"""Seconds a program may run. The demo takes half a minute."""
_CODE = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])")


class RecordingError(Exception):
    """The program failed, or wrote a control code that this module does not know."""


@dataclass(frozen=True, slots=True)
class Style:
    """How a character looks."""

    bold: bool = False
    dim: bool = False
    italic: bool = False


PLAIN = Style()


class Run(NamedTuple):
    """Neighbouring characters of one style."""

    column: int
    text: str
    style: Style


Line = tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Output:
    """A piece of what the program wrote."""

    at_s: float
    """Seconds since the program was started."""
    text: str


@dataclass(frozen=True, slots=True)
class Shown:
    """What the terminal showed from a moment on."""

    at_s: float
    """Seconds since the program was started."""
    lines: tuple[Line, ...]

    @property
    def text(self) -> str:
        """All lines, without their styles."""
        return "\n".join("".join(run.text for run in line) for line in self.lines)


class Terminal:
    """The part of a terminal that `rich` uses: text, colours, and clearing lines that it has drawn.

    Lines are as long as the program makes them, and there is no last row: nothing scrolls away.
    """

    def __init__(self) -> None:
        self._rows: list[list[tuple[str, Style]]] = [[]]
        self._row = 0
        self._column = 0
        self._style = PLAIN

    def write(self, text: str) -> None:
        """Show text with its control codes. A code is always written whole.

        Raises:
            RecordingError: a control code is not known.
        """
        position = 0
        for code in _CODE.finditer(text):
            self._print(text[position : code.start()])
            self._obey(code[1], code[2])
            position = code.end()
        self._print(text[position:])

    def lines(self) -> tuple[Line, ...]:
        """The lines as they are shown now, without empty ones at the end."""
        lines = [tuple(_runs(row)) for row in self._rows]
        while lines and not lines[-1]:
            lines.pop()
        return tuple(lines)

    def _print(self, text: str) -> None:
        for character in text:
            if character == "\r":
                self._column = 0
            elif character == "\n":
                self._row += 1
                if self._row == len(self._rows):
                    self._rows.append([])
            else:
                row = self._rows[self._row]
                row.extend([(" ", PLAIN)] * (self._column + 1 - len(row)))
                row[self._column] = (character, self._style)
                self._column += 1

    def _obey(self, numbers: str, letter: str) -> None:
        match letter:
            case "m":
                for number in numbers.split(";"):
                    self._style = _styled(self._style, int(number or 0))
            case "K":
                self._rows[self._row].clear()
            case "A":
                self._row = max(self._row - int(numbers or 1), 0)
            case "h" | "l":  # the cursor is shown or hidden
                pass
            case _:
                raise RecordingError(f"expected text, styles and cleared lines, got the control code {numbers}{letter}")


def _styled(style: Style, number: int) -> Style:
    match number:
        case 0:
            return PLAIN
        case 1:
            return replace(style, bold=True)
        case 2:
            return replace(style, dim=True)
        case 3:
            return replace(style, italic=True)
        case _:  # colours: the picture has its own
            return style


def _runs(row: Sequence[tuple[str, Style]]) -> Iterator[Run]:
    n_shown = len("".join(character for character, _ in row).rstrip())
    column = 0
    for style, characters in groupby(row[:n_shown], key=lambda cell: cell[1]):
        text = "".join(character for character, _ in characters)
        yield Run(column, text, style)
        column += len(text)


async def run(command: Sequence[str], columns: int, rows: int) -> list[Output]:
    """What a program writes to a terminal of this size, from its start to its end.

    Raises:
        RecordingError: the program failed.
        TimeoutError: the program ran for longer than `TIMEOUT_S`.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": str(rows)}
    started_s = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            written = await asyncio.to_thread(_read, ours, started_s)
            status = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(ours)
    if status:
        raise RecordingError(f"{command[0]} ended with {status}:\n" + "".join(output.text for output in written))
    return written


def _read(terminal: int, started_s: float) -> list[Output]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    written: list[Output] = []
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # Linux: the program has closed its side
            return written
        if not data:
            return written
        written.append(Output(time.monotonic() - started_s, decoder.decode(data)))


def screens(written: Iterable[Output]) -> list[Shown]:
    """What the terminal showed, one screen for each `SCREEN_INTERVAL_S` in which it changed."""
    terminal = Terminal()
    shown: list[Shown] = []
    for step, outputs in groupby(written, key=lambda output: int(output.at_s / SCREEN_INTERVAL_S)):
        for output in outputs:
            terminal.write(output.text)
        screen = Shown(step * SCREEN_INTERVAL_S, terminal.lines())
        if not shown or shown[-1].lines != screen.lines:
            shown.append(screen)
    return shown


def starting_with(shown: Sequence[Shown], text: str) -> list[Shown]:
    """The screens from the first one that contains the text, whose time becomes zero.

    Raises:
        RecordingError: no screen contains the text.
    """
    n_before = len(list(takewhile(lambda screen: text not in screen.text, shown)))
    rest = shown[n_before:]
    if not rest:
        raise RecordingError(f"the program never showed {text!r}")
    return [replace(screen, at_s=screen.at_s - rest[0].at_s) for screen in rest]
