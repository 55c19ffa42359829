"""What Ctrl-C does: it ends a command promptly, without a traceback, with exit status 130.

This module imports nothing of tutti, so that Ctrl-C is handled before the imports of the command line begin.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

EXIT_CODE_OF_SIGNAL = 128
"""A process that a signal ended exits with this plus the number of the signal."""
GRACE_S = 1.0
"""How long a command may take to end after Ctrl-C, in seconds.

The loading of a model cannot be interrupted, nor can a read from a pipe that stays empty.
"""
_SHOW_CURSOR = b"\x1b[?25h"


def exit_at_interrupt() -> None:
    """Let Ctrl-C end the process at once. Suits the time in which nothing needs to be put in order."""
    _handle(end_process)


@contextmanager
def cancelling(cancel: Callable[[], object]) -> Iterator[None]:
    """While the context is open, Ctrl-C calls `cancel`, and ends the process after `GRACE_S`; a second one at once.

    `cancel` is called by a signal handler in the main thread.
    """
    count = 0

    def interrupt() -> None:
        nonlocal count
        count += 1
        if count > 1:
            end_process()
        timer = threading.Timer(GRACE_S, end_process)
        timer.daemon = True
        timer.start()
        cancel()

    previous = _handle(interrupt)
    try:
        yield
    finally:
        if previous is not None:
            signal.signal(signal.SIGINT, previous)


def end_process() -> NoReturn:
    """End this process as Ctrl-C does, without waiting for threads. A terminal gets its cursor back."""
    for output in (1, 2):
        if os.isatty(output):
            os.write(output, _SHOW_CURSOR)
    os._exit(EXIT_CODE_OF_SIGNAL + signal.SIGINT)


def _handle(interrupt: Callable[[], None]) -> signal.Handlers | Callable[[int, FrameType | None], object] | None:
    """Call `interrupt` at Ctrl-C. Returns the handler before it, or `None` if Ctrl-C was and stays ignored.

    Shells ignore it on behalf of programs that they run in the background.
    """
    previous = signal.getsignal(signal.SIGINT)
    if previous is signal.SIG_IGN:
        return None
    signal.signal(signal.SIGINT, lambda number, frame: interrupt())
    return previous  # type: ignore[return-value]  # an int only for handlers that C code has set
