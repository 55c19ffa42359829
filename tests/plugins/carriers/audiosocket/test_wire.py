"""AudioSocket's packets: the id of a call, its audio and digits, and its end."""

import uuid

import pytest

from tests.app.dialects.call_streams.sinks import FakeSink, read
from tests.call_start import call_start
from tests.compat.conformance import supported
from tutti_server.app.dialects.call_streams.call_stream import Opening
from tutti_server.app.dialects.call_streams.wire import Call
from tutti_server.app.errors import BadMessage, RequestError, SessionError, WrongState
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.messages import commands, events
from tutti_server.plugins.carriers.audiosocket.announcing_endpoint import read_announcement
from tutti_server.plugins.carriers.audiosocket.wire import (
    DTMF,
    ERROR,
    HANGUP,
    ID,
    RATES,
    AudioSocket,
    packet,
    payload_bytes,
    read_id,
)

CALL = uuid.UUID("40325ec2-5efd-4bd3-805f-53576e581d13")
FIRST = packet(ID, CALL.bytes)


def begun(sink: FakeSink | None = None, **parameters: str) -> AudioSocket:
    dialect = AudioSocket(sink or FakeSink(), Opening(parameters=parameters))
    assert read(dialect, FIRST) == ()
    return dialect


@supported("audiosocket", "0x01, the id of the call")
@supported("audiosocket", "0x10, audio at 8 kHz")
def test_a_call_begins_and_its_first_audio_starts_the_session() -> None:
    assert bytes.fromhex("010010 40325ec25efd4bd3805f53576e581d13") == FIRST
    assert (payload_bytes(FIRST), read_id(FIRST)) == (16, CALL)
    sink = FakeSink()
    dialect = begun(sink, language="en", agent="Ann")
    assert sink.calls == [Call(str(CALL), str(CALL), ("inbound",), {"agent": "Ann"})]
    start = call_start(audio=AudioFormat("pcm_s16le", 8000), language="en")
    audio = commands.Audio(b"\1\0" * 160)
    assert read(dialect, packet(0x10, b"\1\0" * 160)) == (start, audio)
    assert read(dialect, packet(0x10, b"\1\0" * 160)) == (audio,)


@supported("audiosocket", "0x11 to 0x18, audio at 12 to 192 kHz")
@pytest.mark.parametrize(("kind", "rate"), RATES.items())
def test_the_type_of_the_audio_says_its_rate(kind: int, rate: int) -> None:
    start, _ = begun().read(packet(kind, b"\0\0"))
    assert isinstance(start, commands.Start)
    assert start.audio.sample_rate == rate


def test_the_rate_does_not_change_within_a_call() -> None:
    dialect = begun()
    read(dialect, packet(0x10, b"\0\0"))
    with pytest.raises(SessionError, match="audio of type 0x10, as before, got 0x12") as error:
        dialect.read(packet(0x12, b"\0\0"))
    assert error.value.is_fatal


@supported("audiosocket", "0x03, a digit")
def test_the_announcement_names_the_side() -> None:
    """For calls of which both sides are streamed, each on a connection of its own."""
    sink = FakeSink()
    dialect = begun(sink, track="outbound", agent="Ann")
    assert sink.calls == [Call(str(CALL), str(CALL), ("outbound",), {"agent": "Ann"})]
    read(dialect, packet(DTMF, b"1"))
    assert sink.texts == ['{"type":"dtmf","digit":"1","track":"outbound"}']
    with pytest.raises(RequestError, match="track: expected inbound or outbound, got 'both'"):
        read_announcement({"parameters": {"track": "both"}})


@supported("audiosocket", "0xff, an error")
def test_an_error_is_a_warning() -> None:
    assert read(begun(), packet(ERROR, b"\2")) == (events.Notice("carrier_error", "Asterisk reports the error 02"),)


@supported("audiosocket", "0x00, the end of the call")
def test_a_hangup_ends_the_call_also_one_without_audio() -> None:
    dialect = begun()
    start, stop = dialect.read(packet(HANGUP))
    assert isinstance(start, commands.Start)
    assert stop == commands.Stop()
    assert tuple(dialect.leave()) == ()
    with pytest.raises(WrongState):
        dialect.read(packet(0x10, b"\0\0"))


@pytest.mark.parametrize(
    "first", [packet(0x10, b"\0\0"), packet(ID, b"short"), packet(HANGUP), b"\1\0\x11" + CALL.bytes, b"", "text"]
)
def test_another_first_packet_is_fatal(first: bytes | str) -> None:
    dialect = AudioSocket(FakeSink())
    with pytest.raises(SessionError):
        dialect.read(first)
    assert tuple(dialect.leave()) == ()


@pytest.mark.parametrize("second", [FIRST, packet(0x02), packet(0x19, b"\0\0"), b"\x10"])
def test_a_strange_packet_is_an_error_and_the_call_goes_on(second: bytes) -> None:
    with pytest.raises((BadMessage, WrongState)) as error:
        begun().read(second)
    assert not error.value.is_fatal
