"""Messages between a gateway and the engine server are the same after their way as bytes."""

import dataclasses
from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import FakeTranscriber
from tutti_server.cluster.engine_pool import EngineGone
from tutti_server.cluster.local.messages import (
    Cancel,
    GetStats,
    Request,
    Submit,
    WindowStatus,
    pack_reply,
    pack_request,
    unpack_reply,
    unpack_request,
)
from tutti_server.cluster.local.shared_audio import Allocation, AudioPoolFull
from tutti_server.engine.api import (
    DecodeOptions,
    EngineEvent,
    Priority,
    Sampling,
)
from tutti_server.engine.errors import EngineFailed, EngineOverloaded, InvalidWindow

EVENTS = st.one_of([st.from_type(kind) for kind in get_args(EngineEvent)])
UPDATES = st.one_of(EVENTS, st.sampled_from(WindowStatus))


def exact(value: Any) -> Any:
    """All fields of a value, those too that do not count where values are compared, and their types. NaN is itself."""
    if dataclasses.is_dataclass(value):
        return type(value), [exact(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, tuple):
        return type(value), [exact(each) for each in value]
    return type(value), repr(value)


@given(st.lists(st.tuples(st.integers(0), UPDATES), max_size=4))
def test_events_are_the_same_on_the_other_side(updates: list[tuple[int, Any]]) -> None:
    """Every type of event, with all fields of all that is inside, and every status."""
    received = unpack_reply(pack_reply(updates))
    assert isinstance(received, list)
    assert [number for number, _ in received] == [number for number, _ in updates]
    assert [exact(update) for _, update in received] == [exact(update) for _, update in updates]


@given(
    st.builds(
        Submit,
        allocation=st.builds(Allocation, st.integers(0), st.integers(1)),
        options=st.builds(DecodeOptions, sampling=st.one_of(st.just(Sampling()), st.from_type(Sampling))),
        priority=st.sampled_from(Priority),
    )
    | st.builds(Cancel, st.integers(0))
    | st.just(GetStats())
)
def test_requests_are_the_same_on_the_other_side(request: Request) -> None:
    """Every request, with all options of a window."""
    received = unpack_request(pack_request(request))
    assert exact(received) == exact(request)


def test_errors_and_counters_are_the_same_on_the_other_side() -> None:
    """Errors with their text and their data."""
    errors = [
        InvalidWindow("prefix", "fewer tokens", 9),
        EngineOverloaded(3, 2),
        AudioPoolFull(3, 4),
        EngineFailed("out of order"),
        EngineGone("gone", was_killed=True),
    ]
    received = unpack_reply(pack_reply([(number, error) for number, error in enumerate(errors)]))
    assert isinstance(received, list)
    assert [(type(error), str(error), vars(error)) for _, error in received] == [
        (type(error), str(error), vars(error)) for error in errors
    ]
    stats = FakeTranscriber().stats()
    assert unpack_reply(pack_reply(stats)) == stats
