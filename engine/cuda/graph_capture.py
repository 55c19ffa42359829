"""Captures CUDA graphs, which launch many kernels with one call of the host."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

T = TypeVar("T")

_capturing = threading.Lock()
"""One capture at a time in a process: PyTorch hands the same few streams to all threads in turn, and what a thread
launches on a stream that another one captures becomes part of that graph instead of running."""


@dataclass(frozen=True, slots=True)
class CapturedGraph(Generic[T]):
    """A graph, and the tensors to which every replay writes its results."""

    graph: torch.cuda.CUDAGraph
    out: T

    def replay(self) -> T:
        """Run the captured kernels on what their input tensors hold now. The next replay overwrites the results."""
        self.graph.replay()
        return self.out


class GraphPool:
    """Captures graphs that share their memory. They must be replayed one after another, on one stream."""

    def __init__(self) -> None:
        self._pool: Any = None
        self.n_graphs = 0
        """Graphs captured up to now."""
        self.seconds = 0.0
        """Time that capturing them took."""

    def capture(self, body: Callable[[], T]) -> CapturedGraph[T]:
        """Run `body` once as it is, then once more to capture the kernels that it launches.

        The first run compiles kernels and lets libraries allocate their workspaces, neither of which can be captured.
        """
        with _capturing:
            start_s = time.perf_counter()
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                body()
            torch.cuda.current_stream().wait_stream(side)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            # Another model's thread may ask the device whether its work is done, which would end the capture otherwise.
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                out = body()
            self._pool = graph.pool()
            self.n_graphs += 1
            self.seconds += time.perf_counter() - start_s
            return CapturedGraph(graph, out)
