"""The messages between a gateway and the engine server, and how they become bytes.

A gateway sends a `Request`; the engine server answers with a `Reply`. Messages are pickled: only processes of the same
user can reach the socket, and the supervisor starts all of them. What is sent for every window is pickled as plain
tuples (`records.py`).
"""

import pickle
from dataclasses import dataclass
from enum import IntEnum
from typing import assert_never

from tutti_server.cluster.local.records import Form, each, one_of, optional, record
from tutti_server.cluster.local.shared_audio import Allocation
from tutti_server.engine.api import (
    DecodeOptions,
    DoneEvent,
    EngineEvent,
    EngineStats,
    Piece,
    Priority,
    Sampling,
    Segment,
    SegmentEvent,
    StartedEvent,
    SupersededEvent,
    TranslatedEvent,
    WindowTiming,
    Word,
)
from tutti_server.engine.errors import EngineError


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """Asks the engine to decode a window. Its audio is in the gateway's shared audio pool."""

    id: int
    """Chosen by the gateway, and never used twice."""
    allocation: Allocation
    session: str
    channel: int
    priority: Priority
    options: DecodeOptions


@dataclass(frozen=True, slots=True)
class Cancel:
    """Asks the engine to drop a window.

    The answer is `WindowStatus.RELEASED`, unless the last event of the window is already on its way.
    """

    id: int


@dataclass(frozen=True, slots=True)
class GetStats:
    """Asks for the counters of the engine. The answer is an `EngineStats`."""


class WindowStatus(IntEnum):
    """What the engine server reports about a window beside its events."""

    ACCEPTED = 0
    """The window is in the engine's queue. If an error comes in its place, `submit` raises that error."""
    RELEASED = 1
    """The window was cancelled, and its audio may be overwritten. No other update follows."""


WindowUpdate = EngineEvent | EngineError | WindowStatus
"""One thing that the engine reports about a window. After an error or a terminal event no other update follows."""

WindowUpdates = list[tuple[int, WindowUpdate]]
"""Everything that one engine step has for a gateway: the id of a window, and the update."""

Request = Submit | Cancel | GetStats
Reply = WindowUpdates | EngineStats


def make_route(gateway_number: int, generation: int) -> bytes:
    """The address under which the engine server knows a gateway.

    A gateway that replaces a dead one has the same number, and therefore the same audio pool, but another generation.
    """
    return f"{gateway_number}.{generation}".encode()


def gateway_number(route: bytes) -> int:
    """The number of the gateway at `route`."""
    return int(route.partition(b".")[0])


_OPTIONS = record(DecodeOptions, sampling=record(Sampling))
_SUBMIT = record(Submit, allocation=Form(tuple, Allocation._make), priority=Form(int, Priority), options=_OPTIONS)

_SEGMENT = record(Segment, words=optional(each(record(Word))))
_DONE = record(DoneEvent, pieces=each(record(Piece)), segments=each(_SEGMENT), timing=optional(record(WindowTiming)))
_UPDATE = one_of(
    {
        WindowStatus: Form(int, WindowStatus),
        StartedEvent: record(StartedEvent),
        SegmentEvent: record(SegmentEvent, segment=_SEGMENT),
        DoneEvent: _DONE,
        TranslatedEvent: record(TranslatedEvent, done=optional(_DONE)),
        SupersededEvent: record(SupersededEvent),
    }
)
"""The form of a `WindowUpdate`. Errors stay as they are."""


def pack_request(request: Request) -> bytes:
    """The bytes of a request."""
    match request:
        case Submit():
            return pickle.dumps(_SUBMIT.pack(request), 5)
        case Cancel(id):
            return pickle.dumps(id, 5)
        case GetStats():
            return pickle.dumps(None, 5)
        case _:
            assert_never(request)


def unpack_request(message: bytes) -> Request:
    """The request in `message`, as `pack_request` wrote it."""
    packed = pickle.loads(message)
    if packed is None:
        return GetStats()
    if isinstance(packed, int):
        return Cancel(packed)
    submit: Submit = _SUBMIT.unpack(packed)
    return submit


def pack_reply(reply: Reply) -> bytes:
    """The bytes of a reply."""
    if isinstance(reply, EngineStats):
        return pickle.dumps(reply, 5)
    return pickle.dumps([(id, _UPDATE.pack(update)) for id, update in reply], 5)


def unpack_reply(message: bytes) -> Reply:
    """The reply in `message`, as `pack_reply` wrote it."""
    packed = pickle.loads(message)
    if isinstance(packed, EngineStats):
        return packed
    return [(id, _UPDATE.unpack(update)) for id, update in packed]
