"""What the operator decides about rooms, and what may go wrong with them."""

from dataclasses import dataclass

from tutti_server.app.errors import CLOSE_POLICY, SessionError


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomConfig:
    """How long rooms live, and how much they keep."""

    gone_s: float
    """A room ends when its speaker has been gone for this time, in seconds."""
    keep_s: float
    """The text of a room that has ended can be read for this time, in seconds."""
    max_chars: int
    """The most characters of text that a room keeps for readers who come late."""


class UnknownRoom(Exception):
    """Raised when there is no room of this name."""


def room_taken(name: str) -> SessionError:
    """The refusal of a name that belongs to another owner."""
    message = f"room.name: {name} belongs to another speaker; choose another name, or send the token of this one"
    return SessionError("room_taken", message, CLOSE_POLICY)
