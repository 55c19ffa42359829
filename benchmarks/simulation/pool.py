"""Several engines behind gateways, in simulated time. An engine may go, and come back."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.simulation.clock import Clock
from benchmarks.simulation.engine import Order, SimulatedEngine
from benchmarks.simulation.routing import Policy
from cluster.engine_stats import add_up
from cluster.local.engine_link import STATS_PERIOD_S
from engine.api import EngineStats, Priority
from engine.errors import EngineOverloaded

if TYPE_CHECKING:
    from benchmarks.simulation.speakers import Submit


class Pool:
    """Engines that are up or down, and the windows on their way to them."""

    def __init__(
        self,
        clock: Clock,
        make_engine: Callable[[], SimulatedEngine],
        n: int,
        policies: Sequence[Policy],
        hop_s: float,
    ) -> None:
        """Start engines.

        Args:
            clock: the simulated time.
            make_engine: starts one.
            n: how many.
            policies: that of each gateway.
            hop_s: seconds that a window takes from its session to the engine, and an answer back.
        """
        self.engines = {str(number): make_engine() for number in range(n)}
        """The engines that are up, by name, in the order in which they are filled."""
        self.clock = clock
        self.hop_s = hop_s
        self.n_submitted = self.n_ended = self.n_again = 0
        """Windows that sessions submitted; that have ended in any way; that were given to another engine."""
        self.waiting_interims: dict[str, str] = {}
        """The engine in whose queue the interim of a session waits: a newer one replaces it there."""
        self._make_engine = make_engine
        self._policies = policies
        self._without_engine: list[_Route] = []
        """Windows that wait until an engine is up."""
        self._reports: dict[str, EngineStats] = {}
        self._collect_reports()

    def gateway(self, number: int) -> "Submit":
        """The way to the engines for the sessions of one gateway."""
        policy = self._policies[number]

        def submit(order: Order) -> _Route:
            self.n_submitted += 1
            return _Route(self, policy, order)

        return submit

    def choose(self, route: "_Route") -> str | None:
        """Choose an engine for a window; without any, the window waits for one."""
        order, engines = route.order, list(self.engines)
        if not engines:
            self._without_engine.append(route)
            return None
        if len(engines) == 1:
            return engines[0]
        name = self.waiting_interims.get(order.session) if order.priority is Priority.INTERIM else None
        if name not in self.engines:
            name = route.policy.choose(engines, order.priority, self.clock.now_s)
        route.policy.note_sent(name, order.priority)
        return name

    def lose(self, name: str, back_after_s: float) -> None:
        """Let an engine go. Its finals go to other engines; another engine takes its place after a while."""
        engine = self.engines.pop(name)
        if self.engines:
            del self._reports[name]
        for order in engine.die():
            order.on_dropped()
        self.clock.call_after(back_after_s, lambda: self._start(name))

    def _start(self, name: str) -> None:
        self.engines[name] = self._make_engine()
        self._report(name)
        waiting, self._without_engine = self._without_engine, []
        for route in waiting:
            route.go()

    def _collect_reports(self) -> None:
        for name in self.engines:
            self._report(name)
        self.clock.call_after(STATS_PERIOD_S, self._collect_reports)

    def stats(self) -> EngineStats:
        """The counters of all engines, added up, as they last reported them."""
        return add_up(self._reports)

    def _report(self, name: str) -> None:
        stats = self._reports[name] = self.engines[name].stats()
        for policy in self._policies:
            policy.note_report(name, stats, self.clock.now_s)


class _Route:
    """A window on its way through the pool."""

    def __init__(self, pool: Pool, policy: Policy, order: Order) -> None:
        self.order = order
        self.policy = policy
        self._pool = pool
        self._engine: SimulatedEngine | None = None
        """The engine that has it; `None` on the way there."""
        self._name = ""
        """The name of that engine."""
        self._id = 0
        """The window's id there."""
        self._is_over = False
        pool.clock.call_after(pool.hop_s, self.go)

    def go(self) -> None:
        """Give the window to an engine, unless it was withdrawn on the way."""
        name = None if self._is_over else self._pool.choose(self)
        if name is None:
            return
        self._name, self._engine = name, self._pool.engines[name]
        if self.order.priority is Priority.INTERIM:
            self._pool.waiting_interims[self.order.session] = name
        own = replace(self.order, on_started=self._on_started, on_done=self._on_done, on_dropped=self._on_dropped)
        try:
            self._id = self._engine.submit(own)
        except EngineOverloaded:
            self._end(self.order.on_dropped)

    def cancel(self) -> None:
        """Withdraw the window, at any stage."""
        engine = self._engine
        if not self._is_over:
            self._end(None)
            if engine:
                engine.cancel(self._id)

    def _on_started(self) -> None:
        self._stop_waiting()
        self._pool.clock.call_after(self._pool.hop_s, self.order.on_started)

    def _on_done(self) -> None:
        self._end(self.order.on_done)

    def _on_dropped(self) -> None:
        if self.order.priority is Priority.FINAL:
            # An engine drops a final only when it goes.
            self._pool.n_again += 1
            self._engine = None
            self.go()
        else:
            self._end(self.order.on_dropped)

    def _end(self, answer: Callable[[], None] | None) -> None:
        self._is_over = True
        self._pool.n_ended += 1
        self._stop_waiting()
        self._engine = None
        if answer:
            self._pool.clock.call_after(self._pool.hop_s, answer)

    def _stop_waiting(self) -> None:
        waiting = self._pool.waiting_interims
        if self.order.priority is Priority.INTERIM and waiting.get(self.order.session) == self._name:
            del waiting[self.order.session]
