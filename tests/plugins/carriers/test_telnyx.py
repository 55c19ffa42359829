"""Telnyx's media streaming: a description of the call, and chunks of its tracks in any order."""

import base64
import json
from typing import Any

import pytest

from tests.app.dialects.call_streams.sinks import FakeSink, check_bad_beginning, read
from tests.call_start import call_start
from tests.compat.conformance import approximated, refused, supported
from tutti_server.app.dialects.call_streams.call_stream import Opening
from tutti_server.app.dialects.call_streams.wire import START_TIMEOUT_S, Call
from tutti_server.app.errors import SessionError
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.messages import commands
from tutti_server.plugins.carriers.telnyx import Telnyx

FORMAT = {"encoding": "PCMU", "sample_rate": 8000, "channels": 1}


def start(**fields: object) -> dict[str, Any]:
    described = {"call_control_id": "v2:c1", "from": "+1312", "to": "+1313", "media_format": FORMAT, **fields}
    return {"event": "start", "sequence_number": "1", "stream_id": "s1", "start": described}


def media(chunk: int, timestamp: object, audio: bytes = b"\x10" * 160, track: str = "inbound") -> dict[str, Any]:
    payload = base64.b64encode(audio).decode()
    described = {"track": track, "chunk": str(chunk), "timestamp": timestamp, "payload": payload}
    return {"event": "media", "sequence_number": "4", "media": described, "stream_id": "s1"}


def started(sink: FakeSink, **parameters: str) -> Telnyx:
    dialect = Telnyx(sink, Opening(parameters=parameters))
    assert dialect.idle_timeout_s == START_TIMEOUT_S
    assert read(dialect, {"event": "connected", "version": "1.0.0"}) == ()
    read(dialect, start())
    assert dialect.idle_timeout_s is None
    return dialect


@supported("telnyx", "start, with custom_parameters")
@pytest.mark.parametrize(("encoding", "expected"), [("PCMU", "mulaw"), ("PCMA", "alaw"), ("audio/x-mulaw", "mulaw")])
def test_the_start_describes_the_call(encoding: str, expected: Any) -> None:
    """Parameters of the address win over those of the call."""
    sink = FakeSink()
    custom = {"language": "de", "customer": "7"}
    message = start(custom_parameters=custom, media_format={**FORMAT, "encoding": encoding})
    assert read(Telnyx(sink, Opening(parameters={"language": "en"})), message) == (
        call_start(audio=AudioFormat(expected, 8000, 2), language="en"),
    )
    sides = {"from": "+1312", "to": "+1313"}
    assert sink.calls == [Call("v2:c1", "s1", ("inbound", "outbound"), {**sides, "customer": "7"})]


@approximated("telnyx", "stream_track", how="named again | as `track` in the address")
def test_the_address_says_which_track_comes() -> None:
    sink = FakeSink()
    dialect = started(sink, track="outbound_track")
    assert sink.calls[0].tracks == ("outbound",)
    assert "track" not in sink.calls[0].parameters
    assert read(dialect, media(1, "0", track="outbound")) == (commands.Audio(b"\x10" * 160),)
    with pytest.raises(SessionError, match=r"expected outbound as media.track \(track is both_tracks or"):
        read(dialect, media(1, "0"))


@approximated("telnyx", "stream_codec of L16", how="its byte order is named | as `l16_byte_order` in the address")
@pytest.mark.parametrize("rate", [8000, 16_000])
def test_samples_of_16_bits_have_the_byte_order_that_the_address_names(rate: int) -> None:
    """Telnyx does not document it, and programs that read it disagree."""
    wide = start(media_format={"encoding": "L16", "sample_rate": rate, "channels": 1})
    for order, expected in (("big", b"\2\1"), ("little", b"\1\2")):
        sink = FakeSink()
        dialect = Telnyx(sink, Opening(parameters={"l16_byte_order": order, "track": "inbound_track"}))
        (command,) = read(dialect, wide)
        assert command.audio == AudioFormat("pcm_s16le", rate, 1)
        n_samples = rate // 50
        assert read(dialect, media(1, "0", b"\1\2" * n_samples)) == (commands.Audio(expected * n_samples),)
        assert "l16_byte_order" not in sink.calls[0].parameters
    with pytest.raises(SessionError, match="l16_byte_order: expected little or big for samples of 16 bits, got None"):
        read(Telnyx(FakeSink()), wide)


