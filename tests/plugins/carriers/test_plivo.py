"""Plivo's audio streaming: a description of the call, and chunks of its tracks with times of a clock."""

import base64
import json
from typing import Any

import pytest

from tests.app.dialects.call_streams.sinks import FakeSink, check_bad_beginning, read
from tests.call_start import call_start
from tests.compat.conformance import supported
from tutti_server.app.dialects.call_streams.call_stream import Opening
from tutti_server.app.dialects.call_streams.wire import Call
from tutti_server.app.errors import SessionError
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.messages import commands
from tutti_server.plugins.carriers.plivo import Plivo

CLOCK_MS = 1_705_312_200_000


def start(extra_headers: object = "", **fields: object) -> dict[str, Any]:
    media_format = {"encoding": "audio/x-mulaw", "sampleRate": 8000}
    described = {"callId": "c1", "streamId": "s1", "accountId": "MA1", "tracks": ["inbound"], **fields}
    return {
        "event": "start",
        "sequenceNumber": 1,
        "start": {"mediaFormat": media_format} | described,
        "extra_headers": extra_headers,
    }


def media(at_ms: int, audio: bytes, track: str = "inbound") -> dict[str, Any]:
    payload = base64.b64encode(audio).decode()
    described = {"track": track, "timestamp": str(CLOCK_MS + at_ms), "chunk": 1, "payload": payload}
    return {"event": "media", "streamId": "s1", "media": described}


def started(sink: FakeSink, **fields: object) -> Plivo:
    dialect = Plivo(sink)
    read(dialect, start(**fields))
    return dialect


@supported("plivo", "start, with extraHeaders")
@pytest.mark.parametrize(
    "headers",
    [
        *("language=de;agent=Ann", "language=de,agent=Ann", "X-PH-language=de;X-PH-agent=Ann"),
        *("{X-PH-language: de, X-PH-agent: Ann}", '{"language": "de", "agent": "Ann"}'),
    ],
)
def test_the_start_describes_the_call(headers: str) -> None:
    """Parameters of the address win over extra headers."""
    sink = FakeSink()
    assert read(Plivo(sink, Opening(parameters={"language": "en"})), start(headers)) == (
        call_start(audio=AudioFormat("mulaw", 8000, 1), language="en"),
    )
    assert sink.calls == [Call("c1", "s1", ("inbound",), {"agent": "Ann"})]


@supported("plivo", "audio/x-mulaw at 8 kHz, audio/x-l16 at 8 and 16 kHz")
@pytest.mark.parametrize(
    ("encoding", "rate", "expected"),
    [("audio/x-mulaw", 8000, "mulaw"), ("audio/x-l16", 8000, "pcm_s16le"), ("audio/x-l16", 16_000, "pcm_s16le")],
)
def test_the_formats_of_plivo(encoding: str, rate: int, expected: Any) -> None:
    media_format = {"encoding": encoding, "sampleRate": rate}
    command = call_start(audio=AudioFormat(expected, rate, 1))
    assert read(Plivo(FakeSink()), start(mediaFormat=media_format)) == (command,)


@supported("plivo", "l16_byte_order: our extension, the byte order of audio/x-l16")
def test_half_a_sample_is_refused_and_moves_no_later_one() -> None:
    """Whatever the byte order. The refused chunk is silence."""
    for order, expected in (("little", b"\1\2"), ("big", b"\2\1")):
        dialect = Plivo(FakeSink(), Opening(parameters={"l16_byte_order": order}))
        read(dialect, start(mediaFormat={"encoding": "audio/x-l16", "sampleRate": 16_000}))
        read(dialect, media(0, b"\1\2" * 320))
        with pytest.raises(SessionError, match="expected whole samples of 16 bits as media") as error:
            read(dialect, media(20, b"\1\2" * 319 + b"\1"))
        assert not error.value.is_fatal
        assert read(dialect, media(40, b"\1\2" * 320)) == (commands.Audio(b"\0\0" * 320 + expected * 320),)


