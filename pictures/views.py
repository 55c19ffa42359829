"""The views of the captions page and of the page for call records, of which `pictures.page` takes screenshots."""

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
    call_at_s: float | None = None
    """The position in the record of a call, in seconds. `None`: it is no view of the page for call records."""


VIEWS = (
    # A small window on a laptop.
    View(name="page", file="page.png", width=960, height=560),
    View(name="call", file="call.png", call_at_s=8.0),
    View(name="call-phone", file="call-phone.png", width=390, height=780, scale=2, call_at_s=0.0),
    View(name="call-phone-turns", file="call-phone-turns.png", width=390, height=780, scale=2, call_at_s=27.0),
)
