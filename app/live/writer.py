"""The writing half of a connection: events of the session become messages to the client."""

import logging
from collections.abc import Iterable

from starlette.websockets import WebSocketDisconnect

from tutti_server.app.errors import CLOSE_OUR_FAULT, CLOSE_POLICY
from tutti_server.app.live.dialect import Dialect
from tutti_server.app.live.latency import LatencyRecorder
from tutti_server.app.live.timed_socket import TimedSocket
from tutti_server.app.publish.outbox import Outbox, Outgoing
from tutti_server.app.service.metrics import Metrics
from tutti_server.app.session.core.effects import Close
from tutti_server.app.session.messages import events


class Writer:
    """Sends one client's events in order, then closes the WebSocket."""

    def __init__(
        self,
        socket: TimedSocket,
        dialect: Dialect,
        metrics: Metrics,
        latency: LatencyRecorder,
        log: logging.LoggerAdapter[logging.Logger],
        *,
        others_wait: bool = False,
    ) -> None:
        """Prepare to write; `run` writes.

        Args:
            dialect: translates the events; that of a call also publishes them as it does.
            others_wait: the dialect gets all events, even after the client has left: other receivers wait for them.
        """
        self._socket = socket
        self._dialect = dialect
        self._metrics = metrics
        self._latency = latency
        self._log = log
        self._others_wait = others_wait
        self._outbox: Outbox[Outgoing] = Outbox()
        self.close: Close | None = None
        """How the connection was closed by the server; `None` while it is open, or if the client closed it."""

    def push(self, event: Outgoing) -> None:
        """Queue an event or a dialect's answer.

        Raises:
            LimitExceeded: the client reads too slowly; see `Outbox.push`.
        """
        self._outbox.push(event)

    def finish(self, close: Close) -> None:
        """End `run` after all queued events are sent, with this close."""
        self.close = close
        self._outbox.close()

    async def run(self) -> None:
        """Send events until `finish`, until the client has left, or until it does not read for too long.

        Where others wait, the events after the client has left are translated without being sent, until `finish`.
        """
        is_client_gone = False
        while (event := await self._outbox.pop()) is not None:
            try:
                for message in self._messages(event):
                    if not is_client_gone:
                        await self._socket.send(message)
            except TimeoutError:
                self._log.warning("the client did not read for %g s", self._socket.send_timeout_s)
                if not (self._others_wait and self._socket.cut()):
                    self.close = Close(CLOSE_POLICY, "slow_reader")
                    break
                # The reader finds that it has left, and makes the last text for the others.
                is_client_gone = True
            except (WebSocketDisconnect, RuntimeError):
                # Starlette raises RuntimeError if the client leaves during a send.
                if not self._others_wait:
                    return
                is_client_gone = True
        await self.close_socket(self.close or Close(CLOSE_OUR_FAULT, ""))

    async def close_socket(self, close: Close) -> None:
        """Close the WebSocket, with the code and the reason that the client's wire format knows."""
        await self._socket.close(self._dialect.close(close))

    def _messages(self, event: Outgoing) -> Iterable[str]:
        if isinstance(event, events.Reply):
            return (event.text,)
        if isinstance(event, events.LateReply):
            return event.make()
        self._metrics.events_total.labels(type(event).__name__.lower()).inc()
        self._latency.event_sent(event)
        if isinstance(event, events.Utterance):
            self._metrics.utterances.count(event)
        return self._dialect.write(event)
