"""Explains why the output of a command cannot be written."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

OUTPUT_ERRORS = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Numbers of the errors of a stream or a file that cannot be written."""


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
        if not is_about_output(error):
            raise
        # Python flushes the stream once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno != errno.EPIPE:
            click.echo(f"Error: cannot write the output: {error.strerror}", err=True)
        sys.exit(1)


def is_about_output(error: BaseException) -> bool:
    """Whether an output could not be written."""
    return isinstance(error, OSError) and error.errno in OUTPUT_ERRORS
