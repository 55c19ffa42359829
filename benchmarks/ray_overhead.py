"""How much later do the events of a window come from an engine over Ray Serve than from one in the same process?

    python -m benchmarks.ray_overhead --windows 200

A Ray node on this machine has an engine, and a process as a gateway is, with another engine in it. It gives
each window to both, one after the other, and nothing else runs. It needs the extra `ray`.
"""

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click
import numpy as np

from app.cli.processes import start_engine
from app.media.pcm import Samples
from app.service.settings import Settings
from benchmarks import machine, report
from benchmarks.faults.ray_service import ray_nodes
from benchmarks.options import CONTEXT_SETTINGS, json_option, markdown_option
from benchmarks.recordings import load_bundled
from benchmarks.report import Table
from engine.api import SAMPLE_RATE, DecodeOptions, Transcriber, Window

SCHEMA = 1
SECONDS = (4, 30)
"""The lengths of the windows."""
N_WARM_UP = 5
"""The windows of each length that are not counted."""
PAUSE_S = 0.02
"""The pause between two windows, in seconds."""


class Probe:
    """A process as a gateway is. It measures."""

    def __init__(self, settings: Settings, engines: Any) -> None:
        self._settings = settings
        self._engines = engines

    async def measure(self, windows: list[Samples]) -> list[tuple[float, ...]]:
        """For each window: seconds to its first and to its last event, in this process and over Ray."""
        import ray

        from cluster.ray import membership
        from cluster.ray.ray_transcriber import RayTranscriber

        async with AsyncExitStack() as stack:
            engine = await stack.enter_async_context(start_engine(self._settings))
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            remote = RayTranscriber(self._engines, ray.get_runtime_context().get_node_id(), tasks)
            membership.of_process.watch(self._engines.deployment_name, remote.follow)
            await remote.until_known()
            times: list[tuple[float, ...]] = [
                (*await _times(engine, each), *await _times(remote, each)) for each in windows
            ]
            remote.follow(())
        return times


async def _times(transcriber: Transcriber, samples: Samples) -> tuple[float, float]:
    """Seconds to the first and to the last event of a window."""
    await asyncio.sleep(PAUSE_S)
    began = time.perf_counter()
    first = None
    async with transcriber.submit(Window(samples=samples, session="s", options=DecodeOptions(language="en"))) as events:
        async for _ in events:
            first = first or time.perf_counter() - began
    assert first is not None
    return first, time.perf_counter() - began


@click.command(context_settings=CONTEXT_SETTINGS)
@click.option("--windows", "n_windows", default=200, show_default=True, help="How many windows of each length.")
@json_option("ray_overhead")
@markdown_option
def main(n_windows: int, path: Path, markdown: bool) -> None:
    """Compare an engine over Ray Serve with one in the same process."""
    samples = np.concatenate([each.samples for each in load_bundled(40.0, 4)])
    windows = {str(seconds): _windows(samples, seconds, n_windows) for seconds in SECONDS}
    with ray_nodes(1):
        times = _measure(windows)
    result = {"benchmark": "ray_overhead", "schema": SCHEMA, **machine.describe(), "times_s": times}
    report.show([_table(times)], result, as_markdown=markdown, path=path)


def _windows(samples: Samples, seconds: int, n_windows: int) -> list[Samples]:
    """Windows that begin at different places. The first ones are repeated: both engines prepare for them."""
    length = seconds * SAMPLE_RATE
    starts = np.linspace(0, len(samples) - length, n_windows).astype(int)
    return [samples[start : start + length] for start in (*starts[:N_WARM_UP], *starts)]


def _measure(windows: dict[str, list[Samples]]) -> dict[str, list[tuple[float, ...]]]:
    from ray import serve

    from cluster.ray.application import FAST_PATH, bind_engines

    settings = Settings(threads=1, log_level="warning")
    probe: Any = serve.deployment(Probe)
    probe = probe.options(ray_actor_options={"num_cpus": 0.5, "runtime_env": {"env_vars": FAST_PATH}})
    handle = serve.run(probe.bind(settings, bind_engines(settings)), name="probe", route_prefix=None)
    times: list[tuple[float, ...]] = handle.measure.remote(
        [each for some in windows.values() for each in some]
    ).result()
    found = iter(times)
    return {name: [next(found) for _ in some][N_WARM_UP:] for name, some in windows.items()}


def _table(times: dict[str, list[tuple[float, ...]]]) -> Table:
    rows = []
    for seconds, each in times.items():
        ms = 1000 * np.array(each)
        for name, here, there in (("first event", ms[:, 0], ms[:, 2]), ("last event", ms[:, 1], ms[:, 3])):
            figures = [_percentiles(values) for values in (here, there, there - here)]
            rows.append((f"{seconds} s", name, *figures))
    title = "Milliseconds from the submission of a window, p50 / p95"
    return Table(title, ("window", "to its", "same process", "over Ray", "later over Ray"), rows)


def _percentiles(values: "np.ndarray[Any, Any]") -> str:
    return " / ".join(f"{value:.1f}" for value in np.percentile(values, (50, 95)))


if __name__ == "__main__":
    main()
