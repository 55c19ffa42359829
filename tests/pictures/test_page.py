"""The screenshots of the captions page are taken of the real page, and are small."""

from dataclasses import replace
from pathlib import Path

import click
import pytest

from pictures.page import MAX_BYTES, take_screenshot
from pictures.views import VIEWS, View

AUDIO = Path(__file__).parents[1] / "audio"
IMAGES = Path(__file__).parents[2] / "docs" / "images"
PAGE = VIEWS[0]


def size(png: bytes) -> tuple[int, int]:
    """Width and height from the header of a PNG."""
    assert png.startswith(b"\x89PNG")
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")


@pytest.mark.parametrize("view", [view for view in VIEWS if (IMAGES / view.file).exists()], ids=lambda view: view.name)
def test_the_committed_screenshots_are_small(view: View) -> None:
    """Those that are committed have the size of their view."""
    png = (IMAGES / view.file).read_bytes()
    assert size(png) == (view.width * view.scale, view.height * view.scale)
    assert len(png) <= MAX_BYTES


@pytest.mark.browser
async def test_a_screenshot_is_taken_while_captions_grow(tmp_path: Path) -> None:
    """The server, the embedded model, the browser and its microphone are real; the view is reached by a click."""
    view = replace(PAGE, dark=True, click="#latest, #language", style="body { outline: 1px solid }")
    recordings = [AUDIO / f"{name}.flac" for name in ("hello", "train", "call")]
    await take_screenshot(view, tmp_path / "page.png", recordings=recordings)
    assert size((tmp_path / "page.png").read_bytes()) == (view.width, view.height)


@pytest.mark.browser
async def test_a_view_that_the_page_does_not_have_is_reported(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match="expected the page to have #nothing"):
        await take_screenshot(replace(PAGE, click="#nothing"), tmp_path / "page.png")
