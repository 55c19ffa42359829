"""What the command line writes for each event."""

import os
import sys
from collections.abc import AsyncGenerator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clients.python.client_fakes import make_interim, make_segment, make_utterance
from tutti.__main__ import _show_captions
from tutti.messages import Event, Lag
from tutti.terminal import CLEAR_LINE, CaptionLines, dim_tail

SEGMENT = make_segment(" Hello.")


def test_only_final_lines_without_a_terminal() -> None:
    """A pipe gets segments with their times, and the parts of the speech without text."""
    lines = CaptionLines(1, columns=None)
    assert lines.add(make_interim("Hel", "lo")) == ""
    assert lines.add(SEGMENT) == "[    0.12 →     1.50] Hello.\n"
    assert lines.add(Lag(1.0)) == ""
    ended = make_utterance("Hello.", uncovered=((2.0, 4.0),))
    assert lines.add(ended) == "[    2.00 →     4.00] (speech, no text)\n"


def test_the_interim_line_is_redrawn_with_a_dim_tail() -> None:
    """On a terminal the line is cleared and written again, below the final lines."""
    lines = CaptionLines(1, columns=80)
    assert lines.add(make_interim("Hello.", " How")) == f"{CLEAR_LINE}Hello.\x1b[2m How\x1b[0m"
    assert lines.add(SEGMENT) == f"{CLEAR_LINE}[    0.12 →     1.50] Hello.\n\x1b[2mHow\x1b[0m"
    assert lines.add(make_interim("", " How")) == f"{CLEAR_LINE}\x1b[2mHow\x1b[0m"
    assert lines.note("late") == f"{CLEAR_LINE}late\n\x1b[2mHow\x1b[0m"


async def test_the_interim_line_fits_into_a_window_that_gets_smaller(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise it would break, and stay on the screen with each change."""
    widths = iter((80, 20))
    monkeypatch.setattr("tutti.__main__.shutil.get_terminal_size", lambda: os.terminal_size((next(widths), 24)))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)

    async def events() -> AsyncGenerator[Event, None]:
        yield make_interim("Hello " * 12, "th")
        yield make_interim("Hello " * 12, "")

    await _show_captions(events(), 1)
    assert capsys.readouterr().out.endswith(f"{CLEAR_LINE} Hello Hello Hello ")


def test_channels_are_named_when_there_are_several() -> None:
    """Two channels that speak at once share the line."""
    lines = CaptionLines(2, columns=80)
    lines.add(make_interim("Hello", " the"))
    assert (
        lines.add(make_interim("Yes", "?", utterance=1, channel=1)) == f"{CLEAR_LINE}#0 Hello the #1 Yes\x1b[2m?\x1b[0m"
    )
    assert lines.add(SEGMENT).startswith(f"{CLEAR_LINE}[    0.12 →     1.50] #0 Hello.\n")


def test_text_does_not_control_the_terminal() -> None:
    """Control characters are written as spaces. Joiners are parts of words."""
    lines = CaptionLines(1, columns=None)
    assert lines.add(make_segment("می\u200cروم")) == "[    0.12 →     1.50] می\u200cروم\n"
    assert lines.add(make_segment("a\x1b[2Jb\nc")) == "[    0.12 →     1.50] a [2Jb c\n"


@given(st.text("ab字é", max_size=30), st.text("ab字", max_size=30), st.integers(0, 40))
def test_the_interim_line_fits_and_keeps_the_newest(stable: str, tail: str, columns: int) -> None:
    """It is never wider than the terminal; if it is too long, its beginning is left out."""
    line = dim_tail(stable, tail, columns).replace("\x1b[2m", "").replace("\x1b[0m", "")
    assert (stable + tail).endswith(line)
    assert sum(2 if character == "字" else 1 for character in line) <= columns
