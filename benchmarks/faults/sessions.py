"""Sessions and uploads through the Python SDK, and what came of them."""

import asyncio
import time
import wave
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import tutti
from benchmarks.faults.differences import TimedWord, timed_words
from benchmarks.live.client import CHUNK_SAMPLES, describe_error
from benchmarks.live.encodings import PCM_16K, encode
from benchmarks.recordings import Recording
from tutti_server.engine.api import SAMPLE_RATE

SESSION_GRACE_S = 600.0
"""A session that takes this many seconds longer than its audio has failed."""


RETRY_S = 1.0
"""Seconds from a session or an upload that was refused to the next try."""
OPEN_LATER = (tutti.Overloaded, tutti.Unreachable, tutti.TimedOut, tutti.ConnectionLost)
"""Why a session was not opened: the service is full, or does not run at the moment."""


@dataclass(slots=True, kw_only=True)
class SessionLog:
    """What one session received."""

    recording: str
    is_open: bool = False
    """Whether the service has accepted it."""
    started_at: float = 0.0
    """When its first audio was sent, by `time.monotonic`."""
    ended_at: float = 0.0
    words: list[TimedWord] = field(default_factory=list)
    """The words of its finals."""
    utterances: list[int] = field(default_factory=list)
    """The numbers of the utterances that ended, in order."""
    changed_stable: list[float] = field(default_factory=list)
    """When text changed that was shown as stable, in seconds of audio. This must not happen."""
    n_resumed: int = 0
    """How often its connection was mended."""
    gaps: list[tuple[float, float]] = field(default_factory=list)
    """The stretches of audio that a resumed session reports as missing, in seconds."""
    failure: str | None = None
    """Why it did not come to its end."""


class _Shown:
    """What a reader of the captions has seen of each open utterance. Checks that it only grows."""

    def __init__(self) -> None:
        self._stable: dict[int, str] = {}
        self._sent: dict[int, str] = {}

    def is_kept(self, event: tutti.Event) -> bool:
        """Whether the event keeps all stable text that was shown for its utterance."""
        match event:
            case tutti.Interim():
                new = self._sent.get(event.utterance, "") + event.stable
            case tutti.Segment():
                new = self._sent[event.utterance] = self._sent.get(event.utterance, "") + event.text
                old = self._stable.get(event.utterance, "")
                # A window may end with several segments: the stable text may reach beyond the first of them.
                return old.startswith(new) or self._grows(event.utterance, new)
            case tutti.Utterance():
                new = event.text
            case _:
                return True
        return self._grows(event.utterance, new)

    def _grows(self, utterance: int, new: str) -> bool:
        old, self._stable[utterance] = self._stable.get(utterance, ""), new
        return new.startswith(old)


async def stream(url: str, recording: Recording, *, speed: float, language: str | None) -> SessionLog:
    """Stream a recording at `speed` times the pace of speech. A failure is logged, not raised.

    A session that cannot be opened is tried again: a service that is full or restarts has taken none of its audio.
    """
    while True:
        log = SessionLog(recording=recording.name, started_at=time.monotonic())
        try:
            await _stream(log, url, recording, speed, language)
        except tutti.TuttiError as error:
            if not log.is_open and _may_open_later(error):
                await asyncio.sleep(RETRY_S)
                continue
            log.failure = describe_error(error)
        except (TimeoutError, OSError) as error:
            log.failure = describe_error(error)
        log.ended_at = time.monotonic()
        return log


def _may_open_later(error: tutti.TuttiError) -> bool:
    """Whether a session may be opened later. A proxy answers 500 for a gateway that dies while it opens the session."""
    return isinstance(error, OPEN_LATER) or (isinstance(error, tutti.Refused) and error.status >= 500)


async def _stream(log: SessionLog, url: str, recording: Recording, speed: float, language: str | None) -> None:
    shown = _Shown()
    async with (
        asyncio.timeout(recording.audio_s / min(speed, 1.0) + SESSION_GRACE_S),
        aclosing(_chunks(recording)) as chunks,
        # With a fixed silence the same audio ends in the same places, however late the engine answers.
        tutti.connect(url, language=language, endpointing="vad", proxy=None) as session,
        aclosing(tutti.paced(chunks, PCM_16K, tutti.Pace(speed, session.started.limits.max_ahead_s))) as audio,
        aclosing(session.stream(audio)) as events,
    ):
        log.started_at = time.monotonic()
        log.is_open = True
        async for event in events:
            if not shown.is_kept(event):
                log.changed_stable.append(getattr(event, "end_s", 0.0))
            match event:
                case tutti.Utterance():
                    log.words += timed_words(event.text, event.start_s, event.end_s)
                    log.utterances.append(event.utterance)
                case tutti.Resumed():
                    log.n_resumed += 1
                    log.gaps += [event.gap] if event.gap else []
                case _:
                    pass


async def upload(url: str, name: str, path: Path, *, language: str | None) -> SessionLog:
    """Send the file of a recording. A failure is logged, not raised."""
    log = SessionLog(recording=name, started_at=time.monotonic())
    try:
        async with aclosing(tutti.transcribe_file(url, path, language=language)) as events:
            async for event in events:
                if isinstance(event, tutti.Segment):
                    log.words += timed_words(event.text, event.start_s, event.end_s)
    except (tutti.TuttiError, OSError) as error:
        log.failure = describe_error(error)
    log.ended_at = time.monotonic()
    return log


async def _chunks(recording: Recording) -> AsyncGenerator[bytes, None]:
    data = encode(recording.samples, PCM_16K)
    for begin in range(0, len(data), 2 * CHUNK_SAMPLES):
        yield data[begin : begin + 2 * CHUNK_SAMPLES]


def write_wav(recording: Recording, path: Path) -> None:
    """Write a recording as a WAV file."""
    with wave.open(str(path), "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(SAMPLE_RATE)
        writer.writeframes(encode(recording.samples, PCM_16K))
