"""Child processes that do not outlive the benchmark, however it ends."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO

_PR_SET_PDEATHSIG = 1
# Loaded before any fork: between fork and exec nothing may be loaded any more.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def start_child(
    command: Sequence[str], output: IO[str], environment: Mapping[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """A process whose output goes to `output`. On Linux the kernel kills it when the thread that called this ends.

    A `finally` is not enough: it is skipped by SIGKILL, and by SIGTERM, which Python does not turn into an exception.
    """
    parent = os.getpid()

    def tie_to_parent() -> None:
        if _LIBC is None:
            return
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # The parent may have died before the kernel was told.
        if os.getppid() != parent:
            os._exit(1)

    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=None if environment is None else {**os.environ, **environment},
        preexec_fn=tie_to_parent,
    )
