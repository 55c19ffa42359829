"""Plans batches ahead in processes, so that the thread that feeds the device does not wait for Python code."""

import argparse
import multiprocessing
import queue
import random
from multiprocessing.queues import Queue
from multiprocessing.sharedctypes import Synchronized

from training.model.windows import BatchPlan, Planner
from training.speech.bank_index import BankSentence, Chunk
from training.tokenizer import N_POSITIONS, Ids

SHORT_PHASE = 0.12
"""Share of the schedule with short windows only: on them attention learns sooner to follow the audio."""
FULL_SHARE = 0.25
"""Share of full windows of 30 s after that."""
LENGTHS_S = (3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 15.0, 18.0, 21.0, 25.0)
"""Lengths of the other windows, in seconds. There are few, because cuFFT keeps a plan and a workspace for each."""
MAX_WAIT_S = 120.0
"""How long the training waits for a plan before it fails, in seconds."""


def window_length(r: random.Random, progress: float) -> float:
    """Draw a window length in seconds. Only full windows are 30 s long; others are encoded at their own length."""
    u = r.random()
    if progress < SHORT_PHASE:
        return 10.0 if u < 0.7 else r.choice([length for length in LENGTHS_S if length <= 15])
    return 30.0 if u < FULL_SHARE else r.choice(LENGTHS_S)


def token_room(seconds: float, is_long: bool) -> int:
    """The number of tokens of a window: its longest text, and a prompt of 50 tokens or a long one."""
    room = 40 + int(5.6 * seconds) + (224 if is_long else 0)
    return min(N_POSITIONS, -(-room // 8) * 8)


class PlannerPool:
    """Planning processes that put their plans into one queue."""

    def __init__(
        self,
        args: argparse.Namespace,
        kinds: tuple[type[Planner], ...],
        ids: Ids,
        seed: int,
        marks: list[int],
        progress: float,
    ) -> None:
        """`kinds`: the planner of each process. `progress`: elapsed share of the schedule."""
        context = multiprocessing.get_context("spawn")
        self._plans: Queue[BatchPlan] = context.Queue(8)  # a planner waits while it is full
        self._progress = context.Value("d", progress)
        self._chunks: list[Queue[Chunk]] = [context.Queue() for _ in kinds]
        self._processes = [
            context.Process(
                target=_plan,
                args=(kind, ids, seed + number, marks, args, chunks, self._plans, self._progress),
                daemon=True,
            )
            for number, (kind, chunks) in enumerate(zip(kinds, self._chunks, strict=True))
        ]
        for process in self._processes:
            process.start()

    def add(self, chunk: Chunk) -> None:
        """Give a chunk of new speech to all planners."""
        for chunks in self._chunks:
            chunks.put(chunk)

    def next(self, progress: float) -> BatchPlan:
        """The next plan. `progress` is the elapsed share of the schedule, for plans made from now on.

        Raises:
            RuntimeError: a planner has died.
        """
        if dead := [process.name for process in self._processes if not process.is_alive()]:
            raise RuntimeError(f"expected {len(self._processes)} running planners, but these ended: {', '.join(dead)}")
        self._progress.value = progress
        return self._plans.get(timeout=MAX_WAIT_S)

    def stop(self) -> None:
        """End all planning processes."""
        for process in self._processes:
            process.kill()
            process.join()
        self._plans.cancel_join_thread()
        for chunks in self._chunks:
            chunks.cancel_join_thread()


def _plan(
    kind: type[Planner],
    ids: Ids,
    seed: int,
    marks: list[int],
    args: argparse.Namespace,
    chunks: "Queue[Chunk]",
    plans: "Queue[BatchPlan]",
    progress: "Synchronized[float]",
) -> None:
    """Plan batches for ever. This is the main function of a planning process."""
    known: list[list[BankSentence]] = [chunks.get().sentences()]
    planner = kind(known, ids, seed, marks)
    while True:
        try:
            while True:
                known.append(chunks.get_nowait().sentences())
        except queue.Empty:
            pass
        planner.progress = progress.value
        seconds = window_length(planner.r, planner.progress)
        rows = max(2, min(args.most_rows, int(args.batch_seconds / seconds)))
        is_long = seconds >= 10 and planner.progress >= SHORT_PHASE and planner.r.random() < 0.12
        plans.put(planner.batch(rows, seconds, token_room(seconds, is_long), is_long))
