"""Runs a command to its end. What goes wrong becomes one line on the error stream, without a traceback."""

import asyncio
import errno
import os
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import click
import uvloop

from app.cli.interrupts import cancelling, end_process
from app.errors import MediaError, SessionError, SettingsError
from cluster.local.supervisor import SupervisorError
from engine.errors import EngineError

USER_ERRORS = (click.ClickException, EngineError, MediaError, SessionError, SettingsError, SupervisorError)
"""Errors whose message says what the user can do."""
OUTPUT_ERRORS = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Numbers of the errors of a stream or a file that cannot be written."""


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run the work of one command to its end. Ctrl-C ends it, and the process with it.

    Raises:
        click.ClickException: an error that the user can fix.
        OSError: an output cannot be written.
    """
    try:
        uvloop.run(_interruptible(work))
    except Exception as error:
        cause = _first(error)
        if isinstance(cause, click.ClickException) or _is_about_output(cause):
            raise cause from None
        if isinstance(cause, USER_ERRORS):
            raise click.ClickException(str(cause)) from None
        raise


async def _interruptible(work: Coroutine[Any, Any, None]) -> None:
    """Await the work. Ctrl-C cancels it; when it has ended, the process ends without waiting for threads."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    interrupted = False

    def cancel() -> None:
        nonlocal interrupted
        interrupted = True
        loop.call_soon_threadsafe(task.cancel)

    with cancelling(cancel):
        try:
            await task
        finally:
            if interrupted:
                end_process()


@contextmanager
def explaining_output_errors() -> Iterator[None]:
    """Explain in one line why the output cannot be written; a reader that has closed its pipe needs no line."""
    try:
        try:
            yield
        finally:
            # The last lines may still be in a buffer, and Python would report their errors in its own way.
            sys.stdout.flush()
    except OSError as error:
        if not _is_about_output(error):
            raise
        # Python flushes the stream once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno != errno.EPIPE:
            click.echo(f"Error: cannot write the output: {error.strerror}", err=True)
        sys.exit(1)


def _first(error: BaseException) -> BaseException:
    """The first error inside groups of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _is_about_output(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in OUTPUT_ERRORS
