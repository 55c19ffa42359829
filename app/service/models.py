"""The models of a service: which of them a client means, and their engines, which are loaded when they are first used.

The first model is there from the start to the end. Each further one has an engine from its first use until it has been
without a session or file for a while, or until another model needs its memory.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from tutti_server.app.errors import (
    CLOSE_DRAINING,
    CLOSE_OUR_FAULT,
    CLOSE_OVERLOADED,
    RETRY_AFTER_S,
    BadStart,
    LimitExceeded,
    RequestError,
    SessionError,
    SettingsError,
)
from tutti_server.engine import api
from tutti_server.engine.engine_stats import add_up, without_work

logger = logging.getLogger(__name__)

HABITS = (
    *("whisper-1", "gpt-", "nova", "enhanced", "flux-", "base-", "general", "meeting", "phonecall", "finance"),
    *("conversationalai", "voicemail", "video"),
)
"""The names of OpenAI's and Deepgram's models begin with one of these. Clients send them by habit, and mean any.

Deepgram's `base` alone is not among them, as Whisper has a model of this name.
"""
LIVE_WAIT_S = 30.0
"""How long a live session waits for its model to be loaded, in seconds. Its client's audio waits in the network."""
_MB = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherModel:
    """A model that is loaded when it is first used."""

    card: api.ModelCard
    load: Callable[[], AbstractAsyncContextManager[api.Transcriber]]
    """Starts its engine, and gives all of its memory back at the end."""
    needed_bytes: int
    """The memory that it needs at least."""


class Memory(Protocol):
    """The memory in which models are loaded."""

    def bytes_left(self) -> int:
        """The memory that one more model could have now."""
        ...

    def bytes_taken(self) -> int:
        """The memory that is taken by all."""
        ...


class EngineUse:
    """The use of an engine by one session or file. It must be released, which may be repeated."""

    def __init__(self, transcriber: api.Transcriber, release: Callable[[], None]) -> None:
        self.transcriber = transcriber
        self._release: Callable[[], None] | None = release

    def release(self) -> None:
        """Say that the engine is not used any more."""
        release, self._release = self._release, None
        if release:
            release()


