"""Shared memory of the host: creates and reserves it, and removes it at the end.

The supervisor owns all shared memory. The other processes receive it when they start, and only open it.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from secrets import token_hex

_FILE_SYSTEM = Path("/dev/shm")
"""The folder of shared memory on Linux. Other systems have no such folder, and no limit that can be asked for."""


class SharedMemoryTooSmall(Exception):
    """The host has less shared memory free than the processes need."""

    def __init__(self, n_needed_bytes: int, n_free_bytes: int) -> None:
        super().__init__(n_needed_bytes, n_free_bytes)
        self.n_needed_bytes = n_needed_bytes
        self.n_free_bytes = n_free_bytes

    def __str__(self) -> str:
        expected = f"expected {-(-self.n_needed_bytes >> 20)} MB free for the audio of a gateway"
        got = f"got {self.n_free_bytes >> 20}"
        return f"{_FILE_SYSTEM}: {expected}, {got}; enlarge it (docker run --shm-size), or use fewer gateways"


@contextmanager
def create_shared_memory(n_bytes: int) -> Iterator[SharedMemory]:
    """Create shared memory filled with zeros, and remove it when the block is left.

    It is also removed when this process is killed: Python's resource tracker is a process of its own and lives longer.

    Raises:
        SharedMemoryTooSmall: the host has less shared memory free.
    """
    memory = SharedMemory(f"tutti-{os.getpid()}-{token_hex(4)}", create=True, size=n_bytes)
    try:
        _reserve(memory)
        yield memory
    finally:
        memory.close()
        memory.unlink()


def _reserve(memory: SharedMemory) -> None:
    """Take all pages of the memory from the host now.

    Linux gives out a page when it is first written. If other programs have used up the shared memory by then, the
    process that writes is killed by a signal (SIGBUS).
    """
    path = _FILE_SYSTEM / memory.name
    if not path.exists():
        return
    file = os.open(path, os.O_RDWR)
    try:
        os.posix_fallocate(file, 0, memory.size)
    except OSError as error:
        # ENOSPC: the file system is full. EFBIG: it could never hold this. ENOMEM: the host's own memory is short.
        if error.errno not in (errno.ENOSPC, errno.EFBIG, errno.ENOMEM):
            raise
        file_system = os.statvfs(_FILE_SYSTEM)
        raise SharedMemoryTooSmall(memory.size, file_system.f_bavail * file_system.f_frsize) from error
    finally:
        os.close(file)


def buffer_of(memory: SharedMemory) -> memoryview:
    """The bytes of shared memory that is not closed."""
    assert memory.buf is not None
    return memory.buf
