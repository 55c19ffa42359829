"""Runs a command to its end. What goes wrong becomes one line on the error stream, without a traceback."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import click
import uvloop

from tutti_server.app.cli.interrupts import cancelling, end_process
from tutti_server.app.cli.output_errors import is_about_output
from tutti_server.app.errors import MediaError, SessionError, SettingsError
from tutti_server.app.service.settings import Settings, is_file
from tutti_server.cluster.local.supervisor import SupervisorError
from tutti_server.engine.errors import EngineError

T = TypeVar("T")
USER_ERRORS = (click.ClickException, EngineError, MediaError, SessionError, SettingsError, SupervisorError)
"""Errors whose message says what the user can do."""


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run the work of one command to its end. Ctrl-C or SIGTERM ends it, and the process with it.

    Raises:
        click.ClickException: an error that the user can fix.
        OSError: an output cannot be written.
    """
    try:
        uvloop.run(_interruptible(work))
    except Exception as error:
        cause = _first(error)
        if isinstance(cause, click.ClickException) or is_about_output(cause):
            raise cause from None
        if isinstance(cause, USER_ERRORS):
            raise click.ClickException(str(cause)) from None
        raise


def fetch_model(model: str) -> None:
    """Fetch a model if it is on the hub and not in the cache; see `_fetching`."""
    from tutti_server.engine.checkpoint.checkpoint import find_checkpoint, is_hub_name

    _fetching(lambda: find_checkpoint(model) if is_hub_name(model) else None)


def fetch_all(settings: Settings) -> Settings:
    """Fetch what the settings name on the hub, and return them with the file of their speaker network."""
    from tutti_server.engine.checkpoint.hub import HubName, fetch_file

    for model in settings.models:
        fetch_model(model)
    voices = settings.speaker_model
    if not voices or is_file(voices):
        return settings
    if (name := HubName.parse(voices)) is None:
        raise click.ClickException(f"speaker_model: expected an ONNX file, or owner/name on the hub, got {voices!r}")
    return replace(settings, speaker_model=str(_fetching(partial(fetch_file, name, ".onnx"))))


def _fetching(fetch: Callable[[], T]) -> T:
    """Fetch something. Ctrl-C or SIGTERM ends the download, and the process with it.

    Called in the main thread before the event loop runs, because a download in another thread cannot be interrupted.
    The interrupt is raised inside the download, which then removes its unfinished file.

    Raises:
        click.ClickException: it cannot be fetched.
    """

    def interrupt(number: int) -> None:
        raise KeyboardInterrupt(number)

    try:
        with cancelling(interrupt):
            return fetch()
    except EngineError as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt as interrupted:
        end_process(*interrupted.args)


async def _interruptible(work: Coroutine[Any, Any, None]) -> None:
    """Await the work. Ctrl-C or SIGTERM cancels it; then the process ends without waiting for threads."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    interrupted = 0

    def cancel(number: int) -> None:
        nonlocal interrupted
        interrupted = number
        loop.call_soon_threadsafe(task.cancel)

    with cancelling(cancel):
        try:
            await task
        finally:
            if interrupted:
                end_process(interrupted)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
