"""Clients of tutti and of its peers that keep the same log: the captions that a reader sees, and when.

Each client speaks the protocol of its server, sends audio at the pace of speech, and turns messages into captions.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from benchmarks.live.captions import Caption
from benchmarks.live.client import GRACE_S, ClientLog, StreamLog, describe_error, send_paced, stream
from benchmarks.live.latencies import observed, problems

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
    problems: list[str] = field(default_factory=list)
    """Guarantees of the protocol that were broken, if the server gives any."""

    def add_caption(self, shown: str, stable: str) -> None:
        """Record a text that has just arrived, unless it is the same as the last one."""
        last = self.captions[-1] if self.captions else None
        if not last or (last.shown, last.stable) != (shown, stable):
            self.captions.append(Caption(time.monotonic(), shown, stable))


PeerClient = Callable[[str, CaptionLog], Awaitable[None]]
"""Streams the recording of a log to the server at a URL, and fills in the log until the last text."""


async def run_client(client: PeerClient, url: str, log: CaptionLog, *, delay_s: float) -> None:
    """Run one client after `delay_s` seconds. A failure is recorded in the log, not raised."""
    await asyncio.sleep(delay_s)
    try:
        async with asyncio.timeout(READY_TIMEOUT_S + log.recording.audio_s + GRACE_S):
            await client(url, log)
    except* (OSError, PeerFailed, WebSocketException) as group:
        log.failure = describe_error(group)
    finally:
        log.all_sent.set()


async def tutti_client(url: str, log: CaptionLog) -> None:
    seen = StreamLog(recording=log.recording, all_sent=log.all_sent)
    try:
        await stream(url, seen)
    finally:
        log.started_at, log.late_s, log.failure = seen.started_at, seen.late_s, seen.failure
        log.captions, log.problems = observed(seen).captions, problems(seen)


async def whisperlive_client(url: str, log: CaptionLog) -> None:
    """A client of WhisperLive, with the voice detection that its own client enables. There is no last message."""
    async with connect(url.replace("http:", "ws:", 1), compression=None, max_size=None, proxy=None) as socket:
        options = {"uid": str(id(log)), "language": "en", "task": "transcribe", "model": "custom", "use_vad": True}
        await socket.send(json.dumps(options))
        while (message := await _receive(socket)).get("message") != "SERVER_READY":
            if message.get("status") in ("WAIT", "ERROR"):
                raise PeerFailed(str(message))
        text = WhisperLiveText()

        async def receive() -> None:
            async for frame in socket:
                log.add_caption(*text.apply(json.loads(frame)))

        async with asyncio.TaskGroup() as tasks:
            receiving = tasks.create_task(receive())
            await send_paced(log, lambda samples: socket.send(samples.astype(np.float32).tobytes()))
            await _until_quiet(log)
            receiving.cancel()
        await socket.send(b"END_OF_AUDIO")


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
