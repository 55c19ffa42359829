"""Files are decoded in other processes, which are limited and can be killed."""

import asyncio
import functools
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from tempfile import SpooledTemporaryFile, TemporaryFile
from typing import IO

import numpy as np
import pytest

from tests.app.dialects.openai.test_files_endpoint import wav
from tests.app.media.test_file_decoder import TONE, encode
from tutti_server.app.errors import MediaError
from tutti_server.app.media import decoder_workers as decoders_module
from tutti_server.app.media.decoder_workers import Decoders, _Worker

PATIENCE_S = 20.0
QUIET_S = 120
STEREO = wav(np.repeat(TONE, 2), n_channels=2)
"""A file that must be decoded."""


@pytest.fixture
def own() -> Iterator[Decoders]:
    """Decoders of one test, which kills their processes."""
    own = Decoders()
    yield own
    own.close()


def spooled(content: bytes) -> IO[bytes]:
    """A file as an upload makes it, at its end."""
    file: IO[bytes] = SpooledTemporaryFile(len(content) + 1)  # noqa: SIM115 - the caller closes it
    file.write(content)
    return file


async def decode(decoders: Decoders, content: bytes, channels: int | None = None) -> np.ndarray:
    with spooled(content) as file:
        async with aclosing(decoders.decode(file, channels)) as pieces:
            return np.concatenate([piece async for piece in pieces])


@functools.cache
def quiet() -> bytes:
    """A small file of silence, of which the samples do not fit into the buffers between two processes."""
    return encode("flac", "flac", 16_000, np.zeros(16_000 * QUIET_S, np.float32))


def workers(decoders: Decoders) -> list[int]:
    """The processes that decode files, or wait for one."""
    assert decoders._process
    children = Path(f"/proc/{decoders._process.pid}/task/{decoders._process.pid}/children")
    return [int(each) for each in children.read_text().split()]


def has_ended(pid: int) -> bool:
    """Wait until a process has ended."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], PATIENCE_S)[0])
    finally:
        os.close(process)


async def test_channels_are_counted_and_kept(decoders: Decoders) -> None:
    content = wav(TONE[:16_000], n_channels=2)
    with spooled(content) as file:
        assert await decoders.n_channels(file) == 2
    assert len(await decode(decoders, content, 2)) == 16_000
    with pytest.raises(MediaError, match="expected 3 channels, got 2"):
        await decode(decoders, content, 3)


async def test_a_short_recording_that_needs_no_decoding_needs_no_process(
    own: Decoders, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = await decode(own, wav(TONE))
    assert own._process is None
    monkeypatch.setattr(decoders_module, "SMALL_BYTES", 0)
    assert np.array_equal(samples, await decode(own, wav(TONE)))
    assert own._process is not None


async def test_a_worker_decodes_one_file_after_another(own: Decoders) -> None:
    """Also after a file that cannot be decoded."""
    for _ in range(3):
        assert len(await decode(own, STEREO)) == len(TONE)
        with pytest.raises(MediaError, match="FFmpeg"):
            await decode(own, b"no audio")
    (worker,) = workers(own)
    assert os.getpriority(os.PRIO_PROCESS, worker) > os.getpriority(os.PRIO_PROCESS, 0), "it gives way to the service"


async def test_files_are_decoded_side_by_side(own: Decoders) -> None:
    """A slow reader does not hold up another file."""
    with spooled(quiet()) as file:
        async with aclosing(own.decode(file)) as slow:
            first = await anext(slow)
            assert len(await decode(own, STEREO)) == len(TONE)
            assert len(first) + sum([len(piece) async for piece in slow]) == 16_000 * QUIET_S
    assert len(workers(own)) == 2


async def test_leaving_early_kills_the_worker(own: Decoders) -> None:
    with spooled(quiet()) as file:
        async with aclosing(own.decode(file)) as pieces:
            await anext(pieces)
            (worker,) = workers(own)
    assert await asyncio.to_thread(has_ended, worker)
    assert len(await decode(own, STEREO)) == len(TONE)


async def test_a_file_that_is_being_moved_to_the_disk_is_closed_afterwards(
    decoders: Decoders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that leaves meanwhile cancels the decoding, and the file is closed. Nothing stays open."""
    file = spooled(STEREO)
    is_moving, may_move = threading.Event(), threading.Event()
    descriptor = file.fileno

    def move_late() -> int:
        is_moving.set()
        may_move.wait(PATIENCE_S)
        return descriptor()

    monkeypatch.setattr(file, "fileno", move_late)
    decoding = asyncio.ensure_future(anext(decoders.decode(file)))
    await asyncio.to_thread(is_moving.wait, PATIENCE_S)
    decoding.cancel()
    asyncio.get_running_loop().call_soon(may_move.set)
    with pytest.raises(asyncio.CancelledError):
        await decoding
    moved_to = descriptor()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(moved_to)


