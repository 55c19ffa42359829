"""What Ctrl-C does: it ends a command promptly, without a traceback, with exit status 130. SIGTERM does so, too.

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
    _handle(signal.SIGINT, end_process)


@contextmanager
def cancelling(cancel: Callable[[int], object]) -> Iterator[None]:
    """While the context is open, Ctrl-C or SIGTERM calls `cancel`, and ends the process after `GRACE_S`.

    A second one ends it at once. `cancel` is called with the number of the signal, by its handler in the main thread.
    """
    count = 0

    def interrupt(number: int) -> None:
        nonlocal count
        count += 1
        if count > 1:
            end_process(number)
        if number == signal.SIGTERM:
            # Service managers expect that it kills the process in the end.
            signal.signal(number, signal.SIG_DFL)
        timer = threading.Timer(GRACE_S, end_process, (number,))
        timer.daemon = True
        timer.start()
        cancel(number)

    previous = {number: _handle(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            if handler is not None:
                signal.signal(number, handler)


def end_process(number: int) -> NoReturn:
    """End this process as that signal does, without waiting for threads. A terminal gets its cursor back."""
    for output in (1, 2):
        if os.isatty(output):
            os.write(output, _SHOW_CURSOR)
    if signal.getsignal(number) is signal.SIG_DFL:
        os.kill(os.getpid(), number)
    os._exit(EXIT_CODE_OF_SIGNAL + number)


def _handle(
    number: int, interrupt: Callable[[int], None]
) -> signal.Handlers | Callable[[int, FrameType | None], object] | None:
    """Call `interrupt` at a signal. Returns the handler before it, or `None` if the signal was and stays ignored.

    Shells ignore Ctrl-C on behalf of programs that they run in the background.
    """
    previous = signal.getsignal(number)
    if previous is signal.SIG_IGN:
        return None
    signal.signal(number, lambda number, frame: interrupt(number))
    return previous  # type: ignore[return-value]  # an int only for handlers that C code has set
