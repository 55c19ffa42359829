"""Twilio's messages: a call's beginning, its audio on two channels, and its end."""

import base64
import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.app.dialects.call_streams.sinks import FakeSink, read
from tests.call_start import call_start
from tests.compat.conformance import approximated, refused, supported
from tutti_server.app.dialects.call_streams.track_sync import SILENCE as SILENCES
from tutti_server.app.dialects.twilio.wire import Twilio, shown_key
from tutti_server.app.errors import BadMessage, BadStart, SessionError
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.messages import commands

SILENCE = SILENCES["mulaw"]
FORMAT = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}


def begin(parameters: dict[str, Any] | None = None, **fields: object) -> dict[str, Any]:
    start = {
        "streamSid": "MZ1",
        "accountSid": "AC1",
        "callSid": "CA1",
        "tracks": ["inbound", "outbound"],
        "customParameters": {"token": "k", **(parameters or {})},
        "mediaFormat": FORMAT,
    }
    return {"event": "start", "sequenceNumber": "1", "start": {**start, **fields}, "streamSid": "MZ1"}


def media(track: str, timestamp: object, audio: bytes = b"\x10" * 160) -> dict[str, Any]:
    payload = base64.b64encode(audio).decode()
    return {"event": "media", "media": {"track": track, "chunk": "2", "timestamp": timestamp, "payload": payload}}


@pytest.fixture
def sink() -> FakeSink:
    return FakeSink()


@pytest.fixture
def dialect(sink: FakeSink) -> Twilio:
    return Twilio(sink)


@pytest.mark.parametrize(
    ("parameters", "start"),
    [
        ({"language": "lock"}, call_start(locks_language=True)),
        ({"languages": "en, de", "language": ""}, call_start(languages=("en", "de"))),
    ],
)
def test_the_language_of_a_call_may_be_detected(
    dialect: Twilio, parameters: dict[str, str], start: commands.Start
) -> None:
    """Once, or among some candidates."""
    assert read(dialect, begin(parameters)) == (replace(start, audio=AudioFormat("mulaw", 8000, 2)),)


@pytest.mark.parametrize(
    ("message", "key"),
    [
        ({"event": "connected", "protocol": "Call"}, None),
        (begin(), "k"),
        (begin(customParameters={}), ""),
        (begin(customParameters={"token": 1}), ""),
        ({"event": "start"}, ""),
    ],
)
def test_the_key_of_a_call_is_in_its_start(message: dict[str, Any], key: str | None) -> None:
    assert shown_key(json.dumps(message)) == key


@pytest.mark.parametrize("message", ["", "[]", b"\0", '{"event":"media"}', "x" * 100_000])
def test_other_first_messages_show_no_key(message: str | bytes) -> None:
    with pytest.raises(BadMessage):
        shown_key(message)


@supported("twilio", "tracks")
@pytest.mark.parametrize(
    ("tracks", "order"),
    [(["inbound"], ("inbound",)), (["outbound"], ("outbound",)), (["outbound", "inbound"], ("inbound", "outbound"))],
)
def test_each_track_is_a_channel(dialect: Twilio, sink: FakeSink, tracks: list[str], order: tuple[str, ...]) -> None:
    """The one who called on the first one."""
    (start,) = read(dialect, begin(tracks=tracks))
    assert start.audio.channels == len(tracks)
    assert sink.calls[0].tracks == order


@approximated(
    "twilio", "late media", how="a chunk more than 200 ms later than the other track's is dropped, with a warning"
)
def test_late_audio_is_reported_once(dialect: Twilio) -> None:
    read(dialect, begin())
    read(dialect, media("inbound", 0, b"\x10" * 8000))
    (notice,) = read(dialect, media("outbound", 0))
    assert notice.code == "late_audio"
    assert read(dialect, media("outbound", 20)) == ()


@refused("twilio", "mediaFormat other than mu-law at 8 kHz", how="an `error` event, and the server closes the stream")
@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"mediaFormat": {**FORMAT, "encoding": "audio/l16"}}, "mediaFormat"),
        ({"mediaFormat": None}, "mediaFormat"),
        ({"tracks": []}, "tracks"),
        ({"tracks": ["both"]}, "tracks"),
        ({"callSid": ""}, "callSid"),
        ({"callSid": "CA1\n2026 ERROR"}, "callSid"),
        ({"streamSid": "MZ\x1b[2J"}, "streamSid"),
        ({"streamSid": 5}, "streamSid"),
        ({"customParameters": {"token": 1}}, "customParameters"),
        ({"customParameters": {"token": "k", "words": "perhaps"}}, "words"),
        ({"customParameters": {"token": "k", "silence_ms": "1"}}, "silence_ms"),
        ({"customParameters": {"token": "k", "task": "x"}}, "task"),
        ({"customParameters": {"token": "k", "hotwords": "x" * 100}}, "hotwords"),
        ({"customParameters": {"token": "k", "prompt": "x" * 10_001}}, "prompt"),
    ],
)
def test_a_call_that_begins_wrong_is_refused(dialect: Twilio, fields: dict[str, Any], named: str) -> None:
    with pytest.raises(BadStart, match=f"^{named}: expected .*, got "):
        read(dialect, begin(**fields))


@pytest.mark.parametrize(
    "message",
    [
        [],
        {"event": "media", "media": {"payload": ""}},
        {"event": "start"},
        {"event": "connected", "protocol": "Fax"},
        {"event": "dance"},
        {"event": "dtmf", "dtmf": {}},
    ],
)
def test_before_the_call_every_error_is_fatal(dialect: Twilio, message: object) -> None:
    """Whoever has shown no key is disconnected."""
    with pytest.raises(SessionError) as error:
        read(dialect, message)
    assert error.value.is_fatal


@pytest.mark.parametrize(
    "message",
    [
        [],
        begin(),
        {"event": "media"},
        {"event": "media", "media": {"timestamp": "0", "payload": ""}, "extra": 1, "track": "third"},
        media("third", "0"),
        media("inbound", "soon"),
        media("inbound", -1),
        media("inbound", True),
        media("inbound", "9" * 5000),
        {"event": "media", "media": {"track": "inbound", "timestamp": "0", "payload": "?"}},
        {"event": "media", "media": {"track": "inbound", "timestamp": "0", "payload": 7}},
        {"event": "dance"},
    ],
)
def test_a_message_that_cannot_be_read_does_not_end_a_call(dialect: Twilio, message: object) -> None:
    read(dialect, begin())
    try:
        assert read(dialect, message) == ()
    except SessionError as error:
        assert not error.is_fatal


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=8,
)
NAMES = ("start", "media", "dtmf", "mark", "stop", "connected")


@given(st.sampled_from(NAMES), JSON, st.sampled_from([*begin()["start"], *media("inbound", 0)["media"]]), JSON)
def test_messages_of_any_kind_are_accepted_or_explained(event: str, value: object, field: str, inner: object) -> None:
    """Before the call and in it; nothing else comes of them."""
    fields = begin()["start"] | media("inbound", 0)["media"] | {field: inner}
    for message in ({"event": event, event: value}, {"event": event, event: fields}):
        for first in ([], [begin()]):
            dialect = Twilio(FakeSink())
            for each in first:
                read(dialect, each)
            with suppress(SessionError):
                read(dialect, message)
            dialect.leave()
