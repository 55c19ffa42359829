"""A service in virtual time: callers, sessions, admission and an engine, without audio, threads or a clock.

What decides is the real code: admission, the forecast of load, the schedule of interims, the batcher and the counters
of the engine. Only what takes time is simulated: callers speak, and encoder calls and decode steps last as long as a
table says. So ten minutes of overload take seconds, and come out the same each time.
"""

import heapq
import itertools
import math
import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from tests.fakes import FakeTranscriber
from tutti_server.app.errors import LimitExceeded
from tutti_server.app.service.admission import Admission
from tutti_server.app.service.metrics import Metrics
from tutti_server.app.service.settings import Settings
from tutti_server.app.service.shared_state import AdmissionCounter
from tutti_server.app.session.decoding.interim_schedule import InterimSchedule
from tutti_server.engine.api import SAMPLE_RATE, EngineStats, Priority, Transcriber, Window
from tutti_server.engine.errors import EngineOverloaded
from tutti_server.engine.scheduling.batcher import Batcher, BatchLimits, Encode, Load, Wait, Waiting
from tutti_server.engine.scheduling.decode_time import DecodeTime
from tutti_server.engine.scheduling.encoder_time import EncoderTime
from tutti_server.engine.scheduling.request import Request
from tutti_server.engine.scheduling.stats import StatsRecorder

TICK_S = 0.1
"""How often audio of a caller who speaks arrives, in seconds."""
_AUDIO = np.zeros(30 * SAMPLE_RATE, np.float32)


class Clock:
    """Virtual time. Events of one moment happen in the order in which they were added."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now_s

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        """Let something happen later."""
        heapq.heappush(self._events, (self.now_s + seconds, next(self._numbers), event))

    def run(self, until_s: float) -> None:
        """Let everything happen up to a time."""
        while self._events and self._events[0][0] <= until_s:
            self.now_s, _, event = heapq.heappop(self._events)
            event()
        self.now_s = until_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How fast a device is, and the limits of its batcher."""

    window_s: float
    """Seconds of encoder time for each full window."""
    call_s: float
    """Seconds that each encoder call takes in addition, with the prefill after it."""
    step_s: float
    """Seconds of a decode step of one sequence."""
    row_s: float
    """Seconds that each further sequence adds to a step."""
    limits: BatchLimits
    min_decode_share: float
    n_full_step: int
    """See `Tuning.n_full_step` in `engine/scheduling/worker.py`."""
    n_steps: int = 28
    """Decode steps of a window."""


H200 = Speed(
    window_s=0.0044,
    call_s=0.0015,
    step_s=0.00033,
    row_s=0.00001,
    limits=BatchLimits(
        max_waiting=512,
        max_batch=8,
        max_wait_s=0.005,
        max_decode_stall_s=0.4,
        n_slots=256,
        n_filling=4,
        max_interim_stall_s=0.08,
    ),
    min_decode_share=0.2,
    n_full_step=32,
)
"""Whisper turbo on an NVIDIA H200, by docs/results/gpu.md."""
SLOW = replace(
    H200,
    window_s=20 * H200.window_s,
    call_s=20 * H200.call_s,
    step_s=20 * H200.step_s,
    row_s=20 * H200.row_s,
    limits=replace(H200.limits, n_slots=32, max_interim_stall_s=None, shortens_decoding=True),
    min_decode_share=0.33,
    n_full_step=4,
)
"""A device that is 20 times slower, with the rules for a CPU."""
BASE = replace(SLOW, window_s=0.13, call_s=0.01, step_s=0.0075, row_s=0.0025, n_steps=11)
"""Whisper base in 8 bits and full windows on two cores with AMX."""
BASE_CUT = replace(BASE, window_s=0.027)
"""The same, with windows as long as their audio."""
BUSY_BASE = replace(BASE, window_s=0.33, step_s=0.018, row_s=0.006)
"""`BASE` where other programs take most of the time."""


