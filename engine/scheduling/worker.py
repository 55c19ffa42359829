"""The loop of the engine's thread: take a batch from the queue, encode it, prefill it, step, hand out events.

The worker acts and the batcher decides. The engine's thread creates the worker and calls `run`. Any thread may call
`submit`, `cancel`, `snapshot` and `progress`; `engine/engine.py` does it from the event loop.
"""

import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tutti_server.engine.api import EngineStats, Priority, StartedEvent, SupersededEvent, TranslatedEvent
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.errors import EngineFailed
from tutti_server.engine.probe import USUAL_UTTERANCE_SAMPLES, Speed
from tutti_server.engine.runner import Runner
from tutti_server.engine.scheduling.batcher import BatchLimits, Load
from tutti_server.engine.scheduling.decode_time import DecodeTime
from tutti_server.engine.scheduling.emitter import EventEmitter
from tutti_server.engine.scheduling.encoder_time import EncoderTime
from tutti_server.engine.scheduling.memory_return import MemoryReturn
from tutti_server.engine.scheduling.request import Deliver, Request
from tutti_server.engine.scheduling.request_queue import RequestQueue
from tutti_server.engine.scheduling.sequences import RunningSequences
from tutti_server.engine.scheduling.stats import StatsRecorder

logger = logging.getLogger(__name__)

BeginEncoding = Callable[[Sequence[NDArray[np.float32]], Sequence[int], Sequence[bool]], None]
"""`Runner.encode` or `Runner.begin_encoding`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """What is best for one type of device."""

    min_decode_share: float
    """The default of `EngineConfig.min_decode_share`. Decoding takes less of a GPU's time."""
    interim_stall_share: float | None
    """The fraction of `EngineConfig.max_decode_stall_ms` that interims may cause; `None` for all of it.

    A GPU encodes small batches as efficiently as large ones.
    """
    shortens_decoding: bool
    """`BatchLimits.shortens_decoding`. A GPU that encodes sooner encodes fewer windows in a call.

    On an H100 with 750 live sessions, steps had 41 sequences instead of 60, and 67 and 69 % of the interims that were
    due came in time instead of 71 and 74.
    """
    max_fill_wait_s: float
    """`BatchLimits.max_fill_wait_s`: a GPU encodes four windows in 0.8 of the time of four calls.

    On an H200 with 64 requests of mixed lengths, large-v3 answers 83 per second in place of 79, and sooner, too.
    """
    n_full_step: int
    """The number of sequences whose step takes about as long as that of one. One final is charged its part."""


TUNING = {
    "cpu": Tuning(
        min_decode_share=0.33, interim_stall_share=None, shortens_decoding=True, max_fill_wait_s=0.0, n_full_step=4
    ),
    "cuda": Tuning(
        min_decode_share=0.2, interim_stall_share=0.2, shortens_decoding=False, max_fill_wait_s=0.1, n_full_step=32
    ),
}
"""By type of device."""
PREFILL_LEAD_S = 0.005
"""The worker prepares the prompts this many seconds before the device is expected to have encoded their windows."""
USUAL_STEPS = 12
"""Decode steps of a window of that length until some are measured; drafts save a third of them."""
FINISHED_PER_STEP = 8
"""The most finished windows whose last events are made before the queue is polled again."""
MAX_FAILURES_IN_A_ROW = 3
"""The engine dies when this many steps have failed and no window was decoded in between."""
MAX_FAILURES_PER_WINDOW = 3
"""A window fails when this many steps have failed while the engine had it: in all but the first it was alone.

Other windows were decoded in between, or the engine would have died. So the fault is the window's.
"""
FAILURE_PAUSE_S = 0.2
"""The pause after a failed step, in seconds; it grows by this with each further failure in a row.

Memory that was short may be free again then.
"""


