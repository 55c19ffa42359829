"""FreeSWITCH's audio streams: metadata, audio of one or two channels, and the events that its modules receive."""

import json

import pytest

from tests.app.dialects.call_streams.sinks import FakeSink, check_bad_beginning, read
from tests.call_start import call_start
from tests.compat.conformance import supported
from tutti_server.app.dialects.call_streams.call_stream import Opening
from tutti_server.app.dialects.call_streams.wire import Call
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.messages import commands, events
from tutti_server.plugins.carriers.freeswitch import FreeSwitch

FAILURE = events.Failure("a", "b", is_fatal=False)


def stream(sink: FakeSink | None = None, is_fork: bool = False, **parameters: str) -> FreeSwitch:
    def write_event(event: events.Event) -> tuple[str, ...]:
        return (json.dumps({"type": type(event).__name__}),)

    subprotocol = FreeSwitch.SUBPROTOCOL if is_fork else None
    opening = Opening(parameters=parameters, request="s1", subprotocol=subprotocol, write_event=write_event)
    return FreeSwitch(sink or FakeSink(), opening)


@supported("freeswitch", "metadata")
@supported("freeswitch", "stereo, 16k")
def test_metadata_describes_the_call() -> None:
    """Parameters of the address win: an operator writes them."""
    sink = FakeSink()
    dialect = stream(sink, mix="stereo", rate="16k", language="en")
    metadata = {"call": "4f0e", "language": "de", "agent": "Ann", "queue": 7, "vip": True, "note": None}
    assert read(dialect, metadata) == (call_start(audio=AudioFormat("pcm_s16le", 16_000, 2), language="en"),)
    parameters = {"agent": "Ann", "queue": "7", "vip": "true", "note": ""}
    assert sink.calls == [Call("4f0e", "s1", ("inbound", "outbound"), parameters)]
    assert read(dialect, b"\0" * 8) == (commands.Audio(b"\0" * 8),)


@supported("freeswitch", "mono, 8k")
@supported("freeswitch", "mixed")
@pytest.mark.parametrize(
    ("parameters", "track"),
    [
        ({"mix": "mono"}, "inbound"),
        ({"mix": "mixed"}, "mixed"),
        pytest.param({"mix": " ", "rate": "", "answers": " ", "language": ""}, "inbound", id="empty variables"),
    ],
)
def test_a_stream_without_metadata_begins_with_its_audio(parameters: dict[str, str], track: str) -> None:
    sink = FakeSink()
    assert read(stream(sink, False, **parameters), b"\0\0") == (
        call_start(audio=AudioFormat("pcm_s16le", 8000, 1)),
        commands.Audio(b"\0\0"),
    )
    assert sink.calls == [Call("s1", "s1", (track,), {})]


def test_metadata_may_be_plain_text() -> None:
    sink = FakeSink()
    read(stream(sink), "billing")
    assert sink.calls[0].parameters == {"metadata": "billing"}


@supported("freeswitch", "mod_audio_stream::json")
@supported("freeswitch", "mod_audio_fork::transcription and ::error")
def test_each_module_receives_the_events_that_it_passes_on() -> None:
    notice = events.Notice("a", "b")
    assert tuple(stream().write(notice)) == ('{"type": "Notice"}',)
    assert tuple(stream(is_fork=True).write(notice)) == ('{"type":"transcription","data":{"type": "Notice"}}',)
    assert tuple(stream(is_fork=True).write(FAILURE)) == ('{"type":"error","data":{"type": "Failure"}}',)
    sink = FakeSink()
    assert tuple(stream(sink, answers="false").write(notice)) == ()
    assert sink.published == [notice]


@pytest.mark.parametrize(
    ("parameters", "first", "expected"),
    [
        ({"mix": "quad"}, b"\0", "mix: expected mono, mixed, stereo"),
        ({"rate": "11k"}, b"\0", "rate: expected 8k, 16k"),
        ({"answers": "perhaps"}, b"\0", "answers: expected true or false"),
        ({"call": "a\nb"}, b"\0", "call: expected 1 to 100 printable"),
        ({}, '{"a":[]}', r"metadata\.a: expected text"),
        ({}, '{"a"', "metadata: expected a JSON object"),
        ({}, "x" * 1001, "metadata: expected at most 1000"),
    ],
)
def test_a_bad_beginning_is_fatal_and_says_what_is_expected(
    parameters: dict[str, str], first: str | bytes, expected: str
) -> None:
    check_bad_beginning(stream(None, False, **parameters), first, expected)