@dataclass(eq=False, slots=True, kw_only=True)
class VirtualWindow:
    """A window on its way through the engine."""

    id: int
    window: Window
    submitted_s: float
    on_started: Callable[[float], None]
    """Called with the seconds that it waited."""
    on_done: Callable[[], None]
    n_steps_left: int
    is_cancelled: bool = False


class VirtualEngine(FakeTranscriber):
    """The engine's batcher and counters, and the worker's rules around them; see `engine/scheduling/worker.py`."""

    def __init__(self, clock: Clock, speed: Speed, probe: float = 1.0) -> None:
        """`probe`: how many times longer than later windows those took that were measured at the start."""
        super().__init__()
        self.n_superseded = self.n_refused = 0
        """Interims and speculative finals that were replaced by newer ones, or found no room."""
        self._clock = clock
        self._speed = speed
        self._batcher = Batcher(speed.limits)
        self._stats = StatsRecorder()
        self._time = EncoderTime(self, probe * speed.window_s, speed.min_decode_share)
        n_full = speed.n_full_step
        full_step_s = speed.step_s + (n_full - 1) * speed.row_s
        self._decode_time = DecodeTime(n_full, probe * speed.n_steps * full_step_s / n_full)
        self._ids = itertools.count()
        self._waiting: dict[int, VirtualWindow] = {}
        self._running: list[VirtualWindow] = []
        self._is_busy = False

    @property
    def min_encode_work(self) -> float:
        return 0.0

    def encode_work(self, n_samples: int, is_interim: bool) -> float:
        return 1.0

    def stats(self) -> EngineStats:
        return self._stats.snapshot(
            n_waiting=self._batcher.n_waiting,
            window_decode_s=self._decode_time.window_s,
            work_waiting_s=0.0,
            final_work_waiting_s=0.0,
            running=len(self._running),
            utterance_encode_s=self._time.window_s,
        )

    def enter(
        self,
        session: str,
        priority: Priority,
        audio_s: float,
        on_started: Callable[[float], None],
        on_done: Callable[[], None],
    ) -> VirtualWindow:
        """Submit a window.

        Raises:
            EngineOverloaded: as the engine does.
        """
        samples = _AUDIO[: round(audio_s * SAMPLE_RATE)]
        submitted = VirtualWindow(
            id=next(self._ids),
            window=Window(samples=samples, session=session, priority=priority),
            submitted_s=self._clock.now_s,
            on_started=on_started,
            on_done=on_done,
            n_steps_left=self._speed.n_steps,
        )
        waiting = Waiting(id=submitted.id, session=session, priority=priority)
        try:
            older = self._batcher.add(waiting, self._clock.now_s)
        except EngineOverloaded:
            self.n_refused += 1
            raise
        if older:
            self.n_superseded += 1
            del self._waiting[older.id]
        self._waiting[submitted.id] = submitted
        self._wake()
        return submitted

    def cancel(self, submitted: VirtualWindow) -> None:
        """Withdraw a window, at any stage."""
        submitted.is_cancelled = True
        if self._batcher.remove(submitted.id):
            del self._waiting[submitted.id]

    def _wake(self) -> None:
        if not self._is_busy:
            self._is_busy = True
            self._clock.after(0.0, self._go_on)

    def _go_on(self) -> None:
        """Decide what to do next, when the device is free and no encoder call has begun since the last step."""
        self._running = [each for each in self._running if not each.is_cancelled]
        match self._decide(0.0):
            case Encode(ids):
                self._encode([], ids, self._clock.now_s)
            case Wait(for_s) if not self._running:
                self._is_busy = False
                if for_s is not None:
                    self._clock.after(for_s, self._wake)
            case _:
                self._step()

    def _decide(self, begun_encode_s: float) -> Encode | Wait | object:
        limits = self._speed.limits
        return self._batcher.decide(
            self._clock.now_s,
            Load(
                n_free_slots=limits.n_slots - len(self._running),
                n_running=len(self._running),
                window_encode_s=self._time.window_s,
                debt_fraction=self._time.debt_fraction,
                begun_encode_s=begun_encode_s,
                sessions=frozenset(each.window.session for each in self._running),
                joins_until_s=self._clock.now_s if begun_encode_s else None,
            ),
        )

    def _encode(self, batches: list[list[VirtualWindow]], ids: tuple[int, ...], since_s: float) -> None:
        batch = [self._waiting.pop(id) for id in ids]
        batches.append(batch)
        for each in batch:
            queued_s = self._clock.now_s - each.submitted_s
            self._stats.left_queue(each.window.priority, queued_s)
            each.on_started(queued_s)
        self._running += batch
        duration_s = self._speed.call_s + len(batch) * self._speed.window_s
        self._clock.after(duration_s, lambda: self._encoded(batches, since_s))

    def _encoded(self, batches: list[list[VirtualWindow]], since_s: float) -> None:
        decision = self._decide(self._clock.now_s - since_s)
        if isinstance(decision, Encode):
            self._encode(batches, decision.ids, since_s)
            return
        requests = cast("list[list[Request]]", batches)
        for batch, call_s in zip(requests, self._time.record(requests, self._clock.now_s - since_s), strict=True):
            self._stats.encoded(len(batch), 0.0, call_s, self._time.final_share(batch))
        self._step()

    def _step(self) -> None:
        n_rows = len(self._running)
        if not n_rows:
            self._go_on()
            return
        step_s = self._speed.step_s + (n_rows - 1) * self._speed.row_s
        n_finals = sum(not each.window.is_interim for each in self._running)
        self._clock.after(
            step_s, lambda: self._stepped(step_s, n_rows, n_finals / max(n_rows, self._speed.n_full_step))
        )

    def _stepped(self, step_s: float, n_rows: int, final_share: float) -> None:
        self._stats.launched(len(self._running))
        self._stats.stepped(step_s, final_share)
        self._time.record_step(step_s)
        done = []
        for each in self._running:
            each.n_steps_left -= 1
            if each.n_steps_left <= 0 and not each.is_cancelled:
                done.append(each)
        self._running = [each for each in self._running if each.n_steps_left > 0 and not each.is_cancelled]
        for each in done:
            self._stats.done()
            each.on_done()
        self._decode_time.record(step_s, n_rows, self._stats.n_done)
        self._go_on()


