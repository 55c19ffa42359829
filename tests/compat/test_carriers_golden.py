"""Calls of Asterisk, AudioSocket, AudioHook, FreeSWITCH, Vonage, Telnyx, Plivo and jambonz, message by message."""

import base64
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.compat.conformance import supported
from tests.compat.exchange import Step, ToMessages, golden, replay
from tests.compat.test_twilio import RecordedSink
from tests.fakes import slow_mulaw
from tutti_server.app.dialects.call_streams.call_stream import Opening
from tutti_server.app.dialects.call_streams.wire import CallSink
from tutti_server.app.dialects.native import wire
from tutti_server.app.live.dialect import Dialect
from tutti_server.app.media.pcm import Samples
from tutti_server.plugins.carriers.asterisk import Asterisk
from tutti_server.plugins.carriers.audiohook.wire import AudioHook, Client
from tutti_server.plugins.carriers.audiosocket.wire import AudioSocket, packet
from tutti_server.plugins.carriers.freeswitch import FreeSwitch
from tutti_server.plugins.carriers.jambonz import Jambonz
from tutti_server.plugins.carriers.plivo import Plivo
from tutti_server.plugins.carriers.telnyx import Telnyx
from tutti_server.plugins.carriers.vonage import Vonage

ToBytes = Callable[[Samples], Iterator[bytes]]
"""Cuts samples into the chunks of 20 ms in which they are sent."""
HOOK = Client(parameters={}, organization=None, session=None, languages_of=lambda _: ("en",))
DIALECTS: dict[str, Callable[[CallSink, Path], Dialect]] = {
    "asterisk": lambda sink, path: Asterisk(sink),
    "audiohook": lambda sink, path: AudioHook(sink, HOOK),
    "audiosocket": lambda sink, path: AudioSocket(sink),
    "freeswitch": lambda sink, path: FreeSwitch(
        sink,
        Opening(
            parameters={"rate": "16k"},
            request="s_1",
            subprotocol=FreeSwitch.SUBPROTOCOL if path.stem == "fork" else None,
            write_event=wire.messages,
        ),
    ),
    "vonage": lambda sink, path: Vonage(sink, Opening(request="s_1")),
    "telnyx": lambda sink, path: Telnyx(
        sink,
        Opening(parameters={"track": "inbound_track"} | ({"l16_byte_order": "big"} if path.stem == "l16" else {})),
    ),
    "plivo": lambda sink, path: Plivo(sink),
    "jambonz": lambda sink, path: Jambonz(sink),
}


def in_mulaw(samples: Samples) -> Iterator[bytes]:
    audio = slow_mulaw(samples)
    yield from (audio[at : at + 160] for at in range(0, len(audio), 160))


def linear(samples: Samples, dtype: str = "<i2") -> Iterator[bytes]:
    audio = (samples * 32768).round().astype(dtype).tobytes()
    yield from (audio[at : at + 640] for at in range(0, len(audio), 640))


def packets(samples: Samples) -> Iterator[bytes]:
    yield from (packet(0x12, piece) for piece in linear(samples))


def chunks(samples: Samples, encoded: ToBytes = in_mulaw) -> Iterator[str]:
    """Media of one track, as Telnyx and Plivo number it."""
    for number, audio in enumerate(encoded(samples)):
        payload = base64.b64encode(audio).decode()
        media = {"track": "inbound", "chunk": number + 1, "timestamp": str(20 * number), "payload": payload}
        yield json.dumps({"event": "media", "media": media})


AUDIO: dict[str, ToMessages] = {
    "asterisk": in_mulaw,
    "audiohook": in_mulaw,
    "audiosocket": packets,
    "freeswitch": linear,
    "vonage": linear,
    "telnyx": chunks,
    "telnyx/l16": partial(chunks, encoded=partial(linear, dtype=">i2")),
    "plivo": chunks,
    "plivo/l16": partial(chunks, encoded=linear),
    "jambonz": linear,
}


SHOWS = {
    "asterisk": [supported("asterisk", "DTMF_END")],
    "audiohook": [supported("audiohook", "connection probe")],
    "freeswitch": [supported("freeswitch", "send_text")],
    "jambonz": [supported("jambonz", "error")],
}
"""What of the options the exchanges of a telephone system show."""


@pytest.mark.parametrize(
    ("name", "path"),
    [
        pytest.param(name, path, id=f"{name}-{path.stem}", marks=SHOWS.get(name, ()))
        for name in DIALECTS
        for path in golden(name)
    ],
)
def test_messages_are_answered_as_recorded(name: str, path: Path) -> None:
    """`told` is what subscribers receive, `answer` what the telephone system does."""
    steps: list[Step] = []
    replay(path, DIALECTS[name](RecordedSink(steps), path), AUDIO.get(f"{name}/{path.stem}", AUDIO[name]), steps)
