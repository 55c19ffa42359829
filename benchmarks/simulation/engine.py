"""An engine in simulated time. The batcher, the accounts and the counters are the real ones; the work is simulated.

The loop is that of `engine/scheduling/worker.py`, step by step; `docs/architecture.md` explains it.
"""

from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.simulation.clock import Clock, Process, Sleeper
from benchmarks.simulation.stage_times import FULL_STATES, StageTimes
from engine.api import WINDOW_SAMPLES, EngineStats, Priority, Window
from engine.config import EngineConfig
from engine.cuda.graph_sizes import FILLING_WINDOWS, LEAST_SHARE
from engine.model.audio_context import WindowLengths
from engine.probe import USUAL_UTTERANCE_SAMPLES
from engine.scheduling.batcher import Batcher, BatchLimits, Encode, Load, Wait, Waiting
from engine.scheduling.decode_time import DecodeTime
from engine.scheduling.encoder_time import EncoderTime
from engine.scheduling.request import Request
from engine.scheduling.stats import StatsRecorder
from engine.scheduling.worker import (
    INTERIM_STALL_SHARES,
    MIN_DECODE_SHARES,
    PREFILL_LEAD_S,
    SEQUENCES_OF_FULL_STEP,
)

N_SLOTS = 256
"""Slots of an engine on a large GPU, which has memory for as many as `EngineConfig` allows."""
CALL_OVERHEAD_S = 0.002
"""Seconds of each encoder call in which the host brings its audio to the device and announces its windows.

Encoder calls with their prefill took about this much longer under live load than the stages alone.
"""
WINDOW_OVERHEAD_S = 0.0003
"""Seconds for each window in which the host makes and sends its events, and the device has nothing to do."""
_AUDIO = np.zeros(WINDOW_SAMPLES, np.float32)
"""Audio of every simulated window: only its length counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a session asks an engine for, and where the answers go."""

    session: str
    priority: Priority
    n_samples: int
    """Audio of the window, in samples."""
    n_steps: int
    """Decode steps that its text takes after the prefill."""
    on_started: Callable[[], None]
    """Called when the window leaves the queue."""
    on_done: Callable[[], None]
    on_dropped: Callable[[], None]
    """Called when a newer window takes its place in the queue, there is no room for it, or its engine goes."""


class _Shares:
    """What `EncoderTime` asks a runner: the work of windows, as fractions of a full window's."""

    min_encode_share = LEAST_SHARE

    def __init__(self, config: EngineConfig) -> None:
        self._lengths = WindowLengths(config.audio_context, None, FULL_STATES)

    def n_states(self, window: Window) -> int:
        return self._lengths.n_states(len(window.samples), window.is_interim)

    def encode_share(self, n_samples: int, is_interim: bool) -> float:
        return self._lengths.n_states(n_samples, is_interim) / FULL_STATES


