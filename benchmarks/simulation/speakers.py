"""Callers in simulated time: each speaks, and its session asks engines for interims and finals.

The schedule of interims and the constants of speculative finals are the service's own (`app/session/`). What a session
does between them is simplified: there is no audio and no text, a detector that hears speech as it was spoken, one
window for each utterance, and no pause inside an utterance.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from app.service.settings import Settings
from app.session.endpointing import FRAME_SAMPLES, ONSET_VOICED
from app.session.interim_schedule import InterimSchedule, no_extra_interval
from app.session.speculation import (
    FLUSH_TAIL_SAMPLES,
    LEAST_SUCCESS,
    N_SMOOTHED,
    RETRY_AFTER,
    TAIL_SAMPLES,
)
from benchmarks.live.load_clients import FLUSH_AFTER_S
from benchmarks.recordings import EDGE_S, PAUSE_S
from benchmarks.simulation.clock import Clock
from benchmarks.simulation.engine import Order
from engine.api import SAMPLE_RATE, Priority

Span = tuple[float, float]
"""Start and end of an utterance, in seconds since the caller began."""
FRAME_S = FRAME_SAMPLES / SAMPLE_RATE
PADDING_S = 0.3
"""Audio before the speech that a window begins with, in seconds."""
DEADLINE_S = Settings().final_deadline_s
"""How long a session waits for a final before the service ends it, in seconds."""
DETECTOR_LATE_S = 0.1
"""How late the detector notices the end of speech, in seconds. A caller that flushes knows it at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What all callers of a run do, and what the service does for them."""

    talk: float = 0.5
    """The share of a call that is speech."""
    interim_interval_s: float = 1.0
    silence_s: float | None = None
    """The silence that ends an utterance; `None`: the caller ends it with a flush after `FLUSH_AFTER_S`."""
    chunk_s: float = 0.1
    """Length of the chunks that callers send."""
    n_steps: int = 26
    """Decode steps of a window after its prefill."""
    speculates: bool = True
    """Whether the service decodes finals ahead at pauses."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """What sessions know of the service: the way to the engines, and how many interims these have time for."""

    submit: "Submit"
    extra_interval_s: Callable[[], float] = no_extra_interval


@dataclass(slots=True, kw_only=True)
class Log:
    """What the callers of a run saw."""

    interims: list[tuple[float, float]] = field(default_factory=list)
    """For each interim: when its newest sample was spoken, and how many seconds later it came."""
    finals: list[tuple[float, float]] = field(default_factory=list)
    """For each final: when its utterance ended, and how many seconds later it came."""
    n_utterances: int = 0
    n_speculative: int = 0
    """Finals whose text was decoded ahead."""
    n_sessions_ended: int = 0
    """Finals for which the service would not have waited: it ends the session."""


class Ticket(Protocol):
    """A window that was submitted."""

    def cancel(self) -> None:
        """Withdraw it, at any stage."""
        ...


Submit = Callable[[Order], Ticket]
"""Gives a window to an engine."""


@dataclass(slots=True, eq=False, kw_only=True)
class _Request:
    """A window of a session, as long as its answer is expected."""

    audio_end_s: float
    is_decoding: bool = False
    is_done: bool = False
    is_ahead: bool = False
    """Whether it is a speculative final."""
    is_final: bool = False
    """Whether the utterance has ended, and this is its text."""
    ticket: Ticket | None = None


@dataclass(slots=True)
class _Success:
    """How often speculative finals came in time: the rule of `app/session/speculation.py` that spares a busy engine."""

    fraction: float = 1.0
    n_passed_over: int = 0

    @property
    def is_good(self) -> bool:
        return self.fraction >= LEAST_SUCCESS or self.n_passed_over >= RETRY_AFTER

    def add(self, *, was_tried: bool, was_used: bool) -> None:
        if was_tried:
            self.fraction += (was_used - self.fraction) / N_SMOOTHED
            self.n_passed_over = 0
        else:
            self.n_passed_over += 1


class Caller:
    """One caller and its session."""

    def __init__(
        self,
        name: str,
        begin_s: float,
        utterances: Iterable[Span],
        habits: Habits,
        clock: Clock,
        gateway: Gateway,
        log: Log,
    ) -> None:
        """Make a caller.

        Args:
            name: the session's.
            begin_s: when it begins; its chunks are sent at multiples of their length after that.
            utterances: what it says, in order.
            habits: what it has in common with others.
            clock: the simulated time.
            gateway: gives windows to engines.
            log: receives what it sees.
        """
        self._name = name
        self._begin_s = begin_s
        self._utterances = iter(utterances)
        self._habits = habits
        self._clock = clock
        self._submit = gateway.submit
        self._log = log
        silence_s = 0.5 if habits.silence_s is None else habits.silence_s
        interval = _samples(habits.interim_interval_s)
        self._schedule = InterimSchedule(interval, _samples(silence_s), gateway.extra_interval_s)
        self._newest: _Request | None = None
        """The newest interim, until it is answered."""
        self._ahead: _Request | None = None
        """The speculative final of the open utterance."""
        self._success = _Success()
        self._n_finals_open = 0
        self._next_utterance()

    # What the caller says.

    def _next_utterance(self) -> None:
        span = next(self._utterances, None)
        if span is None:
            return
        self._schedule.begin_utterance(_samples(span[0]))
        self._newest = self._ahead = None
        self._log.n_utterances += 1
        audible_s = span[0] + ONSET_VOICED * FRAME_S
        self._call_at(self._chunk_after(audible_s), lambda: self._hear(span, audible_s))

    def _chunk_after(self, position_s: float) -> float:
        """When the audio up to a position has arrived."""
        return math.ceil(position_s / self._habits.chunk_s - 1e-6) * self._habits.chunk_s

    def _call_at(self, position_s: float, event: Callable[[], None]) -> None:
        self._clock.call_at(self._begin_s + position_s, event)

    @property
    def _position_s(self) -> float:
        return self._clock.now_s - self._begin_s

    def _hear(self, span: Span, audible_s: float) -> None:
        """A chunk has arrived: process its frames, and wait for the next one or for the end of the utterance."""
        until_s, end_s = self._position_s, self._end_s(span)
        for position_s in _frames(audible_s, min(until_s, end_s)):
            self._on_frame(span, position_s)
        if until_s >= end_s - 1e-9:
            self._end_utterance(span, end_s)
            return
        flush_s = end_s if self._habits.silence_s is None else float("inf")
        following_s = self._chunk_after(until_s + self._habits.chunk_s / 2)
        self._call_at(min(following_s, flush_s), lambda: self._hear(span, until_s))

    def _end_s(self, span: Span) -> float:
        """The position at which the service takes an utterance for ended."""
        if self._habits.silence_s is None:
            return span[1] + FLUSH_AFTER_S
        return span[1] + DETECTOR_LATE_S + self._habits.silence_s

    def _audio_end_s(self, span: Span) -> float:
        """The end of the audio from which the final text is decoded."""
        if self._habits.silence_s is None:
            return span[1] + FLUSH_TAIL_SAMPLES / SAMPLE_RATE
        return span[1] + DETECTOR_LATE_S + TAIL_SAMPLES / SAMPLE_RATE

    def _on_frame(self, span: Span, position_s: float) -> None:
        audio_end_s = self._audio_end_s(span)
        is_possible = self._habits.speculates and self._ahead is None and not self._n_finals_open
        if is_possible and position_s >= audio_end_s:
            self._begin_ahead(span, audio_end_s)
        is_ahead_open = self._ahead is not None and not self._ahead.is_done
        if self._n_finals_open or is_ahead_open or (self._newest and self._newest.is_decoding):
            return
        if self._schedule.is_due(_samples(position_s), _samples(min(position_s, span[1]))):
            self._schedule.note_submitted(_samples(position_s))
            self._newest = _Request(audio_end_s=position_s)
            self._ask(Priority.INTERIM, span, self._newest)

    # What the service asks for.

    def _ask(self, priority: Priority, span: Span, request: _Request) -> None:
        order = Order(
            session=self._name,
            priority=priority,
            n_samples=_samples(request.audio_end_s - max(span[0] - PADDING_S, 0.0)),
            n_steps=self._habits.n_steps,
            on_started=lambda: self._on_started(request),
            on_done=lambda: self._on_done(span, request),
            on_dropped=lambda: self._on_dropped(span, request),
        )
        request.ticket = self._submit(order)

    def _begin_ahead(self, span: Span, audio_end_s: float) -> None:
        if not self._success.is_good:
            # Nothing is asked for, and the interim of the pause may come.
            self._ahead = _Request(audio_end_s=audio_end_s, is_ahead=True, is_done=True)
            return
        self._withdraw_interim()
        self._schedule.note_submitted(_samples(self._position_s))
        self._ahead = _Request(audio_end_s=audio_end_s, is_ahead=True)
        self._ask(Priority.SPECULATIVE, span, self._ahead)

    def _withdraw_interim(self) -> None:
        """Withdraw the interim that waits; one that is being decoded still comes."""
        if self._newest and not self._newest.is_decoding:
            _cancel(self._newest)
            self._newest = None

    def _end_utterance(self, span: Span, end_s: float) -> None:
        if self._newest:
            _cancel(self._newest)
            self._newest = None
        ahead, self._ahead = self._ahead, None
        was_tried = ahead is not None and ahead.ticket is not None
        is_used = was_tried and ahead is not None and (ahead.is_done or ahead.is_decoding)
        if self._habits.speculates:
            self._success.add(was_tried=was_tried, was_used=is_used)
        if ahead and is_used:
            self._log.n_speculative += 1
            self._n_finals_open += 1
            ahead.is_final = True
            if ahead.is_done:
                self._on_final(span)
        else:
            if ahead:
                _cancel(ahead)
            self._n_finals_open += 1
            self._ask(Priority.FINAL, span, _Request(audio_end_s=min(end_s, self._audio_end_s(span)), is_final=True))
        self._next_utterance()

    # What engines answer.

    def _on_started(self, request: _Request) -> None:
        request.is_decoding = True

    def _on_done(self, span: Span, request: _Request) -> None:
        request.is_done = True
        if request.is_final:
            self._on_final(span)
            return
        if request is self._newest:
            self._newest = None
        elif request is not self._ahead:
            return
        self._schedule.note_answered(_samples(self._position_s))
        self._log.interims.append((self._begin_s + request.audio_end_s, self._position_s - request.audio_end_s))

    def _on_dropped(self, span: Span, request: _Request) -> None:
        if request.is_final and request.is_ahead:
            # Its engine has gone: the utterance is decoded anew.
            self._ask(Priority.FINAL, span, _Request(audio_end_s=request.audio_end_s, is_final=True))
        elif request is self._newest or request is self._ahead:
            self._schedule.forget_submitted()
            self._newest = None if request is self._newest else self._newest
            self._ahead = None if request is self._ahead else self._ahead

    def _on_final(self, span: Span) -> None:
        self._n_finals_open -= 1
        self._log.n_sessions_ended += self._position_s - self._end_s(span) > DEADLINE_S
        self._log.finals.append((self._begin_s + span[1], self._position_s - span[1]))


def _cancel(request: _Request) -> None:
    if request.ticket:
        request.ticket.cancel()


def _samples(seconds: float) -> int:
    return round(seconds * SAMPLE_RATE)


def _frames(after_s: float, until_s: float) -> Iterator[float]:
    """The ends of the frames after one position and up to another."""
    first, last = int(after_s / FRAME_S + 1e-6) + 1, int(until_s / FRAME_S + 1e-6)
    return (number * FRAME_S for number in range(first, last + 1))


def endless_speech(lengths_s: Sequence[float], talk: float, random: np.random.Generator) -> Iterator[Span]:
    """Utterances of these lengths in random order, with random pauses, so that speech fills the share `talk`.

    Raises:
        ValueError: the shortest pauses leave room for a smaller share only.
    """
    mean_s = float(np.mean(lengths_s))
    least_s = PAUSE_S + 2 * EDGE_S
    spare_s = mean_s * (1 - talk) / talk - least_s
    if spare_s < 0:
        raise ValueError(f"talk: expected at most {mean_s / (mean_s + least_s):.2f}, got {talk:g}")
    # As if the call had gone on for a while.
    at_s = float(random.uniform(0, mean_s / talk))
    for _ in itertools.count():
        length_s = float(random.choice(lengths_s))
        yield at_s, at_s + length_s
        at_s += length_s + least_s + float(random.exponential(spare_s))
