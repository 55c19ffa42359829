"""Links to engines that do not exist: they answer as the fake engine does, halt, die and come back as a test wants."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.fakes import MODEL, FakeTranscriber, decode
from tutti_server.cluster.engine_pool import EngineGone
from tutti_server.engine.api import EngineEvent, EngineStats, ModelInfo, Window
from tutti_server.engine.errors import EngineError


@dataclass(eq=False)
class _Generation:
    """One engine behind a link, from its start to its end."""

    end: EngineGone | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(kw_only=True)
class ScriptedLink:
    """One engine after the other. `halt_after` makes an engine halt after this many events of each window."""

    name: str
    is_lost: bool = False
    problem: str | None = None
    info: ModelInfo = MODEL
    halt_after: int | None = None
    report: EngineStats = field(default_factory=FakeTranscriber().stats)
    poison: Window | None = None
    """The engine dies of this window."""
    refusal: EngineError | None = None
    """Raised by every submission."""
    lost: tuple[int, ...] = ()
    """Indices of the words that the engine misses."""
    notify: Callable[[], None] = lambda: None
    windows: list[Window] = field(default_factory=list)
    """All windows that the engines have received."""
    open: list[Window] = field(default_factory=list)
    """The windows that have not ended."""
    _generation: _Generation | None = field(default_factory=_Generation)

    @property
    def is_up(self) -> bool:
        return self._generation is not None

    def stats(self) -> EngineStats:
        return self.report

    def die(self, *, was_killed: bool = False) -> None:
        assert self._generation
        self._generation.end = EngineGone(f"engine {self.name} has died", was_killed=was_killed)
        self._generation.changed.set()
        self._generation = None
        self.notify()

    def come_back(self) -> None:
        assert self._generation is None
        self._generation, self.report = _Generation(), FakeTranscriber().stats()
        self.notify()

    def go_on(self) -> None:
        assert self._generation
        self.halt_after = None
        self._generation.changed.set()

    @asynccontextmanager
    async def submit(self, window: Window) -> AsyncIterator[AsyncIterator[EngineEvent]]:
        if self._generation is None:
            raise EngineGone(f"engine {self.name} is down", had_window=False)
        if self.refusal:
            raise self.refusal
        self.windows.append(window)
        self.open.append(window)
        try:
            yield self._events(window, self._generation)
        finally:
            self.open.remove(window)

    async def _events(self, window: Window, generation: _Generation) -> AsyncIterator[EngineEvent]:
        if window is self.poison and self._generation is generation:
            self.die()
        for n_sent, event in enumerate(decode(window, self.lost)):
            if self.halt_after is not None and n_sent >= self.halt_after:
                await generation.changed.wait()
            if generation.end is not None:
                raise generation.end
            yield event
