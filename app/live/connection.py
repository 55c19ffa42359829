"""One client's WebSocket session: starts its reader, writer and engine windows, and ends all of them together.

All dialects share it; a dialect only translates. `time_limits.py` holds every wall-clock timeout.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from starlette.websockets import WebSocket

from tutti_server.app.errors import (
    CLOSE_DONE,
    CLOSE_OUR_FAULT,
    IDLE,
    RESUMABLE_CLOSE_CODES,
    LimitExceeded,
    SessionError,
)
from tutti_server.app.live.audio_receiver import AudioReceiver
from tutti_server.app.live.dialect import Dialect
from tutti_server.app.live.latency import LatencyRecorder
from tutti_server.app.live.reader import Publication, Reader
from tutti_server.app.live.timed_socket import TimedSocket
from tutti_server.app.live.writer import Writer
from tutti_server.app.media.format_check import UNLIKELY_FORMAT
from tutti_server.app.publish.outbox import Outgoing
from tutti_server.app.service.key_limits import AdmitSession
from tutti_server.app.service.models import LIVE_WAIT_S, EngineUse
from tutti_server.app.service.service import Service
from tutti_server.app.service.tracing import Trace
from tutti_server.app.session.core.effects import Close
from tutti_server.app.session.engine_driver import SessionDriver
from tutti_server.app.session.messages import events
from tutti_server.app.session.session import Session

logger = logging.getLogger(__name__)

LAG_INTERVAL_S = 0.9
"""The least time between two reports that the text is late, in seconds.

