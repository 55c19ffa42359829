"""The engines of a cluster as one transcriber: it follows which replicas serve, and prefers those of its own node."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.plugins.ray.conftest import require_ray

require_ray()

from tests.fakes import FakeTranscriber, decode  # noqa: E402
from tests.plugins.ray.fake_calls import FakeCalls, collect, window  # noqa: E402
from tutti_server.plugins.ray.membership import Member  # noqa: E402
from tutti_server.plugins.ray.ray_transcriber import RayTranscriber  # noqa: E402

HERE, THERE = Member("near", "n1"), Member("far", "n2")
PATIENCE_S = 20.0


class FakeHandle:
    """A handle of Serve whose replicas are fakes."""

    def __init__(self, replicas: dict[str, FakeCalls], method: str = "") -> None:
        self._replicas = replicas
        self._method = method

    def options(self, *, method_name: str = "", stream: bool = True) -> "FakeHandle":
        return FakeHandle(self._replicas, method_name)

    def remote(self, *arguments: Any, replica: str) -> Any:
        return getattr(self._replicas[replica], self._method)(*arguments)


@asynccontextmanager
async def transcribing(replicas: dict[str, FakeCalls]) -> AsyncIterator[RayTranscriber]:
    """A transcriber of node n1."""
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        following: list[asyncio.Task[None]] = []

        class Tasks:
            def create_task(self, work: Any) -> None:
                following.append(tasks.create_task(work))

        yield RayTranscriber(FakeHandle(replicas), "n1", Tasks())  # type: ignore[arg-type]  # fakes
        for each in following:
            each.cancel()


async def test_engines_of_its_own_node_come_first() -> None:
    """Where they have room, no audio travels to another machine."""
    near, far = FakeTranscriber(), FakeTranscriber()
    replicas = {"near": FakeCalls(near), "far": FakeCalls(far)}
    async with transcribing(replicas) as transcriber:
        transcriber.follow((THERE,))
        replicas["far"].report()
        await transcriber.until_known()
        assert await collect(transcriber) == decode(window())
        transcriber.follow((THERE, HERE))
        replicas["near"].report()
        while transcriber.stats().n_engines < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert await collect(transcriber) == decode(window())
        assert (len(near.windows), len(far.windows)) == (1, 1)


async def test_an_engine_that_leaves_gets_nothing_more() -> None:
    """Serve stops a replica only after it has told all gateways."""
    near, far = FakeTranscriber(), FakeTranscriber()
    replicas = {"near": FakeCalls(near), "far": FakeCalls(far)}
    async with transcribing(replicas) as transcriber:
        transcriber.follow((HERE, THERE))
        for each in replicas.values():
            each.report()
        await transcriber.until_known()
        transcriber.follow((THERE,))
        assert await collect(transcriber) == decode(window())
        assert not near.windows


async def test_without_engines_a_final_waits() -> None:
    """The session goes on when the next engine has reported."""
    replicas = {"near": FakeCalls(FakeTranscriber())}
    async with transcribing(replicas) as transcriber:
        assert not transcriber.is_alive and not transcriber.is_lost
        waiting = asyncio.create_task(collect(transcriber))
        transcriber.follow((HERE,))
        replicas["near"].report()
        assert await waiting == decode(window())


async def test_the_model_is_known_when_the_only_engine_has_left() -> None:
    """Serve takes a replica that has died from the members: sessions are opened and go on meanwhile."""
    replicas = {"near": FakeCalls(FakeTranscriber()), "next": FakeCalls(FakeTranscriber())}
    async with transcribing(replicas) as transcriber:
        transcriber.follow((HERE,))
        replicas["near"].report()
        await transcriber.until_known()
        for members in ((), (Member("next", "n1"),)):
            transcriber.follow(members)
            assert not transcriber.is_alive and transcriber.stats().n_engines == 0
            assert transcriber.info == replicas["near"].engine.info
        replicas["next"].report()
        assert await collect(transcriber) == decode(window())
