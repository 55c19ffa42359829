"""The campaign: sessions and uploads that go on while faults happen, and the comparison with an undisturbed run."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol, TypeVar

from benchmarks.faults.differences import Difference, TimedWord, differences
from benchmarks.faults.faults import CUTS, NETWORK_FAULTS
from benchmarks.faults.sessions import RETRY_S, SessionLog, stream, upload
from benchmarks.live.faulty_proxy import FaultyProxy, faulty_proxy
from benchmarks.recordings import Recording

NEAR_S = 15.0
"""A fault belongs to a difference if it came at most this many seconds before the text of the difference."""


class Service(Protocol):
    url: str

    def is_running(self) -> bool: ...

    async def start(self) -> None:
        """Start it again, and wait until it is ready."""
        ...

    async def wait_until_ready(self) -> bool:
        """Wait until it is mended. Returns whether it is, before it ends or the time limit is over."""
        ...


ServiceT = TypeVar("ServiceT", bound=Service)
Faults = Mapping[str, tuple[Callable[[ServiceT, Random], Awaitable[None]], float]]
"""Faults of processes, with how often each is chosen, as a share of the sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    recordings: Sequence[Recording]
    files: Mapping[str, Path] = field(default_factory=dict)
    """The recordings as files for uploads, by name."""
    n_sessions: int
    """Live sessions at the same time, each with its own network."""
    n_uploads: int = 0
    """Uploads at the same time, past the faulty networks."""
    speed: float = 1.0
    """Speed of the audio, as a multiple of the pace of speech."""
    n_cuts: int = 0
    """How many cuts there must be. New sessions begin until then."""
    n_process_faults: int
    cut_every_s: float = 1.0
    """Mean time between two faults of the network of one session, in seconds."""
    process_fault_every_s: float
    """Mean time from one fault of a process, mended, to the next, in seconds."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    at: float
    """When, by `time.monotonic`."""
    session: int | None = None
    """The number of the session whose network it was; `None` for a fault of a process."""


@dataclass(slots=True)
class CampaignLog:
    """Everything that happened in a campaign."""

    faults: list[Fault] = field(default_factory=list)
    sessions: list[tuple[int, SessionLog]] = field(default_factory=list)
    """Each finished session, with the number of its network."""
    uploads: list[SessionLog] = field(default_factory=list)

    def n_cuts(self) -> int:
        """How many times the network of a session was cut, also while the session had no connection."""
        return sum(fault.name in CUTS for fault in self.faults)

    def n_process_faults(self) -> int:
        return sum(fault.session is None for fault in self.faults)

    def counts(self) -> Counter[str]:
        return Counter(fault.name for fault in self.faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedDifference:
    """A difference between a disturbed session and the undisturbed one, and what happened shortly before."""

    recording: str
    difference: Difference
    faults: tuple[str, ...]
    """The faults of the session and of the service shortly before the words were due."""


async def undisturbed(url: str, plan: Plan) -> dict[str, list[TimedWord]]:
    """The words of each recording without any fault, as many at a time as in the campaign."""
    waiting = iter(plan.recordings)
    found: dict[str, list[TimedWord]] = {}

    async def work() -> None:
        for recording in waiting:
            log = await stream(url, recording, speed=plan.speed)
            if log.failure:
                raise RuntimeError(f"{recording.name} failed without a fault: {log.failure}")
            found[recording.name] = log.words

    async with asyncio.TaskGroup() as tasks:
        for _ in range(plan.n_sessions):
            tasks.create_task(work())
    return found


async def undisturbed_files(url: str, plan: Plan) -> dict[str, list[TimedWord]]:
    """The words of each recording as a file, without any fault."""
    found = {}
    for name, path in plan.files.items():
        log = await upload(url, name, path)
        if log.failure:
            raise RuntimeError(f"{name} failed without a fault: {log.failure}")
        found[name] = log.words
    return found


async def run_campaign(
    service: ServiceT,
    plan: Plan,
    faults: Faults[ServiceT],
    on_progress: Callable[[CampaignLog], None],
) -> CampaignLog:
    """Run sessions while faults happen, until there were enough faults and every session has ended."""
    log = CampaignLog()
    enough = asyncio.Event()
    order, files = itertools.cycle(plan.recordings), itertools.cycle(plan.files.items())

    async def run_sessions(number: int, proxy: FaultyProxy) -> None:
        while not enough.is_set():
            log.sessions.append((number, await stream(proxy.url, next(order), speed=plan.speed)))
            on_progress(log)

    async def run_uploads() -> None:
        while not enough.is_set():
            name, path = next(files)
            log.uploads.append(await upload(service.url, name, path))
            if log.uploads[-1].failure:
                await asyncio.sleep(RETRY_S)

    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(faulty_proxy(service.url)) for _ in range(plan.n_sessions)]
        async with asyncio.TaskGroup() as tasks:
            breaking = [
                tasks.create_task(_break_network(proxy, number, plan, log)) for number, proxy in enumerate(proxies)
            ]
            breaking.append(tasks.create_task(_break_processes(service, plan, faults, log)))
            work = [tasks.create_task(run_sessions(number, proxy)) for number, proxy in enumerate(proxies)]
            work += [tasks.create_task(run_uploads()) for _ in range(plan.n_uploads)]
            await asyncio.wait(breaking)
            enough.set()
    return log


async def _break_network(proxy: FaultyProxy, number: int, plan: Plan, log: CampaignLog) -> None:
    random = Random(f"{plan.seed} network {number}")
    names, weights = list(NETWORK_FAULTS), [weight for _, weight in NETWORK_FAULTS.values()]
    while log.n_cuts() < plan.n_cuts:
        await asyncio.sleep(random.expovariate(1 / plan.cut_every_s))
        (name,) = random.choices(names, weights)
        log.faults.append(Fault(name, time.monotonic(), number))
        await NETWORK_FAULTS[name][0](proxy, random)


async def _break_processes(
    service: ServiceT,
    plan: Plan,
    faults: Faults[ServiceT],
    log: CampaignLog,
) -> None:
    random = Random(f"{plan.seed} processes")
    names, weights = list(faults), [weight for _, weight in faults.values()]
    while log.n_process_faults() < plan.n_process_faults:
        await asyncio.sleep(random.expovariate(1 / plan.process_fault_every_s))
        (name,) = random.choices(names, weights)
        log.faults.append(Fault(name, time.monotonic()))
        await faults[name][0](service, random)
        if not service.is_running():
            # The fault has ended the service, which a process manager would start again.
            log.faults.append(Fault(f"ended after: {name}", time.monotonic()))
            await service.start()
        await service.wait_until_ready()


def locate_differences(log: CampaignLog, expected: dict[str, list[TimedWord]], speed: float) -> list[LocatedDifference]:
    """The differences of all sessions from the undisturbed ones, lined up with the faults."""
    found = []
    for number, session in log.sessions:
        for difference in differences(expected[session.recording], session.words):
            due = session.started_at + difference.at_s / speed
            near = [
                fault.name
                for fault in log.faults
                if fault.session in (None, number) and due - NEAR_S <= fault.at <= due + NEAR_S
            ]
            found.append(LocatedDifference(recording=session.recording, difference=difference, faults=tuple(near)))
    return found