@dataclass(slots=True)
class SessionLog:
    """What one accepted session got."""

    opened_s: float
    speech_s: float = 0.0
    n_interims: int = 0
    final_waits_s: list[float] = field(default_factory=list)
    """How long each final waited for the engine."""
    final_s: list[float] = field(default_factory=list)
    """From the end of each utterance to its final text."""
    ended_by: str = ""
    """Why the server ended the session; empty if it did not."""


class VirtualService:
    """A server of one gateway, and callers who try again every few seconds until they are accepted."""

    def __init__(self, engine: VirtualEngine, clock: Clock, seed: int = 1, **settings: Any) -> None:
        self.clock = clock
        self.engine = engine
        self.settings = Settings(max_sessions=10_000, interim_interval_ms=1000, **settings)
        transcriber = cast(Transcriber, engine)
        self.admission = Admission(self.settings, Metrics(transcriber, None), AdmissionCounter(), transcriber, clock)
        self.logs: list[SessionLog] = []
        self.n_refused = 0
        self.random = random.Random(seed)
        self.utterance_s, self.pause_s = (1.5, 5.0), (1.0, 4.5)
        """The shortest and longest utterance, and pause after the final of one, in seconds."""
        self.call_s = math.inf
        """How long a caller stays at least, in seconds. It hangs up after an utterance, and another one calls."""

    def call_in(self, n: int, within_s: float) -> None:
        """Let callers call within this time."""
        for _ in range(n):
            self.clock.after(self.random.uniform(0, within_s), self._try)

    def _try(self) -> None:
        caller = Caller(self, f"s{len(self.logs)}")
        try:
            caller.admission.enter_context(self.admission.session(caller))
        except LimitExceeded:
            self.n_refused += 1
            self.clock.after(self.random.uniform(4.0, 6.0), self._try)
        else:
            self.logs.append(caller.log)
            caller.begin()


