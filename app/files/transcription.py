"""A whole recording through the same sessions, windows and engine as live audio, as fast as the engine goes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from app.errors import CLOSE_DONE, MediaError, SessionError
from app.media.pcm import AudioFormat, Samples
from app.session import commands, events
from app.session.effects import Close
from app.session.engine_driver import MAX_BACKLOG, SessionDriver
from app.session.session import Session, SessionConfig
from engine import api

# A file is cut at longer pauses than live speech, so that windows are fuller. With windows that run on over pauses
# of up to 3 s the demo model lost 6.5 s of speech of a 3-minute dialogue; with these none, at two thirds of the speed.
FILE_ENDPOINTING = commands.Endpointing(silence_ms=700, max_utterance_s=300.0)

FLOATS = AudioFormat("pcm_f32le")
"""Mono samples at 16 kHz."""

RISING_TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def sampling(temperature: float, best_of: int, falls_back: bool = True) -> api.Sampling:
    """How windows are read at a temperature, `best_of` times if that is above 0.

    0 raises it by itself where a reading repeats itself or is doubtful, as OpenAI documents it for its endpoint, unless
    it is not to fall back; the steps are those of openai/whisper, whisper/transcribe.py.
    """
    rises = temperature == 0 and falls_back
    return api.Sampling(temperatures=RISING_TEMPERATURES if rises else (temperature,), best_of=best_of)


async def transcribe(
    transcriber: api.Transcriber,
    audio: AsyncIterator[Samples] | AsyncIterator[bytes],
    on_event: Callable[[events.Event], None],
    *,
    session_id: str,
    config: SessionConfig,
    language: str | None = None,
    task: api.Task = "transcribe",
    prompt: str = "",
    words: bool = False,
    hotwords: tuple[str, ...] = (),
    temperature: float = 0.0,
    best_of: int = 1,
    falls_back: bool = True,
    carries_context: bool = False,
    endpointing: commands.Endpointing = FILE_ENDPOINTING,
    audio_format: AudioFormat = FLOATS,
    on_progress: Callable[[float], None] | None = None,
) -> None:
    """Transcribe samples; events are handed out as they come, `Stopped` last.

    Audio is taken as the engine gets on with it, and none is kept, so that a recording may last for hours.
    Cancelling is safe.

    Args:
        temperature: see `sampling`.
        best_of: see `sampling`.
        falls_back: see `sampling`.
        audio_format: what the samples or bytes of `audio` are.
        carries_context: show the model the text before a window; its windows are then decoded one after another, not
            side by side.
        on_progress: told, in seconds of audio, how far the text is final and has been handed out, whenever that grows;
            at last the `audio_s` of `Stopped`.

    Raises:
        SessionError: an option that the model cannot honour, or the engine failed.
        MediaError: the audio could not be decoded; raised by `audio` and passed on.
    """
    failure: SessionError | MediaError | None = None
    is_closed = asyncio.Event()
    final_until_s = 0.0

    def note_final(until_s: float) -> None:
        nonlocal final_until_s
        if until_s > final_until_s:
            final_until_s = until_s
            if on_progress:
                on_progress(until_s)

    def note(event: events.Event) -> None:
        nonlocal failure
        if isinstance(event, events.Failure) and event.is_fatal:
            failure = SessionError(event.code, event.message)
        on_event(event)
        match event:
            case events.Segment():
                # The next one begins no earlier.
                note_final(event.end_s)
            case events.Utterance():
                note_final(event.final_until_s)
            case events.Stopped():
                note_final(event.audio_s)

    def note_close(close: Close) -> None:
        nonlocal failure
        if close.code != CLOSE_DONE and failure is None:
            failure = SessionError(close.reason, close.reason, close.code)
        is_closed.set()

    config = replace(
        config,
        context="channel" if carries_context else "none",
        sampling=sampling(temperature, best_of, falls_back),
        max_finals_in_flight=MAX_BACKLOG,
    )
    session = Session(session_id, transcriber.info, config)
    async with asyncio.TaskGroup() as tasks:
        driver = SessionDriver(session, transcriber, tasks, note, note_close)
        driver.receive(
            commands.Start(
                audio=audio_format,
                language=language,
                task=task,
                interim=False,
                endpointing=endpointing,
                prompt=prompt,
                hotwords=hotwords,
                words=words,
            )
        )
        try:
            async for piece in audio:
                await driver.room()
                if session.is_closed:
                    break
                driver.receive(commands.Audio(piece if isinstance(piece, bytes) else piece.astype("<f4").tobytes()))
                note_final(min(session.acknowledged()))
            driver.receive(commands.Stop())
            await is_closed.wait()
        except MediaError as error:
            # Raised behind the task group, which would wrap it.
            failure = error
        finally:
            driver.cancel_windows()
    if failure:
        raise failure
