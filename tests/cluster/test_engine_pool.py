"""Several engines as one: which of them gets a window, and what becomes of it when engines die."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.scripted_links import ScriptedLink
from tests.fakes import PATIENCE_S, FakeTranscriber, decode, speech, until
from tutti_server.cluster.balancing import LATE_REPORT_S, Balancer
from tutti_server.cluster.engine_pool import MAX_ENGINE_ENDS_PER_WINDOW, EnginePool
from tutti_server.engine.api import EngineEvent, Priority, SegmentEvent, StartedEvent, SupersededEvent, Window
from tutti_server.engine.errors import EngineError, EngineFailed, EngineOverloaded


def window(n_words: int = 3, priority: Priority = Priority.FINAL, session: str = "s") -> Window:
    # The pauses are so long that every word is a segment.
    return Window(samples=speech(range(n_words), gap_samples=8000), session=session, priority=priority)


def interim(session: str = "s") -> Window:
    return window(priority=Priority.INTERIM, session=session)


class Fleet:
    """A pool and its links."""

    def __init__(self, *links: ScriptedLink, gateway: int = 0, n_gateways: int = 1) -> None:
        self.links = links
        self.now_s = 0.0
        self.pool = EnginePool(links, Balancer(gateway, n_gateways), clock=lambda: self.now_s)
        for link in links:
            link.notify = self.pool.notify

    async def collect(self, window: Window) -> list[EngineEvent]:
        async with self.pool.submit(window) as events:
            return [event async for event in events]

    def start(self, window: Window) -> "asyncio.Task[list[EngineEvent]]":
        return asyncio.create_task(self.collect(window))


async def settle() -> None:
    """Run the other tasks for a while."""
    for _ in range(10):
        await asyncio.sleep(0)


def fleet_of(n_links: int, **values: object) -> Fleet:
    return Fleet(*(ScriptedLink(name=str(number), **values) for number in range(n_links)))  # type: ignore[arg-type]


def busy(work_s: float) -> object:
    return replace(FakeTranscriber().stats(), work_waiting_s=work_s, final_work_waiting_s=work_s)


# Choosing.


async def test_a_window_goes_to_the_engine_with_the_least_work() -> None:
    """By the newest reports, among the engines that are up."""
    fleet = fleet_of(3)
    for link, work_s in zip(fleet.links, (0.3, 0.1, 0.2), strict=True):
        link.report = busy(work_s)  # type: ignore[assignment]
    submitted = window()
    assert await fleet.collect(submitted) == decode(submitted)
    assert [link.windows for link in fleet.links] == [[], [submitted], []]
    fleet.links[1].report = busy(0.4)  # type: ignore[assignment]
    await fleet.collect(window())
    fleet.links[2].die()
    await fleet.collect(window())
    assert [len(link.windows) for link in fleet.links] == [1, 1, 1]


async def test_a_newer_interim_goes_where_the_older_one_waits() -> None:
    """There it takes the older one's place in the queue; one that has begun is not followed."""
    fleet = fleet_of(2, halt_after=0)
    first, second = fleet.links
    second.report = busy(0.2)  # type: ignore[assignment]
    waiting = fleet.start(interim())
    await until(lambda: len(first.open) == 1)
    first.report, second.report = busy(0.9), busy(0.1)  # type: ignore[assignment]
    newer, other = fleet.start(interim()), fleet.start(interim(session="other"))
    await until(lambda: len(first.open) == 2 and len(second.open) == 1)
    first.halt_after = 1
    first.go_on()
    await until(lambda: waiting.done() and newer.done())
    later = fleet.start(interim())
    await until(lambda: len(second.open) == 2)
    second.go_on()
    await asyncio.gather(later, other)


async def test_a_newer_interim_does_not_follow_the_older_one_to_an_engine_that_may_be_stopped() -> None:
    """Its session would have no further interim of the utterance."""
    fleet = fleet_of(2, halt_after=0)
    stopped, other = fleet.links
    older = fleet.start(interim())
    await until(lambda: bool(stopped.open))
    fleet.now_s, other.report = LATE_REPORT_S + 0.1, busy(0.3)  # type: ignore[assignment]
    newer = fleet.start(interim())
    await until(lambda: bool(other.open))
    for link in fleet.links:
        link.go_on()
    await asyncio.gather(older, newer)


