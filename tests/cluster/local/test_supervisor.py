"""Real processes, around a fake engine: started, started again, given up, and ended."""

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster.local.remote_transcriber import EngineUp
from cluster.local.supervisor import MAX_PAUSE_S, Supervisor, SupervisorConfig, SupervisorError, check_room, pause_s
from tests.cluster.local import processes
from tests.fakes import said

PATIENCE_S = 40.0
SHARED_MEMORY = Path("/dev/shm")


class Running:
    """A cell, and what it told."""

    def __init__(self, folder: Path, **values: Any) -> None:
        self.ready = asyncio.Event()
        self.engines: list[EngineUp] = []
        self.gone: asyncio.Queue[int] = asyncio.Queue()
        listeners = tuple(socket.create_server(("127.0.0.1", 0)) for _ in range(2))
        self.ports = [listener.getsockname()[1] for listener in listeners]
        config: dict[str, Any] = {
            "start_engine": processes.start_fake,
            "serve": processes.serve,
            "folder": folder,
            "listeners": listeners,
            "stop_timeout_s": 10.0,
            "on_ready": self._note_ready,
            "on_gateway_gone": self.gone.put_nowait,
            "first_pause_s": 0.01,
            "max_failed_starts": 2,
        }
        self.cell = Supervisor(SupervisorConfig(**config | values))

    def _note_ready(self, engine: EngineUp) -> None:
        self.engines.append(engine)
        self.ready.set()

    def gateways(self) -> list[int]:
        """Their ids, told apart from the engine and Python's tracker by what they are not."""
        engine = self.cell.engine_process
        return [pid for pid in children(os.getpid()) if pid != engine and _is_spawned(pid)]

    async def ask(self, number: int, *words: int) -> dict[str, Any]:
        """What a gateway says; one that is not there yet is waited for."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.ports[number])
        writer.write(json.dumps(words).encode() + b"\n")
        answer = json.loads(await reader.readline())
        writer.close()
        return dict(answer)


@asynccontextmanager
async def running(tmp_path: Path, **values: Any) -> AsyncIterator[Running]:
    async with asyncio.timeout(PATIENCE_S):
        each = Running(tmp_path, **values)
        task = asyncio.create_task(each.cell.run())
        await each.ready.wait()
        yield each
        each.cell.stop()
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


async def test_gateways_share_an_engine_and_one_that_dies_is_replaced(tmp_path: Path) -> None:
    """Audio gets to the engine and text back; a new gateway has its predecessor's number, and takes from nothing."""
    async with running(tmp_path) as cell:
        first, second = await cell.ask(0, 1, 2), await cell.ask(1, 3)
        assert (first["text"], second["text"]) == ([f" {said([1, 2])}"], [f" {said([3])}"])
        assert (first["number"], second["number"]) == (0, 1)
        assert first["taken"] == [1, 1]
        assert first["modules"] == second["modules"] == [], "a gateway needs no torch"
        os.kill(first["pid"], signal.SIGKILL)
        assert await cell.gone.get() == first["pid"]
        again = await cell.ask(0, 4)
        assert again["pid"] != first["pid"] and again["text"] == [f" {said([4])}"]
        assert again["taken"] == [1, 1]
        assert len(cell.engines) == 1
        assert shared_memory(os.getpid())
        pids = [again["pid"], second["pid"]]
    assert shared_memory(os.getpid()) == []
    assert not any(map(is_running, pids))


async def test_an_engine_that_is_killed_is_replaced(tmp_path: Path) -> None:
    """Its gateways stay, and what they ask meanwhile is answered by the next."""
    async with running(tmp_path) as cell:
        before = await cell.ask(0, 1)
        engine = cell.cell.engine_process
        assert engine
        os.kill(engine, signal.SIGKILL)
        after = await cell.ask(0, 1)
        assert after == before
        assert cell.cell.engine_process not in (None, engine)


async def test_an_engine_that_is_killed_while_gateways_drain_is_replaced(tmp_path: Path) -> None:
    """They still need one, for what was said before."""
    async with running(tmp_path, serve=processes.serve_for_ever, stop_timeout_s=1000.0) as cell:
        engine = cell.cell.engine_process
        assert engine
        cell.cell.stop()
        os.kill(engine, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_S):
            while cell.cell.engine_process in (None, engine):  # noqa: ASYNC110
                await asyncio.sleep(0)
        for gateway in cell.gateways():
            os.kill(gateway, signal.SIGKILL)


async def test_what_does_not_end_is_killed(tmp_path: Path) -> None:
    """Gateways that hear no signal, and an engine that hangs."""
    async with running(tmp_path, serve=processes.serve_for_ever, stop_timeout_s=0.1) as cell:
        assert cell.cell.engine_process
        os.kill(cell.cell.engine_process, signal.SIGSTOP)
    assert cell.gone.qsize() == 2


async def test_an_engine_that_cannot_start_says_why(tmp_path: Path) -> None:
    """What the operator can mend is not tried again."""
    with pytest.raises(SupervisorError, match="no such model"):
        async with asyncio.timeout(PATIENCE_S):
            await Running(tmp_path, start_engine=processes.start_nothing).cell.run()


async def test_an_engine_that_dies_at_every_start_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(SupervisorError, match="engine has died 2 times"):
        async with asyncio.timeout(PATIENCE_S):
            await Running(tmp_path, start_engine=processes.die_at_once).cell.run()


async def test_a_gateway_that_dies_at_every_start_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(SupervisorError, match=r"gateway-\d has died 2 times"):
        async with asyncio.timeout(PATIENCE_S):
            await Running(tmp_path, serve=processes.die_too).cell.run()


def test_pauses_grow_up_to_a_bound() -> None:
    """None after the first death, and none is longer than the longest."""
    assert [pause_s(n, 0.5) for n in range(1, 6)] == [0.0, 0.5, 1.0, 2.0, 4.0]
    assert pause_s(1000, 0.5) == MAX_PAUSE_S


def test_too_little_shared_memory_is_told_before_anything_starts() -> None:
    """As in a container that has Docker's 64 MB."""
    check_room(1)
    with pytest.raises(SupervisorError, match="--shm-size"):
        check_room(1 << 60)


SCRIPT = """
import asyncio
import sys
from pathlib import Path
from tests.cluster.local.test_supervisor import Running

async def main():
    cell = Running(Path(sys.argv[1]))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(cell.cell.run())
        await cell.ready.wait()
        print("ready", flush=True)

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_nothing_outlives_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    """All its processes end, and the memory they shared is given back."""
    script = tmp_path / "main.py"
    script.write_text(SCRIPT)
    folder = tmp_path / "sockets"
    folder.mkdir()
    repository = Path(__file__).parents[3]
    supervisor = subprocess.Popen(
        [sys.executable, str(script), str(folder)],
        stdout=subprocess.PIPE,
        cwd=repository,
        env=os.environ | {"PYTHONPATH": "."},
    )
    try:
        assert supervisor.stdout and supervisor.stdout.readline() == b"ready\n"
        pids = children(supervisor.pid)
        assert len(pids) == 4, "an engine, two gateways, and Python's tracker of shared memory"
        assert shared_memory(supervisor.pid)
        waits = [os.pidfd_open(pid) for pid in pids]
    finally:
        supervisor.kill()
        supervisor.communicate()
    for wait in waits:
        _await_exit(wait)
    assert shared_memory(supervisor.pid) == [] and not folder.exists()


def _await_exit(pidfd: int) -> None:
    assert select.select([pidfd], [], [], PATIENCE_S)[0]
    os.close(pidfd)