async def test_a_worker_that_crashes_costs_only_its_file(own: Decoders) -> None:
    with spooled(quiet()) as file, pytest.raises(MediaError, match="its decoder has died"):
        async with aclosing(own.decode(file)) as pieces:
            await anext(pieces)
            os.kill(workers(own)[0], signal.SIGKILL)
            async for _ in pieces:
                pass
    assert len(await decode(own, STEREO)) == len(TONE)


async def test_a_worker_that_dies_before_it_reads_its_request_has_died() -> None:
    """The system then says that the connection was reset, and not that it has ended."""
    ours, theirs = socket.socketpair()
    read_end, write_end = os.pipe()
    worker = _Worker(ours, write_end)
    try:
        assert worker.ask(b"{}", read_end)
        theirs.close()
        with pytest.raises(MediaError, match="its decoder has died"):
            await worker.read()
    finally:
        worker.close()
        os.close(read_end)


async def test_processes_that_were_killed_while_idle_are_replaced(own: Decoders) -> None:
    """The system may choose them where memory is short."""
    await decode(own, STEREO)
    (worker,), process = workers(own), own._process
    os.kill(worker, signal.SIGKILL)
    assert await asyncio.to_thread(has_ended, worker)
    assert len(await decode(own, STEREO)) == len(TONE)
    assert process
    process.kill()
    process.wait()
    own._idle.pop().close()
    assert len(await decode(own, STEREO)) == len(TONE)


async def test_a_worker_is_replaced_after_many_files(own: Decoders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoders_module, "MAX_FILES", 2)
    await decode(own, STEREO)
    before = workers(own)
    await decode(own, STEREO)
    assert all([await asyncio.to_thread(has_ended, pid) for pid in before])
    assert len(await decode(own, STEREO)) == len(TONE)


SCRIPT = """
import json, numpy, os, socket
from tutti_server.app.media import decoding_process, file_decoder

def takes_memory(*_):
    yield numpy.ones(1 << 30)

def takes_time(*_):
    while True: pass
    yield

def writes(*_):
    yield open("written", "w").write("x" * 9)

decoding_process.MAX_MEMORY_MB = 64
decoding_process.MAX_CPU_S = 1
for file_decoder.decode_pieces in (takes_memory, takes_time, writes):
    ours, theirs = socket.socketpair()
    worker = decoding_process._fork(theirs.fileno(), [ours.fileno()])
    theirs.close()
    with open(__file__, "rb") as file:
        socket.send_fds(ours, [json.dumps(dict(wanted="samples", channels=None, track=None)).encode()], [file.fileno()])
    header = ours.recv(decoding_process.HEADER.size, socket.MSG_WAITALL)
    n_bytes = decoding_process.HEADER.unpack(header)[1] if header else 0
    message = ours.recv(n_bytes, socket.MSG_WAITALL).decode()
    ours.close()
    print(os.waitpid(worker, 0)[1] & 127, message)
"""


def test_a_worker_has_limits(tmp_path: Path) -> None:
    """Of memory, of processor time, and of what it writes to the disk."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path)
    memory, time, disk = done.stdout.splitlines()
    assert memory == "0 file: expected one that is decoded in 64 MB of memory"
    assert time == f"{signal.SIGXCPU.value} "
    assert disk == "0 "
    assert not (tmp_path / "written").exists() or not (tmp_path / "written").read_text()


async def test_a_file_that_the_system_has_already_is_decoded_from_its_beginning(decoders: Decoders) -> None:
    with TemporaryFile() as file:
        file.write(STEREO)
        async with aclosing(decoders.decode(file)) as pieces:
            assert sum([len(piece) async for piece in pieces]) == len(TONE)


async def test_nothing_is_left_after_close() -> None:
    decoders = Decoders()
    await decode(decoders, STEREO)
    assert decoders._process
    pids = [decoders._process.pid, *workers(decoders)]
    decoders.close()
    assert all([await asyncio.to_thread(has_ended, pid) for pid in pids])
    decoders.close()
