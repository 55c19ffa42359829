"""Captions a meeting whose speakers come as packets of their own: one session for each, captions in order of time.

It knows no meeting service. Such a service calls `packet` and `tick`, and gets captions through `Channel.post`.
"""

import array
import asyncio
import math
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import tutti

RATE = 48_000
FRAME_BYTES = 4
"""Of a stereo sample: two of 16 bits."""
JITTER_S = 0.1
"""A packet that comes this much late, in seconds, follows the one before it; one that comes later follows a silence."""
PAUSE_S = 0.8
"""Seconds without packets after which what a speaker said is made final. Voice services send nothing in silence."""
LEAVE_S = 60.0
"""Seconds without packets after which the session of a speaker ends. The next packet begins another one."""
OPEN_ATTEMPTS = 5
"""How often a session is asked for where the server is full or not there. The packets wait in the meantime."""
RETRY_S = 5.0
"""Seconds between these attempts, and until a speaker whose session has failed gets another one."""
MAX_HOLD_S = 10.0
"""The longest time that a caption waits for earlier ones of other speakers, in seconds."""
MAX_SPEAKERS = 25
"""Speakers with a session at the same time. Others are not captioned."""
MAX_PACKETS = 1500
"""Packets of a speaker that wait to be sent: 30 s. More are dropped, and are silence in the session."""


@dataclass(frozen=True, slots=True)
class Caption:
    """What a speaker has said, and when, in seconds from the beginning of the meeting."""

    speaker: str
    start_s: float
    end_s: float
    text: str


class Channel(Protocol):
    """Where captions are shown: a text channel, a web page, a terminal."""

    async def post(self, caption: Caption) -> None:
        """Show a caption. The next one waits until this returns. An error that this raises ends the captions."""


class Burst(NamedTuple):
    """Speech between two pauses. Pauses are not sent, so the session's clock stands still in them."""

    session_s: float
    """Where it begins in the audio that was sent."""
    meeting_s: float
    """Where it begins in the meeting."""


