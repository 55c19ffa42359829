"""Real processes with a fake engine: the supervisor starts, restarts and ends them, and gives up."""

import asyncio
import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.local import processes
from tests.fakes import PATIENCE_S, said, until
from tutti_server.cluster.local import supervisor
from tutti_server.cluster.local.control_messages import ControlMessage, EngineDown, EngineLost
from tutti_server.cluster.local.managed_process import ChildProcess
from tutti_server.cluster.local.supervisor import Supervisor, SupervisorConfig, SupervisorError
from tutti_server.engine.api import EngineStats, ModelInfo

SHARED_MEMORY = Path("/dev/shm")


class RunningService:
    """A supervisor with two gateways, and what it has reported."""

    def __init__(self, folder: Path, **values: Any) -> None:
        self.ready = asyncio.Event()
        self.models: list[ModelInfo] = []
        self.gone: asyncio.Queue[int] = asyncio.Queue()
        listeners = tuple(socket.create_server(("127.0.0.1", 0)) for _ in range(2))
        self.ports = [listener.getsockname()[1] for listener in listeners]
        config: dict[str, Any] = {
            "prepare": processes.prepare_nothing,
            "start_engines": (processes.start_fake,),
            "serve": processes.serve,
            "folder": folder,
            "listeners": listeners,
            "n_admission_counts": 2,
            "keep_counts": lambda counts: (2 * counts, 10 * counts),
            "keep_counts_s": 1000.0,
            "stop_timeout_s": 10.0,
            "on_ready": self._note_ready,
            "on_gateway_gone": self.gone.put_nowait,
            "first_pause_s": 0.01,
            "max_failed_starts": 2,
        }
        self.supervisor = Supervisor(SupervisorConfig(**config | values))

    def _note_ready(self, model: ModelInfo, stats: EngineStats) -> None:
        self.models.append(model)
        self.ready.set()

    def engines(self) -> list[int]:
        """The process ids of the engines that run."""
        return [engine.process.id for engine in self.supervisor._engines if engine.process]

    def gateways(self) -> list[int]:
        """The process ids of the gateways: the children that are neither engines nor Python's resource tracker."""
        engines = self.engines()
        return [pid for pid in children(os.getpid()) if pid not in engines and _is_spawned(pid)]

    async def ask(self, number: int, *words: int) -> dict[str, Any]:
        """The answer of a gateway. A client of a gateway that is not running yet waits for it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.ports[number])
        writer.write(json.dumps(words).encode() + b"\n")
        answer = json.loads(await reader.readline())
        writer.close()
        return dict(answer)


@asynccontextmanager
async def running(tmp_path: Path, **values: Any) -> AsyncIterator[RunningService]:
    async with asyncio.timeout(PATIENCE_S):
        service = RunningService(tmp_path, **values)
        task = asyncio.create_task(service.supervisor.run())
        await service.ready.wait()
        yield service
        service.supervisor.stop()
        await task


def shared_memory(pid: int) -> list[str]:
    return [path.name for path in SHARED_MEMORY.glob(f"tutti-{pid}-*")]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _is_spawned(pid: int) -> bool:
    return "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_dead_gateways_and_engines_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Audio gets to the engine and text back; a new gateway has the number of the dead one, and counts from 0.

    The gateways of an engine that is killed stay, and the next engine answers what they submit in the meantime. It is
    tried again where the host has no process for it at first.
    """

    def fail(process: ChildProcess, *arguments: object) -> None:
        monkeypatch.undo()
        raise BlockingIOError(errno.EAGAIN, "no process is left")

    async with running(tmp_path) as service:
        first, second = await service.ask(0, 1, 2), await service.ask(1, 3)
        assert (first["text"], second["text"]) == ([f" {said([1, 2])}"], [f" {said([3])}"])
        assert (first["number"], second["number"]) == (0, 1)
        assert first["admission_counts"] == [1, 1, 0]
        assert first["modules"] == second["modules"] == [], "a gateway needs no torch"
        os.kill(first["pid"], signal.SIGKILL)
        assert await service.gone.get() == first["pid"]
        again = await service.ask(0, 4)
        assert again["pid"] != first["pid"] and again["text"] == [f" {said([4])}"]
        assert again["admission_counts"] == [1, 1, 12], "what is kept of the dead one"
        (engine,) = service.engines()
        monkeypatch.setattr(ChildProcess, "__init__", fail)
        os.kill(engine, signal.SIGKILL)
        assert (await service.ask(0, 4))["pid"] == again["pid"]
        assert service.engines() not in ([], [engine])
        assert len(service.models) == 1
        assert shared_memory(os.getpid())
        pids = [again["pid"], second["pid"]]
    assert shared_memory(os.getpid()) == []
    assert not any(map(is_running, pids))