class Caller:
    """A caller with a session: speaks and is silent in turn, for as long as the test lasts."""

    def __init__(self, service: VirtualService, name: str) -> None:
        self.admission = ExitStack()
        self.log = SessionLog(service.clock.now_s)
        self._service = service
        self._clock = service.clock
        self._engine = service.engine
        self._name = name
        interval = service.settings.interim_interval_ms * SAMPLE_RATE // 1000
        self._schedule = InterimSchedule(interval, service.admission.interim_load.extra_s)
        self._interim: VirtualWindow | None = None
        self._is_decoding = False
        self._speech_from_s = self._speech_until_s = 0.0

    def drain(self) -> None: ...

    def abandon(self) -> None: ...

    def begin(self) -> None:
        self._clock.after(self._service.random.uniform(0.0, 6.0), self._speak)

    @property
    def _position(self) -> int:
        return round(self._clock.now_s * SAMPLE_RATE)

    def _speak(self) -> None:
        length_s = self._service.random.uniform(*self._service.utterance_s)
        self._speech_from_s, self._speech_until_s = self._clock.now_s, self._clock.now_s + length_s
        self.log.speech_s += length_s
        self._schedule.begin_utterance(self._position)
        self._clock.after(TICK_S, self._tick)

    def _tick(self) -> None:
        """A piece of audio has come. Half a second of silence ends the utterance."""
        now_s = self._clock.now_s
        if now_s >= self._speech_until_s + 0.5:
            self._end()
            return
        speech_until = round(min(now_s, self._speech_until_s) * SAMPLE_RATE)
        if not self._is_decoding and self._schedule.is_due(self._position, speech_until, SAMPLE_RATE // 2):
            self._schedule.note_submitted(self._position)
            self._submit_interim()
        self._clock.after(TICK_S, self._tick)

    def _submit_interim(self) -> None:
        length_s = self._clock.now_s - self._speech_from_s
        try:
            self._interim = self._engine.enter(
                self._name, Priority.INTERIM, length_s, self._note_decoding, self._note_answered
            )
        except EngineOverloaded:
            self._interim = None
            self._schedule.forget_submitted()

    def _note_decoding(self, queued_s: float) -> None:
        self._is_decoding = True

    def _note_answered(self) -> None:
        self._is_decoding, self._interim = False, None
        self.log.n_interims += 1
        self._schedule.note_answered(self._position)

    def _end(self) -> None:
        if self._interim:
            self._engine.cancel(self._interim)
            self._interim, self._is_decoding = None, False
        ended_s = self._clock.now_s

        def on_started(queued_s: float) -> None:
            self.log.final_waits_s.append(queued_s)
            self._service.admission.note_final(queued_s)
            if queued_s > self._service.settings.final_deadline_s:
                self.log.ended_by = "engine_stalled"

        def on_done() -> None:
            self.log.final_s.append(self._clock.now_s - ended_s)

        try:
            self._engine.enter(self._name, Priority.FINAL, ended_s - self._speech_from_s, on_started, on_done)
        except EngineOverloaded:
            self.log.ended_by = "overloaded"
        if self.log.ended_by:
            self.admission.close()
            return
        if ended_s - self.log.opened_s > self._service.call_s:
            self._clock.after(1.0, self._hang_up)
        else:
            self._clock.after(self._service.random.uniform(*self._service.pause_s), self._speak)

    def _hang_up(self) -> None:
        self.admission.close()
        self._service.call_in(1, 1.0)
