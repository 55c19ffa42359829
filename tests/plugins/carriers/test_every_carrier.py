"""What holds of every telephone system: its mistakes, and its end."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.app.dialects.call_streams.sinks import FakeSink, read
from tutti_server.app.dialects.call_streams.call_stream import Opening
from tutti_server.app.errors import SessionError
from tutti_server.app.session.messages import commands
from tutti_server.plugins.carriers.asterisk import Asterisk
from tutti_server.plugins.carriers.freeswitch import FreeSwitch
from tutti_server.plugins.carriers.jambonz import Jambonz
from tutti_server.plugins.carriers.plivo import Plivo
from tutti_server.plugins.carriers.telnyx import Telnyx
from tutti_server.plugins.carriers.vonage import Vonage

TELNYX = {"call_control_id": "c1", "media_format": {"encoding": "PCMU", "sample_rate": 8000, "channels": 1}}
PLIVO = {"callId": "c1", "streamId": "s1", "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000}}
Make = Callable[[FakeSink], Any]
CARRIERS: dict[str, tuple[Make, dict[str, Any]]] = {
    "asterisk": (Asterisk, {"event": "MEDIA_START", "connection_id": "c1", "channel_id": "c1", "format": "ulaw"}),
    "freeswitch": (lambda sink: FreeSwitch(sink, Opening(request="s1")), {"call": "c1"}),
    "jambonz": (Jambonz, {"type": "start", "sampleRateHz": 8000}),
    "plivo": (Plivo, {"event": "start", "start": {**PLIVO, "tracks": ["inbound"]}}),
    "telnyx": (Telnyx, {"event": "start", "stream_id": "s1", "start": TELNYX}),
    "vonage": (
        lambda sink: Vonage(sink, Opening(request="s1")),
        {"event": "websocket:connected", "content-type": "audio/l16;rate=16000"},
    ),
}
"""What makes the dialect of each one, and the message that begins a call."""
ASKS_ONCE = ("asterisk", "jambonz", "plivo", "telnyx", "vonage")


def started(name: str, sink: FakeSink) -> Any:
    make, start = CARRIERS[name]
    dialect = make(sink)
    assert read(dialect, start)
    return dialect


@pytest.mark.parametrize("name", CARRIERS)
def test_a_call_ends_once(name: str) -> None:
    """One that has not begun has no end."""
    assert tuple(CARRIERS[name][0](FakeSink()).leave()) == ()
    dialect = started(name, FakeSink())
    assert tuple(dialect.leave()) == (commands.Stop(),)
    assert tuple(dialect.leave()) == ()


@pytest.mark.parametrize("name", ASKS_ONCE)
def test_a_later_mistake_does_not_end_the_call(name: str) -> None:
    """A second beginning, and what is no message."""
    dialect = started(name, FakeSink())
    messages: list[dict[str, Any]] = [CARRIERS[name][1], {"event": "other", "type": "other"}, {"event": {}}]
    for message in messages:
        with pytest.raises(SessionError) as error:
            read(dialect, message)
        assert not error.value.is_fatal
