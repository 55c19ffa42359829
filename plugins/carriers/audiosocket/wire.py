"""Asterisk's AudioSocket: packets with a type, a length of two bytes (big-endian) and a payload.

Each packet reaches this dialect whole, as one binary message. The protocol has no packet for a transcript, so the
events of a call go to a `CallSink` instead.
Source: Asterisk's documentation, "AudioSocket" under "Channel Drivers", read on 25 November 2026; the types 0x11 to
0x18 came with asterisk/asterisk pull request 1492 of October 2025.
"""

import uuid
from collections.abc import Iterable

from tutti_server.app.dialects.call_streams.call_stream import NOTHING_KNOWN, CallStream, Opening
from tutti_server.app.dialects.call_streams.wire import TRACK, Call, CallSink, own_parameters, side_of, start_command
from tutti_server.app.errors import CLOSE_POLICY, BadMessage, SessionError, WrongState
from tutti_server.app.live.dialect import ClientMessage
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.messages import commands, events

HEADER_BYTES = 3
HANGUP, ID, DTMF, ERROR = 0x00, 0x01, 0x03, 0xFF
"""Types of packets that hold no audio."""
RATES = {
    **{0x10: 8000, 0x11: 12_000, 0x12: 16_000, 0x13: 24_000, 0x14: 32_000, 0x15: 44_100},
    **{0x16: 48_000, 0x17: 96_000, 0x18: 192_000},
}
"""The sample rates of the types that hold audio: signed 16-bit samples, little-endian, of one channel."""
HANGUP_PACKET = bytes(HEADER_BYTES)
"""Ends the connection. Asterisk goes on with the dial plan."""


def payload_bytes(header: bytes) -> int:
    """The length of a packet's payload, in bytes, by its header."""
    return int.from_bytes(header[1:HEADER_BYTES], "big")


def packet(kind: int, payload: bytes = b"") -> bytes:
    """Write a packet."""
    return bytes((kind,)) + len(payload).to_bytes(2, "big") + payload


def read_id(message: bytes) -> uuid.UUID:
    """The id of the call in the first packet of a connection.

    Raises:
        BadMessage: the packet does not hold one.
    """
    if message[:HEADER_BYTES] != bytes((ID, 0, 16)) or len(message) != HEADER_BYTES + 16:
        raise BadMessage("bad_message", "a packet of type 0x01 with a UUID of 16 bytes first", message[:20])
    return uuid.UUID(bytes=message[HEADER_BYTES:])


class AudioSocket(CallStream):
    """One connection. The parameters of its opening are those with which its call was announced."""

    START = "the packet of type 0x01"

    def __init__(self, sink: CallSink, opening: Opening = NOTHING_KNOWN) -> None:
        super().__init__(sink, opening)
        self._kind: int | None = None
        """The type of the packets with audio; `None` before the first one."""

    def _text(self, text: str) -> Iterable[ClientMessage]:
        raise BadMessage("bad_message", "a packet", text[:20])

    def _audio(self, message: bytes) -> Iterable[ClientMessage]:
        if len(message) < HEADER_BYTES:
            raise BadMessage("bad_message", "a packet", message[:20])
        if not self._has_started:
            self._begin_call(message)
            return ()
        kind, payload = message[0], message[HEADER_BYTES:]
        items: Iterable[ClientMessage] = ()
        if kind in RATES:
            items = self._samples(kind, payload)
        elif kind == HANGUP:
            items = self.leave()
        elif kind == DTMF:
            self._pass_on("dtmf", digit=payload.decode("ascii", "replace"), track=side_of(self._opening.parameters))
        elif kind == ERROR:
            code = payload[:20].hex() or "without a code"
            items = (events.Notice("carrier_error", f"Asterisk reports the error {code}"),)
        elif kind == ID:
            raise WrongState("already_started", "packet of type 0x01: the call has its id already")
        else:
            expected = f"a type of 0x00, 0x03, 0xff or {', '.join(map(hex, RATES))}"
            raise BadMessage("unknown_type", expected, hex(kind))
        return items

    def _rest(self) -> Iterable[ClientMessage]:
        # A call without audio has a session too, so that it ends like any other.
        return self._start(next(iter(RATES)))

    def _begin_call(self, message: bytes) -> None:
        """Begin the call. Its session starts with the first audio, which tells the sample rate."""
        sid = str(read_id(message))
        side = side_of(self._opening.parameters)
        self._sink.begin(Call(sid, sid, (side,), own_parameters(self._opening.parameters, (TRACK,))))
        self._has_started = True

    def _samples(self, kind: int, payload: bytes) -> Iterable[ClientMessage]:
        if self._is_stopped:
            raise WrongState("audio_after_stop", "audio: expected none after a hangup")
        start = self._start(kind)
        if kind != self._kind:
            expected = f"audio of type {self._kind:#x}, as before"
            raise SessionError("bad_message", f"expected {expected}, got {kind:#x}", CLOSE_POLICY)
        return (*start, commands.Audio(payload)) if payload else start

    def _start(self, kind: int) -> tuple[ClientMessage, ...]:
        """The start of the session, if it has not started yet."""
        if self._kind is not None:
            return ()
        command = start_command(self._opening.parameters, AudioFormat("pcm_s16le", RATES[kind]))
        self._kind = kind
        return (command,)