# Engines die.


@pytest.mark.parametrize("was_killed", [False, True])
async def test_a_final_goes_on_in_another_engine(was_killed: bool) -> None:
    """The engine dies after two of five events; the other repeats all, and the session receives each once."""
    fleet = fleet_of(3)
    first, second, _ = fleet.links
    first.halt_after = 2
    submitted = window()
    async with fleet.pool.submit(submitted) as events:
        received = [await anext(events), await anext(events)]
        first.die(was_killed=was_killed)
        received += [event async for event in events]
    assert received == decode(submitted) and second.windows == [submitted]
    assert isinstance(received[0], StartedEvent) and received[0].engine == first.name
    assert not any(link.open for link in fleet.links)


async def test_finals_wait_while_no_engine_is_up() -> None:
    """New ones, and those that were open; interims end as superseded. The pool says that no engine is alive."""
    fleet = fleet_of(1, halt_after=1)
    (link,) = fleet.links
    submitted = [window(2), window(4)]
    open_final, open_interim = fleet.start(submitted[0]), fleet.start(interim())
    await until(lambda: len(link.open) == 2)
    link.die()
    assert not fleet.pool.is_alive and not fleet.pool.is_lost
    later = fleet.start(submitted[1])
    *_, last = await open_interim
    assert last == SupersededEvent() and await fleet.collect(interim()) == [SupersededEvent()]
    link.halt_after = None
    link.come_back()
    assert fleet.pool.is_alive
    assert [await open_final, await later] == [decode(each) for each in submitted]


async def test_a_window_that_was_open_in_two_crashes_fails(caplog: pytest.LogCaptureFixture) -> None:
    """It is not submitted a third time, and its error gives the reason, also when it is asked for again.

    The log names its session.
    """
    fleet = fleet_of(3, halt_after=1)
    async with fleet.pool.submit(window()) as events:
        await anext(events)
        fleet.links[0].die()
        resumed = asyncio.ensure_future(anext(events))
        await until(lambda: bool(fleet.links[1].open))
        fleet.links[1].die()
        for waiting in (resumed, anext(events)):
            with pytest.raises(EngineFailed, match="died 2 times"):
                await waiting
    assert not fleet.links[2].windows
    assert f"[{window().session}] a window fails: the engine has died 2 times" in caplog.text


async def test_crash_suspects_are_tried_one_at_a_time() -> None:
    """New windows go on beside them; the crash suspect that has ended or was cancelled makes room for the next."""
    fleet = fleet_of(3, halt_after=1)
    first, *others = fleet.links
    open_windows = [window(n) for n in (1, 2, 3)]
    tasks = [fleet.start(each) for each in open_windows]
    await until(lambda: len(first.open) == 3)
    first.die()

    def tried() -> list[Window]:
        return [each for link in others for each in link.windows]

    await until(lambda: tried() == open_windows[:1])
    beside = fleet.start(window(4))
    await until(lambda: len(tried()) == 2)
    await settle()
    assert open_windows[1] not in tried()
    tasks[0].cancel()
    await until(lambda: open_windows[1] in tried())
    await settle()
    assert open_windows[2] not in tried()
    for link in others:
        link.go_on()
    assert await asyncio.gather(*tasks[1:], beside) == [decode(window(n)) for n in (2, 3, 4)]
    assert tasks[0].cancelled()


async def test_a_window_that_crashes_engines_leaves_one_of_two() -> None:
    """It waits until both are up again, fails with the second crash, and all other windows end well."""
    fleet = fleet_of(2, halt_after=1)
    first, second = fleet.links
    poison, innocent = window(2), window(3)
    first.poison = second.poison = poison
    failing = fleet.start(poison)
    await settle()
    assert not first.is_up and second.is_up
    beside = fleet.start(innocent)
    await until(lambda: bool(second.open))
    await settle()
    assert poison not in second.windows
    second.report = busy(9.0)  # type: ignore[assignment]
    first.come_back()
    with pytest.raises(EngineFailed, match="died 2 times"):
        await failing
    assert second.is_up and not first.is_up
    second.go_on()
    assert await beside == decode(innocent)


