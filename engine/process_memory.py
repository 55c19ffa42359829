"""Gives memory that a process has freed back to the system."""

import ctypes
from collections.abc import Callable
from functools import cache


def return_freed_memory() -> None:
    """Return to the system what the C library keeps of freed memory for later allocations. Takes milliseconds.

    The C library keeps it where memory that is still used lies after it. So a process keeps its largest size for hours
    after a load, or after its start, unless it asks for this. Only the GNU C library has it; others keep less.
    """
    if trim := _malloc_trim():
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
