"""The link to one engine replica: what it passes on, and what becomes of its windows when the replica is gone."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress

import pytest

from tests.fakes import FakeTranscriber, decode
from tests.plugins.ray.fake_calls import FakeCalls, collect, window
from tutti_server.cluster.engine_pool import EngineGone
from tutti_server.engine.api import EngineEvent
from tutti_server.engine.errors import EngineOverloaded
from tutti_server.plugins.ray import engine_link
from tutti_server.plugins.ray.engine_link import RayEngineLink

PATIENCE_S = 20.0


Until = Callable[[Callable[[], bool]], Coroutine[None, None, None]]


@asynccontextmanager
async def running(calls: FakeCalls, *, is_up: bool = True) -> AsyncIterator[tuple[RayEngineLink, Until]]:
    """A link that follows the replica, and a function that waits until something holds after a change of the link."""
    changed = asyncio.Event()
    link = RayEngineLink("e1", "n1", calls, changed.set)

    async def until(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                changed.clear()
                await changed.wait()

    task = asyncio.create_task(link.run())
    try:
        if is_up:
            await up(calls, link, until)
        yield link, until
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def up(calls: FakeCalls, link: RayEngineLink, until: Until) -> None:
    calls.report()
    await until(lambda: link.is_up)


async def waiting(engine: FakeTranscriber, link: RayEngineLink) -> asyncio.Task[list[EngineEvent]]:
    """A session that waits for the text of its window."""
    task = asyncio.create_task(collect(link))
    await engine.opened.wait()
    return task


async def test_it_is_up_with_the_first_report() -> None:
    """Before, it takes no window: its model is not known. Then all events arrive in order, and nothing is cancelled."""
    calls = FakeCalls(FakeTranscriber())
    async with running(calls, is_up=False) as (link, until):
        with pytest.raises(EngineGone) as gone:
            await collect(link)
        assert not gone.value.had_window
        await up(calls, link, until)
        assert link.info == calls.engine.info and link.stats() == calls.engine.stats()
        assert await collect(link) == decode(window())
        assert calls.n_cancelled == 0


async def test_a_refusal_is_raised_on_entry() -> None:
    """A full queue refuses a window as it does in one process."""
    calls = FakeCalls(FakeTranscriber(error=EngineOverloaded(512, 512)))
    async with running(calls) as (link, _):
        with pytest.raises(EngineOverloaded):
            async with link.submit(window()):
                pytest.fail("the window was accepted")


async def test_a_session_that_leaves_cancels_its_window() -> None:
    """The replica is notified when no one waits for the text any more."""
    engine = FakeTranscriber(holds=True)
    calls = FakeCalls(engine)
    async with running(calls) as (link, _):
        task = await waiting(engine, link)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert calls.n_cancelled == 1


async def test_windows_of_a_replica_that_dies_are_given_back() -> None:
    """The pool learns that another engine must decode them; a replica that answers again is used again."""
    engine = FakeTranscriber(holds=True)
    calls = FakeCalls(engine)
    async with running(calls) as (link, until):
        task = await waiting(engine, link)
        calls.fail()
        with pytest.raises(EngineGone) as gone:
            await task
        assert gone.value.had_window
        await until(lambda: not link.is_up)
        assert not link.is_lost
        calls.recover()
        await up(calls, link, until)


async def test_a_replica_that_is_silent_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray may need long to notice the end of a machine. Its windows do not wait for that."""
    engine = FakeTranscriber(holds=True)
    calls = FakeCalls(engine)
    async with running(calls) as (link, until):
        task = await waiting(engine, link)
        monkeypatch.setattr(engine_link, "MAX_SILENCE_S", 0.0)
        calls.report()
        with pytest.raises(EngineGone, match="no report"):
            await task
        await until(lambda: not link.is_up)


async def test_a_replica_that_stops_finishes_its_windows() -> None:
    """Scale-in loses no window: the link takes no new one, and its calls end with the last window."""
    engine = FakeTranscriber(holds=True)
    calls = FakeCalls(engine)
    link = RayEngineLink("e1", "n1", calls, lambda: None)
    running = asyncio.create_task(link.run())
    calls.report()
    async with asyncio.timeout(PATIENCE_S):
        while not link.is_up:  # noqa: ASYNC110
            await asyncio.sleep(0)
        task = await waiting(engine, link)
        link.leave()
        assert link.is_lost and not link.is_up
        with pytest.raises(EngineGone):
            await collect(link)
        calls.report()
        engine.release()
        assert await task == decode(window())
        for _ in range(engine_link.REPORTS_PER_CALL):
            calls.report()
        await running
