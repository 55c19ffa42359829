"""Transcribes a whole recording with the same sessions, windows and engine as live audio, as fast as the engine can."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace

import numpy as np

from tutti_server.app.errors import CLOSE_DONE, MediaError, SessionError
from tutti_server.app.files.transcription_options import DEFAULT_OPTIONS, TranscriptionOptions
from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.core.effects import Close
from tutti_server.app.session.core.final_beams import recording_beams
from tutti_server.app.session.core.options import SessionConfig
from tutti_server.app.session.engine_driver import MAX_BACKLOG, SessionDriver, SessionTrace
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.session import Session
from tutti_server.engine import api

PIECE_S = 10
"""The session receives audio in pieces of at most this many seconds: some milliseconds of the event loop."""
SHARED_PIECE_S = 1
"""The same where speech is detected together with that of live sessions, which do not wait for more."""


def session_config(config: SessionConfig, options: TranscriptionOptions, model: api.ModelInfo) -> SessionConfig:
    """The operator's configuration, changed for a recording with these options and this model."""
    # A temperature above 0 leaves nothing to search.
    beam_size = 1 if options.temperature > 0 else config.beam_size or recording_beams(model)
    return replace(
        config,
        speculates=False,
        fills_windows=True,
        context="channel" if options.carries_context else "none",
        beam_size=beam_size,
        sampling=options.sampling,
        final_priority=api.Priority.FILE,
        max_finals_in_flight=MAX_BACKLOG,
    )


async def transcribe(
    transcriber: api.Transcriber,
    audio: AsyncIterator[Samples] | AsyncIterator[bytes],
    on_event: Callable[[events.Event], None],
    *,
    session_id: str,
    config: SessionConfig,
    options: TranscriptionOptions = DEFAULT_OPTIONS,
    on_progress: Callable[[float], None] | None = None,
    trace: SessionTrace | None = None,
) -> None:
    """Transcribe a recording.

    Audio is pulled as fast as the engine decodes it and is not kept, so a recording may last for hours. Cancelling is
    safe.

    Args:
        audio: the recording in pieces of any length, in `options.audio`.
        on_event: called with each event; the last one is `Stopped`.
        on_progress: called whenever more text is final, with the seconds of audio before which all text has been given
            to `on_event`. The last call has the `audio_s` of `Stopped`.
        trace: follows the recording; `None` for one that is not traced.

    Raises:
        SessionError: the model does not support an option, or the engine failed.
        MediaError: `audio` raised it, because the recording cannot be decoded.
        OSError: `audio` raised it, because the recording cannot be read.
    """
    outcome = _Outcome(on_event=on_event, on_progress=on_progress, n_channels=options.audio.n_transcribed)
    session = Session(session_id, transcriber.info, session_config(config, options, transcriber.info))
    async with asyncio.TaskGroup() as tasks:
        driver = SessionDriver(session, transcriber, tasks, outcome.add, outcome.close, trace=trace)
        await driver.start(options.start)
        try:
            await _feed(driver, audio, outcome)
            await outcome.closed.wait()
        except (MediaError, OSError) as error:
            # Raised below: the task group would wrap it in an exception group.
            outcome.failure = error
        finally:
            driver.cancel_windows()
    if outcome.failure:
        raise outcome.failure


async def _feed(
    driver: SessionDriver, audio: AsyncIterator[Samples] | AsyncIterator[bytes], outcome: "_Outcome"
) -> None:
    """Give the session all audio, as fast as the engine decodes it, then stop it."""
    session = driver.session
    n_bytes = session.bytes_per_s * (SHARED_PIECE_S if session.config.detect_ahead else PIECE_S)
    async for piece in audio:
        await driver.room()
        if session.is_closed:
            break
        data = memoryview(piece if isinstance(piece, bytes) else np.ascontiguousarray(piece, "<f4").data).cast("B")
        for at in range(0, len(data), n_bytes):
            await driver.receive_audio(bytes(data[at : at + n_bytes]))
            outcome.advance(min(session.acknowledged()))
    driver.receive(commands.Stop())


@dataclass(slots=True, kw_only=True)
class _Outcome:
    on_event: Callable[[events.Event], None]
    on_progress: Callable[[float], None] | None
    n_channels: int
    final_until_s: float = 0.0
    """The time up to which all text of the recording is final. It never moves back."""
    failure: SessionError | MediaError | OSError | None = None
    """Why there is no complete transcript."""
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, event: events.Event) -> None:
        """Pass one event on, then report the progress that it brings."""
        if isinstance(event, events.Failure) and event.is_fatal:
            self.failure = SessionError(event.code, event.message)
        self.on_event(event)
        match event:
            case events.Segment() if self.n_channels == 1:
                # No later segment begins before this end. Another channel may be behind.
                self.advance(event.end_s)
            case events.Utterance():
                self.advance(event.final_until_s)
            case events.Stopped():
                self.advance(event.audio_s)

    def advance(self, until_s: float) -> None:
        """Report that all text before this time is final, unless that is known."""
        if until_s > self.final_until_s:
            self.final_until_s = until_s
            if self.on_progress:
                self.on_progress(until_s)

    def close(self, close: Close) -> None:
        if close.code != CLOSE_DONE and self.failure is None:
            self.failure = SessionError(close.reason, close.reason, close.code)
        self.closed.set()
