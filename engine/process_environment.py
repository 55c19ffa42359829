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


def limit_openmp_spinning() -> None:
    """Set `GOMP_SPINCOUNT`, unless it is set already.

    A process that runs the engine calls this at its very start: libgomp reads the variable when PyTorch loads it.
    Processes that are started afterwards inherit it.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", str(OPENMP_SPIN_COUNT))
