"""What the routes of one running service share: settings, engine, metrics, and who is connected."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn, Protocol

from app.delivery.call_subscribers import MAX_SUBSCRIBERS, Calls
from app.delivery.webhook import Webhook
from app.errors import CLOSE_OVERLOADED, RETRY_AFTER_S, LimitExceeded
from app.service.admission import FinalWaits
from app.service.auth import Access
from app.service.gateway_counts import Shared
from app.service.metrics import Metrics
from app.service.settings import Settings
from app.session.session import SessionConfig
from engine import api

logger = logging.getLogger(__name__)


class Drainable(Protocol):
    def drain(self) -> None: ...


class Service:
    def __init__(
        self, settings: Settings, transcriber: api.Transcriber, session_config: SessionConfig, shared: Shared
    ) -> None:
        self.settings = settings
        self.shared = shared
        self.session_config = session_config
        self.transcriber = transcriber
        self.metrics = Metrics(transcriber, shared.metrics_folder)
        self.access = Access(settings.keys, shared.key, lambda: self.metrics.refused_total.labels("unauthorized").inc())
        self.final_waits = FinalWaits()
        self.calls = Calls(settings.max_sessions * MAX_SUBSCRIBERS)
        self.webhook = (
            Webhook(
                settings.webhook_url,
                settings.webhook_secret,
                lambda outcome: self.metrics.webhook_events_total.labels(outcome).inc(),
            )
            if settings.webhook_url
            else None
        )
        self.is_draining = False
        self._connections: set[Drainable] = set()
        self._n_uploads = 0
        self._all_gone = asyncio.Event()
        self._all_gone.set()

    @contextmanager
    def admitted_session(self, connection: Drainable) -> Iterator[None]:
        """A place among the live sessions.

        Raises:
            LimitExceeded: there is none left, the engine does not keep up with those there are, or the server is going
                down.
        """
        self._check_open()
        with self.shared.places.one("sessions") as n_others:
            self._check_room(n_others, self.settings.max_sessions, "sessions")
            wait_s = self.final_waits.mean_s
            # Whom they waited for may be gone since.
            if n_others and wait_s > self.settings.max_final_wait_s:
                self._refuse(f"no room: finals wait {wait_s:.1f} s for the engine; try again in {RETRY_AFTER_S} s")
            self._connections.add(connection)
            self.metrics.sessions.inc()
            self.metrics.sessions_total.inc()
            self._all_gone.clear()
            try:
                yield
            finally:
                self._connections.discard(connection)
                self.metrics.sessions.dec()
                self._note_gone()

    @contextmanager
    def admitted_upload(self) -> Iterator[None]:
        """A place among the file transcriptions; raises like `admitted_session`."""
        self._check_open()
        with self.shared.places.one("uploads") as n_others:
            self._check_room(n_others, self.settings.max_uploads, "file transcriptions")
            self._n_uploads += 1
            self._all_gone.clear()
            try:
                yield
            finally:
                self._n_uploads -= 1
                self._note_gone()

    async def drain(self) -> None:
        """Take in nobody, let everybody finish, and come back when all are gone or the time is up."""
        self.is_draining = True
        logger.info("draining %d sessions and %d uploads", len(self._connections), self._n_uploads)
        for connection in list(self._connections):
            connection.drain()
        try:
            async with asyncio.timeout(self.settings.drain_timeout_s):
                await self._all_gone.wait()
        except TimeoutError:
            logger.warning("%d sessions did not finish in time", len(self._connections))

    def _check_open(self) -> None:
        if self.is_draining:
            self.metrics.refused_total.labels("draining").inc()
            raise LimitExceeded("draining", "the server is going down; try another", CLOSE_OVERLOADED)

    def _check_room(self, n_now: int, limit: int, what: str) -> None:
        if n_now >= limit:
            self._refuse(f"no room: {n_now} {what} of {limit} are open; try again in {RETRY_AFTER_S} s")

    def _refuse(self, message: str) -> NoReturn:
        self.metrics.refused_total.labels("overloaded").inc()
        raise LimitExceeded("overloaded", message, CLOSE_OVERLOADED)

    def _note_gone(self) -> None:
        if not self._connections and not self._n_uploads:
            self._all_gone.set()
