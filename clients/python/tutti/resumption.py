"""The connections of one session, one after another: a lost one is replaced, and the session goes on.

`continuity.py` decides which events the program receives, `outgoing.py` what the next connection is sent. This module
has the tasks and the clock: it sends, notices a loss, waits, and connects again.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from tutti.connection import CLOSE_CODE_ABNORMAL, CLOSE_CODE_NORMAL, Connection, Progress
from tutti.continuity import Continuity
from tutti.errors import ConnectionLost, Overloaded, Refused, SessionError, TimedOut, TuttiError, Unreachable
from tutti.messages import (
    Event,
    Flush,
    Flushed,
    KeepAlive,
    Reconnecting,
    Resume,
    Resumed,
    Room,
    Start,
    Started,
    Stop,
    Stopped,
    Translation,
    Utterance,
)
from tutti.outgoing import ROUNDING_S, Outgoing

FIRST_WAIT_S = 0.5
"""The longest wait before the first attempt to connect again, in seconds. It doubles with every attempt."""
MAX_WAIT_S = 30.0
"""The longest wait before any attempt, in seconds, unless the server asks for a longer one."""
MAX_DOUBLINGS = 16
"""How often the wait doubles at most: in an outage of hours the power would become too large for a float."""
SETTLED_S = 10.0
"""A connection that is lost sooner than this, in seconds, and has made nothing final, continues the same outage."""
SILENCE_SHARE = 0.9
"""A client that has sent something within this share of `limits.idle_timeout_s` is not silent: its network lost it."""
LEAD_IN_FIELD = "resume.audio_from_s"
"""A field of `start` that servers of version 0.1 ignore with a warning: they take the first sample for a later one."""
MAX_UTTERANCE_S = 60.0
"""The server's default of `max_utterance_s` (docs/protocol.md)."""
REPLAY_EXTRA_S = 30.0
"""How much longer than `max_ahead_s` and the longest utterance a replay may be, in seconds (docs/protocol.md)."""
MAX_PACE = 1.5
"""By how many seconds in a second the server lets the lead of a client shrink (docs/protocol.md)."""
LEAD_SHARE = 0.8
"""The part of this allowance that is used. The rest is a margin for clocks and networks that are not exact."""
REPLAY_PIECE_S = 0.5
"""The longest piece of audio that is sent at once on a connection that resumes, in seconds."""

RESUMABLE_CLOSE_CODES = frozenset({1001, 1005, 1006, 1011, 1012, 1013, 1014})
"""Close codes after which another connection may succeed: the server or the network failed, not the client."""
IDLE = "idle"
"""The code of the error with which a server ends the session of a client that has sent nothing for long."""
RESUMABLE_ERRORS = frozenset(
    {"overloaded", "session_limit", "draining", "no_engine", "engine_failed", "engine_stalled", IDLE}
)
"""Codes of fatal `error` events that come before one of these close codes."""

Opener: TypeAlias = Callable[[Start], Awaitable[tuple[Connection, Started]]]
"""Opens a connection, and starts a session on it."""
Uniform: TypeAlias = Callable[[float, float], float]
"""Draws a random number between two others."""


def is_resumable(error: TuttiError) -> bool:
    """Whether another connection may succeed after this error."""
    match error:
        case ConnectionLost():
            return error.close_code in RESUMABLE_CLOSE_CODES
        case SessionError():
            return error.code in RESUMABLE_ERRORS
        case Refused():
            return error.status >= 500 or error.status == 429
        case Unreachable():
            return True
        case TimedOut():
            return error.setting in ("open_timeout_s", "started_timeout_s")
        case _:
            return False


@dataclass(slots=True)
class Lead:
    """How far the audio of a connection that resumes is ahead of the clock, as the server counts it."""

    limit_s: float
    ahead_s: float = 0.0
    updated_s: float = 0.0

    def wait_s(self, audio_s: float, now_s: float) -> float:
        """How long to wait before this much audio may be sent, in seconds. Counts it as sent after that."""
        ahead_s = max(self.ahead_s - (now_s - self.updated_s) * MAX_PACE, 0.0) + audio_s
        wait_s = max(0.0, ahead_s - LEAD_SHARE * self.limit_s) / MAX_PACE
        self.ahead_s, self.updated_s = ahead_s - wait_s * MAX_PACE, now_s + wait_s
        return wait_s


