"""Clients of tutti and of its peers that keep the same log: the captions that a reader sees, and when.

Each client speaks the protocol of its server, sends audio at the pace of speech, and turns messages into captions.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

import tutti
from benchmarks.live.captions import Caption
from benchmarks.live.client import (
    CHUNK_S,
    CHUNK_SAMPLES,
    GRACE_S,
    ClientLog,
    StreamLog,
    describe_error,
    send_paced,
    stream,
)
from benchmarks.live.encodings import PCM_16K, encode
from benchmarks.live.latencies import captions, problems
from tutti_server.app.media.pcm import Samples

QUIET_S = 12.0
"""A server without a last message is taken to be done after this many seconds without new text after the audio.

WhisperLive completes its last segment after eleven equal hypotheses: 7 s on a machine that was also doing other work.
"""
DRAIN_S = 20.0
"""Longest time that a client waits for text after the audio, in seconds."""
READY_TIMEOUT_S = 120.0
"""Seconds added to the timeout of a session, for a peer that loads its model when the first client connects."""


class PeerFailed(Exception):
    """A peer refused the session or reported an error."""


@dataclass(slots=True, kw_only=True)
class CaptionLog(ClientLog):
    """What one client of any server did, and the captions it received."""

    captions: list[Caption] = field(default_factory=list)
    covered: list[tuple[float, float]] = field(default_factory=list)
    """When each text arrived, and up to which second of the audio; empty if the server does not tell."""
    problems: list[str] = field(default_factory=list)
    """Guarantees of the protocol that were broken, if the server gives any."""

    def add_caption(self, shown: str, stable: str) -> None:
        """Record a text that has just arrived, unless it is the same as the last one."""
        last = self.captions[-1] if self.captions else None
        if not last or (last.shown, last.stable) != (shown, stable):
            self.captions.append(Caption(time.monotonic(), shown, stable))


PeerClient = Callable[[str, CaptionLog, str], Awaitable[None]]
"""Streams the recording of a log to the server at a URL, in a language, and fills in the log until the last text."""


async def run_client(client: PeerClient, url: str, log: CaptionLog, *, language: str, delay_s: float) -> None:
    """Run one client after `delay_s` seconds. A failure is recorded in the log, not raised."""
    await asyncio.sleep(delay_s)
    try:
        async with asyncio.timeout(READY_TIMEOUT_S + log.recording.audio_s + GRACE_S):
            await client(url, log, language)
    except* (OSError, PeerFailed, WebSocketException) as group:
        log.failure = describe_error(group)
    finally:
        log.all_sent.set()


async def tutti_client(url: str, log: CaptionLog, language: str) -> None:
    """The Python client of tutti."""
    seen = StreamLog(recording=log.recording, all_sent=log.all_sent)
    try:
        await stream(url, seen, language=language)
    finally:
        log.started_at, log.late_s, log.blocked_s = seen.started_at, seen.late_s, seen.blocked_s
        log.failure = seen.failure
        log.captions, log.problems = captions(seen), problems(seen)
        texts = (tutti.Interim, tutti.Segment)
        log.covered = [(arrived_at, event.end_s) for arrived_at, event in seen.events if isinstance(event, texts)]


async def whisperlive_client(url: str, log: CaptionLog, language: str) -> None:
    """A client of WhisperLive, with the voice detection that WhisperLive's own client enables.

    The protocol has no flush and no last message.
    """
    async with _connected(url) as socket:
        options = {"uid": str(id(log)), "language": language, "task": "transcribe", "model": "custom", "use_vad": True}
        await socket.send(json.dumps(options))
        while (message := await _receive(socket)).get("message") != "SERVER_READY":
            if message.get("status") in ("WAIT", "ERROR"):
                raise PeerFailed(str(message))
        text = WhisperLiveText()

        async def receive() -> None:
            async for frame in socket:
                message = json.loads(frame)
                log.add_caption(*text.apply(message))
                if segments := message.get("segments"):
                    log.covered.append((time.monotonic(), max(float(each["end"]) for each in segments)))

        async with asyncio.TaskGroup() as tasks:
            receiving = tasks.create_task(receive())
            await send_paced(log, lambda samples: socket.send(samples.astype(np.float32).tobytes()))
            await _until_quiet(log)
            receiving.cancel()
        await socket.send(b"END_OF_AUDIO")


async def whisperlivekit_client(url: str, log: CaptionLog, language: str) -> None:
    """A client of WhisperLiveKit. An empty message ends the audio, and `ready_to_stop` ends the session."""
    async with _connected(f"{url}/asr?language={language}") as socket:

        async def receive() -> None:
            while (message := await _receive(socket)).get("type") != "ready_to_stop":
                if message.get("error"):
                    raise PeerFailed(str(message["error"]))
                if "lines" in message:
                    log.add_caption(*whisperlivekit_text(message))

        async with asyncio.TaskGroup() as tasks:
            receiving = tasks.create_task(receive())
            await send_paced(log, lambda samples: socket.send(encode(samples, PCM_16K)))
            await socket.send(b"")
            await asyncio.wait([receiving], timeout=DRAIN_S)
            receiving.cancel()


async def whisper_streaming_client(url: str, log: CaptionLog, language: str) -> None:
    """A client of whisper_streaming over plain TCP. The server has its language since its start.

    The server decodes only when more audio arrives, and a word is final once two hypotheses agree. So the client sends
    silence after the recording, like a microphone that stays open, for as long as new text arrives.
    """
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)

    async def send(samples: Samples) -> None:
        writer.write(encode(samples, PCM_16K))
        await writer.drain()

    async def receive() -> None:
        text = ""
        async for line in reader:
            # Begin and end in ms, then words with their own leading spaces.
            _begin, _end, words = line.decode().rstrip("\n").split(" ", 2)
            text += words
            log.add_caption(text.strip(), text.strip())

    async def keep_silent() -> None:
        silence = np.zeros(CHUNK_SAMPLES, np.float32)
        while True:
            await asyncio.sleep(CHUNK_S)
            await send(silence)

    try:
        async with asyncio.TaskGroup() as tasks:
            receiving = tasks.create_task(receive())
            await send_paced(log, send)
            silent = tasks.create_task(keep_silent())
            await _until_quiet(log)
            silent.cancel()
            if receiving.done():
                raise PeerFailed("the server closed the connection")
            # The server crashes when a client leaves before everything is read. After EOF it closes by itself.
            writer.write_eof()
    finally:
        writer.close()


class WhisperLiveText:
    """The text of a WhisperLive session. Messages hold the last ten segments. A completed segment does not change."""

    def __init__(self) -> None:
        self._completed: dict[float, str] = {}
        self._open = ""

    def apply(self, message: dict[str, Any]) -> tuple[str, str]:
        """Update the text with a message. Returns all text, and the completed part of it."""
        if "segments" in message:
            segments = message["segments"]
            self._completed |= {float(each["start"]): each["text"].strip() for each in segments if each["completed"]}
            self._open = " ".join(each["text"].strip() for each in segments if not each["completed"])
        stable = " ".join(text for _, text in sorted(self._completed.items()))
        return f"{stable} {self._open}".strip(), stable


def whisperlivekit_text(message: dict[str, Any]) -> tuple[str, str]:
    """All text of a WhisperLiveKit session from one message, and the part of it that is in lines."""
    stable = " ".join(line["text"].strip() for line in message["lines"] if line["text"])
    return f"{stable} {message['buffer_transcription'].strip()}".strip(), stable


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[ClientConnection]:
    async with connect(url.replace("http:", "ws:", 1), compression=None, max_size=None, proxy=None) as socket:
        yield socket


async def _receive(socket: ClientConnection) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(await socket.recv())
    return message


async def _until_quiet(log: CaptionLog) -> None:
    """Wait until no new text has arrived for `QUIET_S`, but no longer than `DRAIN_S`."""
    sent_at = time.monotonic()
    while True:
        last = max(log.captions[-1].arrived_at if log.captions else 0.0, sent_at)
        wait_s = min(last + QUIET_S, sent_at + DRAIN_S) - time.monotonic()
        if wait_s <= 0:
            return
        await asyncio.sleep(wait_s)
