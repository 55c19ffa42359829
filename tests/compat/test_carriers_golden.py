"""Calls of Asterisk, AudioSocket, AudioHook, FreeSWITCH and Vonage, message by message."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.dialects.asterisk.wire import Asterisk
from app.dialects.audiohook.wire import AudioHook, Client
from app.dialects.audiosocket.wire import AudioSocket, packet
from app.dialects.call_streams.wire import Line
from app.dialects.freeswitch.wire import FreeSwitch
from app.dialects.native import wire
from app.dialects.vonage.wire import Vonage
from app.live.dialect import Dialect
from app.media.pcm import Samples
from tests.compat.exchange import Step, golden, replay
from tests.compat.test_twilio import RecordedLine
from tests.fakes import slow_mulaw

HOOK = Client(parameters={}, organization=None, session=None, languages=("en",))
DIALECTS: dict[str, Callable[[Line, Path], Dialect]] = {
    "asterisk": lambda line, path: Asterisk(line, {}),
    "audiohook": lambda line, path: AudioHook(line, HOOK),
    "audiosocket": lambda line, path: AudioSocket(line, {}),
    "freeswitch": lambda line, path: FreeSwitch(
        line, {"rate": "16k"}, wire.messages, stream_sid="s_1", is_fork=path.stem == "fork"
    ),
    "vonage": lambda line, path: Vonage(line, {}, stream_sid="s_1"),
}


def in_mulaw(samples: Samples) -> Iterator[bytes]:
    audio = slow_mulaw(samples)
    yield from (audio[at : at + 160] for at in range(0, len(audio), 160))


def linear(samples: Samples) -> Iterator[bytes]:
    audio = (samples * 32768).round().astype("<i2").tobytes()
    yield from (audio[at : at + 640] for at in range(0, len(audio), 640))


def packets(samples: Samples) -> Iterator[bytes]:
    yield from (packet(0x12, piece) for piece in linear(samples))


AUDIO = {"asterisk": in_mulaw, "audiohook": in_mulaw, "audiosocket": packets, "freeswitch": linear, "vonage": linear}


@pytest.mark.parametrize(
    ("name", "path"), [pytest.param(name, path, id=f"{name}-{path.stem}") for name in DIALECTS for path in golden(name)]
)
def test_messages_are_answered_as_recorded(name: str, path: Path) -> None:
    """`told` is what subscribers receive, `answer` what the telephone system does."""
    steps: list[Step] = []
    replay(path, DIALECTS[name](_line(steps), path), AUDIO[name], steps)


def _line(steps: list[Step]) -> Line:
    return RecordedLine(steps)  # type: ignore[return-value]  # it takes the calls of all dialects
