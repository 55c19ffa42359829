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

Windows have hundreds of lengths, and a kernel takes up to 0.6 MB. By default oneDNN keeps 1024, and the memory of a
server grows for hundreds of sessions. A kernel that was dropped takes up to 1 ms to compile again; a decode step needs
five.
"""

PYTORCH_KERNELS = 16
"""The most kernels of a kind that PyTorch keeps on top of oneDNN, whatever oneDNN drops. Its default is 1024, too.

With the default, 240 batches of 1 to 3 windows of 2 to 8 s leave 210 MB in use; with 16 kernels they leave 20 MB. The
layers of a forward pass share their kernels, so that 16 are enough for one. A kernel that only oneDNN has costs 5 µs.
"""


def prepare_environment() -> None:
    """Set `GOMP_SPINCOUNT`, `ONEDNN_PRIMITIVE_CACHE_CAPACITY` and `LRU_CACHE_CAPACITY`, unless they are set already.

    A process that runs the engine calls this at its very start: the libraries read them when PyTorch loads them.
    Processes that are started afterwards inherit them.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", str(OPENMP_SPIN_COUNT))
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(ONEDNN_KERNELS))
    os.environ.setdefault("LRU_CACHE_CAPACITY", str(PYTORCH_KERNELS))
