"""What the processes of a server use: prometheus_client's metrics of a process, for each of them, under its name."""

import multiprocessing
import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from prometheus_client import ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

_ENDING = ".pid"
ONLY_PROCESS = "server"
"""The name of a process that is the whole server."""


def note_process(folder: str) -> None:
    """Let the other processes of the server know this one, by a file with its id under its name."""
    Path(folder, multiprocessing.current_process().name + _ENDING).write_text(str(os.getpid()))


class ProcessMetrics(Collector):
    """Memory, CPU time and descriptors of each process, with a label `process`.

    It shows nothing where there is no `/proc`, and nothing of a process that has ended.
    """

    def __init__(self, folder: str | None) -> None:
        """Show the processes that are noted in a folder; with `None` this process alone."""
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        """Each metric once, with a sample for each process."""
        metrics: dict[str, Metric] = {}
        for name, pid in self._processes():
            for metric in ProcessCollector(pid=partial(str, pid), registry=None).collect():
                shown = metrics.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
                for sample in metric.samples:
                    shown.add_sample(sample.name, {"process": name}, sample.value)
        return metrics.values()

    def _processes(self) -> list[tuple[str, str]]:
        if self._folder is None:
            return [(ONLY_PROCESS, "self")]
        return [(path.stem, path.read_text()) for path in sorted(Path(self._folder).glob(f"*{_ENDING}"))]