@supported("plivo", "media of both tracks")
def test_times_of_a_clock_become_places_in_the_call() -> None:
    """Both tracks count from the first chunk of either. The missing 20 ms are silence."""
    dialect = started(
        FakeSink(), tracks=["outbound", "inbound"], mediaFormat={"encoding": "audio/x-l16", "sampleRate": 8000}
    )
    assert read(dialect, media(0, b"\1\2" * 160)) == ()
    assert read(dialect, media(0, b"\3\4" * 160, "outbound")) == (commands.Audio(b"\1\2\3\4" * 160),)
    assert read(dialect, media(40, b"\1\2" * 160)) == ()
    assert read(dialect, media(20, b"\3\4" * 320, "outbound")) == (
        commands.Audio(b"\0\0\3\4" * 160 + b"\1\2\3\4" * 160),
    )


def heard(items: tuple[Any, ...]) -> bytes:
    """The audio among these items, which are audio and the stop alone."""
    assert all(isinstance(each, commands.Audio | commands.Stop) for each in items)
    return b"".join(each.data for each in items if isinstance(each, commands.Audio))


def test_a_track_that_arrives_second_may_have_begun_first() -> None:
    """The earliest of the first chunks begins the call, so none of them comes too late."""
    dialect = started(FakeSink(), tracks=["inbound", "outbound"])
    items = read(dialect, media(40, b"\1" * 160))
    for at_ms in (0, 20, 40):
        items += read(dialect, media(at_ms, b"\2" * 160, "outbound"))
    items += tuple(dialect.leave())
    assert heard(items) == b"\xff\2" * 320 + b"\1\2" * 160


def test_a_track_that_does_not_begin_holds_the_other_one_up_for_200_ms() -> None:
    """What it sends later has its place on the clock."""
    dialect = started(FakeSink(), tracks=["inbound", "outbound"])
    for number in range(10):
        assert read(dialect, media(20 * number, b"\1" * 160)) == ()
    assert read(dialect, media(200, b"\1" * 160)) == (commands.Audio(b"\1\xff" * 160),)
    items = read(dialect, media(200, b"\2" * 160, "outbound"))
    assert heard(items) == b"\1\xff" * 160 * 9 + b"\1\2" * 160


def test_a_chunk_that_has_no_place_is_refused_at_once() -> None:
    """Also while chunks wait for another track."""
    dialect = started(FakeSink(), tracks=["inbound", "outbound"])
    read(dialect, media(0, b"\1" * 160))
    with pytest.raises(SessionError, match=r"inbound or outbound as media\.track"):
        read(dialect, media(0, b"\1" * 160, "other"))
    assert heard(read(dialect, {"event": "stop"})) == b"\1\xff" * 160
    with pytest.raises(SessionError, match="no audio after stop"):
        read(dialect, media(20, b"\1" * 160))


@supported("plivo", "dtmf, playedStream, clearedAudio")
def test_what_happens_on_the_call_goes_to_subscribers() -> None:
    sink = FakeSink()
    dialect = started(sink)
    read(dialect, {"event": "dtmf", "dtmf": {"digit": "1", "track": "inbound"}})
    read(dialect, {"event": "playedStream", "streamId": "s1", "name": "hello"})
    read(dialect, {"event": "clearedAudio", "streamId": "s1"})
    assert [json.loads(text) for text in sink.texts] == [
        {"type": "dtmf", "digit": "1", "track": "inbound"},
        {"type": "played", "name": "hello"},
        {"type": "cleared"},
    ]


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (media(0, b""), "media: expected start first"),
        ({"event": "connected"}, "an event of start, media"),
        (start(tracks=["both"]), "tracks: expected a list of inbound and outbound"),
        (start(tracks=[]), "tracks: expected a list"),
        (start(mediaFormat={"encoding": "audio/x-mulaw", "sampleRate": 16_000}), "audio/x-mulaw at 8000 Hz or"),
        (start(mediaFormat=7), "mediaFormat: expected audio/x-mulaw"),
        (start(extra_headers="language"), "extra_headers: expected name=value"),
        (start(extra_headers={"a": "b"}), "extra_headers: expected name=value"),
        (start(callId=""), "callId: expected 1 to 100 printable"),
    ],
)
def test_a_bad_beginning_is_fatal_and_says_what_is_expected(first: object, expected: str) -> None:
    check_bad_beginning(Plivo(FakeSink()), first, expected)