class SimulatedEngine:
    """One engine with one GPU."""

    def __init__(self, clock: Clock, times: StageTimes, config: EngineConfig) -> None:
        self.n_ended = 0
        """Windows that have ended in any way."""
        self._clock = clock
        self._times = times
        self._shares = _Shares(config)
        self._batcher = Batcher(batch_limits(config))
        share = MIN_DECODE_SHARES["cuda"] if config.min_decode_share is None else config.min_decode_share
        self._encoder_time = EncoderTime(self._shares, times.window_s, share)
        self._decode_time = DecodeTime(SEQUENCES_OF_FULL_STEP["cuda"], times.window_s)
        self._stats = StatsRecorder()
        self._open: dict[int, tuple[Request, Order]] = {}
        """All windows that wait or run, by their ids."""
        self._running = _Running()
        self._sleeper = Sleeper(clock, self._work())

    # What a pool of engines asks.

    @property
    def n_open(self) -> int:
        """The number of windows that wait or run."""
        return len(self._open)

    def stats(self) -> EngineStats:
        """The engine's counters, as its worker reports them."""
        decode_s = self._decode_time.window_s
        begun_s = self._encoder_time.begun_s + 0.5 * decode_s * len(self._running)
        final_s = begun_s + self._waiting_s(Priority.FINAL) + self._waiting_s(Priority.SPECULATIVE)
        return self._stats.snapshot(
            n_waiting=self._batcher.n_waiting,
            running=len(self._running),
            utterance_encode_s=self._encoder_time.window_s * self._shares.encode_share(USUAL_UTTERANCE_SAMPLES, False),
            window_decode_s=decode_s,
            work_waiting_s=final_s + self._waiting_s(Priority.INTERIM),
            final_work_waiting_s=final_s,
        )

    def _waiting_s(self, priority: Priority) -> float:
        encode_s = self._encoder_time.window_s * self._batcher.encode_share(priority)
        return encode_s + self._decode_time.window_s * self._batcher.n_waiting(priority)

    def submit(self, order: Order) -> int:
        """Queue a window. Returns the id with which it can be withdrawn.

        Raises:
            EngineOverloaded: the queue has no room for a window that may be dropped.
        """
        window = Window(samples=_AUDIO[: order.n_samples], session=order.session, priority=order.priority)
        request = Request(window=window, max_tokens=order.n_steps, put=lambda item: None)
        waiting = Waiting(
            id=request.id,
            session=order.session,
            priority=order.priority,
            encode_share=self._shares.encode_share(order.n_samples, window.is_interim),
        )
        request.reached.submitted_s = self._clock.now_s
        older = self._batcher.add(waiting, self._clock.now_s)
        self._open[request.id] = (request, order)
        if older:
            self._stats.superseded()
            self._end(older.id).on_dropped()
        self._sleeper.wake()
        return request.id

    def cancel(self, id: int) -> None:
        """Withdraw a window, at any stage; one that has ended stays as it is."""
        if id not in self._open:
            return
        self._batcher.remove(id)
        self._running.remove(id)
        self._stats.cancelled()
        self._end(id)
        self._sleeper.wake()

    def die(self) -> list[Order]:
        """End the engine. Returns what it was asked for and has not answered."""
        self._sleeper.stop()
        self._batcher.clear()
        return [self._end(id) for id in list(self._open)]

    def _end(self, id: int) -> Order:
        self.n_ended += 1
        return self._open.pop(id)[1]

    # The loop of the engine's thread.

    def _work(self) -> Process:
        while True:
            batch = yield from self._next_batch(0.0, None, 0.0)
            if batch:
                yield from self._encode_and_prefill(batch)
            if self._running:
                yield from self._decode()

    def _next_batch(
        self, begun_encode_s: float, joins_until_s: float | None, encodes_until_s: float
    ) -> Generator[float | Wait, None, list[Request]]:
        """Return the requests to encode now, which leave the queue; none where there is other work."""
        while True:
            now_s = self._clock.now_s
            load = Load(
                n_free_slots=N_SLOTS - len(self._running),
                n_running=len(self._running),
                window_encode_s=self._encoder_time.window_s,
                owed_fraction=self._encoder_time.owed_fraction,
                begun_encode_s=begun_encode_s,
                sessions=self._running.sessions,
                joins_until_s=joins_until_s,
                is_encoding=now_s < encodes_until_s,
            )
            match self._batcher.decide(now_s, load):
                case Encode(ids):
                    return [self._open[id][0] for id in ids]
                case Wait() as wait:
                    yield wait
                case _:
                    return []

    def _encode_and_prefill(self, batch: list[Request]) -> Process:
        """Encode a batch, and others that join it while the device encodes, then prefill all in one pass."""
        start_s = encodes_until_s = self._clock.now_s
        batches: list[list[Request]] = []
        encode_s = 0.0
        while batch:
            self._announce(batch)
            batches.append(batch)
            yield CALL_OVERHEAD_S
            n_states = [self._shares.n_states(request.window) for request in batch]
            encodes_until_s = max(encodes_until_s, self._clock.now_s) + self._times.encode_s(n_states)
            encode_s += self._encoder_time.expected_s(batch)
            self._encoder_time.begun_s = encode_s
            batch = yield from self._next_batch(encode_s, start_s + encode_s - PREFILL_LEAD_S, encodes_until_s)
        yield max(encodes_until_s - self._clock.now_s, 0.0)
        new = [request for each in batches for request in each if request.id in self._open]
        if new:
            yield self._times.prefill_s(len(new))
            self._running.start({each.id: self._open[each.id][1].n_steps for each in new if each.id in self._open})
        calls_s = self._encoder_time.record(batches, self._clock.now_s - start_s)
        for encoded, call_s in zip(batches, calls_s, strict=True):
            share = self._encoder_time.final_share(encoded)
            self._stats.encoded(len(encoded), sum(each.audio_s for each in encoded), call_s, share)

    def _announce(self, batch: Sequence[Request]) -> None:
        for request in batch:
            window = request.window
            self._running.add(request.id, window.session, is_final=not window.is_interim)
            self._stats.left_queue(window.priority, self._clock.now_s - request.reached.submitted_s)
            self._open[request.id][1].on_started()

    def _decode(self) -> Process:
        """Decode one token for every running sequence."""
        n_running = len(self._running)
        final_share = self._running.n_finals / max(n_running, self._decode_time.n_full_step)
        elapsed_s = self._times.step_s(n_running)
        yield elapsed_s
        self._stats.launched(n_running)
        self._stats.stepped(elapsed_s, final_share)
        self._encoder_time.pay(elapsed_s)
        self._decode_time.record(elapsed_s, n_running, self._stats.n_done)
        for id in self._running.step():
            yield WINDOW_OVERHEAD_S
            if id in self._open:
                self._stats.done()
                self._end(id).on_done()


