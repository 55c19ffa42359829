"""What gateways and the engine's process say to each other, and how it is packed.

Plain data, pickled: only processes of the same user reach the socket, and they are all ours.
"""

import pickle
from dataclasses import dataclass
from enum import Enum

from cluster.local.shared_audio import Place
from engine.api import DecodeOptions, EngineEvent, EngineStats, Priority
from engine.errors import EngineError


@dataclass(frozen=True, slots=True)
class Submit:
    """A window, whose audio lies in the gateway's arena."""

    id: int
    """The gateway's own, never used twice."""
    place: Place
    session: str
    channel: int
    priority: Priority
    options: DecodeOptions


@dataclass(frozen=True, slots=True)
class Cancel:
    """Nobody waits for this window any more. Answered with `Mark.LEFT`, unless its end is on the way."""

    id: int


@dataclass(frozen=True, slots=True)
class Ask:
    """For the engine's counters; answered with `EngineStats`."""


class Mark(Enum):
    ACCEPTED = "accepted"
    """The window is in the engine's queue; an error in place of this is raised on submission."""
    LEFT = "left"
    """The window was cancelled, and its audio is read no more. Terminal."""


Item = EngineEvent | EngineError | Mark
"""What a gateway is told of a window; errors, like terminal events, are the last."""

Answers = list[tuple[int, Item]]
"""All that an engine step has for a gateway: ids of windows, and what is said of them."""

Request = Submit | Cancel | Ask
Reply = Answers | EngineStats


def route(number: int, life: int) -> bytes:
    """What an engine knows a gateway by. The one that takes its place has its number, and so its arena, but another
    life.
    """
    return f"{number}.{life}".encode()


def arena_number(route: bytes) -> int:
    return int(route.partition(b".")[0])


def pack(message: Request | Reply) -> bytes:
    return pickle.dumps(message, 5)


def unpack_request(message: bytes) -> Request:
    request: Request = pickle.loads(message)
    return request


def unpack_reply(message: bytes) -> Reply:
    reply: Reply = pickle.loads(message)
    return reply