async def test_processes_that_hang_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that hangs may do so because of a window: gateways hear that it has crashed."""
    monkeypatch.setattr(supervisor, "PING_S", 0.2)
    sent: list[ControlMessage] = []
    send = Supervisor._send_to_gateways

    def note(self: Supervisor, message: Any) -> None:
        sent.append(message)
        send(self, message)

    monkeypatch.setattr(Supervisor, "_send_to_gateways", note)
    async with running(tmp_path) as service:
        gateways = service.gateways()
        (engine,) = service.engines()
        for pid in (engine, *gateways):
            os.kill(pid, signal.SIGSTOP)
        assert {await service.gone.get() for _ in gateways} == set(gateways)
        await until(lambda: service.engines() not in ([], [engine]))
        assert EngineDown(0, was_killed=False) in sent
        await until(lambda: len(service.gateways()) == len(gateways))


async def test_a_gateway_that_waits_for_an_engine_is_prepared(tmp_path: Path) -> None:
    """So what it logs has the form of all other lines."""
    names = tmp_path / "names"
    names.mkdir()
    start = partial(processes.start_after, 3, names)
    async with running(tmp_path, prepare=partial(processes.note_name, names), start_engines=(start,)):
        pass


async def test_an_engine_that_is_given_up_does_not_end_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its model has changed, so it died too often while it started, and the service goes on with the other.

    All gateways are notified, also new ones. Else their crash suspects would wait for it.
    """
    lost: list[int] = []

    def send(process: ChildProcess, message: ControlMessage) -> None:
        if isinstance(message, EngineLost):
            lost.append(process.id)
        unchanged(process, message)

    unchanged = ChildProcess.send
    monkeypatch.setattr(ChildProcess, "send", send)
    is_same = tmp_path / "is same"
    is_same.touch()
    engines = (partial(processes.start_other_unless, is_same), processes.start_fake)
    async with running(tmp_path, start_engines=engines) as service:
        is_same.unlink()
        os.kill(service.engines()[0], signal.SIGKILL)
        await until(lambda: "; the others go on" in caplog.text)
        answer = await service.ask(0, 3)
        assert answer["text"] == [f" {said([3])}"] and answer["pid"] in lost
        # Clients see the answer, so that only the log has the reason.
        assert answer["problems"] == ["the engine-0 has died 2 times while it started"]
        assert "while it started: the engine-0 has another model" in caplog.text
        os.kill(answer["pid"], signal.SIGKILL)
        await service.gone.get()
        again = await service.ask(0, 3)
        assert again["pid"] != answer["pid"] and again["pid"] in lost


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        # A window must have the same text whichever engine decodes it.
        ({"start_engines": (processes.start_fake, processes.start_other)}, r"engine-\d has another model than the oth"),
        ({"start_engines": (processes.start_nothing,)}, "no such model"),
        ({"start_engines": (processes.die_at_once,)}, "engine has died 2 times"),
        ({"serve": processes.serve_nothing}, r"^no such port$"),
    ],
)
async def test_what_cannot_start_stops_the_service(tmp_path: Path, values: dict[str, Any], problem: str) -> None:
    """An error that the operator can remove is not tried again; a process that dies is, `max_failed_starts` times."""
    with pytest.raises(SupervisorError, match=problem):
        async with asyncio.timeout(PATIENCE_S):
            await RunningService(tmp_path, **values).supervisor.run()


