"""A call as Twilio sends it: its messages without a network, and its audio to the small model and a webhook."""

import asyncio
import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.compat.conformance import approximated, supported
from tests.compat.exchange import Step, golden, replay
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


@pytest.mark.parametrize(
    "path", [pytest.param(path, id=path.stem, marks=SHOWS.get(path.stem, ())) for path in golden("twilio")]
)
def test_golden_exchanges(path: Path) -> None:
    steps: list[Step] = []
    tracks = ("inbound", "outbound") if path.stem == "call" else ("inbound",)
    replay(path, Twilio(RecordedSink(steps)), Sender(*tracks), steps)


class Receiver(ThreadingHTTPServer):
    """Keeps what it is sent, and is not there for the first request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[dict[str, Any]] = []
        self.n_bad_signatures = 0
        self.has_failed = False
        self.has_all = threading.Event()
        self.lock = threading.Lock()

    def take(self, signature: str, body: bytes) -> int:
        """A status."""
        with self.lock:
            if not self.has_failed:
                self.has_failed = True
                return 503
            fields = dict(part.split("=") for part in signature.split(","))
            signed = fields["t"].encode() + b"." + body
            if not hmac.compare_digest(hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest(), fields["v1"]):
                self.n_bad_signatures += 1
                return 401
            self.bodies.append(json.loads(body))
            if self.bodies[-1]["event"]["type"] == "call_ended":
                self.has_all.set()
            return 204


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(self.server.take(self.headers["tutti-signature"], body))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        thread = threading.Thread(target=receiver.serve_forever)
        thread.start()
        yield receiver
        receiver.shutdown()
        thread.join()


async def speak(address: str, inbound: bytes, outbound: bytes) -> list[dict[str, Any]]:
    """Make a whole call and hang up at once. Returns the messages to a subscriber."""
    async with connect(f"ws://{address}/v1/calls/CA1", compression=None) as subscriber:
        async with connect(f"ws://{address}/v1/twilio", compression=None) as call:
            await call.send(json.dumps({"event": "connected", "protocol": "Call", "version": "1.0.0"}))
            start = {
                "streamSid": "MZ1",
                "accountSid": "AC1",
                "callSid": "CA1",
                "tracks": ["inbound", "outbound"],
                "customParameters": {"language": "en", "words": "true", "agent": "Ann"},
                "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
            }
            await call.send(json.dumps({"event": "start", "sequenceNumber": "1", "start": start, "streamSid": "MZ1"}))
            for at in range(0, max(len(inbound), len(outbound)), CHUNK):
                for track, audio in (("inbound", inbound), ("outbound", outbound)):
                    if chunk := audio[at : at + CHUNK]:
                        await call.send(media(track, at // 8, chunk))
            await call.send(json.dumps({"event": "stop", "streamSid": "MZ1"}))
        heard = []
        try:
            while True:
                heard.append(json.loads(await subscriber.recv()))
        except ConnectionClosed:
            return heard


@supported("twilio", "subscriber socket")
@approximated(
    "twilio",
    "webhook",
    how="one address for all calls, set by the operator; final events only, signed, retried for 5 minutes",
)
def test_a_socket_and_a_webhook_receive_a_call(start_server: Callable[..., Any], receiver: Receiver) -> None:
    """Both sides with their own words; the webhook has the same finals in the same order, though it failed at first."""
    url = f"http://127.0.0.1:{receiver.server_address[1]}/calls"
    server = start_server(webhook_url=url, webhook_secret=SECRET)
    inbound, outbound = (encoded(read(name), "mulaw", 8000) for name in ("train", "hello"))
    heard = asyncio.run(speak(server.address, inbound, outbound))
    said = [[each["text"] for each in heard if each["type"] == "utterance" and each["channel"] == n] for n in (0, 1)]
    assert words(" ".join(said[0])) == words(TEXTS["train"])
    assert words(" ".join(said[1]))[1:] == words(TEXTS["hello"])[1:]
    assert all(each["words"] for each in heard if each["type"] == "segment")
    assert receiver.has_all.wait(WEBHOOK_TIMEOUT_S)
    passing = ("started", "speech_started", "interim", "lag")
    assert [body["event"] for body in receiver.bodies] == [each for each in heard if each["type"] not in passing]
    assert [body["sequence"] for body in receiver.bodies] == list(range(len(receiver.bodies)))
    assert receiver.n_bad_signatures == 0
