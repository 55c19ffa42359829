"""Admission: whether one more live session or upload is accepted now, and who must finish before the server stops."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn, Protocol

from tutti_server.app.background import in_background
from tutti_server.app.errors import CLOSE_OVERLOADED, RETRY_AFTER_S, KeyLimitExceeded, LimitExceeded
from tutti_server.app.fair_shares import Share
from tutti_server.app.service.drain_limit import DrainLimit, draining
from tutti_server.app.service.interim_load import InterimLoad
from tutti_server.app.service.live_load import LiveLoad, Totals
from tutti_server.app.service.metrics import Engines, Metrics
from tutti_server.app.service.reservations import Reservations
from tutti_server.app.service.settings import Settings
from tutti_server.app.service.shared_state import AdmissionCounter

logger = logging.getLogger(__name__)

WATCH_PERIOD_S = 1.0
"""How often a gateway looks at the load while it has nothing to decide, in seconds."""
OTHERS_PERIOD_S = 0.1
"""How often a gateway that stops looks whether others have sessions, in seconds."""
ABANDON_S = 1.0
"""How long abandoned sessions and uploads have to send their last messages, in seconds."""


class Drainable(Protocol):
    """A live session that can be ended early."""

    def drain(self) -> None:
        """Make all received audio final, then end. Returns at once."""
        ...

    def abandon(self) -> None:
        """End with the text that is final so far. Returns at once."""
        ...


class Admission:
    """Admits live sessions and uploads within the limits of the settings, which count those of all gateways."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        counter: AdmissionCounter,
        engines: Engines,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        interims = InterimLoad(engines.stats, settings.interim_interval_ms / 1000, clock)
        self._load = LiveLoad(engines.stats, self._totals, settings.max_final_wait_s, interims, clock)
        self._reservations = Reservations(counter)
        self.is_draining = False
        """The server is stopping: everything new is refused."""
        self.all_finished = asyncio.Event()
        """Set while this gateway has no session and no upload."""
        self.all_finished.set()
        self.has_begun = asyncio.Event()
        """Set when a session or an upload begins. Whoever waits for it clears it."""
        self._connections: dict[Drainable, bool] = {}
        """The live connections of this gateway, and whether each one is admitted as a session: guests are not."""
        self._settings = settings
        self._metrics = metrics
        self._counter = counter
        self._engines = engines
        self._uploads = Share()
        """The uploads of this gateway, by whose they are."""
        self.drain_limit = DrainLimit()
        self._clock = clock
        self._drain_until = 0.0
        """When the last session of any gateway that stops now has ended or was abandoned, by this clock."""
        metrics.show_session_load(self.session_load)

    @property
    def sessions(self) -> frozenset[Drainable]:
        """The live sessions of this gateway."""
        return frozenset(each for each, is_admitted in self._connections.items() if is_admitted)

    def check_room(self) -> None:
        """Refuse an admitted session whose engine, which it has just taken, leaves no room for it.

        Raises:
            LimitExceeded: there is none.
        """
        if others := self._totals().n_sessions - 1:
            self._check_load(others)

    @property
    def interim_load(self) -> InterimLoad:
        """How much longer sessions wait between two interims at present."""
        return self._load.interims

    @contextmanager
    def session(self, connection: Drainable, *, is_resumed: bool = False) -> Iterator[None]:
        """Count one live session for as long as the context is open.

        Args:
            is_resumed: whether the client goes on with a session that it lost. There is room for it while there
                is a reservation.

        Raises:
            LimitExceeded: the limit of sessions is reached, the engine does not keep up with the open sessions, there
                is no engine, or the server is stopping.
        """
        self._load.look()
        try:
            with self._counter.one_more("sessions") as n_others:
                self._check_server()
                if not (is_resumed and n_others < self._settings.max_sessions and self._reservations.take()):
                    self._check_room(n_others + self._reservations.n)
                self._connections[connection] = True
                self._metrics.sessions_open.inc()
                self._metrics.sessions_total.inc()
                self._note_begun()
                try:
                    yield
                finally:
                    self._connections.pop(connection, None)
                    self._reservations.forget(connection)
                    self._metrics.sessions_open.dec()
                    self._note_finished()
        finally:
            self._load.look()

    @contextmanager
    def guest(self, connection: Drainable) -> Iterator[None]:
        """Let a connection wait for its first message. It is not admitted before, but it is drained like a session.

        Raises:
            LimitExceeded: a session would not be admitted at present; see `session`. Where there are reservations,
                the client's first message tells whether there is room for it.
        """
        self._check_server()
        if not self.expects_returns:
            self._check_room(self._counter.total("sessions"))
        self._connections[connection] = False
        try:
            yield
        finally:
            self._connections.pop(connection, None)

    @property
    def expects_returns(self) -> bool:
        """Whether there are reservations for clients that have lost their sessions."""
        return self._reservations.n > 0

    def note_resumable(self, connection: Drainable) -> None:
        """Note that the client of an open session would go on with it after a loss."""
        self._reservations.note_resumable(connection)

    def reserve(self) -> None:
        """Add a reservation for a session that is being lost, so that its client can go on with it.

        Called before the end of the context of `session`. A server that is stopping adds none, unless others go on.
        """
        if not self.is_draining or self._counter.outlives_gateway:
            self._reservations.add()

    def session_load(self) -> float:
        """The open sessions of all gateways, divided by the most that would be accepted: 1 or more without room.

        Reservations count as sessions.
        """
        n_open = self._totals().n_sessions
        most: float = self._settings.max_sessions
        if self._limits_load:
            most = min(most, self._load.room())
            if self._load.late_wait_s > self._settings.max_final_wait_s:
                most = min(most, n_open)
        # One session is accepted at any load.
        return n_open / max(most, 1)

    def note_final(self, wait_s: float) -> None:
        """Note that a final of a live session has left the engine's queue after this time, in seconds."""
        self._counter.change("finals", 1)
        self._load.note_final(wait_s)

    async def watch(self) -> None:
        """Note the load now and then until cancelled, so that it is known although other gateways have the sessions."""
        while True:
            self._load.look()
            await asyncio.sleep(WATCH_PERIOD_S)

    @contextmanager
    def upload(self, uploader: str = "") -> Iterator[None]:
        """Count one file transcription for as long as the context is open; raises like `session`.

        Args:
            uploader: whose it is, where several share the limit. One of them has no more uploads than remain for the
                others, so that none can use up the limit.
        """
        self._check_draining()
        with self._counter.one_more("uploads") as n_others:
            self._check_limit(n_others, self._settings.max_uploads, "file transcriptions")
            n_free = self._settings.max_uploads - n_others
            if self._uploads.is_used(uploader, n_free):
                self._metrics.refused_total.labels("key_limit").inc()
                held = f"this key has {self._uploads.held(uploader)} file transcriptions"
                message = f"{held}; {n_free} of {self._settings.max_uploads} stay free"
                raise KeyLimitExceeded("upload_share", f"{message}; try again in {RETRY_AFTER_S} s", RETRY_AFTER_S)
            self._note_begun()
            try:
                with self._uploads.one_more(uploader):
                    yield
            finally:
                self._note_finished()

    async def drain(self) -> None:
        """Refuse everything new, end all sessions, and wait until they and the uploads have finished.

        The wait is at most `drain_timeout_s`, or until `drain_limit.hurry`. What remains is abandoned: its clients
        learn that the server is going down, and those of sessions lose only text that was not final.
        """
        self.is_draining = True
        self._drain_until = self._clock() + self._settings.drain_timeout_s + ABANDON_S
        logger.info("draining %d sessions and %d uploads", len(self.sessions), self._uploads.total())
        for connection in list(self._connections):
            connection.drain()
        await self.drain_limit.wait_for(self.all_finished, self._settings.drain_timeout_s)
        self.drain_limit.end()
        if self.all_finished.is_set():
            return
        logger.warning("%d sessions and %d uploads did not finish in time", len(self.sessions), self._uploads.total())
        for connection in list(self.sessions):
            connection.abandon()
        with suppress(TimeoutError):
            async with asyncio.timeout(ABANDON_S):
                await self.all_finished.wait()

    async def wait_for_others(self) -> None:
        """Wait until the other gateways, which stop as well, have no session: for as long as their drain may take."""
        finished = asyncio.Event()

        async def watch() -> None:
            while self._counter.total("sessions") > 0:  # noqa: ASYNC110  # shared memory has no events
                await asyncio.sleep(OTHERS_PERIOD_S)
            finished.set()

        async with in_background(watch()):
            await self.drain_limit.wait_for(finished, max(self._drain_until - self._clock(), 0.0))

    def _totals(self) -> Totals:
        return Totals(self._counter.total("sessions") + self._reservations.n, self._counter.total("finals"))

    @property
    def _limits_load(self) -> bool:
        """Whether waiting finals limit the number of sessions.

        A limit above the deadline limits nothing: sessions whose finals wait for longer than the deadline end.
        """
        return self._settings.max_final_wait_s <= self._settings.final_deadline_s

    def _check_server(self) -> None:
        self._check_draining()
        self._check_engine()

    def _check_room(self, n_others: int) -> None:
        self._check_limit(n_others, self._settings.max_sessions, "sessions")
        # Without other sessions the waits are out of date: the sessions that caused them have ended.
        if n_others:
            self._check_load(n_others)

    def _check_draining(self) -> None:
        if self.is_draining:
            self._metrics.refused_total.labels("draining").inc()
            raise draining()

    def _check_engine(self) -> None:
        if not self._engines.is_alive:
            self._metrics.refused_total.labels("no_engine").inc()
            message = f"there is no engine at the moment; try again in {RETRY_AFTER_S} s"
            raise LimitExceeded("no_engine", message, CLOSE_OVERLOADED)

    def _check_load(self, n_others: int) -> None:
        """Refuse a session if finals wait for too long, or would do so with one session more."""
        if not self._limits_load:
            return
        if (wait_s := self._load.late_wait_s) > self._settings.max_final_wait_s:
            self._refuse(f"no room: finals wait {wait_s:.1f} s for the engine; try again in {RETRY_AFTER_S} s")
        if n_others + 1 > self._load.room():
            self._refuse(
                f"no room: the engine has no time for one session more than {n_others}; try again in {RETRY_AFTER_S} s"
            )

    def _check_limit(self, n_open: int, limit: int, what: str) -> None:
        if n_open >= limit:
            self._refuse(f"no room: {n_open} of {limit} {what} are taken; try again in {RETRY_AFTER_S} s")

    def _refuse(self, message: str) -> NoReturn:
        self._metrics.refused_total.labels("overloaded").inc()
        raise LimitExceeded("overloaded", message, CLOSE_OVERLOADED)

    def _note_begun(self) -> None:
        self.all_finished.clear()
        self.has_begun.set()

    def _note_finished(self) -> None:
        if not self.sessions and not self._uploads.total():
            self.all_finished.set()