async def check_refusal(folder: Path, message: str) -> None:
    """Check that a supervisor ends with this error before any process starts."""
    service = RunningService(folder)
    with pytest.raises(SupervisorError, match=message):
        await service.supervisor.run()
    service.supervisor.stop()


async def test_a_folder_that_is_too_deep_for_sockets_is_named(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    await check_refusal(deep, f"{deep}: expected a folder for sockets, got: .*set TMPDIR")
    assert not list(deep.iterdir())


async def test_an_engine_that_is_killed_while_gateways_drain_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They still need an engine, for the last finals. The log has also the gateways that die meanwhile."""
    async with running(tmp_path, serve=processes.serve_forever, stop_timeout_s=1000.0) as service:
        (engine,) = service.engines()
        service.supervisor.stop()
        os.kill(engine, signal.SIGKILL)
        await until(lambda: service.engines() not in ([], [engine]))
        pids = [engine, *service.gateways()]
        for gateway in pids[1:]:
            os.kill(gateway, signal.SIGKILL)
    assert len(pids) == 3 and all(f"(process {pid}) has ended with status -9" in caplog.text for pid in pids)


@pytest.mark.nightly
async def test_processes_that_do_not_end_are_killed(tmp_path: Path) -> None:
    """Gateways that ignore SIGTERM, and an engine that hangs."""
    async with running(tmp_path, serve=processes.serve_forever, stop_timeout_s=0.1) as service:
        (engine,) = service.engines()
        os.kill(engine, signal.SIGSTOP)
    assert service.gone.qsize() == 2


async def test_a_lack_of_shared_memory_stops_the_supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that has Docker's 64 MB. The error of the supervisor gives the reason."""
    monkeypatch.setattr(supervisor, "POOL_BLOCKS", 1 << 30)
    await check_refusal(tmp_path, "--shm-size")


async def test_a_host_without_shared_memory_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the folder of shared memory is missing, cannot be written or holds no further file."""

    def refuse(name: str, **_: object) -> SharedMemory:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), f"/{name}")

    monkeypatch.setattr("tutti_server.cluster.local.shared_memory.SharedMemory", refuse)
    await check_refusal(tmp_path, r"expected shared memory .* Read-only file system: '/tutti-")


SCRIPT = """
import asyncio
import sys
from pathlib import Path
from tests.cluster.local.test_supervisor import RunningService

async def main():
    service = RunningService(Path(sys.argv[1]))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(service.supervisor.run())
        await service.ready.wait()
        print("ready", flush=True)

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_nothing_outlives_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    """All its processes end, and the shared memory is removed."""
    script = tmp_path / "main.py"
    script.write_text(SCRIPT)
    folder = tmp_path / "sockets"
    folder.mkdir()
    repository = Path(__file__).parents[3]
    process = subprocess.Popen(
        [sys.executable, str(script), str(folder)],
        stdout=subprocess.PIPE,
        cwd=repository,
        env=os.environ | {"PYTHONPATH": "."},
    )
    try:
        assert process.stdout and process.stdout.readline() == b"ready\n"
        pids = children(process.pid)
        assert len(pids) == 4, "an engine, two gateways, and Python's resource tracker"
        assert shared_memory(process.pid)
        waits = [os.pidfd_open(pid) for pid in pids]
    finally:
        process.kill()
        process.communicate()
    for wait in waits:
        _await_exit(wait)
    assert shared_memory(process.pid) == [] and not folder.exists()


def _await_exit(pidfd: int) -> None:
    assert select.select([pidfd], [], [], PATIENCE_S)[0]
    os.close(pidfd)
