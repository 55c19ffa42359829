"""The screenshot of the captions page is taken of the real page, and is small."""

from pathlib import Path

import pytest

from pictures.page import HEIGHT, MAX_BYTES, WIDTH, take_screenshot

SCREENSHOT = Path(__file__).parents[2] / "docs" / "images" / "page.png"


def size(png: bytes) -> tuple[int, int]:
    """Width and height from the header of a PNG."""
    assert png.startswith(b"\x89PNG")
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")


def test_the_committed_screenshot_is_small() -> None:
    png = SCREENSHOT.read_bytes()
    assert size(png) == (WIDTH, HEIGHT)
    assert len(png) <= MAX_BYTES


@pytest.mark.browser
async def test_a_screenshot_is_taken_while_captions_grow(tmp_path: Path) -> None:
    """The server, the embedded model, the browser and its microphone are real."""
    await take_screenshot(tmp_path / "page.png", dark=True)
    assert size((tmp_path / "page.png").read_bytes()) == (WIDTH, HEIGHT)
