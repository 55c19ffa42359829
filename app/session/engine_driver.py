"""The shell of a session towards the engine: performs effects, runs windows, and gives their events to the session.

WebSocket connections and file transcription both use it. It leaves to them what happens to the session's events.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from tutti_server.app.errors import TranslationFailed
from tutti_server.app.session.core.effects import (
    Cancel,
    Close,
    Effect,
    EmbedSpeech,
    LimitSpeakers,
    ScoreTurn,
    Send,
    Submit,
    Translate,
)
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.session import Session, give_up_speakers, speakers_found
from tutti_server.app.text_rules.pipeline import TextRules
from tutti_server.engine import api
from tutti_server.engine.errors import EngineError

MAX_BACKLOG = 8
"""The most ended windows of one session that may wait for the engine while its client's audio is read.

At this number no more audio is read until one of them is done.
"""
SPEAKERS, LAST_SPEAKERS = -1, -2
"""Stand for the speakers, and for the wait for the last of them, among the channels that wait for a model."""

Submission = AbstractAsyncContextManager[AsyncIterator[api.EngineEvent]]
"""A window on its way through the engine, as `Transcriber.submit` returns it."""


class SessionTrace(Protocol):
    """Follows one session for the operator. Nothing that it does changes the session."""

    def session_event(self, event: events.Event) -> None:
        """Note an event of the session."""
        ...

    def window(self, submit: Submit, submission: Submission) -> Submission:
        """Return the same submission, which is followed to its end."""
        ...


class SessionDriver:
    """Owns one session. Windows run as tasks of `tasks`, a group that ends with the caller."""

    def __init__(
        self,
        session: Session,
        transcriber: api.Transcriber,
        tasks: asyncio.TaskGroup,
        on_event: Callable[[events.Event], None],
        on_close: Callable[[Close], None],
        window_deadline_s: float | None = None,
        on_final_wait: Callable[[float], None] | None = None,
        trace: SessionTrace | None = None,
    ) -> None:
        """Make a driver.

        Args:
            session: the session; the caller gives it commands only by `receive` and `perform`. Its configuration has
                what prepares its detectors and scores its pauses.
            tasks: where windows run.
            on_close: called once, when the session is over.
            window_deadline_s: how long the engine may take for a window, its time in the queue included; `None` for
                as long as it takes.
            on_final_wait: called with the seconds that each final window has waited in the engine's queue.
            trace: follows the session; `None` for a session that is not traced.
        """
        self.session = session
        self._window_deadline_s = window_deadline_s
        self._on_final_wait = on_final_wait
        self._trace = trace
        self._transcriber = transcriber
        self._tasks = tasks
        self._on_event = on_event
        self._on_close = on_close
        self._windows: dict[int, asyncio.Task[None]] = {}
        """The tasks of the windows and translations that run, by the ids of their requests."""
        self._listening: dict[int, asyncio.Task[None]] = {}
        """The last task of each channel that waits, or has waited, for the turn model; and that for the speakers."""
        translator = session.config.translator
        self._translator = translator.open() if translator else None
        """The operator's service for translations, as this session uses it."""
        self._has_room = asyncio.Event()
        self._has_room.set()

    def use(self, transcriber: api.Transcriber) -> None:
        """Use another engine than the one with which this was made. Called before the session starts."""
        self._transcriber = transcriber
        self.session.use(transcriber.info)

    def receive(self, command: commands.Command) -> None:
        """Give a command to the session, and perform what follows. Does not wait for anything."""
        self.perform(self.session.receive(command))

    async def start(self, start: commands.Start) -> None:
        """Start the session. Waits while its text rules are compiled: of many, that takes tenths of a second."""
        if start.text_rules:
            # `re` keeps the patterns that it has compiled, and the session finds them there.
            await asyncio.to_thread(TextRules, start.text_rules)
        self.receive(start)

    async def receive_audio(self, data: bytes) -> None:
        """Give audio to the session. Waits while its detectors are prepared, together with those of other sessions."""
        if detect_ahead := self.session.config.detect_ahead:
            upcoming, data = self.session.decode_ahead(data), b""
            await detect_ahead(upcoming)
        self.receive(commands.Audio(data))

    def perform(self, effects: list[Effect]) -> None:
        """Perform effects, in order. Does not wait for anything."""
        for effect in effects:
            match effect:
                case Send(event):
                    self._note_speculative(event)
                    if self._trace:
                        self._trace.session_event(event)
                    self._on_event(event)
                case Submit(request_id):
                    self._windows[request_id] = self._tasks.create_task(self._run(effect))
                case Cancel(request_id):
                    _stop(self._windows, request_id)
                case ScoreTurn(channel):
                    _stop(self._listening, channel)
                    self._listening[channel] = self._tasks.create_task(self._score(effect))
                case Translate(id=request_id):
                    self._windows[request_id] = self._tasks.create_task(self._translate(effect))
                case EmbedSpeech():
                    self._listening[SPEAKERS] = self._tasks.create_task(self._find_speakers(effect))
                case LimitSpeakers(seconds):
                    _stop(self._listening, LAST_SPEAKERS)
                    self._listening[LAST_SPEAKERS] = self._tasks.create_task(self._limit_speakers(seconds))
                case Close():
                    self._on_close(effect)
        if self.session.backlog < MAX_BACKLOG or self.session.is_closed:
            self._has_room.set()
        else:
            self._has_room.clear()

    async def room(self) -> None:
        """Wait until the session can process more audio. This slows down a client that is faster than the engine."""
        await self._has_room.wait()

    def cancel_windows(self) -> None:
        """Withdraw all windows and translations that still run, and all audio that waits for a model of voices."""
        for tasks in (self._windows, self._listening):
            for number in list(tasks):
                _stop(tasks, number)

    async def _run(self, submit: Submit) -> None:
        """Submit a window, and give its events to the session until the last one."""
        request_id, window = submit.request_id, submit.window
        submission = self._transcriber.submit(window)
        if self._trace:
            submission = self._trace.window(submit, submission)
        try:
            async with asyncio.timeout(self._window_deadline_s) as deadline:
                async with submission as engine_events:
                    async for event in engine_events:
                        self._note_wait(window, event)
                        self.perform(self.session.engine_event(request_id, event))
        except EngineError as error:
            self.perform(self.session.engine_error(request_id, error))
        except TimeoutError:
            if self._window_deadline_s is None or not deadline.expired():
                raise
            self.perform(self.session.engine_stalled(request_id, self._window_deadline_s))
        finally:
            self._windows.pop(request_id, None)

    async def _translate(self, request: Translate) -> None:
        """Have a text translated, and give the session the translation or the failure."""
        assert self._translator, "the session asks only where there is a service"
        text, failure = "", ""
        try:
            text = await self._translator.translate(request)
        except TranslationFailed as error:
            failure = str(error)
        finally:
            self._windows.pop(request.id, None)
        self.perform(self.session.translated(request.id, text, failure))

    async def _score(self, pause: ScoreTurn) -> None:
        """Have the turn model score a pause, and tell the session. Where the model fails, it goes on without."""
        score_turn = self.session.config.score_turn
        assert score_turn, "the session asks only where there is a turn model"
        probability = await score_turn(pause.samples)
        if probability is not None:
            self.perform(self.session.turn_scored(pause.channel, pause.audio_end, probability))

    async def _find_speakers(self, speech: EmbedSpeech) -> None:
        self.perform(speakers_found(self.session, await speech.voices.add(speech.stretches)))

    async def _limit_speakers(self, seconds: float) -> None:
        """Let the session end without its last speakers if they do not come in time."""
        await asyncio.sleep(seconds)
        self.perform(give_up_speakers(self.session))

    def _note_speculative(self, event: events.Event) -> None:
        """A final whose text was ready, or nearly so, when it was due has not waited."""
        if self._on_final_wait and isinstance(event, events.Utterance) and event.counts.is_speculative:
            self._on_final_wait(0.0)

    def _note_wait(self, window: api.Window, event: api.EngineEvent) -> None:
        is_final = window.priority is api.Priority.FINAL
        if self._on_final_wait and is_final and isinstance(event, api.StartedEvent):
            self._on_final_wait(event.queued_s)


def _stop(tasks: dict[int, asyncio.Task[None]], number: int) -> None:
    if task := tasks.pop(number, None):
        task.cancel()
