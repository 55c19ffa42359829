"""Shared memory of the host: creates it, checks that there is enough of it, and removes it at the end.

The supervisor owns all shared memory. The other processes receive it when they start, and only open it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from secrets import token_hex

_FILE_SYSTEM = Path("/dev/shm")
"""The folder of shared memory on Linux. Other systems have no such folder, and no limit that can be asked for."""


class SharedMemoryTooSmall(Exception):
    """The host has less shared memory free than the processes may need."""

    def __init__(self, n_needed_bytes: int, n_free_bytes: int) -> None:
        super().__init__(n_needed_bytes, n_free_bytes)
        self.n_needed_bytes = n_needed_bytes
        self.n_free_bytes = n_free_bytes

    def __str__(self) -> str:
        expected = f"expected {self.n_needed_bytes >> 20} MB free for the audio of all gateways"
        got = f"got {self.n_free_bytes >> 20}"
        return f"{_FILE_SYSTEM}: {expected}, {got}; enlarge it (docker run --shm-size), or use fewer gateways"


def check_free_shared_memory(n_bytes: int) -> None:
    """Check that `n_bytes` of shared memory are free.

    Linux gives out the memory page by page, when it is first written. A lack of it would otherwise show only then, as a
    signal that kills the process.

    Raises:
        SharedMemoryTooSmall: fewer bytes are free.
    """
    if _FILE_SYSTEM.exists():
        file_system = os.statvfs(_FILE_SYSTEM)
        n_free = file_system.f_bavail * file_system.f_frsize
        if n_free < n_bytes:
            raise SharedMemoryTooSmall(n_bytes, n_free)


@contextmanager
def create_shared_memory(n_bytes: int) -> Iterator[SharedMemory]:
    """Create shared memory filled with zeros, and remove it when the block is left.

    It is also removed when this process is killed: Python's resource tracker is a process of its own and lives longer.
    """
    memory = SharedMemory(f"tutti-{os.getpid()}-{token_hex(4)}", create=True, size=n_bytes)
    try:
        yield memory
    finally:
        memory.close()
        memory.unlink()


def buffer_of(memory: SharedMemory) -> memoryview:
    """The bytes of shared memory that is not closed."""
    assert memory.buf is not None
    return memory.buf
