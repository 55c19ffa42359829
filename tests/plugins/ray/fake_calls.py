"""Calls to an engine replica that does not exist: it answers with a fake engine, and fails as a test wants."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from tests.fakes import speech
from tutti_server.engine.api import EngineEvent, Transcriber, Window
from tutti_server.engine.errors import EngineError
from tutti_server.plugins.ray.engine_link import REPORTS_PER_CALL, CallFailed, RayEngineLink, Report


def window() -> Window:
    return Window(samples=speech(range(3), gap_samples=8000), session="s")


async def collect(engine: Transcriber | RayEngineLink) -> list[EngineEvent]:
    async with engine.submit(window()) as events:
        return [event async for event in events]


class FakeCalls:
    """`EngineCalls` whose replica has this engine. Reports come when the test asks for them."""

    def __init__(self, engine: Transcriber) -> None:
        self.engine = engine
        self.n_cancelled = 0
        """How many windows were cancelled."""
        self._due: asyncio.Queue[None] = asyncio.Queue()
        self._failed = asyncio.Event()

    def report(self) -> None:
        """Let the replica report once."""
        self._due.put_nowait(None)

    def fail(self) -> None:
        """Let all calls fail, until `recover`."""
        self._failed.set()

    def recover(self) -> None:
        """Let new calls succeed."""
        self._failed = asyncio.Event()

    def decode(self, id: str, window: Window) -> AsyncIterator[Any]:
        return self._until_failure(self._decode(window))

    def cancel(self, id: str) -> None:
        self.n_cancelled += 1

    def reports(self) -> AsyncIterator[Any]:
        return self._until_failure(self._report())

    async def _decode(self, window: Window) -> AsyncIterator[Any]:
        try:
            async with self.engine.submit(window) as events:
                async for event in events:
                    yield event
        except EngineError as error:
            yield error

    async def _report(self) -> AsyncIterator[Any]:
        for _ in range(REPORTS_PER_CALL):
            await self._due.get()
            yield Report(self.engine.info, self.engine.stats())

    async def _until_failure(self, items: AsyncIterator[Any]) -> AsyncIterator[Any]:
        failing = asyncio.create_task(self._failed.wait())
        try:
            while True:
                step = asyncio.ensure_future(anext(items, None))
                await asyncio.wait((step, failing), return_when=asyncio.FIRST_COMPLETED)
                if failing.done():
                    step.cancel()
                    raise CallFailed("the replica has died")
                if step.result() is None:
                    return
                yield step.result()
        finally:
            failing.cancel()
