"""What a session asks its shell to do, in order: `app/session/engine_driver.py` does it."""

from dataclasses import dataclass

from app.session.events import Event
from engine import api


@dataclass(frozen=True, slots=True)
class Send:
    event: Event


@dataclass(frozen=True, slots=True, eq=False)
class Submit:
    """Give the window to the engine and its events back to the session under this number."""

    job: int
    window: api.Window


@dataclass(frozen=True, slots=True)
class Cancel:
    """Withdraw a window; none of its events is wanted any more."""

    job: int


@dataclass(frozen=True, slots=True)
class Close:
    """Nothing follows: end the connection with this WebSocket close code."""

    code: int
    reason: str


Effect = Send | Submit | Cancel | Close