async def test_the_crash_suspects_of_two_gateways_do_not_meet() -> None:
    """Each tries its own in another engine. So the innocent one is not there in the second crash."""
    links = [ScriptedLink(name=str(number), halt_after=1) for number in range(3)]
    fleets = [Fleet(*links, gateway=gateway, n_gateways=2) for gateway in range(2)]

    def notify() -> None:
        for fleet in fleets:
            fleet.pool.notify()

    poison, innocent = window(2), window(3)
    for link in links:
        link.notify = notify
    tasks = [fleet.start(each) for fleet, each in zip(fleets, (innocent, poison), strict=True)]
    await until(lambda: len(links[0].open) == 2)
    for link in links:
        link.poison = poison
    links[0].die()
    with pytest.raises(EngineFailed, match="died 2 times"):
        await tasks[1]
    links[1].go_on()
    assert await tasks[0] == decode(innocent)


@pytest.mark.parametrize("n_kills", [MAX_ENGINE_ENDS_PER_WINDOW - 1, MAX_ENGINE_ENDS_PER_WINDOW])
async def test_a_window_outlives_engines_that_are_killed_from_outside(n_kills: int) -> None:
    """It is not to blame. But if that happens again and again, memory may be short because of it."""
    fleet = fleet_of(2, halt_after=1)
    submitted = window()
    task = fleet.start(submitted)
    for n_before in range(n_kills):
        await until(lambda: sum(len(link.windows) for link in fleet.links) > n_before)  # noqa: B023
        link = next(link for link in fleet.links if link.open)
        link.die(was_killed=True)
        link.come_back()
    if n_kills < MAX_ENGINE_ENDS_PER_WINDOW:
        for link in fleet.links:
            link.go_on()
        assert await task == decode(submitted)
    else:
        with pytest.raises(EngineFailed, match=f"died {n_kills} times"):
            await task


@pytest.mark.parametrize("reason", ["killed", "lost"])
async def test_the_last_engine_takes_crash_suspects_where_it_must(reason: str) -> None:
    """An engine that was killed from outside did not die of a window; one that is lost does not come back."""
    fleet = fleet_of(2, halt_after=1)
    first, second = fleet.links
    submitted = window()
    task = fleet.start(submitted)
    await until(lambda: bool(first.open))
    first.die(was_killed=reason == "killed")
    if reason == "lost":
        await settle()
        assert not second.windows
        first.is_lost = True
        fleet.pool.notify()
    await until(lambda: bool(second.open))
    second.go_on()
    assert await task == decode(submitted)


async def test_text_that_was_delivered_never_changes() -> None:
    """If the next engine decodes the window differently, the window ends with an error."""
    fleet = fleet_of(3)
    first, *others = fleet.links
    first.halt_after = 3
    for link in others:
        link.lost = (0,)
    async with fleet.pool.submit(window()) as events:
        received = [await anext(events) for _ in range(3)]
        assert isinstance(received[1], SegmentEvent)
        first.die()
        with pytest.raises(EngineFailed, match="differently"):
            await anext(events)
    assert not any(link.open for link in fleet.links)


async def test_where_there_is_no_room_interims_are_refused_and_finals_wait() -> None:
    """Until a window of their pool has ended. One that has lost its engine waits, too."""
    fleet = fleet_of(3, halt_after=1)
    first, second, third = fleet.links
    second.report = busy(0.1)  # type: ignore[assignment]
    third.report = busy(0.2)  # type: ignore[assignment]
    task = fleet.start(window())
    await until(lambda: bool(first.open))
    first.report = busy(0.9)  # type: ignore[assignment]
    blocking = fleet.start(window())
    await until(lambda: bool(second.open))
    second.refusal = third.refusal = EngineOverloaded(1, 1)
    first.die()
    with pytest.raises(EngineOverloaded):
        await fleet.collect(interim())
    late = fleet.start(window(session="late"))
    await settle()
    assert not task.done() and not late.done()
    second.refusal = third.refusal = None
    second.go_on()
    third.go_on()
    assert await blocking == await task == await late == decode(window())


async def test_all_windows_fail_after_close() -> None:
    """Those that wait for an engine, and new ones."""
    fleet = fleet_of(1, halt_after=1)
    (link,) = fleet.links
    task = fleet.start(window())
    await until(lambda: bool(link.open))
    link.die()
    await settle()
    fleet.pool.close("the engine has died 5 times while it started")
    assert fleet.pool.is_lost
    for failing in (task, fleet.start(window()), fleet.start(interim())):
        with pytest.raises(EngineFailed, match="5 times"):
            await failing


