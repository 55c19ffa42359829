"""The screenshots of the pages are small, and are taken of the real page."""

from pathlib import Path

import pytest

from pictures.page import MAX_BYTES, take_screenshot
from pictures.views import VIEWS, View

AUDIO = Path(__file__).parents[1] / "audio"
IMAGES = Path(__file__).parents[2] / "docs" / "images"


def size(png: bytes) -> tuple[int, int]:
    """Width and height from the header of a PNG."""
    assert png.startswith(b"\x89PNG")
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_the_committed_screenshots_are_small(view: View) -> None:
    """Each has the size of its view."""
    png = (IMAGES / view.file).read_bytes()
    assert size(png) == (view.width * view.scale, view.height * view.scale)
    assert len(png) <= MAX_BYTES


@pytest.mark.browser
async def test_a_screenshot_is_taken_while_captions_grow(tmp_path: Path) -> None:
    """The server, the embedded model, the browser and its microphone are real."""
    recordings = [AUDIO / f"{name}.flac" for name in ("hello", "train", "call")]
    await take_screenshot(VIEWS[0], tmp_path / "page.png", recordings=recordings)
    assert size((tmp_path / "page.png").read_bytes()) == (VIEWS[0].width, VIEWS[0].height)
