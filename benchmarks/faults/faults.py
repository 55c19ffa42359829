"""The faults of the campaign: of the network of one session, and of the processes of the service."""

import asyncio
import os
import resource
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random

from benchmarks import machine
from benchmarks.faults.service import DisturbedService
from benchmarks.live.faulty_proxy import FaultyProxy

STOPPED_S = (0.5, 4.0)
"""Shortest and longest time for which a process is stopped, in seconds."""
HELD_S = (0.2, 3.0)
"""Shortest and longest time for which the network holds bytes back, in seconds."""
DELAY_S = (0.05, 0.5)
"""Shortest and longest delay of bytes, in seconds."""
LOST_WITHIN_BYTES = 8_000
"""A connection that loses bytes is dropped within this many bytes: between two messages or inside one."""
LIMITED_S = 3.0
"""For how long a process has little of a resource, in seconds."""
SPARE_DESCRIPTORS = 2
"""How many descriptors more than it has a process may open while it has few."""
SPARE_MEMORY = 32 << 20
"""How much address space more than it has a process may map while it has little memory, in bytes."""
MAX_FILE_BYTES = 4096
"""The largest file that a process can write while its disk is full, in bytes."""


async def reset(proxy: FaultyProxy, random: Random) -> None:
    """The connection is reset."""
    proxy.drop_connections()


async def lose_bytes(proxy: FaultyProxy, random: Random) -> None:
    """Some more bytes arrive, perhaps the first half of a message, and then the connection is reset."""
    proxy.drop_after(random.randrange(LOST_WITHIN_BYTES))


async def half_open(proxy: FaultyProxy, random: Random) -> None:
    """The connection stays open and carries nothing any more."""
    proxy.silence()


async def hole(proxy: FaultyProxy, random: Random) -> None:
    """Nothing arrives for a while, and then everything at once."""
    await proxy.hold(random.uniform(*HELD_S))


async def delay(proxy: FaultyProxy, random: Random) -> None:
    """Everything arrives late for a while."""
    await proxy.delay(random.uniform(*DELAY_S), random.uniform(*HELD_S))


NetworkFault = Callable[[FaultyProxy, Random], Awaitable[None]]
NETWORK_FAULTS: Mapping[str, tuple[NetworkFault, float]] = {
    "reset": (reset, 4.0),
    "bytes lost": (lose_bytes, 4.0),
    "half-open": (half_open, 1.0),
    "hole": (hole, 1.0),
    "delay": (delay, 1.0),
}
"""The faults of a session's network, with how often each is chosen, as a share of the sum."""
CUTS = frozenset({"reset", "bytes lost", "half-open"})
"""The faults that end a connection."""


Find = Callable[[DisturbedService], list[int]]


async def kill_one(find: Find, service: DisturbedService, random: Random) -> None:
    """One of these processes is killed; its supervisor starts another."""
    machine.send(_one_of(find(service), random), signal.SIGKILL)


async def stop_one(find: Find, service: DisturbedService, random: Random) -> None:
    """One of these processes stands still for a while."""
    pids = _one_of(find(service), random)
    machine.send(pids, signal.SIGSTOP)
    try:
        await asyncio.sleep(random.uniform(*STOPPED_S))
    finally:
        machine.send(pids, signal.SIGCONT)


async def kill_supervisor(service: DisturbedService, random: Random) -> None:
    """The supervisor is killed, and everything with it. It is started again, as a process manager would."""
    service.signal(signal.SIGKILL)
    await service.wait_until_ended()
    await service.start()


async def terminate(service: DisturbedService, random: Random) -> None:
    """The service gets one SIGTERM, drains and ends. It is started again."""
    service.signal(signal.SIGTERM)
    await service.wait_until_ended()
    await service.start()


async def terminate_twice(service: DisturbedService, random: Random) -> None:
    """The service gets a second SIGTERM while it drains. It is started again."""
    service.signal(signal.SIGTERM)
    await asyncio.sleep(random.uniform(0.0, 1.0))
    if service.is_running():
        service.signal(signal.SIGTERM)
    await service.wait_until_ended()
    await service.start()


async def few_descriptors(service: DisturbedService, random: Random) -> None:
    """A gateway can open hardly any file or connection for a while."""
    for pid in service.gateways()[:1]:
        async with _limited(pid, resource.RLIMIT_NOFILE, _n_descriptors(pid) + SPARE_DESCRIPTORS):
            await asyncio.sleep(LIMITED_S)


async def full_disk(service: DisturbedService, random: Random) -> None:
    """A gateway can write no file of more than a few bytes for a while, as on a full disk."""
    for pid in service.gateways()[:1]:
        async with _limited(pid, resource.RLIMIT_FSIZE, MAX_FILE_BYTES):
            await asyncio.sleep(LIMITED_S)


async def little_memory(service: DisturbedService, random: Random) -> None:
    """An engine process can map hardly any more memory for a while."""
    for pid in _one_of(service.engines(), random):
        async with _limited(pid, resource.RLIMIT_AS, _mapped_bytes(pid) + SPARE_MEMORY):
            await asyncio.sleep(LIMITED_S)


ProcessFault = Callable[[DisturbedService, Random], Awaitable[None]]
PROCESS_FAULTS: Mapping[str, tuple[ProcessFault, float]] = {
    "engine killed": (partial(kill_one, DisturbedService.engines), 3.0),
    "engine stopped": (partial(stop_one, DisturbedService.engines), 1.0),
    "gateway killed": (partial(kill_one, DisturbedService.gateways), 3.0),
    "gateway stopped": (partial(stop_one, DisturbedService.gateways), 1.0),
    "supervisor killed": (kill_supervisor, 1.0),
    "supervisor stopped": (partial(stop_one, lambda service: [service.supervisor()]), 1.0),
    "SIGTERM": (terminate, 1.0),
    "SIGTERM twice": (terminate_twice, 1.0),
    "few descriptors": (few_descriptors, 1.0),
    "full disk": (full_disk, 1.0),
    "little memory": (little_memory, 1.0),
}
"""The faults of processes, with how often each is chosen, as a share of the sum."""


def _one_of(pids: list[int], random: Random) -> list[int]:
    return random.sample(pids, min(1, len(pids)))


@asynccontextmanager
async def _limited(pid: int, what: int, limit: int) -> AsyncIterator[None]:
    """The soft limit of a process is `limit` while the block runs."""
    try:
        soft, hard = resource.prlimit(pid, what)
        resource.prlimit(pid, what, (limit, hard))
    except ProcessLookupError:
        yield
        return
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, what, (soft, hard))


def _n_descriptors(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def _mapped_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
