"""Damaged messages, frames and requests on a live server, for some seconds."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.frames import DAMAGED_REQUESTS, REQUESTS, STREAMS, check_request, check_stream
from tests.fuzz.live_server import Frame, LiveServer, check_answer, live_server
from tests.fuzz.messages import CONVERSATIONS, EXAMPLES, PATHS, check_conversation
from tests.fuzz.mutations import Edit

SHARED = settings(suppress_health_check=[HealthCheck.too_slow])


BEGINNINGS: dict[str, list[str | bytes]] = {
    "openai-realtime": ['{"type":"input_audio_buffer.append","audio":"AAAA"}'],
    **{
        carrier: [next(json.dumps(each) for each in EXAMPLES[carrier] if "'event': 'start'" in str(each))]
        for carrier in ("twilio", "telnyx")
    },
}
"""What begins a session in those dialects whose first example does not."""


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server() as server:
        yield server


def test_without_damage_everything_is_served(server: LiveServer) -> None:
    """So damage is what is tested, and not the refusal of everything."""
    upgrades = [request for request in REQUESTS if b"upgrade: websocket" in request]
    answers = [check_answer(server, request, until=b"HTTP/1.1 ").status for request in upgrades]
    assert answers == [101] * (len(PATHS) + 1)
    others = [
        check_answer(server, request, until=b"HTTP/1.1 ").status for request in REQUESTS if request not in upgrades
    ]
    assert others == [200, 200, 200, 400, 400, 200, 400]
    for dialect in PATHS:
        n_before = server.n_sessions
        assert len(EXAMPLES[dialect]) > 3
        check_conversation(server, (dialect, BEGINNINGS.get(dialect, []), True))
        assert server.n_sessions == n_before + 1, dialect


@settings(SHARED)
@given(example=CONVERSATIONS)
def test_damaged_messages_are_accepted_or_explained(
    server: LiveServer, example: tuple[str, list[str | bytes], bool]
) -> None:
    """In all dialects, before a session begins and in it."""
    check_conversation(server, example)


@settings(SHARED)
@given(example=STREAMS)
def test_damaged_frames_end_their_connection_only(server: LiveServer, example: tuple[str, list[Frame]]) -> None:
    """The server logs no error, and serves on."""
    check_stream(server, example)


@settings(SHARED)
@given(example=DAMAGED_REQUESTS)
def test_damaged_requests_are_refused_or_served(server: LiveServer, example: tuple[bytes, list[Edit]]) -> None:
    """The server logs no error, and serves on."""
    check_request(server, example)
