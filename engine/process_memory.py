"""Gives memory that a process has freed back to the system."""

import ctypes
import gc
from collections.abc import Callable
from functools import cache


def return_freed_memory() -> None:
    """Return to the system what Python and the C library keep of memory that is not used any more.

    It takes milliseconds, most of them without Python's lock. Python keeps objects that refer to each other until it
    searches for them: when there are many new objects, and not while nothing happens. The C library keeps freed memory
    for later allocations where memory that is still used lies after it. So a process keeps its largest size for hours
    after a load, or after its start, unless it asks for this. Only the GNU C library can be asked; others keep less.
    """
    gc.collect()
    if trim := _malloc_trim():
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
