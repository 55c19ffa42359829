"""Sessions and uploads through the Python SDK, and what came of them."""

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import tutti
from benchmarks.faults.differences import TimedWord, timed_words
from benchmarks.live.client import chunks_of, describe_error
from benchmarks.live.live_text import LiveText
from benchmarks.recordings import PCM_16K, Recording

SESSION_GRACE_S = 600.0
"""A session that takes this many seconds longer than its audio has failed."""
LANGUAGE = "en"
RETRY_S = 1.0
"""Seconds from a session or an upload that was refused to the next try."""
OPEN_LATER = (tutti.Overloaded, tutti.Unreachable, tutti.TimedOut, tutti.ConnectionLost)
"""Why a session was not opened: the service is full, or does not run at the moment."""


@dataclass(slots=True, kw_only=True)
class SessionLog:
    recording: str
    is_open: bool = False
    """Whether the service has accepted it."""
    started_at: float = 0.0
    """When its first audio was sent, by `time.monotonic`."""
    words: list[TimedWord] = field(default_factory=list)
    utterances: list[int] = field(default_factory=list)
    """The numbers of the utterances that ended, in order."""
    changed_stable: list[str] = field(default_factory=list)
    """Changes of text that was shown as stable. This must not happen."""
    n_resumed: int = 0
    """How often its connection was mended."""
    gaps: list[tuple[float, float]] = field(default_factory=list)
    """The stretches of audio that a resumed session reports as missing, in seconds."""
    failure: str | None = None


async def stream(url: str, recording: Recording, *, speed: float) -> SessionLog:
    """Stream a recording at `speed` times the pace of speech. A failure is logged, not raised.

    A session that cannot be opened is tried again: a service that is full or restarts has taken none of its audio. One
    that is not there any more is not waited for without end.
    """
    until = time.monotonic() + SESSION_GRACE_S
    while True:
        log = SessionLog(recording=recording.name, started_at=time.monotonic())
        try:
            await _stream(log, url, recording, speed)
        except tutti.TuttiError as error:
            if not log.is_open and _may_open_later(error) and time.monotonic() < until:
                await asyncio.sleep(RETRY_S)
                continue
            log.failure = describe_error(error)
        except (TimeoutError, OSError) as error:
            log.failure = describe_error(error)
        return log


def _may_open_later(error: tutti.TuttiError) -> bool:
    """Whether a session may be opened later. A proxy answers 500 for a gateway that dies while it opens the session."""
    return isinstance(error, OPEN_LATER) or (isinstance(error, tutti.Refused) and error.status >= 500)


async def _stream(log: SessionLog, url: str, recording: Recording, speed: float) -> None:
    live = LiveText()
    async with (
        asyncio.timeout(recording.audio_s / min(speed, 1.0) + SESSION_GRACE_S),
        aclosing(chunks_of(recording.samples)) as chunks,
        # With a fixed silence the same audio ends in the same places, however late the engine answers.
        tutti.connect(url, language=LANGUAGE, endpointing="vad", proxy=None) as session,
        aclosing(tutti.paced(chunks, PCM_16K, tutti.Pace(speed, session.started.limits.max_ahead_s))) as audio,
        aclosing(session.stream(audio)) as events,
    ):
        log.started_at = time.monotonic()
        log.is_open = True
        async for event in events:
            live.on_event(time.monotonic(), event)
            log.changed_stable = live.taken_back
            match event:
                case tutti.Utterance():
                    log.words += timed_words(event.text, event.start_s, event.end_s)
                    log.utterances.append(event.utterance)
                case tutti.Resumed():
                    log.n_resumed += 1
                    log.gaps += [event.gap] if event.gap else []
                case _:
                    pass


async def upload(url: str, name: str, path: Path) -> SessionLog:
    """Send the file of a recording. A failure is logged, not raised."""
    log = SessionLog(recording=name, started_at=time.monotonic())
    try:
        async with aclosing(tutti.transcribe_file(url, path, language=LANGUAGE)) as events:
            async for event in events:
                if isinstance(event, tutti.Segment):
                    log.words += timed_words(event.text, event.start_s, event.end_s)
    except (tutti.TuttiError, OSError) as error:
        log.failure = describe_error(error)
    return log
