"""Asterisk's WebSocket channel: both forms of its control messages, and its media."""

import json

import pytest

from tests.app.dialects.call_streams.sinks import FakeSink, read
from tests.call_start import call_start
from tests.compat.conformance import refused, supported
from tutti_server.app.dialects.call_streams.call_stream import Opening
from tutti_server.app.dialects.call_streams.wire import START_TIMEOUT_S, Call
from tutti_server.app.errors import BadMessage, SessionError
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.messages import commands, events
from tutti_server.plugins.carriers.asterisk import FORMATS, Asterisk

PLAIN = (
    "MEDIA_START connection_id:c1 channel:WebSocket/c channel_id:pbx1-1.9 format:ulaw optimal_frame_size:160 ptime:20"
)
JSON = {
    "event": "MEDIA_START",
    "connection_id": "c1",
    "channel": "WebSocket/c",
    "channel_id": "pbx1-1.9",
    "format": "ulaw",
    "optimal_frame_size": 160,
    "ptime": 20,
    "channel_variables": {"X": "y"},
}


def started(sink: FakeSink, first: str = PLAIN, **parameters: str) -> Asterisk:
    dialect = Asterisk(sink, Opening(parameters=parameters))
    read(dialect, first)
    return dialect


@supported("asterisk", "MEDIA_START, plain text")
@supported("asterisk", "MEDIA_START, JSON")
@pytest.mark.parametrize("first", [PLAIN, json.dumps(JSON), json.dumps(JSON, indent=4)])
def test_a_call_begins_in_either_form(first: str) -> None:
    """Options of the session are parameters of the address; subscribers receive the others."""
    sink = FakeSink()
    dialect = Asterisk(sink, Opening(parameters={"language": "en", "agent": "Ann", "track": "outbound"}))
    assert dialect.idle_timeout_s == START_TIMEOUT_S
    assert read(dialect, first) == (call_start(audio=AudioFormat("mulaw", 8000), language="en"),)
    assert sink.calls == [Call("pbx1-1.9", "c1", ("outbound",), {"agent": "Ann"})]
    assert dialect.idle_timeout_s is None
    assert read(dialect, b"\x10" * 160) == (commands.Audio(b"\x10" * 160),)
    assert read(dialect, b"") == ()


def test_an_older_asterisk_names_only_the_connection() -> None:
    sink = FakeSink()
    started(sink, "MEDIA_START connection_id:c1 channel:WebSocket/c format:alaw optimal_frame_size:160")
    assert sink.calls == [Call("c1", "c1", ("inbound",), {})]


@supported("asterisk", "codecs ulaw, alaw, slin to slin48")
@pytest.mark.parametrize("name", FORMATS)
def test_codecs(name: str) -> None:
    (start,) = Asterisk(FakeSink()).read(PLAIN.replace("ulaw", name))
    assert isinstance(start, commands.Start)
    assert start.audio == FORMATS[name]


@refused("asterisk", "other codecs", how="the call ends; the error names the codecs that are decoded")
@pytest.mark.parametrize("name", ["opus", "g722", "slin96", ""])
def test_a_codec_that_is_not_decoded_ends_the_call(name: str) -> None:
    """Subscribers of the call see why: it has begun."""
    sink = FakeSink()
    with pytest.raises(SessionError, match="format: expected ulaw, alaw") as error:
        started(sink, PLAIN.replace("ulaw", name))
    assert error.value.is_fatal
    assert sink.calls


@supported("asterisk", "MEDIA_XON, MEDIA_XOFF, STATUS and other answers about media that an application sends")
@pytest.mark.parametrize("message", ["MEDIA_XOFF", '{"event":"QUEUE_DRAINED"}', "STATUS queue_length:43 xon_level:800"])
def test_events_about_our_media_have_no_effect(message: str) -> None:
    sink = FakeSink()
    assert read(started(sink), message) == ()
    assert sink.published == []


@supported("asterisk", "ERROR")
@pytest.mark.parametrize(
    "message", ["ERROR channel_id:a error_text:no such thing", '{"event":"ERROR","error_text":"no such thing"}']
)
def test_an_error_of_asterisk_is_a_warning(message: str) -> None:
    assert read(started(FakeSink()), message) == (events.Notice("carrier_error", "Asterisk says: no such thing"),)


@pytest.mark.parametrize("message", ["NEWS x:y", '{"event":"NEWS"}', '{"command":"ANSWER"}', "{", " "])
def test_a_strange_message_is_fatal_only_before_the_call(message: str) -> None:
    with pytest.raises(SessionError) as error:
        Asterisk(FakeSink()).read(message)
    assert error.value.is_fatal
    with pytest.raises(BadMessage):
        started(FakeSink()).read(message)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"track": "both"}, "track: expected inbound or outbound"),
        ({"silence_ms": "5"}, "silence_ms: expected a whole number"),
        ({"silence_ms": "²"}, "silence_ms: expected a whole number"),
        ({"words": "2"}, "words: expected true or false"),
        ({"interim": "perhaps"}, "interim: expected true or false"),
        ({"a": "x" * 1001}, "parameters: expected names and values of at most 1000"),
        ({str(number): "" for number in range(51)}, "parameters: expected at most 50"),
        ({"hotwords": "a" * 1000}, "hotwords: expected at most"),
    ],
)
def test_a_bad_parameter_says_what_is_expected(parameters: dict[str, str], expected: str) -> None:
    with pytest.raises(SessionError, match=expected):
        started(FakeSink(), **parameters)