def test_half_a_sample_is_refused_when_it_comes_and_takes_no_other_chunk_with_it() -> None:
    dialect = Telnyx(FakeSink(), Opening(parameters={"l16_byte_order": "little", "track": "inbound_track"}))
    read(dialect, start(media_format={"encoding": "L16", "sample_rate": 8000, "channels": 1}))
    read(dialect, media(1, "0", b"\1\2" * 160))
    with pytest.raises(SessionError, match="expected whole samples of 16 bits as media"):
        read(dialect, media(3, "40", b"\1\2\3"))
    assert read(dialect, media(2, "20", b"\3\4" * 160)) == (commands.Audio(b"\3\4" * 160),)


@supported("telnyx", "media of both tracks")
def test_two_tracks_become_two_channels() -> None:
    dialect = started(FakeSink())
    assert read(dialect, media(1, "0", b"\x01" * 160)) == ()
    assert read(dialect, media(1, "0", b"\x02" * 160, "outbound")) == (commands.Audio(b"\x01\x02" * 160),)


def test_the_end_returns_what_waits_for_a_lost_chunk() -> None:
    dialect = started(FakeSink(), track="inbound_track")
    read(dialect, media(1, "0", b"\x01" * 160))
    read(dialect, media(3, "40", b"\x03" * 160))
    # A chunk that is an hour ahead has no place, and the end stays an end.
    read(dialect, media(4, "3600000"))
    silence = b"\xff" * 160
    assert read(dialect, {"event": "stop", "stop": {}}) == (commands.Audio(silence + b"\x03" * 160), commands.Stop())
    assert tuple(dialect.leave()) == ()


@supported("telnyx", "dtmf, mark, error")
def test_what_happens_on_the_call_goes_to_subscribers() -> None:
    sink = FakeSink()
    dialect = started(sink)
    read(dialect, {"event": "dtmf", "dtmf": {"digit": "1"}})
    read(dialect, {"event": "mark", "mark": {"name": "end"}})
    # Other fields, whatever their names, are nothing that subscribers expect.
    read(dialect, {"event": "error", "payload": {"code": 100003, "title": "malformed_frame", "kind": 1, "self": 2}})
    assert [json.loads(text) for text in sink.texts] == [
        {"type": "dtmf", "digit": "1"},
        {"type": "mark", "name": "end"},
        {"type": "stream_error", "code": 100003, "title": "malformed_frame"},
    ]


@refused("telnyx", "stream_codec of G722, OPUS or AMR-WB", how="an error | names PCMU, PCMA and L16")
@pytest.mark.parametrize("encoding", ["G722", "OPUS", "AMR-WB", None])
def test_other_codecs_are_refused(encoding: object) -> None:
    with pytest.raises(SessionError, match="media_format: expected PCMU or PCMA at 8000 Hz"):
        read(Telnyx(FakeSink()), start(media_format={**FORMAT, "encoding": encoding}))


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (media(1, "0"), "media: expected start first"),
        ({"event": "dtmf", "dtmf": {"digit": "1"}}, "dtmf: expected start first"),
        ({"event": "other"}, "an event of connected, start"),
        ({"event": "start"}, "an object as start"),
        (start(call_control_id="a\nb"), "call_control_id: expected 1 to 100 printable"),
        (
            start(custom_parameters={"a": 1, "token": "k"}),
            "custom_parameters: expected an object with values of text, got 'other values of a'$",
        ),
        (start(custom_parameters={"track": "all"}), "track: expected both_tracks or inbound_track or outbound_track"),
        (start(custom_parameters={"task": "sing"}), "task: expected transcribe or translate"),
    ],
)
def test_a_bad_beginning_is_fatal_and_says_what_is_expected(first: object, expected: str) -> None:
    check_bad_beginning(Telnyx(FakeSink()), first, expected)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({**media(1, "0"), "media": {"track": "inbound", "chunk": "x"}}, "the number of the chunk as media.chunk"),
        (media(1, "-1"), "milliseconds since the start as media.timestamp"),
        ({"event": "media", "media": {"track": "inbound", "chunk": 1, "timestamp": 0, "payload": "?"}}, "base64"),
    ],
)
def test_a_later_mistake_does_not_end_the_call(message: object, expected: str) -> None:
    dialect = started(FakeSink())
    with pytest.raises(SessionError, match=expected) as error:
        read(dialect, message)
    assert not error.value.is_fatal
