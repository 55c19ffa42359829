"""A child process of the supervisor."""

import asyncio
import os
import signal
from pathlib import Path

from tutti_server.cluster.local.control_messages import Ready, StartReport
from tutti_server.cluster.local.managed_process import ChildProcess
from tutti_server.cluster.local.process import ControlPipe

PATIENCE_S = 40.0


async def report_ready(pipe: ControlPipe) -> None:
    pipe.send(Ready())


async def test_ctrl_c_during_the_start_leaves_a_process_to_its_supervisor(tmp_path: Path) -> None:
    """The terminal sends the signal to the whole process group, which a process leaves after its first imports."""
    reports: list[StartReport] = []
    process = ChildProcess("engine", tmp_path, report_ready, reports.append)
    os.kill(process.id, signal.SIGINT)
    async with asyncio.timeout(PATIENCE_S):
        assert await process.ended() == 0
    assert reports == [Ready()]