class Speaker:
    """The audio of one speaker on its way to a session, and the way back from session times to meeting times."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.session: tutti.Session | None = None
        self.end_s = -math.inf
        """Where the newest packet ends in the meeting."""
        self.is_speaking = False
        self.bursts: deque[Burst] = deque()
        """Those whose text may not be complete, the oldest first."""
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(MAX_PACKETS)
        """Audio; empty bytes are a pause, and None is the end."""
        self._sent_s = 0.0

    @property
    def has_room(self) -> bool:
        """More can be sent now."""
        return not self._queue.full()

    def packet(self, pcm: bytes, at_s: float) -> None:
        """Send a packet. The silence since the last one is sent with it if it is short. An empty packet is none."""
        if not pcm or not self.has_room:
            return
        seconds = len(pcm) / FRAME_BYTES / RATE
        gap_s = at_s - self.end_s
        silence = b""
        if not self.is_speaking:
            self.is_speaking = True
            self.bursts.append(Burst(self._sent_s, at_s))
        elif gap_s > JITTER_S:
            silence = bytes(2 * round(gap_s * RATE))
        self._queue.put_nowait(silence + to_mono(pcm))
        self._sent_s += len(silence) / 2 / RATE + seconds
        self.end_s = at_s + seconds if gap_s > JITTER_S else self.end_s + seconds

    def pause(self) -> None:
        """Have what was sent made final. There must be room."""
        self._queue.put_nowait(b"")
        self.is_speaking = False

    async def leave(self) -> None:
        """End the session after its last text."""
        await self._queue.put(None)

    def close(self) -> None:
        """Forget what was not sent, after the session has ended."""
        self.bursts.clear()
        # This also frees a `leave` that waits for room.
        while not self._queue.empty():
            self._queue.get_nowait()

    async def audio(self, session: tutti.Session) -> AsyncIterator[bytes]:
        """The audio of the session. A flush stands where the speaker paused."""
        while (item := await self._queue.get()) is not None:
            if item:
                yield item
            else:
                # What was yielded before has been sent, so the flush is behind it.
                await session.flush()

    def meeting_times_s(self, start_s: float, end_s: float) -> tuple[float, float]:
        """The times in the meeting of a stretch of the session that lies in one burst."""
        # The end decides: an utterance begins a little before its speech, and that may be before the burst.
        burst = max((each for each in self.bursts if each.session_s < end_s), default=self.bursts[0])
        begin_s, until_s = (burst.meeting_s + max(0.0, each - burst.session_s) for each in (start_s, end_s))
        return begin_s, until_s

    def next_caption_s(self) -> float:
        """The earliest time in the meeting at which another caption may begin."""
        if not self.bursts:
            return math.inf
        final_s = self.session.final_until_s if self.session else 0.0
        return self.meeting_times_s(final_s, final_s)[0]


class Captioner:
    """Captions of a meeting. A context manager: at its end, what was said is made final and posted."""

    def __init__(self, url: str, channel: Channel, api_key: str | None = None, language: str | None = None) -> None:
        self.has_failed = False
        """A session has ended with an error, so captions are missing."""
        self._url = url
        self._options: tutti.ConnectOptions = {
            **{"sample_rate": RATE, "channels": 1, "interim": False},
            **{"api_key": api_key, "language": language},
        }
        self._channel = channel
        self._active: dict[str, Speaker] = {}
        """By their names, those whose packets are taken."""
        self._running: set[Speaker] = set()
        """Those with a session, also those who have left and wait for their last text."""
        self._retry_at_s: dict[str, float] = {}
        self._held: list[Caption] = []
        """Captions that wait for those of others, which may have begun earlier."""
        self._now_s = 0.0
        self._posting = asyncio.Lock()
        self._tasks = asyncio.TaskGroup()
        self._has_ended = False

    async def __aenter__(self) -> "Captioner":
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._has_ended = True
        if error[0] is None:
            while self._active:
                await self._active.popitem()[1].leave()
        await self._tasks.__aexit__(*error)  # type: ignore[arg-type]  # the three that this was given
        await self._post(is_end=True)

    def packet(self, name: str, pcm: bytes, at_s: float) -> None:
        """Take 48 kHz stereo audio of 16 bits of a speaker, which begins `at_s` in the meeting."""
        if self._has_ended:
            return
        self._now_s = max(self._now_s, at_s)
        speaker = self._active.get(name)
        if speaker is None:
            if at_s < self._retry_at_s.get(name, 0.0):
                return
            self._retry_at_s[name] = at_s + RETRY_S
            if len(self._running) >= MAX_SPEAKERS:
                sys.stderr.write(f"{name} is not captioned: {MAX_SPEAKERS} others are\n")
                return
            speaker = self._active[name] = Speaker(name)
            self._running.add(speaker)
            self._tasks.create_task(self._caption(speaker))
        speaker.packet(pcm, at_s)

    async def tick(self, now_s: float) -> None:
        """Notice who pauses. To be called every 0.1 s of the meeting or so, also when there are no packets."""
        self._now_s = max(self._now_s, now_s)
        # Where there is no room, the network is slow; a later tick tries again.
        for speaker in [each for each in self._active.values() if each.has_room]:
            silent_s = now_s - speaker.end_s
            if speaker.is_speaking and silent_s >= PAUSE_S:
                speaker.pause()
            elif silent_s >= LEAVE_S:
                del self._active[speaker.name]
                await speaker.leave()
        await self._post()

    async def _caption(self, speaker: Speaker) -> None:
        try:
            async with AsyncExitStack() as stack:
                speaker.session = session = await self._open(stack)
                async for event in await stack.enter_async_context(aclosing(session.stream(speaker.audio(session)))):
                    match event:
                        case tutti.Utterance() if event.text:
                            times_s = speaker.meeting_times_s(event.start_s, event.end_s)
                            self._held.append(Caption(speaker.name, *times_s, event.text.strip()))
                        case tutti.Flushed():
                            speaker.bursts.popleft()
                    await self._post()
        except tutti.TuttiError as error:
            # The others go on, and so does this one with its next packet.
            self.has_failed = True
            sys.stderr.write(f"{speaker.name}: {error}\n")
        finally:
            speaker.close()
            self._running.discard(speaker)
            if self._active.get(speaker.name) is speaker:
                del self._active[speaker.name]

    async def _open(self, stack: AsyncExitStack) -> tutti.Session:
        for attempt in range(1, OPEN_ATTEMPTS + 1):
            try:
                return await stack.enter_async_context(tutti.connect(self._url, **self._options))
            except tutti.TuttiError as error:
                # A session that is open resumes by itself after a lost connection; only its beginning is ours.
                if error.code not in ("overloaded", "unreachable") or attempt == OPEN_ATTEMPTS:
                    raise
                await asyncio.sleep(RETRY_S)
        raise AssertionError("the last attempt returns or raises")

    async def _post(self, is_end: bool = False) -> None:
        """Post the captions before which no other can begin."""
        async with self._posting:
            self._held.sort(key=lambda caption: caption.start_s)
            while self._held:
                first = self._held[0]
                next_s = min((each.next_caption_s() for each in self._running), default=math.inf)
                if first.start_s > next_s and first.end_s > self._now_s - MAX_HOLD_S and not is_end:
                    return
                del self._held[0]
                await self._channel.post(first)


def to_mono(pcm: bytes) -> bytes:
    """The mean of both channels: each would be a transcript of its own otherwise."""
    samples = array.array("h", pcm)
    return array.array("h", ((a + b) // 2 for a, b in zip(samples[::2], samples[1::2], strict=True))).tobytes()
