"""Vonage's WebSockets: a description of the audio, the audio of one leg, and events of the call."""

import pytest

from tests.app.dialects.call_streams.sinks import FakeSink, check_bad_beginning, read
from tests.call_start import call_start
from tests.compat.conformance import supported
from tutti_server.app.dialects.call_streams.call_stream import Opening
from tutti_server.app.dialects.call_streams.wire import Call
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.plugins.carriers.vonage import Vonage

CONNECTED = {"event": "websocket:connected", "content-type": "audio/l16;rate=16000"}


def stream(sink: FakeSink | None = None, **parameters: str) -> Vonage:
    return Vonage(sink or FakeSink(), Opening(parameters=parameters, request="s1"))


def started(sink: FakeSink) -> Vonage:
    dialect = stream(sink)
    read(dialect, CONNECTED)
    return dialect


@supported("vonage", "audio/l16 at 8, 16 and 24 kHz")
@supported("vonage", "websocket:connected, with headers of the NCCO")
@pytest.mark.parametrize("rate", [8000, 16_000, 24_000])
def test_the_first_message_describes_the_call(rate: int) -> None:
    """Parameters of the address win over headers."""
    sink = FakeSink()
    headers = {"call": "c1", "language": "de", "agent": "Ann"}
    message = {**CONNECTED, "content-type": f"audio/l16;rate={rate}", **headers}
    assert read(stream(sink, language="en"), message) == (
        call_start(audio=AudioFormat("pcm_s16le", rate, 1), language="en"),
    )
    assert sink.calls == [Call("c1", "s1", ("mixed",), {"agent": "Ann"})]


@supported("vonage", "websocket:dtmf, websocket:cleared, websocket:notify")
def test_events_of_the_call_go_to_subscribers() -> None:
    sink = FakeSink()
    dialect = started(sink)
    read(dialect, '{"event":"websocket:dtmf","digit":"5","duration":260}')
    read(dialect, '{"event":"websocket:cleared"}')
    # Other fields may have any names.
    read(dialect, '{"event":"websocket:notify","kind":"a","self":"b","fields":"c"}')
    assert sink.texts == [
        '{"type":"dtmf","digit":"5","duration":260}',
        '{"type":"cleared"}',
        '{"type":"notify","kind":"a","self":"b","fields":"c"}',
    ]


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (b"\0\0", "audio: expected websocket:connected first"),
        ('{"event":"websocket:dtmf"}', "websocket:dtmf: expected websocket:connected first"),
        ('{"event":"other"}', "an event of websocket:connected, websocket:dtmf"),
        ('{"event":["websocket:dtmf"]}', "an event of websocket:connected, websocket:dtmf"),
        ('{"event"', "JSON object"),
        (
            {**CONNECTED, "content-type": "audio/l16;rate=44100"},
            "content-type: expected audio/l16;rate= and",
        ),
        ({**CONNECTED, "content-type": "audio/opus"}, "content-type: expected audio/l16"),
        ({"event": "websocket:connected"}, "content-type: expected audio/l16"),
        (
            {**CONNECTED, "queue": 7, "token": "k"},
            "headers: expected an object with values of text, got 'other values of queue'$",
        ),
        ({**CONNECTED, "call": "a\nb"}, "call: expected 1 to 100 printable"),
    ],
)
def test_a_bad_beginning_is_fatal_and_says_what_is_expected(first: object, expected: str) -> None:
    check_bad_beginning(stream(), first, expected)