Of a client in real time one report comes for each second of audio: none is left out because it came a little early.
"""


class _SessionLog(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: str, kwargs: object) -> tuple[str, object]:  # type: ignore[override]  # narrower than typeshed
        return f"[{self.extra['session'] if self.extra else ''}] {msg}", kwargs


class Connection:
    """Serves one accepted WebSocket until it ends. `drain` may be called at any time."""

    def __init__(
        self,
        websocket: WebSocket,
        dialect: Dialect,
        session: Session,
        service: Service,
        *,
        flush_after_s: float | None = None,
        publication: Publication | None = None,
        first_messages: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare a connection; `serve` runs it.

        Args:
            websocket: of the client; accepted before `serve`.
            publication: of a session whose text goes to others. `None`: the session ends when its client leaves.
            clock: the time in seconds.
        """
        self._dialect = dialect
        self._session = session
        self._service = service
        self._publication = publication
        self._clock = clock
        self._socket = TimedSocket(websocket, service.settings.send_timeout_s, flush_after_s, first_messages)
        self._latency = LatencyRecorder(service.metrics.latency, clock)
        self._log = _SessionLog(logger, {"session": session.id})
        self._writer = Writer(
            self._socket, dialect, service.metrics, self._latency, self._log, others_wait=publication is not None
        )
        self._next_lag_s = float("-inf")
        """When the client may be told again that its text is late, by the clock."""
        self._driver: SessionDriver | None = None
        self._engine_use: EngineUse | None = None
        """The engine of the session, where there are several."""

    async def serve(self, request: str, trace: Trace | None, admit_session: AdmitSession | None = None) -> None:
        """Read and write until either side ends the session. No task and no engine window outlives this call.

        Args:
            request: the id of the client's request, which some clients know and name to people.
            trace: follows the session; `None` for a session that is not traced.
            admit_session: called at the first valid message of the client; `None` for a session that is admitted.
        """
        started = self._clock()
        self._log.info("opened for %s", request)
        code, reason = "client", "left"
        try:
            await self._run(trace, admit_session)
            if close := self._writer.close:
                code, reason = str(close.code), close.reason
        except* Exception as errors:
            # A defect of the server ends this session only.
            self._log.error("failed", exc_info=errors)
            code, reason = str(CLOSE_OUR_FAULT), "internal_error"
            await self._writer.close_socket(Close(CLOSE_OUR_FAULT, reason))
        finally:
            # A silent client may stay silent, and its session was admitted all the time: it gets no reservation.
            if self.is_lost and reason != IDLE:
                self._service.admission.reserve()
            self._service.metrics.closed_total.labels(code).inc()
            audio_s = self._session.audio_s
            self._log.info(
                "closed with %s (%s) after %.1f s, %.1f s of audio", code, reason, self._clock() - started, audio_s
            )
            if trace:
                if self._engine_use:
                    trace.note(model=self._engine_use.transcriber.info.name)
                trace.note(close_code=code, close_reason=reason, audio_s=round(audio_s, 3))

    @property
    def is_lost(self) -> bool:
        """Whether the session has ended in the middle, or would do so now, and its client goes on in another one."""
        close = self._writer.close
        is_cut = close.code in RESUMABLE_CLOSE_CODES if close else self._socket.client_code != CLOSE_DONE
        return self._session.may_be_continued and is_cut

    def drain(self) -> None:
        """Make all received audio final, then ask the client to reconnect to another server."""
        if self._driver:
            self._driver.perform(self._session.drain())

    def abandon(self) -> None:
        """Ask the client to reconnect to another server now, with the text that is final so far."""
        if self._driver:
            self._driver.perform(self._session.drain(at_once=True))

    async def _run(self, trace: Trace | None, admit_session: AdmitSession | None) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                try:
                    await self._serve_with(tasks, trace, admit_session)
                finally:
                    # A drain that comes now must begin no window. And the driver calls this connection: without this
                    # cycle the session's audio is freed at once, and not with the next full collection of garbage,
                    # which may be hundreds of sessions later.
                    self._driver = None
        finally:
            if self._engine_use:
                self._engine_use.release()

    async def _serve_with(
        self, tasks: asyncio.TaskGroup, trace: Trace | None, admit_session: AdmitSession | None
    ) -> None:
        self._driver = SessionDriver(
            self._session,
            self._service.transcriber,
            tasks,
            self._push,
            self._writer.finish,
            self._service.settings.final_deadline_s,
            self._service.admission.note_final,
            trace,
        )
        if self._service.admission.is_draining:
            # The drain began while the client was being accepted.
            self.drain()
        reader = Reader(
            self._socket,
            self._dialect,
            self._driver,
            AudioReceiver(self._session, self._driver, self._on_audio, self._push, self._clock),
            self._push,
            idle_timeout_s=self._service.settings.idle_timeout_s,
            on_disconnect=self._publication.on_disconnect if self._publication else None,
            admit_session=admit_session,
        )
        reader.choose_model_by(self._take_model)
        if self._publication:
            self._publication.refusal.add_done_callback(self._end)
        reading = tasks.create_task(reader.run())
        writing = tasks.create_task(self._writer.run())
        await asyncio.wait((reading, writing), return_when=asyncio.FIRST_COMPLETED)
        if self._writer.close is not None or reader.is_client_gone:
            # All text is still delivered; each send has its own time limit.
            await asyncio.wait((writing,))
        reading.cancel()
        writing.cancel()
        self._driver.cancel_windows()

    def _end(self, refusal: asyncio.Future[SessionError]) -> None:
        if self._driver:
            self._driver.perform(self._session.end(refusal.result()))

    async def _take_model(self, name: str | None) -> None:
        """Use the model that the client has named, or the first one. Uses are counted where there are several models.

        Raises:
            SessionError: there is no such model, it cannot be loaded, or it leaves no room for the session.
        """
        service = self._service
        if name is None and not service.models.are_several:
            return
        card = service.models.named(name)
        self._engine_use = await service.models.take(card.name, min(LIVE_WAIT_S, service.settings.max_ahead_s))
        if self._engine_use.transcriber is service.transcriber:
            return
        service.admission.check_room()
        if self._driver:
            self._driver.use(self._engine_use.transcriber)

    def _push(self, event: Outgoing) -> None:
        if isinstance(event, events.Lag):
            # The session counts in audio, of which seconds may come in one moment.
            if self._clock() < self._next_lag_s:
                return
            self._next_lag_s = self._clock() + LAG_INTERVAL_S
        if isinstance(event, events.Endpoint):
            self._latency.utterance_ended(event.utterance)
        if isinstance(event, events.Started) and self._session.may_be_continued:
            self._service.admission.note_resumable(self)
        if isinstance(event, events.Notice) and event.code == UNLIKELY_FORMAT:
            self._log.warning("%s", event.message)
        try:
            self._writer.push(event)
        except LimitExceeded as error:
            # Not before the events that follow at once, which may be the last of the session.
            asyncio.get_running_loop().call_soon(self._fail, error)

    def _fail(self, error: LimitExceeded) -> None:
        if self._driver:
            self._driver.perform(self._session.fail(error))

    def _on_audio(self, duration_s: float, until_s: float) -> None:
        """Called after the session has received a piece of audio that ends at `until_s`."""
        self._service.metrics.audio_s_total.inc(duration_s)
        self._latency.audio_received(until_s)
        for reply in self._dialect.audio_received(until_s):
            self._push(reply)