async def test_engines_come_and_go() -> None:
    """As in a cluster that grows and shrinks: an engine that is removed ends the windows that it has."""
    fleet = fleet_of(1, halt_after=1)
    (old,) = fleet.links
    new = ScriptedLink(name="new", notify=fleet.pool.notify)
    task = fleet.start(window())
    await until(lambda: bool(old.open))
    fleet.pool.add(new)
    fleet.pool.remove(old)
    assert await fleet.collect(window()) == decode(window()) and len(new.windows) == 1
    old.go_on()
    assert await task == decode(window())


async def test_what_is_loaded_is_known_without_engines() -> None:
    """As in a cluster whose only engine has died: sessions ask for the model and the counters meanwhile."""
    fleet = fleet_of(1)
    (old,) = fleet.links
    old.report = replace(old.report, windows_done=3, running=2)
    assert fleet.pool.stats() is old.report
    fleet.pool.remove(old)
    fleet.pool.add(ScriptedLink(name="new", _generation=None))
    stats = fleet.pool.stats()
    assert fleet.pool.info == old.info and not fleet.pool.is_alive
    assert (stats.windows_done, stats.running, stats.n_engines) == (3, 0, 0)


async def test_an_engine_that_leaves_at_once_is_known() -> None:
    """As in a gateway that hears of its start and of its end at the same time, and then serves."""
    link = ScriptedLink(name="0", _generation=None)
    fleet = Fleet(link)
    link.come_back()
    link.die()
    assert (fleet.pool.info, fleet.pool.stats().n_engines) == (link.info, 0)


async def test_an_engine_that_was_down_before_is_named_and_not_counted() -> None:
    """As in a gateway that is started after an engine was given up."""
    up = ScriptedLink(name="0")
    stats = Fleet(up, ScriptedLink(name="1", _generation=None)).pool.stats()
    assert (stats.engines, stats.unknown, stats.n_engines) == ({"0": up.report}, ("1",), 1)


async def test_nothing_waits_in_an_engine_that_is_down() -> None:
    """Its link may have the last report still."""
    fleet = fleet_of(2)
    for link in fleet.links:
        link.report = replace(link.report, windows_done=3, waiting_finals=2, work_waiting_s=0.5)
    fleet.pool.stats()
    fleet.links[0].die()
    stats = fleet.pool.stats()
    assert (stats.windows_done, stats.waiting_finals, stats.work_waiting_s, stats.n_engines) == (6, 2, 0.5, 1)


async def check_ends(tasks: Iterable["asyncio.Task[list[EngineEvent]]"]) -> None:
    """Check that each window of `window` was cancelled, dropped, or has all events or an error."""
    for received in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(received, BaseException):
            assert isinstance(received, asyncio.CancelledError | EngineError)
        else:
            assert received[-1] == SupersededEvent() or received == decode(window())


STEPS = st.lists(
    st.sampled_from(["final", "interim", "cancel", "kill 0", "kill 1", "crash 0", "crash 1", "start 0", "start 1"]),
    min_size=3,
    max_size=30,
)


@given(STEPS)
def test_in_any_order_each_window_ends_once(steps: list[str]) -> None:
    """Windows open and are cancelled, engines start and die: each window gets all events once, or an error."""
    asyncio.run(_run(steps))


async def _run(steps: list[str]) -> None:
    fleet = fleet_of(2, halt_after=2)
    tasks: list[asyncio.Task[list[EngineEvent]]] = []
    for step in steps:
        match step.split():
            case ["final"]:
                tasks.append(fleet.start(window(session=str(len(tasks)))))
            case ["interim"]:
                tasks.append(fleet.start(interim()))
            case ["cancel"] if tasks:
                tasks[len(tasks) // 2].cancel()
            case ["kill" | "crash" as how, number] if fleet.links[int(number)].is_up:
                fleet.links[int(number)].die(was_killed=how == "kill")
            case ["start", number] if not fleet.links[int(number)].is_up:
                fleet.links[int(number)].come_back()
        await settle()
    for link in fleet.links:
        if not link.is_up:
            link.come_back()
        link.go_on()
    async with asyncio.timeout(PATIENCE_S):
        await check_ends(tasks)
    assert not any(link.open for link in fleet.links)
