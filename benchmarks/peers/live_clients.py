"""Clients of tutti and of its peers that all keep the same log: what a reader saw, and when.

Each one speaks its server's own protocol at the pace of speech, and translates what comes back into captions.
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

from app.media.pcm import Samples
from benchmarks.live.captions import Caption
from benchmarks.live.client import CHUNK_S, CHUNK_SAMPLES, GRACE_S, ClientLog, StreamLog, described, speak, stream
from benchmarks.live.encodings import PLAIN, encode
from benchmarks.live.latencies import captions, problems

QUIET_S = 12.0
"""A server without a last message has said all when it has said nothing new for so long behind the audio.

WhisperLive completes its last segment after eleven equal readings of it: 7 s on a machine that had other work too.
"""
DRAIN_S = 20.0
"""A server that still has something new to say by then is not waited for any longer."""
READY_TIMEOUT_S = 120.0
"""For a peer that loads its model when the first client comes."""


class PeerFailed(Exception):
    """A peer refused the session or reported an error."""


@dataclass(slots=True)
class CaptionLog(ClientLog):
    """What one client of any server did, and what it saw."""

    captions: list[Caption] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Promises that were not kept, where the server makes any."""

    def note(self, shown: str, stable: str) -> None:
        """Keep what is new of a text that has just come."""
        last = self.captions[-1] if self.captions else None
        if not last or (last.shown, last.stable) != (shown, stable):
            self.captions.append(Caption(time.monotonic(), shown, stable))


Converse = Callable[[str, CaptionLog, str], Awaitable[None]]
"""Stream a recording to the server at a URL, in a language, and fill in the log up to the last text."""


async def listen(converse: Converse, url: str, log: CaptionLog, *, language: str, delay_s: float) -> None:
    """One client, `delay_s` from now. A session that fails is noted in the log, not raised."""
    await asyncio.sleep(delay_s)
    try:
        async with asyncio.timeout(READY_TIMEOUT_S + log.recording.audio_s + GRACE_S):
            await converse(url, log, language)
    except* (OSError, PeerFailed, WebSocketException) as group:
        log.failure = described(group)
    finally:
        log.spoken.set()


async def converse_tutti(url: str, log: CaptionLog, language: str) -> None:
    seen = StreamLog(log.recording, spoken=log.spoken)
    try:
        await stream(url, seen, language=language)
    finally:
        log.begun, log.late_s, log.blocked_s, log.failure = seen.begun, seen.late_s, seen.blocked_s, seen.failure
        log.captions, log.problems = captions(seen), problems(seen)


async def converse_whisperlive(url: str, log: CaptionLog, language: str) -> None:
    """With the voice detection that its own client asks for. It has no flush and no last message."""
    async with _connected(url) as socket:
        asked = {"uid": str(id(log)), "language": language, "task": "transcribe", "model": "custom", "use_vad": True}
        await socket.send(json.dumps(asked))
        while (message := await _receive(socket)).get("message") != "SERVER_READY":
            if message.get("status") in ("WAIT", "ERROR"):
                raise PeerFailed(str(message))
        text = WhisperLiveText()

        async def read() -> None:
            async for frame in socket:
                log.note(*text.take(json.loads(frame)))

        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(read())
            await speak(log, lambda samples: socket.send(samples.astype(np.float32).tobytes()))
            await _until_quiet(log)
            reading.cancel()
        await socket.send(b"END_OF_AUDIO")


async def converse_whisperlivekit(url: str, log: CaptionLog, language: str) -> None:
    async with _connected(f"{url}/asr?language={language}") as socket:

        async def read() -> None:
            while (message := await _receive(socket)).get("type") != "ready_to_stop":
                if message.get("error"):
                    raise PeerFailed(str(message["error"]))
                if "lines" in message:
                    log.note(*whisperlivekit_text(message))

        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(read())
            await speak(log, lambda samples: socket.send(encode(samples, PLAIN)))
            await socket.send(b"")
            await asyncio.wait([reading], timeout=DRAIN_S)
            reading.cancel()


async def converse_whisper_streaming(url: str, log: CaptionLog, language: str) -> None:
    """Over bare TCP; the language was told when the server was started.

    It reads again only when more audio comes, and a word stands once two readings agree: so silence is sent behind the
    recording, as from a microphone that stays open, as long as it brings anything new.
    """
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)

    async def send(samples: Samples) -> None:
        writer.write(encode(samples, PLAIN))
        await writer.drain()

    async def read() -> None:
        text = ""
        async for line in reader:
            # Begin and end in ms, then words that bring their own spaces.
            _begin, _end, words = line.decode().rstrip("\n").split(" ", 2)
            text += words
            log.note(text.strip(), text.strip())

    async def keep_silent() -> None:
        silence = np.zeros(CHUNK_SAMPLES, np.float32)
        while True:
            await asyncio.sleep(CHUNK_S)
            await send(silence)

    try:
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(read())
            await speak(log, send)
            silent = tasks.create_task(keep_silent())
            await _until_quiet(log)
            silent.cancel()
            if reading.done():
                raise PeerFailed("the server closed the connection")
            # It dies of clients that leave before it has read all, and closes then.
            writer.write_eof()
    finally:
        writer.close()


class WhisperLiveText:
    """The text of a session. Its messages hold the last ten segments; those that are completed stay as they are."""

    def __init__(self) -> None:
        self._completed: dict[float, str] = {}
        self._open = ""

    def take(self, message: dict[str, Any]) -> tuple[str, str]:
        """All text, and the part of it that is completed."""
        if "segments" in message:
            segments = message["segments"]
            self._completed |= {float(each["start"]): each["text"].strip() for each in segments if each["completed"]}
            self._open = " ".join(each["text"].strip() for each in segments if not each["completed"])
        stable = " ".join(text for _, text in sorted(self._completed.items()))
        return f"{stable} {self._open}".strip(), stable


def whisperlivekit_text(message: dict[str, Any]) -> tuple[str, str]:
    """All text of a message, which holds the whole session, and the part of it that is in lines."""
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
    ended = time.monotonic()
    while True:
        last = max(log.captions[-1].at if log.captions else 0.0, ended)
        wait_s = min(last + QUIET_S, ended + DRAIN_S) - time.monotonic()
        if wait_s <= 0:
            return
        await asyncio.sleep(wait_s)
