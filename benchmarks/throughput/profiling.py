"""Shows where the time of the engine goes, on its thread and its device: a Chrome trace, and NVTX ranges for Nsight.

The calls of the runner (encode, prefill, launch, collect) are named ranges in both. A CPU encodes in a thread of its
own, of which the trace has the beginning and the end. CUDA graphs hide the operations within a step from the thread's
side of the trace; its kernels are in the device's.
"""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.report import Table, number

if TYPE_CHECKING:
    from torch.profiler import profile

    from tutti_server.engine.runner import Runner

MAX_STEPS = 100
"""Decode steps in a trace. A trace of more is too large for a viewer."""
N_OPERATIONS = 15
"""Rows of the table."""
RANGES: dict[str, Callable[..., str]] = {
    "encode": lambda windows, *_: f"encode {len(windows)} windows",
    "begin_encoding": lambda windows, *_: f"begin to encode {len(windows)} windows",
    "finish_encoding": lambda: "collect encoded windows",
    "launch_prefill": lambda slots, *_: f"prefill {len(slots)} prompts",
    "launch": lambda: "launch a step",
    "collect": lambda *_: "collect a step",
}
"""The runner's methods that are ranges, and how each names its range from its arguments."""


class Recorder:
    """Names the calls of a runner, and records them to a trace on request.

    A profiler records the thread that starts it. So the engine's own thread starts and ends it, between two calls.
    """

    def __init__(self, runner: "Runner", *, with_nvtx: bool) -> None:
        """Wrap the methods of a runner. No other thread may use it meanwhile."""
        self._profiler: profile | None = None
        self._n_steps_left = 0
        self._is_wanted = threading.Event()
        self._ended = threading.Event()
        self._with_nvtx = with_nvtx
        self._is_cuda = runner.device.type == "cuda"
        for name, describe in RANGES.items():
            setattr(runner, name, self._named(name, getattr(runner, name), describe))

    def request(self) -> None:
        """Let the engine's thread record its next `MAX_STEPS` decode steps and what is between them."""
        self._n_steps_left = MAX_STEPS
        self._is_wanted.set()

    @property
    def has_ended(self) -> bool:
        """Whether all requested steps are recorded."""
        return self._ended.is_set()

    def write(self, path: Path) -> None:
        """Write the trace, for chrome://tracing or Perfetto. Call it once `has_ended`."""
        assert self._profiler is not None and self.has_ended
        path.parent.mkdir(parents=True, exist_ok=True)
        self._profiler.export_chrome_trace(str(path))

    def table(self) -> Table:
        """The operations that took most of the device's time by themselves. Call it once `has_ended`."""
        assert self._profiler is not None and self.has_ended

        def own_ms(each: Any) -> float:
            return float(each.self_device_time_total if self._is_cuda else each.self_cpu_time_total) / 1000

        operations = sorted(self._profiler.key_averages(), key=own_ms, reverse=True)
        all_ms = sum(map(own_ms, operations)) or 1.0
        rows = [
            (each.key[:70], str(each.count), number(own_ms(each), 2), number(100 * own_ms(each) / all_ms, 1))
            for each in operations[:N_OPERATIONS]
        ]
        where = "GPU" if self._is_cuda else "CPU"
        return Table(f"Profile of {MAX_STEPS} steps: own time on the {where}", ("", "calls", "ms", "%"), rows)

    def _named(self, name: str, call: Callable[..., Any], describe: Callable[..., str]) -> Callable[..., Any]:
        def named(*arguments: Any, **options: Any) -> Any:
            if name == "launch":
                self._follow()
            with self._range(describe(*arguments)):
                return call(*arguments, **options)

        return named

    def _range(self, name: str) -> AbstractContextManager[object]:
        import torch

        ranges = ExitStack()
        if self._with_nvtx:
            ranges.enter_context(torch.cuda.nvtx.range(name))
        if self._profiler is not None:
            ranges.enter_context(torch.profiler.record_function(name))
        return ranges

    def _follow(self) -> None:
        """Begin or end the recording, before a step is launched."""
        import torch
        from torch.profiler import ProfilerActivity

        if not self._is_wanted.is_set() or self._ended.is_set():
            return
        if self._profiler is None:
            activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._is_cuda else [])]
            self._profiler = torch.profiler.profile(activities=activities)
            self._profiler.start()
        elif self._n_steps_left == 0:
            self._profiler.stop()
            self._ended.set()
        self._n_steps_left -= 1
