"""Transcribes a whole recording with the same sessions, windows and engine as live audio, as fast as the engine can."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace

from tutti_server.app.errors import CLOSE_DONE, MediaError, SessionError
from tutti_server.app.media.pcm import AudioFormat, Samples
from tutti_server.app.session.core.effects import Close
from tutti_server.app.session.core.final_sampling import recording_beams
from tutti_server.app.session.engine_driver import MAX_BACKLOG, SessionDriver, SessionTrace
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.session import Session, SessionConfig
from tutti_server.app.text_rules.pipeline import TextRuleOptions
from tutti_server.engine import api

FILE_ENDPOINTING = commands.Endpointing(silence_ms=2000, max_utterance_s=300.0)
"""An utterance of a file ends at longer pauses than a live one, so that its windows hold more audio.

Word errors of Whisper base on 3,111 words of people, without a beam search: 12.3 % with 700 ms, 11.6 % with 2 s and
windows that are filled.
"""

FLOAT_PCM = AudioFormat("pcm_f32le")
"""Mono float32 samples at 16 kHz."""

PIECE_S = 1
"""The session receives audio in pieces of at most this many seconds.

Its speech may be detected together with that of live sessions, which do not wait for more.
"""

RISING_TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""The temperatures of the decoding attempts of one window. Source: openai/whisper, whisper/transcribe.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptionOptions:
    """How a recording is decoded."""

    language: str | None = None
    """A language code; `None` detects the language."""
    languages: tuple[str, ...] = ()
    """The languages to detect one of; empty for all that the model knows."""
    locks_language: bool = False
    """Whether the language is detected once, at the beginning of the recording."""
    task: api.Task = "transcribe"
    prompt: str = ""
    """Text before the recording, or names that it may contain."""
    words: bool = False
    """Give the times of every word."""
    hotwords: tuple[str, ...] = ()
    """Names and terms to expect."""
    temperature: float = 0.0
    """The sampling temperature. 0 takes the likeliest words, with rising temperatures as a fallback."""
    best_of: int = 1
    """Decoding attempts at each temperature above 0; the likeliest one is kept."""
    beam_size: int | None = None
    """The beams at temperature 0; 1 decodes greedily, `None` is the operator's number."""
    falls_back: bool = True
    """Whether a text that repeats itself or is unlikely is decoded again at rising temperatures, at temperature 0.

    OpenAI documents this behaviour for its endpoint.
    """
    carries_context: bool = False
    """Show the model the text before each window. Windows are then decoded one after another, not side by side."""
    text_rules: TextRuleOptions = field(default_factory=TextRuleOptions)
    """What is done with the text."""
    endpointing: commands.Endpointing = FILE_ENDPOINTING
    audio_format: AudioFormat = FLOAT_PCM
    """The format of the samples or bytes."""

    @property
    def sampling(self) -> api.Sampling:
        """The temperatures that the engine tries. The session knows the number of beams."""
        rises = self.temperature == 0 and self.falls_back
        temperatures = RISING_TEMPERATURES if rises else (self.temperature,)
        return api.Sampling(temperatures=temperatures, best_of=self.best_of)

    @property
    def start(self) -> commands.Start:
        """The command that starts the session of the recording."""
        return commands.Start(
            audio=self.audio_format,
            language=self.language,
            languages=self.languages,
            locks_language=self.locks_language,
            task=self.task,
            interim=False,
            endpointing=self.endpointing,
            prompt=self.prompt,
            hotwords=self.hotwords,
            beam_size=self.beam_size,
            words=self.words,
            text_rules=self.text_rules,
        )

    def session_config(self, config: SessionConfig, model: api.ModelInfo) -> SessionConfig:
        """The operator's configuration, changed for a recording with these options and this model."""
        # A temperature above 0 leaves nothing to search.
        beam_size = 1 if self.temperature > 0 else config.beam_size or recording_beams(model)
        return replace(
            config,
            speculates=False,
            fills_windows=True,
            context="channel" if self.carries_context else "none",
            beam_size=beam_size,
            sampling=self.sampling,
            final_priority=api.Priority.FILE,
            max_finals_in_flight=MAX_BACKLOG,
        )


DEFAULT_OPTIONS = TranscriptionOptions()


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
        transcriber: the engine.
        audio: the recording in pieces of any length, in `options.audio_format`.
        on_event: called with each event; the last one is `Stopped`.
        session_id: names the recording in logs and to the engine.
        config: the operator's configuration of sessions.
        options: how to decode.
        on_progress: called whenever more text is final, with the seconds of audio before which all text has been given
            to `on_event`. The last call has the `audio_s` of `Stopped`.
        trace: follows the recording; `None` for one that is not traced.

    Raises:
        SessionError: the model does not support an option, or the engine failed.
        MediaError: `audio` raised it, because the recording cannot be decoded.
        OSError: `audio` raised it, because the recording cannot be read.
    """
    outcome = _Outcome(
        on_event=on_event, progress=_Progress(on_progress), n_channels=options.audio_format.n_transcribed
    )
    session = Session(session_id, transcriber.info, options.session_config(config, transcriber.info))
    async with asyncio.TaskGroup() as tasks:
        driver = SessionDriver(session, transcriber, tasks, outcome.add, outcome.close, trace=trace)
        driver.receive(options.start)
        try:
            await _feed(driver, audio, outcome.progress)
            await outcome.closed.wait()
        except (MediaError, OSError) as error:
            # Raised below: the task group would wrap it in an exception group.
            outcome.failure = error
        finally:
            driver.cancel_windows()
    if outcome.failure:
        raise outcome.failure


async def _feed(
    driver: SessionDriver, audio: AsyncIterator[Samples] | AsyncIterator[bytes], progress: "_Progress"
) -> None:
    """Give the session all audio, as fast as the engine decodes it, then stop it."""
    session = driver.session
    async for piece in audio:
        await driver.room()
        if session.is_closed:
            break
        data = piece if isinstance(piece, bytes) else piece.astype("<f4").tobytes()
        for at in range(0, len(data), session.bytes_per_s * PIECE_S):
            await driver.receive_audio(data[at : at + session.bytes_per_s * PIECE_S])
            progress.advance(min(session.acknowledged()))
    driver.receive(commands.Stop())


@dataclass(slots=True)
class _Progress:
    """The time up to which all text of a recording is final. It never moves back."""

    _on_progress: Callable[[float], None] | None
    _final_until_s: float = 0.0

    def advance(self, until_s: float) -> None:
        if until_s > self._final_until_s:
            self._final_until_s = until_s
            if self._on_progress:
                self._on_progress(until_s)


@dataclass(slots=True, kw_only=True)
class _Outcome:
    """Passes the session's events on, and keeps how the session ended."""

    on_event: Callable[[events.Event], None]
    progress: _Progress
    n_channels: int
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
                self.progress.advance(event.end_s)
            case events.Utterance():
                self.progress.advance(event.final_until_s)
            case events.Stopped():
                self.progress.advance(event.audio_s)

    def close(self, close: Close) -> None:
        """Keep the reason if the session ended with an error."""
        if close.code != CLOSE_DONE and self.failure is None:
            self.failure = SessionError(close.reason, close.reason, close.code)
        self.closed.set()
