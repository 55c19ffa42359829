"""A child process of the supervisor."""

import asyncio
import errno
import os
import signal
from pathlib import Path

import pytest

from tests.fakes import until
from tutti_server.cluster.local.control_messages import ControlMessage, GatewayGone, Ready, StartReport
from tutti_server.cluster.local.managed_process import MAX_UNANSWERED, ChildProcess
from tutti_server.cluster.local.process import EXIT_FAILED, ControlPipe

PATIENCE_S = 40.0


async def report_ready(pipe: ControlPipe) -> None:
    pipe.send(Ready())


async def receive_forever(pipe: ControlPipe) -> None:
    with pipe.receiving(lambda _: None):
        pipe.send(Ready())
        await asyncio.Event().wait()


async def fail_at_a_message(pipe: ControlPipe) -> None:
    """Have no file descriptor left when a message comes."""

    def handle(_: ControlMessage) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with pipe.receiving(handle):
        pipe.send(Ready())
        await asyncio.Event().wait()


async def test_ctrl_c_during_the_start_leaves_a_process_to_its_supervisor(tmp_path: Path) -> None:
    """The terminal sends the signal to the whole process group, which a process leaves after its first imports."""
    reports: list[StartReport] = []
    process = ChildProcess("engine", tmp_path, report_ready, reports.append)
    os.kill(process.id, signal.SIGINT)
    async with asyncio.timeout(PATIENCE_S):
        assert await process.ended() == 0
    assert reports == [Ready()]


async def test_a_process_that_hangs_does_not_stop_its_supervisor(tmp_path: Path) -> None:
    """It is killed when its pipe is full, so that another one takes its place."""
    process = ChildProcess("gateway", tmp_path, report_ready, lambda _: None)
    os.kill(process.id, signal.SIGSTOP)

    def flood() -> None:
        for _ in range(1000):
            process.send(GatewayGone(bytes(1000)))

    try:
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.to_thread(flood)
            assert await process.ended() == -signal.SIGKILL
    finally:
        process.signal(signal.SIGKILL)


async def test_a_process_that_answers_no_pings_is_killed(tmp_path: Path) -> None:
    """One that answers is not, however often it is asked."""
    process = ChildProcess("engine", tmp_path, receive_forever, lambda _: None)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await until(lambda: process.is_ready)
            for _ in range(3 * MAX_UNANSWERED):
                process.ping()
                await until(lambda: not process._n_unanswered)
            os.kill(process.id, signal.SIGSTOP)
            for _ in range(MAX_UNANSWERED):
                process.ping()
            assert not process.hangs
            process.ping()
            assert await process.ended() == -signal.SIGKILL
    finally:
        process.signal(signal.SIGKILL)


async def test_a_message_that_cannot_be_handled_ends_the_process_with_the_reason(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The supervisor is there, so its folder of sockets stays for the others."""
    ready = asyncio.Event()
    process = ChildProcess("gateway", tmp_path, fail_at_a_message, lambda _: ready.set())
    async with asyncio.timeout(PATIENCE_S):
        await ready.wait()
        process.send(GatewayGone(b"0.0"))
        assert await process.ended() == EXIT_FAILED
    assert await asyncio.to_thread(tmp_path.exists)
    log = capfd.readouterr().err
    assert "Too many open files" in log
    assert "the supervisor is gone" not in log
