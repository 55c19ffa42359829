"""Starts child processes that end with the benchmark, even when the benchmark is killed."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
"""Loaded at import, because no library may be loaded between fork and exec."""


def start_child(
    command: Sequence[str], output: IO[str], environment: Mapping[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """Start a process whose output goes to `output`. On Linux the kernel kills it when the calling thread ends.

    A `finally` is not enough: SIGKILL skips it, and so does SIGTERM, which Python does not turn into an exception.
    """
    parent = os.getpid()

    def tie_to_parent() -> None:
        if _LIBC is None:
            return
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # The parent may have died before prctl took effect.
        if os.getppid() != parent:
            os._exit(1)

    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=None if environment is None else {**os.environ, **environment},
        preexec_fn=tie_to_parent,  # noqa: PLW1509 -- it makes two system calls and allocates nothing
    )