class _Running:
    """The windows that have a slot, and after how many steps each of them ends."""

    def __init__(self) -> None:
        self._windows: dict[int, tuple[str, bool]] = {}
        """The session of each window, and whether it is a final, by id."""
        self._ends: defaultdict[int, list[int]] = defaultdict(list)
        """The ids of the windows that end with a step, by the number of the step."""
        self._n_steps = 0
        self._sessions: frozenset[str] | None = None
        """The sessions of the windows, once they were asked for."""
        self.n_finals = 0

    def __len__(self) -> int:
        return len(self._windows)

    def __contains__(self, id: int) -> bool:
        return id in self._windows

    @property
    def sessions(self) -> frozenset[str]:
        """The sessions of the windows."""
        if self._sessions is None:
            self._sessions = frozenset(session for session, _ in self._windows.values())
        return self._sessions

    def add(self, id: int, session: str, *, is_final: bool) -> None:
        """Give a window a slot; its steps begin with `start`."""
        self._windows[id] = (session, is_final)
        self._sessions = None
        self.n_finals += is_final

    def start(self, n_steps: dict[int, int]) -> None:
        """Let windows take part in the steps, each in as many as it needs."""
        for id, n in n_steps.items():
            self._ends[self._n_steps + max(n, 1)].append(id)

    def step(self) -> list[int]:
        """Count a step. Returns the windows that end with it; they have no slot any more."""
        self._n_steps += 1
        ended = [id for id in self._ends.pop(self._n_steps, ()) if id in self._windows]
        for id in ended:
            self.remove(id)
        return ended

    def remove(self, id: int) -> None:
        """Free the slot of a window, if it has one."""
        _, is_final = self._windows.pop(id, ("", False))
        self._sessions = None
        self.n_finals -= is_final


def batch_limits(config: EngineConfig) -> BatchLimits:
    """What the batcher of an engine on a GPU keeps to, as its worker decides."""
    max_stall_s, interim_share = config.max_decode_stall_ms / 1000, INTERIM_STALL_SHARES["cuda"]
    return BatchLimits(
        max_waiting=config.max_waiting,
        max_batch=config.max_encode_batch,
        max_wait_s=config.max_wait_ms / 1000,
        max_decode_stall_s=max_stall_s,
        n_slots=N_SLOTS,
        n_filling=FILLING_WINDOWS,
        max_interim_stall_s=None if interim_share is None else interim_share * max_stall_s,
    )
