"""A call sink that remembers what is published, and what a stream makes of a message."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from tutti_server.app.dialects.call_streams.call_stream import CallStream
from tutti_server.app.dialects.call_streams.wire import Call
from tutti_server.app.errors import SessionError
from tutti_server.app.session.messages import events


@dataclass
class FakeSink:
    """Accepts every call."""

    calls: list[Call] = field(default_factory=list)
    published: list[events.Event | events.Reply] = field(default_factory=list)

    def begin(self, call: Call) -> None:
        self.calls.append(call)

    def publish(self, event: events.Event | events.Reply) -> None:
        self.published.append(event)

    @property
    def texts(self) -> list[str]:
        """The messages that are no events of the session."""
        return [each.text for each in self.published if isinstance(each, events.Reply)]


def read(dialect: CallStream, message: object) -> tuple[Any, ...]:
    """What a message becomes: audio, text, or an object that is sent as JSON."""
    return tuple(dialect.read(message if isinstance(message, str | bytes) else json.dumps(message)))


def check_bad_beginning(dialect: CallStream, first: object, expected: str) -> None:
    """Assert that a first message ends the call, with this in the error."""
    with pytest.raises(SessionError, match=expected) as error:
        read(dialect, first)
    assert error.value.is_fatal
