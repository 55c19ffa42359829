"""Runs engines that are compared with one another, each in a process of its own. All stay loaded and take turns."""

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import click

Load = Callable[..., Any]
ANSWER_TIMEOUT_S = 600.0
"""Longest time for loading, and for one turn, in seconds. An engine that takes longer has failed."""
STOP_TIMEOUT_S = 20.0
"""How long the process of an engine may take to end before it is killed."""


@dataclass(frozen=True, slots=True)
class Turn:
    wall_s: float
    cpu_s: float


@contextmanager
def own_process(open_engine: Callable[..., Load], *arguments: object) -> Iterator[Callable[..., Turn]]:
    """Open an engine in a process of its own until the block is left. Yields a function that gives it a turn."""
    context = multiprocessing.get_context("spawn")  # no library is loaded there, and no variable of the engine set
    ours, theirs = context.Pipe()
    process = context.Process(target=_answer, args=(theirs, open_engine, arguments), daemon=True)
    process.start()
    theirs.close()

    def receive() -> Any:
        with suppress(EOFError, OSError):
            if ours.poll(ANSWER_TIMEOUT_S):
                return ours.recv()
        raise click.ClickException(f"the process of {open_engine.__name__}{arguments} ended")

    def take_turn(*request: object) -> Turn:
        with suppress(OSError):  # `receive` tells that it ended
            ours.send(request)
        return Turn(*receive())

    try:
        receive()  # it is loaded
        yield take_turn
    finally:
        ours.close()
        process.join(STOP_TIMEOUT_S)
        process.kill()


def _answer(connection: Connection, open_engine: Callable[..., Load], arguments: tuple[Any, ...]) -> None:
    """Run in the process of an engine: answer each request, until there are no more."""
    with ExitStack() as stack:
        load = open_engine(stack, *arguments)
        connection.send(None)
        while True:
            try:
                request = connection.recv()
            except EOFError:
                return
            begun_s, cpu_s = time.perf_counter(), time.process_time()
            load(*request)
            connection.send((time.perf_counter() - begun_s, time.process_time() - cpu_s))