def resume_command(continuity: Continuity, audio_from_s: float, has_lead_in: bool) -> Resume:
    """How the next connection continues the session.

    Args:
        continuity: knows what is final.
        audio_from_s: the time of the first sample that is sent.
        has_lead_in: whether the server knows the fields about audio before that which is not final.
    """
    times_s = tuple(max(time_s, audio_from_s) for time_s in continuity.resume_from_s)
    if not has_lead_in:
        return Resume(times_s)
    first_s = audio_from_s - ROUNDING_S
    detector_from_s = tuple(
        known_s if known_s is not None and known_s >= first_s else None for known_s in continuity.detector_from_s
    )
    return Resume(
        times_s,
        audio_from_s=audio_from_s if audio_from_s < min(times_s) else None,
        detector_from_s=detector_from_s if any(known_s is not None for known_s in detector_from_s) else None,
        language=continuity.languages if any(continuity.languages) else None,
        untranslated=continuity.translations.missing(times_s) or None,
        voices=continuity.voices,
    )


class Reconnector:
    """Opens the connections of a session after the first, and decides how long to wait before each attempt."""

    def __init__(self, opener: Opener, start: Start, timeout_s: float, uniform: Uniform = random.uniform) -> None:
        """Prepare for losses.

        Args:
            timeout_s: the longest outage, in seconds.
            uniform: draws a number between two others.
        """
        self._opener = opener
        self._start = start
        self._timeout_s = timeout_s
        self._uniform = uniform
        self.has_lead_in = True
        """Audio before that which is not final is sent for the server's speech detector."""
        self._began_s: float | None = None
        """When the outage began, on the clock of the event loop; None if the connection works."""
        self._n_attempts = 0
        self._connected_s = _now_s()

    def keep_room(self, started: Started) -> None:
        """Go on in the room in which the session has begun."""
        if started.room is not None:
            title = self._start.room.title if self._start.room else None
            room = Room(name=started.room.name, token=started.room.token, title=title)
            self._start = replace(self._start, room=room)

    def lead(self, started: Started) -> Lead:
        """The allowance for the audio of a connection that resumes."""
        endpointing = self._start.endpointing
        max_utterance_s = (endpointing and endpointing.max_utterance_s) or MAX_UTTERANCE_S
        return Lead(started.limits.max_ahead_s + max_utterance_s + REPLAY_EXTRA_S)

    @property
    def translate(self) -> tuple[str, ...]:
        """The languages that final text is translated to."""
        return self._start.translate or ()

    @property
    def channel_names(self) -> tuple[str, ...]:
        """The name of each channel, if they have any."""
        return self._start.channel_names or ()

    def settle(self) -> None:
        """The present connection works: it has made something final."""
        self._began_s = None

    def lose(self) -> None:
        """The present connection was lost."""
        if self._began_s is None or _now_s() - self._connected_s >= SETTLED_S:
            self._began_s = _now_s()
            self._n_attempts = 0

    def next_attempt(self, error: TuttiError) -> Reconnecting | None:
        """The next attempt after an error; None if it would come too late.

        The wait is any time up to a limit, so that the clients of a server do not all come back at once.
        """
        assert self._began_s is not None
        longest_s = min(FIRST_WAIT_S * 2.0 ** min(self._n_attempts, MAX_DOUBLINGS), MAX_WAIT_S)
        wait_s = self._uniform(0.0, longest_s)
        if isinstance(error, Overloaded):
            wait_s += error.retry_after_s or 0.0
        if _now_s() + wait_s > self._began_s + self._timeout_s:
            return None
        self._n_attempts += 1
        return Reconnecting(self._n_attempts, str(error), round(wait_s, 3))

    async def open(self, resume: Resume) -> tuple[Connection, Started]:
        """Open a connection that resumes the session.

        Raises:
            ConnectionLost: the server is older than `audio_from_s`; `has_lead_in` is False from now on.
        """
        connection, started = await self._opener(replace(self._start, resume=resume))
        if any(warning.message.startswith(LEAD_IN_FIELD) for warning in started.warnings):
            self.has_lead_in = False
            connection.abort()
            raise ConnectionLost(CLOSE_CODE_ABNORMAL, f"the server does not know {LEAD_IN_FIELD}", 0.0)
        self._connected_s = _now_s()
        return connection, started


