"""The work of the processes in the supervisor's tests: a fake engine, and gateways that answer a line with a line."""

import asyncio
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from tests.fakes import MODEL, FakeTranscriber, speech
from tutti_server.cluster.local.roles import GatewaySlot, StartError
from tutti_server.engine.api import CallbackTranscriber, DoneEvent, Transcriber, Window
from tutti_server.engine.errors import CheckpointError


def prepare_nothing() -> None: ...


def note_name(names: Path) -> None:
    (names / multiprocessing.current_process().name).touch()


@asynccontextmanager
async def start_after(n_prepared: int, names: Path) -> AsyncIterator[CallbackTranscriber]:
    """An engine that starts when this many processes have noted their names."""
    while len(await asyncio.to_thread(os.listdir, names)) < n_prepared:  # noqa: ASYNC110
        await asyncio.sleep(0)
    yield FakeTranscriber()


@asynccontextmanager
async def start_fake() -> AsyncIterator[CallbackTranscriber]:
    yield FakeTranscriber()


@asynccontextmanager
async def start_other() -> AsyncIterator[CallbackTranscriber]:
    """An engine with another model."""
    yield FakeTranscriber(info=replace(MODEL, name="other"))


def start_other_unless(is_same: Path) -> AbstractAsyncContextManager[CallbackTranscriber]:
    """An engine that has another model than before when a file is gone."""
    return start_fake() if is_same.exists() else start_other()


@asynccontextmanager
async def start_nothing() -> AsyncIterator[CallbackTranscriber]:
    raise CheckpointError("no such model")
    yield


async def serve_nothing(transcriber: Transcriber, slot: GatewaySlot, on_started: Callable[[], None]) -> None:
    raise StartError("no such port")


@asynccontextmanager
async def die_at_once() -> AsyncIterator[CallbackTranscriber]:
    os._exit(3)
    yield


async def serve(transcriber: Transcriber, slot: GatewaySlot, on_started: Callable[[], None]) -> None:
    """Answers each connection with a report about itself, until SIGTERM."""
    slot.admission_counts[slot.number, 0] += 1

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        numbers = json.loads(await reader.readline())
        async with transcriber.submit(Window(samples=speech(numbers), session="s")) as events:
            text = [event.text async for event in events if isinstance(event, DoneEvent)]
        report = {
            "pid": os.getpid(),
            "number": slot.number,
            "admission_counts": slot.admission_counts[:, 0].tolist(),
            "text": text,
            "problems": transcriber.problems,
            "modules": [name for name in sys.modules if name.partition(".")[0] == "torch"],
        }
        writer.write(json.dumps(report).encode() + b"\n")
        writer.close()

    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    server = await asyncio.start_server(answer, sock=slot.listener)
    on_started()
    await ended.wait()
    server.close()


async def serve_forever(transcriber: Transcriber, slot: GatewaySlot, on_started: Callable[[], None]) -> None:
    """Ignores SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    on_started()
    await asyncio.Event().wait()