class Models:
    """The models of one service, by the names that clients use."""

    def __init__(
        self,
        first: api.Transcriber,
        further: Sequence[FurtherModel] = (),
        *,
        idle_s: float = 0.0,
        memory: Memory | None = None,
    ) -> None:
        """Begin with the engine of the first model.

        Args:
            first: this engine, which answers where a client names no model.
            idle_s: after this many seconds without a use, the engine of a further model is given back; 0 for never.
            memory: where further models are loaded; `None` if there is always enough.

        Raises:
            SettingsError: two models have the same name.
        """
        self._first = first
        self._n_of_first = 0
        self._memory = memory
        self._loading = asyncio.Lock()
        """One model is loaded at a time: each must see what the others have left."""
        self._further = {each.card.name: _FurtherEngine(each, idle_s, self._load) for each in further}
        names = [name for card in self.cards for name in {card.name, *card.aliases}] if further else []
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise SettingsError(f"model: expected models with different names, got two that are {twice}")

    @property
    def cards(self) -> tuple[api.ModelCard, ...]:
        """What is known of each model, the first one first."""
        return (self._first.info, *(each.model.card for each in self._further.values()))

    @property
    def are_several(self) -> bool:
        """Whether there is more than one model."""
        return bool(self._further)

    @property
    def is_alive(self) -> bool:
        """Whether the first model answers."""
        return self._first.is_alive

    def named(self, name: str | None, field: str = "model") -> api.ModelCard:
        """The model with exactly this name; the first one for no name.

        Raises:
            BadStart: there is no such model.
        """
        if not name:
            return self._first.info
        names = self._names()
        if name not in names:
            raise BadStart(field, " or ".join(names), name)
        return names[name]

    def is_served(self, name: str) -> bool:
        """Whether a model has exactly this name."""
        return name in self._names()

    def meant(self, name: str | None) -> api.ModelCard:
        """The model that a client means whose program was written for another service.

        A server of one model answers with it, whatever name the client sends. One of several does so only for names of
        other services' models.

        Raises:
            BadStart: there is no such model.
        """
        if name and not self.is_served(name) and (not self._further or name.startswith(HABITS)):
            return self._first.info
        return self.named(name)

    def requested(self, name: str | None) -> api.ModelCard:
        """The model that the client of a request over HTTP means, as by `meant`.

        Raises:
            RequestError: there is no such model.
        """
        try:
            return self.meant(name)
        except BadStart as error:
            raise RequestError(404, error.message, "model", "model_not_found") from error

    async def take(self, name: str, wait_s: float | None = None) -> EngineUse:
        """Use the engine of the model with this name of its card, which is loaded if it is not there.

        Args:
            wait_s: how long to wait for the loading, in seconds; `None` for as long as it takes.

        Raises:
            LimitExceeded: there is no memory for it now, or it is still being loaded.
            SessionError: it cannot be loaded.
        """
        if name in self._further:
            return await self._further[name].take(wait_s)
        self._n_of_first += 1
        return EngineUse(self._first, self._release_first)

    @asynccontextmanager
    async def use(self, name: str) -> AsyncIterator[api.Transcriber]:
        """Use the engine of a model while the context is open; raises like `take`."""
        use = await self.take(name)
        try:
            yield use.transcriber
        finally:
            use.release()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Load and give back engines while the context is open. At its end, those of all further models have ended."""
        if self._further and self._memory:
            taken = self._memory.bytes_taken() / _MB
            logger.info("%s: %.0f MB are taken, and %s", self._first.info.name, taken, _left(self._memory))
        try:
            yield
        finally:
            await asyncio.gather(*(each.close() for each in self._further.values()))

    def stats(self) -> api.EngineStats:
        """The counters of all engines, as those of the one machine that they share.

        The times of one window are means over the models, weighted by their sessions and files; without any of these
        they are those of the first model.
        """
        if not self._further:
            return self._first.stats()
        first = self._first.stats()
        used = [(first, self._n_of_first)]
        engines = {self._first.info.name: first}
        for name, each in self._further.items():
            if (stats := each.stats()) is not None:
                engines[name] = stats
                used.append((stats, each.n_users))
        n_users = sum(n for _, n in used)
        if not n_users:
            used, n_users = [(first, 1)], 1
        return replace(
            add_up(engines),
            n_engines=first.n_engines,
            utterance_encode_s=sum(n * stats.utterance_encode_s for stats, n in used) / n_users,
            window_decode_s=sum(n * stats.window_decode_s for stats, n in used) / n_users,
            engines=engines,
        )

    def _release_first(self) -> None:
        self._n_of_first -= 1

    def _names(self) -> dict[str, api.ModelCard]:
        return {name: card for card in self.cards for name in (card.name, *card.aliases)}

    async def _load(self, model: FurtherModel, stack: AsyncExitStack) -> api.Transcriber:
        """Load a model; its engine ends with the stack. Raises `LimitExceeded` if there is no memory for it now."""
        async with self._loading:
            await self._make_room(model)
            logger.info("%s: loading, as it is needed", model.card.name)
            begin_s, before = time.monotonic(), self._memory.bytes_taken() if self._memory else 0
            transcriber = await stack.enter_async_context(model.load())
            logger.info("%s: loaded in %.1f s", model.card.name, time.monotonic() - begin_s)
            if self._memory:
                taken = (self._memory.bytes_taken() - before) / _MB
                logger.info("%s: it takes about %.0f MB, and %s", model.card.name, taken, _left(self._memory))
            return transcriber

    async def _make_room(self, model: FurtherModel) -> None:
        """End unused engines, the longest unused first, until there is memory. Else raise `LimitExceeded`."""
        while self._memory and self._memory.bytes_left() < model.needed_bytes:
            # Looked for each time: one of them may have been taken while another one ended.
            unused = [each for each in self._further.values() if each.is_unused]
            if not unused:
                message = (
                    f"no room: {model.card.name} needs {model.needed_bytes / _MB:.0f} MB of memory, and "
                    f"{_left(self._memory)}; try again in {RETRY_AFTER_S} s"
                )
                logger.warning("%s", message)
                raise LimitExceeded("overloaded", message, CLOSE_OVERLOADED)
            await min(unused, key=lambda each: each.last_used_s).close()


def _left(memory: Memory) -> str:
    return f"{memory.bytes_left() / _MB:.0f} MB of memory are left"


class _FurtherEngine:
    def __init__(
        self,
        model: FurtherModel,
        idle_s: float,
        load: Callable[[FurtherModel, AsyncExitStack], Awaitable[api.Transcriber]],
    ) -> None:
        self.model = model
        self.n_users = 0
        """The sessions and files that use it or wait for it."""
        self.last_used_s = 0.0
        """The time at which the last of them ended."""
        self._idle_s = idle_s
        self._load = load
        self._generation: _Generation | None = None
        """The present engine; `None` while there is none, and while one ends."""
        self._task: asyncio.Task[None] | None = None
        """Loads the newest engine and keeps it until it is to end."""
        self._timer: asyncio.TimerHandle | None = None
        """Ends the engine after a time without a session or file."""

    @property
    def is_unused(self) -> bool:
        """Whether there is an engine without a session or file. One that is still to be loaded is none."""
        return self._generation is not None and self._generation.transcriber is not None and not self.n_users

    def stats(self) -> api.EngineStats | None:
        """The counters of the engine; `None` while there is none, as one that was given back is not down."""
        transcriber = self._generation.transcriber if self._generation else None
        if transcriber is None:
            return None
        return transcriber.stats() if transcriber.is_alive else without_work(transcriber.stats())

    async def take(self, wait_s: float | None) -> EngineUse:
        if self._timer:
            self._timer.cancel()
        self.n_users += 1
        try:
            return EngineUse(await self._loaded(wait_s), self._release)
        except BaseException:
            self._release()
            raise

    async def close(self) -> None:
        self._end()
        if self._task:
            await asyncio.wait((self._task,))

    async def _loaded(self, wait_s: float | None) -> api.Transcriber:
        generation = self._generation
        if generation and generation.transcriber and not generation.transcriber.is_alive:
            logger.error("%s: the engine has died; it is loaded again", self.model.card.name)
            self._end()
            generation = None
        if generation is None:
            generation = self._generation = _Generation()
            self._task = asyncio.create_task(self._keep(generation, self._task))
        try:
            async with asyncio.timeout(wait_s):
                await generation.is_decided.wait()
        except TimeoutError:
            message = f"{self.model.card.name} is still being loaded; try again in {RETRY_AFTER_S} s"
            raise LimitExceeded("overloaded", message, CLOSE_OVERLOADED) from None
        if generation.transcriber is None:
            raise generation.failure or SessionError("draining", "the server is going down", CLOSE_DRAINING)
        return generation.transcriber

    def _release(self) -> None:
        self.n_users -= 1
        if not self.n_users:
            self.last_used_s = time.monotonic()
            self._wait_for_use()

    def _wait_for_use(self) -> None:
        if self._idle_s and self._generation and self._generation.transcriber:
            self._timer = asyncio.get_running_loop().call_later(self._idle_s, self._give_back)

    def _give_back(self) -> None:
        logger.info("%s: nobody has used it for %g s; its memory is given back", self.model.card.name, self._idle_s)
        self._end()

    def _end(self) -> None:
        """Let the engine end. A session or file that comes now waits for the next one."""
        if self._timer:
            self._timer.cancel()
        generation, self._generation = self._generation, None
        if generation:
            generation.must_end.set()

    async def _keep(self, generation: "_Generation", before: asyncio.Task[None] | None) -> None:
        """Load the model when the engine before has ended, and keep its engine until it must end."""
        if before:
            await asyncio.wait((before,))
        try:
            async with AsyncExitStack() as stack:
                generation.transcriber = await self._load(self.model, stack)
                generation.is_decided.set()
                if not self.n_users:
                    # All who waited have gone.
                    self._wait_for_use()
                await generation.must_end.wait()
        except SessionError as error:
            generation.failure = error
        except Exception:
            # The operator's affair: clients of other models must not notice it.
            logger.exception("%s: the engine has failed", self.model.card.name)
            message = f"{self.model.card.name} cannot be loaded; the log of the server says why"
            generation.failure = SessionError("engine_failed", message, CLOSE_OUR_FAULT)
        finally:
            generation.is_decided.set()
            if self._generation is generation:
                self._generation = None


@dataclass(slots=True, eq=False)
class _Generation:
    """One engine, from the first request for it to its end."""

    transcriber: api.Transcriber | None = None
    """`None` until it is loaded, and if it cannot be."""
    failure: SessionError | None = None
    """Why it cannot be loaded."""
    is_decided: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it is loaded or cannot be."""
    must_end: asyncio.Event = field(default_factory=asyncio.Event)