@dataclass(frozen=True, slots=True)
class EncoderCall:
    """An encoder call that is computed beside the decode steps."""

    batch: list[Request]
    slots: list[int]
    start_s: float
    device_share: float
    """The part of the device that it has."""


class Worker:
    """Owns a runner. `run` is the body of the engine's thread."""

    def __init__(self, runner: Runner, config: EngineConfig, speed: Speed, deliver: Deliver) -> None:
        """Create a worker, which delivers items after every step, and superseded interims in the thread of `submit`."""
        self.stats = StatsRecorder()
        self._runner = runner
        self._deliver = deliver
        self._max_encode_batch = config.max_encode_batch
        tuning = TUNING[runner.device.type]
        limits = _batch_limits(runner, config, tuning)
        self.queue = RequestQueue(limits)
        """The requests that wait. When it is closed, `run` returns after its current step, and what is open fails."""
        self._emitter = EventEmitter(deliver)
        self._sequences = RunningSequences(runner, self.stats, self._emitter, limits.n_reserved_slots)
        min_decode_share = tuning.min_decode_share if config.min_decode_share is None else config.min_decode_share
        self._encoder_time = EncoderTime(runner, speed.window_s, min_decode_share)
        self._memory = MemoryReturn(runner)
        window_decode_s = USUAL_STEPS * speed.step_s / max(speed.n_running, tuning.n_full_step)
        self._decode_time = DecodeTime(tuning.n_full_step, window_decode_s)
        self._encode_device_share = 1.0
        """The part of the device that the last encoder call had."""
        self._call: EncoderCall | None = None
        """The encoder call under way beside the steps; always `None` where the runner encodes between them."""
        self._crash_suspects: deque[Request] = deque()
        """Requests whose windows the engine had when a step failed. Each is decoded again alone, before all others."""
        self._n_begun = 0
        """How many steps and encoder calls were begun."""
        self._n_failures = 0
        """How many steps have failed in a row."""
        self._n_done_before = 0
        """How many windows had been decoded when the last step failed."""

    def submit(self, request: Request) -> None:
        """Queue a request.

        Raises:
            EngineOverloaded: the queue has no room for a window that may be dropped.
            EngineFailed: the engine has died or was closed.
        """
        window = request.window
        superseded = self.queue.add(request, self._runner.encode_work(len(window.samples), window.is_interim))
        if superseded:
            self.stats.superseded()
            self._deliver([(superseded, SupersededEvent())])

    def cancel(self, request: Request) -> None:
        """Stop working on a request, at any stage; one that has ended already stays as it is."""
        if self.queue.cancel(request):
            self.stats.cancelled()

    def snapshot(self) -> EngineStats:
        """Return the engine's counters as they are now."""
        decode_s = self._decode_s
        # On average, a running window is half decoded.
        begun_s = self._encode_device_share * self._encoder_time.begun_s + 0.5 * decode_s * len(self._sequences)
        final_s = begun_s + self._waiting_s(Priority.FINAL) + self._waiting_s(Priority.SPECULATIVE)
        return self.stats.snapshot(
            window_decode_s=decode_s,
            work_waiting_s=final_s + self._waiting_s(Priority.FILE) + self._waiting_s(Priority.INTERIM),
            final_work_waiting_s=final_s,
            n_waiting=self.queue.n_waiting,
            running=len(self._sequences),
            utterance_encode_s=self._window_s * self._runner.encode_work(USUAL_UTTERANCE_SAMPLES, False),
        )

    def _waiting_s(self, priority: Priority) -> float:
        """Return the seconds of work that the waiting windows of a priority need."""
        encode_s = self._window_s * self.queue.encode_work(priority)
        return encode_s + self._decode_s * self.queue.n_waiting(priority)

    @property
    def _window_s(self) -> float:
        """Seconds of the device to encode a full window."""
        return self._encode_device_share * self._encoder_time.window_s

    @property
    def _decode_s(self) -> float:
        """Seconds of the device for the steps of one window."""
        return self._runner.step_device_share * self._decode_time.window_s

    @property
    def progress(self) -> tuple[int | None, float]:
        """A number that changes as long as the thread gets on, and how long the largest encoder call should take.

        The number is `None` while it has no window.
        """
        has_windows = self._sequences or self._crash_suspects or self._emitter.n_finished or not self.queue.is_empty
        largest_s = self._max_encode_batch * self._encoder_time.window_s
        return self._n_begun if has_windows else None, largest_s

    def run(self) -> None:
        """Work until closed, or until steps fail again and again. Then every open and every later request fails."""
        failure: Exception | None = None
        try:
            while not self.queue.is_closed:
                try:
                    self._step()
                except Exception as error:
                    self._recover(error)
            self._emitter.emit(self._emitter.n_finished)
        except Exception as error:
            in_hand = (*self._sequences.requests, *self._crash_suspects)
            logger.exception("the engine has died; it had windows of %s", _sessions(in_hand))
            failure = error
        finally:
            self._forget_call()
            self.fail_open_requests(failure)
            # Releasing comes last, since it may be what failed: no caller may have to wait for it.
            with suppress(Exception):
                self._sequences.release_all()

    def _recover(self, failure: Exception) -> None:
        """Take back all windows in hand after a failed step, so that each is decoded again alone.

        The window that makes steps fail is then the only one that fails.

        Raises:
            Exception: `failure`, because too many steps have failed in a row.
        """
        n_done = self.stats.n_done
        self._n_failures = 1 if n_done > self._n_done_before else self._n_failures + 1
        self._n_done_before = n_done
        self._encoder_time.begun_s = 0.0
        self._forget_call()
        if self._n_failures >= MAX_FAILURES_IN_A_ROW:
            raise failure
        waiting = self._crash_suspects
        in_hand = self._without_translations([*self._emitter.forget_finished(), *self._sequences.requests])
        logger.error(
            "a step of the engine has failed; its windows are decoded again, of %s",
            _sessions(in_hand),
            exc_info=failure,
        )
        # All are kept before the release, which may fail too.
        self._crash_suspects = deque([*waiting, *in_hand])
        self._sequences.release_all()
        self._crash_suspects = deque([*waiting, *(request for request in in_hand if self._may_retry(request, failure))])
        self._emitter.flush()
        time.sleep(FAILURE_PAUSE_S * self._n_failures)

    def _without_translations(self, in_hand: list[Request]) -> list[Request]:
        """Return the requests that are to be decoded again. A translation whose text is out already is dropped."""
        requests = [request for request in in_hand if request.caller is request]
        for request in in_hand:
            if request.caller not in requests:
                self._emitter.put(request.caller, TranslatedEvent(None))
        return requests

    def _may_retry(self, request: Request, failure: Exception) -> bool:
        """Return whether a request that was open in a failed step is decoded again; if not, it is answered."""
        if request.is_cancelled:
            self.stats.cancelled()
            return False
        if request.window.priority.may_be_dropped:
            # A newer interim, with more audio, or the final follows soon.
            self._emitter.put(request, SupersededEvent())
            self.stats.superseded()
            return False
        request.restart()
        if request.n_failures >= MAX_FAILURES_PER_WINDOW:
            # Clients read it: the log alone has the text of the failure, which may name files of the server.
            reason = type(failure).__name__
            error = EngineFailed(f"the engine has failed {request.n_failures} times with this window: {reason}")
            error.__cause__ = failure
            logger.error("[%s] a window fails: %s", request.window.session, error)
            self._emitter.put(request, error)
            return False
        return True

    @property
    def _has_crash_suspects(self) -> bool:
        return bool(self._crash_suspects) or any(request.n_failures for request in self._sequences.requests)

    def _next_crash_suspect(self) -> list[Request]:
        """Return the next crash suspect, or nothing while the engine has another window."""
        self._sequences.release_cancelled()
        while self._crash_suspects and not self._sequences:
            request = self._crash_suspects.popleft()
            if not request.is_cancelled:
                return [request]
            self.stats.cancelled()
        return []

    def _step(self) -> None:
        self._n_begun += 1
        has_encoded = self._encode_beside_steps() if self._runner.encodes_beside_steps else self._encode_between_steps()
        if self._sequences.n_decoding:
            self._decode()
        else:
            self._sequences.forget_steps()
        self._memory.after_step(is_idle=not (has_encoded or self._sequences or self._emitter.n_finished))
        self._emitter.emit(FINISHED_PER_STEP)

    def _encode_between_steps(self) -> bool:
        """Encode and prefill the next windows, if it is their turn. Returns whether it was."""
        batch = self._next_crash_suspect() if self._has_crash_suspects else self._next_batch()
        if batch:
            self._encode_and_prefill(batch)
        return bool(batch)

    def _encode_beside_steps(self) -> bool:
        """Begin an encoder call, if none is under way, and prefill its windows once it has ended.

        Nothing else waits for the call unless there is nothing to decode. Returns whether there is or was one.
        """
        if self._call is None:
            batch = self._next_crash_suspect() if self._has_crash_suspects else self._next_batch()
            if not batch:
                return False
            start_s = time.monotonic()
            self._memory.before_encoding(start_s)
            share = self._encode_device_share = self._runner.encode_device_share
            slots = self._begin_encoding(batch, self._runner.begin_encoding)
            self._call = EncoderCall(batch, slots, start_s, share)
            self._encoder_time.begun_s = self._encoder_time.expected_s(batch)
        if not (self._sequences.n_decoding and self._runner.is_encoding()):
            call, self._call = self._call, None
            # The call may still take long.
            self._emitter.emit(self._emitter.n_finished)
            self._runner.finish_encoding()
            elapsed_s = time.monotonic() - call.start_s
            self._prefill([call.batch], call.slots)
            self._count_calls([call.batch], elapsed_s, call.device_share)
            # The call has not delayed the running sequences.
            self._encoder_time.reset_debt()
        return True

    def _forget_call(self) -> None:
        """Wait for the encoder call under way, and drop it. Its windows stay among the running sequences."""
        self._call = None
        with suppress(Exception):
            self._runner.finish_encoding()

    def _next_batch(self, begun_encode_s: float = 0.0, joins_until_s: float | None = None) -> list[Request]:
        """Return the requests to encode now; none if there is other work to do.

        Args:
            begun_encode_s: seconds of encoder work begun since the last decode step.
            joins_until_s: while encoder calls are under way, the time until which others may join them.
        """
        self._sequences.release_cancelled()

        def measure_load() -> Load:
            return Load(
                n_free_slots=self._runner.slots.n_free,
                n_running=len(self._sequences),
                window_encode_s=self._encoder_time.window_s,
                debt_fraction=self._encoder_time.debt_fraction,
                begun_encode_s=begun_encode_s,
                sessions=frozenset(request.window.session for request in self._sequences.requests),
                joins_until_s=joins_until_s,
                is_encoding=joins_until_s is not None and self._runner.is_encoding(),
            )

        # Finished windows are emitted before the worker sleeps for long.
        may_sleep = bool(self._sequences) or not self._emitter.n_finished
        return self.queue.next_batch(measure_load, may_sleep=may_sleep, max_idle_s=self._memory.max_idle_s)

    def _encode_and_prefill(self, batch: list[Request]) -> None:
        """Encode a batch, and other batches that join it while the device encodes, then prefill all in one pass."""
        start_s = time.monotonic()
        self._memory.before_encoding(start_s)
        if not self._sequences:
            # All sequences with a decode-time debt have ended; sequences that start now have none.
            self._encoder_time.reset_debt()
        batches: list[list[Request]] = []
        new_slots: list[int] = []
        encode_s = 0.0
        while batch:
            new_slots += self._begin_encoding(batch, self._runner.encode)
            batches.append(batch)
            encode_s += self._encoder_time.expected_s(batch)
            self._encoder_time.begun_s = encode_s
            self._sequences.collect()
            self._emitter.emit(self._emitter.n_finished)
            batch = [] if self._has_crash_suspects else self._next_batch(encode_s, start_s + encode_s - PREFILL_LEAD_S)
        self._prefill(batches, new_slots)
        self._count_calls(batches, time.monotonic() - start_s)

    def _prefill(self, batches: Sequence[list[Request]], slots: list[int]) -> None:
        prefill_s = time.monotonic()
        self._sequences.prefill(slots)
        decoding_s = time.monotonic()
        for request in itertools.chain.from_iterable(batches):
            request.reached.prefill_s, request.reached.decoding_s = prefill_s, decoding_s

    def _count_calls(self, batches: Sequence[list[Request]], elapsed_s: float, device_share: float = 1.0) -> None:
        """Count encoder calls, which took this long together, and had this part of the device."""
        calls_s = self._encoder_time.record(batches, elapsed_s)
        for encoded, call_s in zip(batches, calls_s, strict=True):
            final_share = self._encoder_time.final_share(encoded)
            audio_s = sum(request.audio_s for request in encoded)
            self.stats.encoded(len(encoded), audio_s, call_s, final_share, device_share)

    def _begin_encoding(self, batch: list[Request], begin: BeginEncoding) -> list[int]:
        """Give a batch its slots, announce it and start its encoder call. Returns the slots."""
        self._n_begun += 1
        slots = self._sequences.allocate(batch)
        now_s = time.monotonic()
        for request in batch:
            request.reached.encoding_s = now_s
            self.stats.left_queue(request.window.priority, request.queued_s)
            self._emitter.put(request, StartedEvent(request.queued_s, len(batch)))
        self._emitter.flush()
        windows = [request.window for request in batch]
        begin([window.samples for window in windows], slots, [window.is_interim for window in windows])
        return slots

    def _decode(self) -> None:
        start_s, n_running = time.monotonic(), self._sequences.n_decoding
        final_share = self._sequences.n_finals / max(n_running, self._decode_time.n_full_step)
        if self._sequences.step():
            elapsed_s = time.monotonic() - start_s
            self.stats.stepped(elapsed_s, final_share, self._runner.step_device_share)
            self._encoder_time.record_step(elapsed_s)
            self._decode_time.record(elapsed_s, n_running, self.stats.n_done)

    def fail_open_requests(self, failure: Exception | None) -> None:
        """Let every open and every later request fail. Another thread may only call it while the engine's hangs."""
        waiting = self.queue.drain(failure)
        in_hand = (*self._emitter.forget_finished(), *self._sequences.requests, *self._crash_suspects)
        for request in dict.fromkeys(each.caller for each in (*in_hand, *waiting)):
            self._emitter.put(request, self.queue.closed_error())
        self._emitter.flush()


def _sessions(requests: Iterable[Request]) -> str:
    return ", ".join(sorted({request.window.session for request in requests})) or "no session"


def _batch_limits(runner: Runner, config: EngineConfig, tuning: Tuning) -> BatchLimits:
    interim_share, max_stall_s = tuning.interim_stall_share, config.max_decode_stall_ms / 1000
    return BatchLimits(
        max_waiting=config.max_waiting,
        max_batch=config.max_encode_batch,
        max_wait_s=config.max_wait_ms / 1000,
        max_decode_stall_s=max_stall_s,
        n_slots=runner.slots.n_free,
        n_filling=runner.n_filling,
        max_interim_stall_s=None if interim_share is None else interim_share * max_stall_s,
        max_fill_wait_s=tuning.max_fill_wait_s,
        shortens_decoding=tuning.shortens_decoding,
    )
