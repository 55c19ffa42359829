"""The environment variables that a process sets before it loads PyTorch. Importing this module sets none."""

import os

OPENMP_SPIN_COUNT = 2_000
"""How many turns an OpenMP thread spins while it waits for another thread, before it sleeps.

By default a thread spins for milliseconds, which takes the core from other threads where cores are shared. With two
threads on two busy cores, a decode step takes:

    default:      20 to 100 ms
    2,000 turns:  5 ms

On idle cores 2,000 turns cost 8 %.
"""

ONEDNN_KERNELS = 128
"""The most kernels that oneDNN keeps. It compiles one for each layer and each number of rows.

Windows have hundreds of lengths, and a kernel takes 0.6 MB. By default oneDNN keeps 1024, and the memory of a server
grows for hundreds of sessions. A kernel that was dropped takes 1 ms to compile again; a decode step needs five.
"""


def prepare_environment() -> None:
    """Set `GOMP_SPINCOUNT` and `ONEDNN_PRIMITIVE_CACHE_CAPACITY`, unless they are set already.

    A process that runs the engine calls this at its very start: the libraries read them when PyTorch loads them.
    Processes that are started afterwards inherit them.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", str(OPENMP_SPIN_COUNT))
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(ONEDNN_KERNELS))
