"""The animated SVG shows every line for as long as the terminal showed it."""

import re
from pathlib import Path
from xml.etree import ElementTree

from pictures.animation import Span, animated, spans
from pictures.demo import MAX_BYTES, with_prompt
from pictures.terminal import PLAIN, Line, Run, Shown, Style

IMAGES = Path(__file__).parents[2] / "docs" / "images"
HELLO: Line = (Run(0, "hello", Style(bold=True)),)
HELLO_YOU: Line = (Run(0, "hello", Style(bold=True)), Run(5, " you", Style(dim=True, italic=True)))
BYE: Line = (Run(0, "a < b & c", PLAIN),)
SCREENS = [Shown(0.0, (HELLO,)), Shown(1.0, (HELLO_YOU, BYE)), Shown(3.0, ((), BYE))]


def test_a_line_is_shown_until_it_changes() -> None:
    """The lines of a row follow each other; the last one of each stays to the end."""
    assert spans(SCREENS, 5.0) == [
        Span(0, HELLO, 0.0, 1.0),
        Span(0, HELLO_YOU, 1.0, 3.0),
        Span(1, BYE, 1.0, 5.0),
    ]


def test_the_picture_is_svg_that_fetches_nothing() -> None:
    """It can be parsed, its text is escaped, and it names nothing outside itself."""
    picture = animated(SCREENS, title="a title", columns=20, hold_s=2.0)
    root = ElementTree.fromstring(picture)
    assert "".join(root.itertext()).count("a < b & c") == 1
    assert not re.search(r"<script|@import|url\(|href", picture)
    assert "prefers-color-scheme: dark" in picture and "prefers-reduced-motion" in picture


def test_lines_appear_and_disappear_by_the_clock() -> None:
    """Times are shares of the whole, which ends `hold_s` after the last screen."""
    picture = animated(SCREENS, title="a title", columns=20, hold_s=2.0)
    assert "{0%{opacity:1}20.00%,100%{opacity:0}}" in picture  # shown from 0 to 1 s of 5
    assert "{0%{opacity:0}20.00%{opacity:1}60.00%,100%{opacity:0}}" in picture  # 1 s to 3 s
    assert "{0%{opacity:0}20.00%{opacity:1}100%{opacity:1}}" in picture  # 1 s to the end


def test_the_command_stands_above_its_output() -> None:
    (first, *_) = with_prompt(SCREENS)
    assert first.text == "$ make demo\n\nhello"


def test_the_recording_of_the_demo_shows_captions_that_grow() -> None:
    """The committed picture has interim text, final text and figures, and is small."""
    picture = (IMAGES / "demo.svg").read_text()
    assert len(picture.encode()) <= MAX_BYTES
    lines = ["".join(group.itertext()) for group in ElementTree.fromstring(picture)]
    growing = [line for line in lines if re.match(r"\d\d:\d\d\.\d\d …", line)]
    final = [line for line in lines if re.match(r"\d\d:\d\d\.\d\d – ", line)]
    assert len(set(growing)) > 20 and len(final) == 3
    assert any("final text" in line for line in lines)
