"""What does a window cost the event loop of an engine process, and the gateways that send it?

    python -m benchmarks.engine_loop --rate 400 --seconds 15

The processes are those of `tutti serve --gateways N`, with a stand-in for the engine: it computes nothing and sends
each window the usual events. A third of the windows are cancelled before their text. On a GPU the event loop of the
engine process and the engine's own thread take turns with Python's interpreter, so this CPU time delays the GPU.
"""

import asyncio
import json
import signal
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks import machine, report
from benchmarks.options import CONTEXT_SETTINGS, json_option, markdown_option
from benchmarks.report import Table, number
from benchmarks.throughput.stand_in_engine import StandInEngine
from cluster.local.roles import GatewaySlot
from cluster.local.supervisor import Supervisor, SupervisorConfig
from engine.api import SAMPLE_RATE, DecodeOptions, DoneEvent, Transcriber, Window

SCHEMA = 1
WINDOW_S = 4
"""The length of every window, in seconds."""
CANCELLED_OF = 3
"""Of this many windows, one is cancelled."""
CANCEL_AFTER_S = 0.005
"""Seconds from the acceptance of such a window to its cancellation. The stand-in has not sent its text by then."""
PAUSE_S = 0.5
"""Seconds between the start of a gateway and its first window."""
POLL_S = 0.1
"""How often the command looks whether the gateways are done, in seconds."""


@click.command(context_settings=CONTEXT_SETTINGS)
@click.option("--gateways", "n_gateways", default=6, show_default=True, help="Number of gateways.")
@click.option("--rate", default=400, show_default=True, help="Windows a second, of all gateways together.")
@click.option("--seconds", default=15, show_default=True, help="For how long they are sent.")
@json_option("engine_loop")
@markdown_option
def main(n_gateways: int, rate: int, seconds: int, path: Path, markdown: bool) -> None:
    """Measure the CPU time per window of an engine process and of its gateways."""
    described = machine.describe()
    figures = asyncio.run(_measure(n_gateways, rate, seconds))
    result = {"benchmark": "engine_loop", "schema": SCHEMA, **described, **figures}
    report.show([_table(figures)], result, as_markdown=markdown, path=path)


async def _measure(n_gateways: int, rate: int, seconds: int) -> dict[str, Any]:
    """Run the processes. Returns CPU microseconds per window."""
    ready = asyncio.Event()
    gone: list[int] = []
    """The processes of gateways that have ended: each sends its windows once, so there is no result without it."""
    n_windows = rate * seconds // n_gateways
    with tempfile.TemporaryDirectory() as folder:
        results = [Path(folder, f"result-{each}.json") for each in range(n_gateways)]
        listeners = tuple(socket.create_server(("127.0.0.1", 0)) for _ in range(n_gateways))
        config = SupervisorConfig(
            start_engines=(_start_stand_in,),
            serve=partial(_send_windows, n_windows, rate / n_gateways, results),
            folder=Path(folder),
            listeners=listeners,
            n_admission_counts=1,
            keep_counts=lambda counts: (counts, counts),
            keep_counts_s=1.0,
            stop_timeout_s=10.0,
            on_ready=lambda *_: ready.set(),
            on_gateway_gone=gone.append,
        )
        supervisor = Supervisor(config)
        running = asyncio.create_task(supervisor.run())
        await ready.wait()
        (engine,) = supervisor.engine_processes
        before = _cpu_s(engine)
        while not gone and not all(each.exists() for each in results):
            await asyncio.sleep(POLL_S)
            if running.done():
                await running
        if gone:
            supervisor.stop()
            await running
            raise click.ClickException(f"gateway process {gone[0]} has died; its error is above")
        after = _cpu_s(engine)
        supervisor.stop()
        await running
        loop_s, process_s = (end - begin for begin, end in zip(before, after, strict=True))
        gateways_s = sum(json.loads(each.read_text()) for each in results)
    n_all = n_windows * n_gateways
    return {
        "n_gateways": n_gateways,
        "rate": rate,
        "n_windows": n_all,
        "engine_loop_us": 1e6 * loop_s / n_all,
        "engine_process_us": 1e6 * process_s / n_all,
        "gateway_us": 1e6 * gateways_s / n_all,
    }


def _cpu_s(pid: int) -> tuple[float, float]:
    """CPU seconds that the main thread and all threads of a process have used so far."""
    usage, main_thread_s = machine.Usage.of(pid), machine.main_thread_cpu_s(pid)
    if usage is None or main_thread_s is None:
        raise click.ClickException("there is no /proc, so CPU time cannot be measured")
    return main_thread_s, usage.cpu_s


def _table(figures: dict[str, Any]) -> Table:
    names = {
        "engine process, event loop": "engine_loop_us",
        "engine process, all threads": "engine_process_us",
        "gateway, event loop": "gateway_us",
    }
    title = f"{figures['rate']} windows a second from {figures['n_gateways']} gateways"
    rows = [(name, number(figures[key], 0)) for name, key in names.items()]
    return Table(title, ("thread", "CPU time per window, us"), rows)


# In the child processes.


@asynccontextmanager
async def _start_stand_in() -> AsyncIterator[StandInEngine]:
    """Called in the engine process."""
    engine = StandInEngine()
    task = asyncio.create_task(engine.run())
    yield engine
    task.cancel()


async def _send_windows(
    n_windows: int,
    rate: float,
    results: list[Path],
    transcriber: Transcriber,
    slot: GatewaySlot,
    on_started: Callable[[], None],
) -> None:
    """Called in each gateway process. Writes its CPU seconds to its result, then waits for SIGTERM."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    on_started()
    await asyncio.sleep(PAUSE_S)
    samples = np.random.default_rng(slot.number).uniform(-0.5, 0.5, WINDOW_S * SAMPLE_RATE).astype(np.float32)
    began_s, cpu_s = time.monotonic(), time.thread_time()
    async with asyncio.TaskGroup() as tasks:
        for index in range(n_windows):
            await asyncio.sleep(began_s + index / rate - time.monotonic())
            options = DecodeOptions(language="en", previous_text=f"What was said before window {index}.")
            window = Window(samples=samples, session=f"{slot.number}-{index % 100}", options=options)
            tasks.create_task(_send(transcriber, window, is_cancelled=index % CANCELLED_OF == 0))
    cpu_s = time.thread_time() - cpu_s
    written = results[slot.number].with_suffix(".part")
    written.write_text(json.dumps(cpu_s))
    written.rename(results[slot.number])
    await ended.wait()


async def _send(transcriber: Transcriber, window: Window, *, is_cancelled: bool) -> None:
    async with transcriber.submit(window) as events:
        if is_cancelled:
            await asyncio.sleep(CANCEL_AFTER_S)
            return
        last = [event async for event in events][-1]
    if not isinstance(last, DoneEvent):
        raise click.ClickException(f"expected the text of every window, got {last}")


if __name__ == "__main__":
    main()
