"""A WebSocket that carries the messages of one session: commands and audio to the server, events to the client.

Errors of the socket become errors of the session here. `session.py` builds on this and never sees the socket.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TypeGuard

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from tutti.errors import ConnectionLost, ProtocolError, SessionError, TimedOut
from tutti.messages import Command, ErrorEvent, Event, Utterance, encode_command, parse_event

logger = logging.getLogger(__name__)

CLOSE_CODE_NORMAL = 1000
"""The close code of a connection that has served its purpose (RFC 6455, 7.4.1)."""
CLOSE_CODE_ABNORMAL = 1006
"""The close code of a connection that ended without a close frame (RFC 6455, 7.4.1)."""


class Progress:
    """How much of the audio is final, by the events that the program using this package has received."""

    def __init__(self, from_s: tuple[float, ...]) -> None:
        """Begin at `from_s`: one time for each channel, or one for all."""
        self.final_until_s = min(from_s)
        self.resume_from_s = from_s

    def note(self, utterance: Utterance) -> None:
        """Note that the program has received an utterance."""
        self.final_until_s = max(self.final_until_s, utterance.final_until_s)
        self.resume_from_s = utterance.resume_from_s


class Connection:
    """Sends commands and audio, and receives events. Several tasks may use it at the same time."""

    def __init__(self, socket: ClientConnection, progress: Progress, stop_timeout_s: float) -> None:
        self.last_sent_s = 0.0
        """When something was sent, on the clock of the event loop."""
        self._socket = socket
        self._progress = progress
        self._stop_timeout_s = stop_timeout_s
        self._is_stopping = False
        self._receive_timeout: asyncio.Timeout | None = None
        """The time limit of the task that waits for a message, if there is one."""
        self._receiving = asyncio.Lock()
        """Held while a task reads the socket: `receive` and a failed `send` may both do so."""
        self._unread: deque[Event] = deque()
        """Events that a failed `send` read after the connection had closed. At most MAX_EVENTS_WAITING."""
        self._failure: ErrorEvent | None = None
        """The fatal error that ended the session."""

    async def send_command(self, command: Command) -> None:
        """Send a command. For errors, see `send`."""
        await self.send(encode_command(command))

    async def send(self, message: str | bytes) -> None:
        """Send a text frame, or audio as a binary frame.

        Raises:
            SessionError: the server has ended the session.
            ConnectionLost: the connection is closed for another reason.
        """
        self.last_sent_s = asyncio.get_running_loop().time()
        try:
            await self._socket.send(message)
        except ConnectionClosed as closed:
            raise await self._find_failure(closed) from closed

    async def receive(self) -> Event:
        """Wait for the next event.

        Raises:
            SessionError: the server has ended the session with a fatal error. Every later call raises it again.
            ConnectionLost: the connection has ended.
            TimedOut: no event came within `stop_timeout_s`, after `limit_waits`.
            ProtocolError: the message is not an event.
        """
        while True:
            if self._unread:
                return self._unread.popleft()
            if self._failure is not None:
                raise self._session_error(self._failure)
            try:
                event = await self._receive_from_socket()
            except ConnectionClosed as closed:
                # A `send` that failed in the meantime may have read the last events.
                if not self._unread and self._failure is None:
                    raise self._connection_lost(closed) from closed
                continue
            if not _is_fatal(event):
                return event
            self._failure = event

    def pop_unread(self) -> list[Event]:
        """The events that were received and not returned by `receive`."""
        unread = list(self._unread)
        self._unread.clear()
        return unread

    def limit_waits(self) -> None:
        """Limit every wait for an event to `stop_timeout_s`, also the wait of a task that is in `receive` already."""
        self._is_stopping = True
        if self._receive_timeout is not None:
            now_s = asyncio.get_running_loop().time()
            self._receive_timeout.reschedule(now_s + self._stop_timeout_s)

    async def close(self, timeout_s: float) -> None:
        """Close the connection with a closing handshake, which may take `timeout_s`. Call `abort` afterwards."""
        try:
            # The time limit of websockets (`close_timeout`) does not cover audio that is still to be written to a
            # server that no longer reads.
            async with asyncio.timeout(timeout_s):
                await self._socket.close()
        except TimeoutError:
            logger.debug("no closing handshake within %g s (close_timeout_s)", timeout_s)

    def abort(self) -> None:
        """Cut the connection, if it is still open."""
        self._socket.transport.abort()

    async def _receive_from_socket(self) -> Event:
        async with self._receiving:
            try:
                async with asyncio.timeout(self._stop_timeout_s if self._is_stopping else None) as scope:
                    self._receive_timeout = scope
                    try:
                        message = await self._socket.recv()
                    finally:
                        self._receive_timeout = None
            except TimeoutError as error:
                if not scope.expired():
                    raise
                raise TimedOut("stop_timeout_s", self._stop_timeout_s, "event after stop") from error
        if isinstance(message, bytes):
            raise ProtocolError("message", "a text frame", f"{len(message)} bytes")
        return parse_event(message)

    async def _find_failure(self, closed: ConnectionClosed) -> SessionError | ConnectionLost:
        """Find out why the connection closed.

        The fatal `error` event may not have been read yet. The events before it are kept for `receive`.
        """
        while self._failure is None:
            try:
                event = await self._receive_from_socket()
            except ConnectionClosed:
                return self._connection_lost(closed)
            if _is_fatal(event):
                self._failure = event
            else:
                self._unread.append(event)
        return self._session_error(self._failure)

    def _session_error(self, event: ErrorEvent) -> SessionError:
        return SessionError(event.code, event.message, self._progress.final_until_s)

    def _connection_lost(self, closed: ConnectionClosed) -> ConnectionLost:
        frame = closed.rcvd
        if frame is None:
            return ConnectionLost(CLOSE_CODE_ABNORMAL, str(closed), self._progress.final_until_s)
        return ConnectionLost(int(frame.code), frame.reason, self._progress.final_until_s)


def _is_fatal(event: Event) -> TypeGuard[ErrorEvent]:
    return isinstance(event, ErrorEvent) and event.fatal
