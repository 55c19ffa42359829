"""The views of the captions page, of a room's page and of the page for call records.

`pictures.page` takes a screenshot of each.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class View:
    """A view of a page, and how to reach it."""

    name: str
    file: str
    """The name of its picture."""
    width: int = 1280
    height: int = 800
    """The size of the window in CSS pixels."""
    scale: float = 1
    dark: bool = False
    query: str | None = None
    """The options in the address of a room's page. `None`: the speaker's own page."""
    call_at_s: float | None = None
    """The position in the record of a call, in seconds. `None`: it is no view of the page for call records."""
    click: str = ""
    """The selector of what is clicked to reach it, once there are captions."""
    style: str = ""
    """A style sheet for the picture alone."""


BEHIND = "html { background: linear-gradient(#33566e 45%, #4a5d3a 45%) !important }"
"""A picture in the place of the video that OBS shows behind a transparent page."""

VIEWS = (
    # A small window on a laptop.
    View(name="page", file="page.png", width=960, height=560),
    View(name="phone", file="page-phone.png", width=390, height=780, scale=2),
    View(name="desktop", file="page-desktop.png"),
    View(name="dark", file="page-dark.png", dark=True),
    View(name="large", file="page-large.png", height=720, click="#large"),
    View(name="settings", file="page-settings.png", click="#settings"),
    View(name="reader", file="room-phone.png", width=390, height=780, scale=2, query=""),
    View(name="call", file="call.png", call_at_s=8.0),
    View(name="call-phone", file="call-phone.png", width=390, height=780, scale=2, call_at_s=0.0),
    View(name="call-phone-turns", file="call-phone-turns.png", width=390, height=780, scale=2, call_at_s=27.0),
    View(name="obs", file="room-obs.png", height=720, query="?obs=1&lines=2&size=48", style=BEHIND),
)