class ResumingConnection:
    """Sends and receives on the present connection, and replaces it when it is lost.

    Losses are noticed while events are received or something is sent. Methods raise the error that ended the session.
    """

    def __init__(
        self, connection: Connection, started: Started, outgoing: Outgoing, progress: Progress, reconnector: Reconnector
    ) -> None:
        """Go on with the first connection, on which a session has started."""
        reconnector.keep_room(started)
        self.started = started
        self.progress = progress
        self._connection: Connection | None = connection
        self._outgoing = outgoing
        self._reconnector = reconnector
        self._continuity = Continuity(
            progress.resume_from_s, reconnector.translate, outgoing.began_s, reconnector.channel_names
        )
        self._events: deque[Event] = deque()
        """Events that were not delivered yet."""
        self._failure: TuttiError | None = None
        """What ended the session."""
        self._has_stopped = False
        """The server has sent everything."""
        self._has_changed = asyncio.Event()
        """Set whenever something was sent or received, and when the connection has changed. Waiters clear it."""
        self._has_more = asyncio.Event()
        """Set whenever there may be something to send."""
        self._tasks = {asyncio.create_task(self._send_all(connection, None))}

    @property
    def last_sent_s(self) -> float:
        """When something was sent, on the clock of the event loop. Without a connection, now."""
        return _now_s() if self._connection is None else self._connection.last_sent_s

    async def send(self, audio: memoryview) -> None:
        """Send audio. If a lost session is resumed, this only waits while too much audio is not sent yet."""
        self._outgoing.append(audio)
        await self._send()

    async def flush(self, flush: Flush) -> None:
        """Send a flush after the audio so far."""
        self._outgoing.flush(flush)
        await self._send()

    async def stop(self) -> None:
        """Send the end after everything else."""
        self._outgoing.stop()
        await self._send()

    async def keepalive(self) -> None:
        """Keep the session open. Without a connection, there is nothing to keep open."""
        self._check()
        if (connection := self._connection) is not None:
            try:
                await connection.send_command(KeepAlive())
            except (ConnectionLost, SessionError) as error:
                self._lose(connection, error)
                self._check()

    async def receive(self) -> Event:
        """Wait for the next event, of whatever connection."""
        while not self._events:
            self._check()
            if (connection := self._connection) is None:
                await self._wait_for_change()
                continue
            try:
                event = await connection.receive()
            except (ConnectionLost, SessionError) as error:
                self._lose(connection, error)
            else:
                # What a lost connection has sent meanwhile comes again.
                if connection is self._connection:
                    self._accept(event)
        event = self._events.popleft()
        if isinstance(event, Utterance):
            self.progress.note(event)
        return event

    async def close(self, timeout_s: float) -> None:
        """End all tasks and close the connection. Methods that are called after that raise `ConnectionLost`."""
        if self._failure is None:
            self._fail(ConnectionLost(CLOSE_CODE_NORMAL, "the session is closed", self.progress.final_until_s))
        for task in self._tasks:
            task.cancel()
        try:
            if self._tasks:
                await asyncio.wait(self._tasks)
            if self._connection is not None:
                await self._connection.close(timeout_s)
        finally:
            if self._connection is not None:
                self._connection.abort()

    def _check(self) -> None:
        failure = self._failure
        if failure is None:
            return
        if isinstance(failure, ConnectionLost | SessionError):
            failure.final_until_s = self.progress.final_until_s
        raise failure

    async def _wait_for_change(self) -> None:
        self._has_changed.clear()
        await self._has_changed.wait()

    async def _send(self) -> None:
        self._check()
        self._has_more.set()
        self._outgoing.limit(is_connected=self._connection is not None)
        # Lets the other tasks run, also if this never waits below.
        await asyncio.sleep(0)
        while self._failure is None and self._connection is not None and self._outgoing.is_full:
            await self._wait_for_change()
        self._check()

    async def _send_all(self, connection: Connection, lead: Lead | None) -> None:
        """Send everything on one connection, as long as it lasts."""
        max_bytes = self.started.limits.max_message_bytes
        if lead is not None:
            max_bytes = min(max_bytes, self._outgoing.n_bytes(REPLAY_PIECE_S))
        try:
            while True:
                self._has_more.clear()
                while (item := self._outgoing.pop(max_bytes)) is not None:
                    await self._send_item(connection, item, lead)
                    self._has_changed.set()
                await self._has_more.wait()
        except TuttiError as error:
            self._lose(connection, error)

    async def _send_item(self, connection: Connection, item: bytes | Flush | Stop, lead: Lead | None) -> None:
        match item:
            case bytes():
                if lead is not None:
                    await asyncio.sleep(lead.wait_s(self._outgoing.duration_s(item), _now_s()))
                await connection.send(item)
            case Stop():
                connection.limit_waits()
                await connection.send_command(item)
            case _:
                await connection.send_command(item)

    def _accept(self, event: Event) -> None:
        """Note an event of the present connection, and deliver what follows from it."""
        match event:
            case Flushed():
                self._outgoing.answer(event.id)
                self._has_more.set()
                self._reconnector.settle()
            case Stopped():
                self._has_stopped = True
            case _:
                pass
        self._events += self._continuity.receive(event)
        if isinstance(event, Utterance | Translation):
            self._forget_final()
            self._reconnector.settle()

    def _forget_final(self) -> None:
        """Keep only the audio that another connection would need."""
        continuity = self._continuity
        needed_from_s = continuity.translations.needed_from_s
        self._outgoing.forget_before(continuity.final_until_s, continuity.detector_from_s, needed_from_s)

    def _lose(self, connection: Connection, error: TuttiError) -> None:
        """A connection does not work any more. The first call for it replaces it, or ends the session."""
        if connection is not self._connection or self._failure is not None:
            return
        for event in connection.pop_unread():
            self._accept(event)
        if self._has_stopped or not self._outgoing.is_kept or not is_resumable(error):
            self._fail(error)
            return
        connection.abort()
        self._connection = None
        waits = self._is_silent(connection, error)
        if not waits:
            self._reconnector.lose()
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()
        self._tasks = {task for task in self._tasks if not task.done()}
        self._tasks.add(asyncio.create_task(self._reconnect(error, waits)))
        self._has_changed.set()

    def _is_silent(self, connection: Connection, error: TuttiError) -> bool:
        """The server has ended the connection because there was nothing to send, and there is nothing now."""
        silent_s = _now_s() - connection.last_sent_s
        was_silent = silent_s >= SILENCE_SHARE * self.started.limits.idle_timeout_s
        return isinstance(error, SessionError) and error.code == IDLE and was_silent and self._outgoing.is_answered

    def _fail(self, error: TuttiError) -> None:
        self._failure = error
        self._has_changed.set()

    def _deliver(self, *events: Event) -> None:
        self._events += events
        self._has_changed.set()

    async def _reconnect(self, error: TuttiError, waits: bool) -> None:
        """Try to open another connection until one is open, or no attempt can help.

        Args:
            error: how the last connection ended.
            waits: first wait until there is something to send. Otherwise a silent client would connect again and again.
        """
        if waits:
            # Something may have come since the loss, before this task ran.
            while self._outgoing.is_answered:
                self._has_more.clear()
                await self._has_more.wait()
            self._reconnector.settle()
            self._reconnector.lose()
        while (attempt := self._reconnector.next_attempt(error)) is not None:
            self._deliver(attempt)
            await asyncio.sleep(attempt.retry_in_s)
            self._outgoing.limit(is_connected=False)
            audio_from_s, lost_until_s = self._outgoing.rewind(self._reconnector.has_lead_in)
            resume = resume_command(self._continuity, audio_from_s, self._reconnector.has_lead_in)
            try:
                connection, started = await self._reconnector.open(resume)
            except TuttiError as failed:
                error = failed
                if not is_resumable(error):
                    break
                continue
            finally:
                self._outgoing.end_replay()
            self._go_on(connection, started, audio_from_s, lost_until_s)
            return
        self._fail(error)

    def _go_on(self, connection: Connection, started: Started, audio_from_s: float, lost_until_s: float | None) -> None:
        gap = None if lost_until_s is None else (self._continuity.final_until_s, lost_until_s)
        self.started = started
        self._connection = connection
        self._deliver(Resumed(gap), *self._continuity.resume(audio_from_s, lost_until_s))
        # Audio that is lost is not missed a second time.
        self._forget_final()
        self._tasks.add(asyncio.create_task(self._send_all(connection, self._reconnector.lead(started))))


def _now_s() -> float:
    return asyncio.get_running_loop().time()
