"""A recorded terminal shows what the program wrote, and when."""

import sys

import pytest

from pictures.terminal import PLAIN, Output, RecordingError, Run, Shown, Style, Terminal, run, screens, starting_with


def test_text_stands_where_it_was_written() -> None:
    """Styles split a line into runs; spaces at its end are dropped."""
    terminal = Terminal()
    terminal.write("plain \x1b[1mbold\x1b[2;3m both\x1b[0m  \r\nnext")
    first, second = terminal.lines()
    both = Style(bold=True, dim=True, italic=True)
    assert first == (Run(0, "plain ", PLAIN), Run(6, "bold", Style(bold=True)), Run(10, " both", both))
    assert second == (Run(0, "next", PLAIN),)


def test_a_line_is_drawn_again() -> None:
    """What `rich` does with a line that changes: it goes up, clears it and writes it anew."""
    terminal = Terminal()
    terminal.write("one\r\ntwo three")
    terminal.write("\r\x1b[2K\x1b[1A\x1b[2Kfour")
    assert terminal.lines() == ((Run(0, "four", PLAIN),),)


def test_an_unknown_code_is_an_error() -> None:
    with pytest.raises(RecordingError, match="5H"):
        Terminal().write("\x1b[5H")


def test_a_screen_is_kept_for_each_interval_with_a_change() -> None:
    """Of two changes within a tenth of a second the last one is shown; what changes nothing gives no screen."""
    written = [Output(0.01, "a"), Output(0.02, "b"), Output(0.25, "\r\x1b[2Kab"), Output(0.61, "c")]
    assert [(round(shown.at_s, 1), shown.text) for shown in screens(written)] == [(0.0, "ab"), (0.6, "abc")]


def test_a_recording_begins_with_a_text() -> None:
    shown = [Shown(1.0, ((Run(0, "Loading", PLAIN),),)), Shown(3.5, ((Run(0, "Streaming", PLAIN),),))]
    assert starting_with(shown, "Stream") == [Shown(0.0, shown[1].lines)]
    with pytest.raises(RecordingError, match="'Done'"):
        starting_with(shown, "Done")


async def test_a_program_believes_that_it_has_a_terminal() -> None:
    """It sees the size that was asked for."""
    code = "import os, sys; print(sys.stdout.isatty(), os.get_terminal_size().columns)"
    (shown,) = screens(await run([sys.executable, "-c", code], columns=77, rows=20))
    assert shown.text == "True 77"


async def test_a_program_that_fails_gives_no_recording() -> None:
    with pytest.raises(RecordingError, match=r"ended with 3:\s+oh"):
        await run([sys.executable, "-c", "print('oh'); raise SystemExit(3)"], columns=80, rows=20)
