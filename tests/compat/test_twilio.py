"""A call as Twilio sends it: its messages without a network, and its audio to the small model and a webhook."""

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.app.conftest import receive_all
from tests.app.dialects.twilio.test_endpoint import call, subscriber
from tests.app.dialects.twilio.test_endpoint import speak as send
from tests.compat.conformance import approximated, refused, supported
from tests.compat.conftest import OtherServer
from tests.compat.exchange import Step, cases, replay
from tests.fakes import slow_mulaw
from tests.recordings import TEXTS, encoded, read, words
from tutti_server.app.dialects.call_streams.wire import Call
from tutti_server.app.dialects.native import wire
from tutti_server.app.dialects.twilio.wire import Twilio
from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.messages import events

CHUNK = 160
SECRET = "a-secret-for-tests"
WEBHOOK_TIMEOUT_S = 30.0
SHOWS = {
    "call": [
        *(supported("twilio", each) for each in ("connected", "start", "customParameters", "media", "stop", "dtmf")),
        refused(
            "twilio",
            "answers on the stream (media, mark, clear)",
            how="the server sends none; results go to subscribers",
        ),
        approximated(
            "twilio", "mark", how="passed on to subscribers; the server plays no audio that a mark could belong to"
        ),
    ]
}
"""What of the options an exchange shows."""


class RecordedSink:
    """The messages to a call's subscribers, as steps of the exchange."""

    def __init__(self, steps: list[Step]) -> None:
        self._steps = steps

    def begin(self, call: Call) -> None:
        self._steps.append({"call": [call.sid, call.stream_sid, list(call.tracks), call.parameters]})

    def publish(self, said: events.Event | events.Reply) -> None:
        texts = (said.text,) if isinstance(said, events.Reply) else wire.messages(said)
        self._steps += [{"told": json.loads(text)} for text in texts]


class Sender:
    """Made-up speech as media, twice as slow: each step's on the next track of the call; the others are silent."""

    def __init__(self, *tracks: str) -> None:
        self._tracks = tracks
        self._n_steps = 0
        self._at_ms = 0

    def __call__(self, samples: Samples) -> Iterator[str]:
        speaks = self._tracks[self._n_steps % len(self._tracks)]
        self._n_steps += 1
        audio = slow_mulaw(samples)
        for at in range(0, len(audio), CHUNK):
            for track in self._tracks:
                chunk = audio[at : at + CHUNK] if track == speaks else b"\xff" * len(audio[at : at + CHUNK])
                yield media(track, self._at_ms, chunk)
            self._at_ms += CHUNK // 8


def media(track: str, at_ms: int, audio: bytes) -> str:
    """As Twilio spells it."""
    payload = base64.b64encode(audio).decode()
    fields = {"track": track, "chunk": str(at_ms // 20 + 1), "timestamp": str(at_ms), "payload": payload}
    return json.dumps({"event": "media", "media": fields, "streamSid": "MZ1"})


@pytest.mark.parametrize("path", cases("twilio", SHOWS))
def test_golden_exchanges(path: Path) -> None:
    steps: list[Step] = []
    tracks = ("inbound", "outbound") if path.stem == "call" else ("inbound",)
    replay(path, Twilio(RecordedSink(steps)), Sender(*tracks), steps)


async def speak(address: str, *tracks: bytes) -> list[dict[str, Any]]:
    """Make a whole call and hang up at once. Returns the messages to a subscriber."""
    options = {"language": "en", "words": "true", "agent": "Ann"}
    async with subscriber(address) as listener:
        async with call(address, customParameters=options) as socket:
            await send(socket, *tracks)
        return await receive_all(listener)


@supported("twilio", "subscriber socket")
@approximated(
    "twilio",
    "webhook",
    how="one address for all calls, set by the operator; final events only, signed, retried for 5 minutes",
)
def test_a_socket_and_a_webhook_receive_a_call(start_server: Callable[..., Any], other: OtherServer) -> None:
    """Both sides with their own words; the webhook has the same finals in the same order, though it failed at first."""
    other.statuses = iter([503])
    server = start_server(webhook_url=f"{other.url}/calls", webhook_secret=SECRET)
    inbound, outbound = (encoded(read(name), "mulaw", 8000) for name in ("train", "hello"))
    heard = asyncio.run(speak(server.address, inbound, outbound))
    said = [[each["text"] for each in heard if each["type"] == "utterance" and each["channel"] == n] for n in (0, 1)]
    assert words(" ".join(said[0])) == words(TEXTS["train"])
    assert words(" ".join(said[1]))[1:] == words(TEXTS["hello"])[1:]
    assert all(each["words"] for each in heard if each["type"] == "segment")
    bodies: list[dict[str, Any]] = []
    while not bodies or bodies[-1]["event"]["type"] != "call_ended":
        *_, headers, body = other.received.get(timeout=WEBHOOK_TIMEOUT_S)
        fields = dict(part.split("=") for part in headers["tutti-signature"].split(","))
        signed = fields["t"].encode() + b"." + body
        assert hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest() == fields["v1"]
        bodies.append(json.loads(body))
    passing = ("started", "speech_started", "interim", "lag")
    assert [body["event"] for body in bodies] == [each for each in heard if each["type"] not in passing]
    assert [body["sequence"] for body in bodies] == list(range(len(bodies)))
