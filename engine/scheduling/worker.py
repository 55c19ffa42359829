"""The loop of the engine's thread: take windows, encode and prefill them, step what runs, hand out events.

It acts; the batcher decides. `submit` and `cancel` may be called from any thread, the rest from one.
"""

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from engine.api import (
    SAMPLE_RATE,
    EngineEvent,
    EngineStats,
    Priority,
    SegmentEvent,
    StartedEvent,
    SupersededEvent,
    Window,
)
from engine.config import EngineConfig
from engine.decoding.prompt import build_prompt
from engine.decoding.repetition import repeated_tokens
from engine.decoding.sampling import Draw
from engine.decoding.temperature_fallback import DecodingAttempt, TemperatureFallback
from engine.decoding.transcript import TokenTranscript, TranscriptInfo
from engine.decoding.word_timing import Alignment
from engine.errors import EngineError, EngineFailed
from engine.runner import Runner, SampledToken, Step, Transcribed
from engine.scheduling.batcher import Batcher, BatchLimits, Load, Waiting
from engine.scheduling.stats import StatsRecorder

logger = logging.getLogger(__name__)

Item = EngineEvent | EngineError
"""What a request is answered with; an error is terminal."""

_DECODE_SHARES = {"cpu": 0.33, "cuda": 0.2}
"""What `EngineConfig.min_decode_share` is by itself."""

_INTERIM_STALL = {"cpu": None, "cuda": 0.2}
"""The part of `EngineConfig.max_decode_stall_ms` that interims may take. A GPU encodes small batches as fast."""

_LEAD_S = 0.005
"""So long before the device has done with encoding, the prompts behind it are prepared."""
_JOINED_EVERY_S = 0.001
"""How often it is asked whether it has done."""
_WRITTEN_AT_ONCE = 8
"""Of many windows that end in the same step, so many are answered before it is seen who has come since."""

_ENCODE_TIME_MEMORY = 0.7
"""How much of the measured encoder time is kept when a new measurement comes."""


class FinishedAttempt(NamedTuple):
    """A reading of a window that has come to its end."""

    transcript: TokenTranscript
    control: tuple[int, ...]
    """The tokens before its output."""
    is_truncated: bool
    held: list[EngineEvent]
    """What it gave, where it is not yet known whether it counts."""


@dataclass(eq=False, slots=True)
class Request:
    """A checked window on its way through the engine."""

    window: Window
    max_tokens: int
    """Most tokens to decode, the forced prefix included."""
    put: Callable[[Item], None]
    """Where its items go, in order. The worker never calls it itself: it passes both on to `Deliver`."""
    id: int = field(default_factory=itertools.count().__next__)
    submitted_s: float = 0.0
    is_cancelled: bool = False
    n_steps: int = 0
    n_begun: int = 0
    """TemperatureFallback begun, the present one included."""
    readings: TemperatureFallback[FinishedAttempt] = field(init=False)
    language: str | None = None
    language_probabilities: dict[str, float] | None = None
    """Where the language was detected."""
    transcript: TokenTranscript | None = None
    """Of the present reading, once prefilled."""
    control: tuple[int, ...] = ()
    """The tokens before its output, once prefilled."""
    held: list[EngineEvent] = field(default_factory=list)
    """What the present reading gave, if several are tried."""
    has_segments_out: bool = False
    """A segment was handed out: what was read cannot be read again."""

    def __post_init__(self) -> None:
        self.readings = TemperatureFallback(self.window.options)
        self.language = self.window.options.language

    @property
    def audio_s(self) -> float:
        return len(self.window.samples) / SAMPLE_RATE


Deliver = Callable[[list[tuple[Request, Item]]], None]
"""Hands over all items of an engine step at once."""


class Worker:
    """Owns a runner. `run` is the body of the engine's thread."""

    def __init__(self, runner: Runner, config: EngineConfig, window_encode_s: float, deliver: Deliver) -> None:
        """Args:
        window_encode_s: seconds of encoder time per full window, as measured while warming up.
        """
        self.stats = StatsRecorder()
        self._runner = runner
        self._deliver = deliver
        default_share = _DECODE_SHARES[runner.device.type]
        self._min_decode_share = default_share if config.min_decode_share is None else config.min_decode_share
        interim_part, stall_s = _INTERIM_STALL[runner.device.type], config.max_decode_stall_ms / 1000
        limits = BatchLimits(
            config.max_waiting,
            config.max_encode_batch,
            config.max_wait_ms / 1000,
            stall_s,
            runner.slots.n_free,
            runner.n_filling,
            None if interim_part is None else interim_part * stall_s,
        )
        # Guarded by `_changed`, which is notified when there may be something new to do.
        self._changed = threading.Condition()
        self._batcher = Batcher(limits)
        self._waiting: dict[int, Request] = {}
        self.is_closing = False
        """True for good once closed or failed: nothing is taken in any more."""
        self._failure: BaseException | None = None
        # Of the engine's thread alone.
        self._running: dict[int, Request] = {}
        """By slot."""
        self._outbox: list[tuple[Request, Item]] = []
        self._again: dict[int, Request] = {}
        """By slot: to be read once more. Empty between two steps."""
        self._unaligned: dict[int, tuple[Request, FinishedAttempt]] = {}
        """By slot: decoded, but for the times of its words. Empty between two steps."""
        self._ended: deque[tuple[Request, FinishedAttempt, Alignment | None]] = deque()
        """FinishedAttempt and aligned, their slots free, but not yet answered."""
        self._in_flight: deque[tuple[Step, dict[int, tuple[Request, int]]]] = deque()
        """Steps that were launched and not yet read, with whose they are, and which reading of theirs, by slot."""
        self._window_encode_s = window_encode_s
        self._owed_s = 0.0

    def submit(self, request: Request) -> None:
        """Queue a request.

        Raises:
            EngineOverloaded: the queue is full.
            EngineFailed: the engine has died or was closed.
        """
        window = request.window
        share = self._runner.encode_share(len(window.samples), window.is_interim)
        waiting = Waiting(request.id, window.session, window.channel, window.priority, share)
        with self._changed:
            if self.is_closing:
                raise self._closed_error()
            request.submitted_s = time.monotonic()
            older = self._batcher.add(waiting, request.submitted_s)
            self._waiting[request.id] = request
            superseded = self._waiting.pop(older.id) if older else None
            self._changed.notify()
        if superseded:
            self.stats.superseded()
            self._deliver([(superseded, SupersededEvent())])

    def cancel(self, request: Request) -> None:
        """Stop working on a request, at any stage; one that has ended already stays as it is."""
        with self._changed:
            request.is_cancelled = True
            if self._batcher.remove(request.id):
                del self._waiting[request.id]
                self.stats.cancelled()

    def close(self) -> None:
        """Let `run` return after its present step. What is open then fails."""
        with self._changed:
            self.is_closing = True
            self._changed.notify()

    def snapshot(self) -> EngineStats:
        with self._changed:
            return self.stats.snapshot(
                waiting_finals=self._batcher.n_waiting(Priority.FINAL),
                waiting_interims=self._batcher.n_waiting(Priority.INTERIM),
                running=len(self._running),
            )

    def run(self) -> None:
        """Work until closed. Should anything fail, every open and later request fails with it."""
        try:
            while not self.is_closing:
                self._step()
            self._answer(len(self._ended))
        except Exception as error:
            logger.exception("the engine has died")
            self._failure = error
        finally:
            self._fail_all()

    def _step(self) -> None:
        batch = self._take()
        if batch:
            self._admit(batch)
        if self._running:
            self._decode()
        else:
            # What is under way belongs to nobody any more.
            self._in_flight.clear()
        self._answer(_WRITTEN_AT_ONCE)

    def _take(self, held_up_s: float = 0.0, until_s: float = 0.0) -> list[Request]:
        """The windows to encode now, after so much encoder work.

        Sleeps while there is nothing at all to do, and up to a time while the device encodes, as whoever comes by then
        costs the others nothing, unless so many have come that no more are needed to keep the device busy.
        """
        is_joining = until_s > 0
        with self._changed:
            self._drop_cancelled()
            while True:
                now_s = time.monotonic()
                is_early = now_s < until_s and self._runner.is_encoding()
                load = self._load(held_up_s)
                if not is_early or self._batcher.fills_device(load):
                    ids = self._batcher.take(now_s, load)
                    if ids:
                        break
                if self.is_closing or (self._ended and not self._running):
                    return []
                if is_early and self._running:
                    self._changed.wait(_JOINED_EVERY_S)
                elif is_joining or self._running:
                    return []
                else:
                    self._changed.wait(self._batcher.ready_in_s(time.monotonic()))
            return [self._waiting.pop(id) for id in ids]

    def _load(self, held_up_s: float) -> Load:
        n_free, n_running = self._runner.slots.n_free, len(self._running)
        sessions = frozenset(request.window.session for request in self._running.values())
        return Load(n_free, n_running, self._window_encode_s, self._owed_s, held_up_s, sessions)

    def _admit(self, batch: list[Request]) -> None:
        """Encode a batch, and others while there is time, then prefill what of them is still wanted."""
        start_s = time.monotonic()
        batches: list[list[Request]] = []
        new: dict[int, Request] = {}
        held_up_s = 0.0
        while batch:
            slots = {self._runner.slots.allocate(): request for request in batch}
            self._running |= slots
            new |= slots
            now_s = time.monotonic()
            for request in batch:
                queued_s = now_s - request.submitted_s
                self.stats.left_queue(request.window.priority, queued_s)
                self._outbox.append((request, StartedEvent(queued_s, len(batch))))
            self._hand_out()
            windows = [request.window for request in batch]
            self._runner.encode(
                [window.samples for window in windows], list(slots), [window.is_interim for window in windows]
            )
            batches.append(batch)
            held_up_s += self._share(batch) * self._window_encode_s
            self._collect(leave=0)
            self._answer(len(self._ended))
            batch = self._take(held_up_s, start_s + held_up_s - _LEAD_S)
        self._drop_cancelled()
        new = {slot: request for slot, request in new.items() if self._running.get(slot) is request}
        if new:
            self._prefill(new)
        self._measure_encode(batches, time.monotonic() - start_s)

    def _prefill(self, new: dict[int, Request]) -> None:
        unknown = {slot: request for slot, request in new.items() if request.language is None}
        if unknown and self._runner.checkpoint.generation.is_multilingual:
            detected = self._runner.detect_languages(list(unknown))
            for request, probabilities in zip(unknown.values(), detected, strict=True):
                request.language_probabilities = probabilities
                request.language = max(probabilities, key=lambda language: probabilities[language])
        self._begin(new)
        self._end_readings()

    def _begin(self, requests: dict[int, Request]) -> None:
        """Prefill the present attempt of each request, in one pass."""
        checkpoint = self._runner.checkpoint
        attempts = [request.readings.present for request in requests.values()]
        prompts = []
        for request, attempt in zip(requests.values(), attempts, strict=True):
            options = request.window.options
            if not attempt.has_previous_text:
                options = replace(options, previous_text="", hotwords=())
            prompt = build_prompt(checkpoint, options, request.language)
            prompts.append(replace(prompt, draft=_draft(request, attempt)))
        prefilled = self._runner.prefill(
            list(requests),
            prompts,
            [request.window.options.timestamps for request in requests.values()],
            [_draw(request, attempt) for request, attempt in zip(requests.values(), attempts, strict=True)],
        )
        for request in requests.values():
            request.n_begun += 1
        if self._runner.n_ahead and not self._in_flight:
            # The device goes on while the texts of the prompts are made.
            self._launch()
        n_accepted = sum(len(result.samples) - 1 for result in prefilled)
        self.stats.prefilled(len(requests), sum(len(prompt.draft) for prompt in prompts), n_accepted)
        for (slot, request), attempt, prompt, result in zip(
            requests.items(), attempts, prompts, prefilled, strict=True
        ):
            options = request.window.options
            request.control, request.held = prompt.control, []
            info = TranscriptInfo(
                request.audio_s,
                request.language,
                options.timestamps,
                result.no_speech_prob,
                options.word_times,
                attempt.temperature,
                request.language_probabilities,
            )
            request.transcript = TokenTranscript(checkpoint.tokenizer, info)
            for token in options.prefix:
                self._push(request, request.transcript.push(token, None))
            for sample in result.samples:
                if self._advance(slot, request, request.transcript, sample):
                    break

    def _decode(self) -> None:
        """One token for all that run."""
        start_s = time.monotonic()
        if self._in_flight and all(map(self._ends_soon, self._running.values())):
            self._collect(leave=0)
            return
        self._launch()
        self._collect(leave=self._runner.n_ahead)
        elapsed_s = time.monotonic() - start_s
        self.stats.stepped(elapsed_s)
        self._owed_s -= elapsed_s

    def _launch(self) -> None:
        step = self._runner.launch()
        self._in_flight.append(
            (step, {slot: (self._running[slot], self._running[slot].n_begun) for slot in step.slots})
        )
        self.stats.launched(len(step.slots))

    def _ends_soon(self, request: Request) -> bool:
        """The steps under way are certain to be its last."""
        transcript = request.transcript
        return transcript is not None and transcript.n_tokens + len(self._in_flight) >= request.max_tokens

    def _collect(self, leave: int) -> None:
        """Take the tokens of launched steps, except of so many of the last."""
        while len(self._in_flight) > leave:
            step, owners = self._in_flight.popleft()
            for slot, sample in self._runner.collect(step).items():
                request, n_begun = owners[slot]
                # Else the reading came to its end while this step was under way.
                if self._running.get(slot) is request and request.n_begun == n_begun:
                    assert request.transcript is not None
                    request.n_steps += 1
                    self._advance(slot, request, request.transcript, sample)
            self._end_readings()

    def _advance(self, slot: int, request: Request, transcript: TokenTranscript, sample: SampledToken) -> bool:
        """Take a sampled token; the last one ends the reading, and so does a loop. Whether it did."""
        self._push(request, transcript.push(sample.token, sample.logprob, sample.attention_peak_s))
        eot = self._runner.checkpoint.tokenizer.eot
        is_ended = sample.token == eot
        # Only more text makes a loop: a forced prefix that repeats itself may still come to its end.
        n_repeated = repeated_tokens(transcript.text_tokens) if sample.token < eot else 0
        if n_repeated:
            transcript.cut_loop(n_repeated)
        is_truncated = not is_ended and not n_repeated and transcript.n_tokens >= request.max_tokens
        if not (is_ended or n_repeated or is_truncated):
            return False
        self._judge(slot, request, FinishedAttempt(transcript, request.control, is_truncated, request.held))
        return True

    def _judge(self, slot: int, request: Request, read: FinishedAttempt) -> None:
        """Find out whether the window is to be read again."""
        options, transcript = request.window.options, read.transcript
        counting: FinishedAttempt | None = read
        if transcript.is_repetitive or request.readings.are_held:
            can_drop_text = not request.has_segments_out and not options.prefix
            counting = request.readings.judge(transcript.outcome, read, may_drop_previous_text=can_drop_text)
        if counting is None:
            self._again[slot] = request
        elif counting.transcript.n_tokens and (options.word_times or counting.transcript.is_repetitive):
            self._unaligned[slot] = (request, counting)
        else:
            self._finish(slot, request, counting)

    def _end_readings(self) -> None:
        """Begin the next readings of what ended in this step, and finish what needs none."""
        while self._again:
            again, self._again = self._again, {}
            self._begin(again)
        ended, self._unaligned = self._unaligned, {}
        if not ended:
            return
        # Times of words, and how far the text of a loop reaches, are found in one pass.
        transcribed = [
            Transcribed(read.control, read.transcript.tokens, len(request.window.samples))
            for request, read in ended.values()
        ]
        alignments = self._runner.align(list(ended), transcribed)
        for (slot, (request, read)), alignment in zip(ended.items(), alignments, strict=True):
            self._finish(slot, request, read, alignment)

    def _finish(self, slot: int, request: Request, read: FinishedAttempt, alignment: Alignment | None = None) -> None:
        self._release(slot)
        self.stats.done()
        self._ended.append((request, read, alignment))

    def _answer(self, most: int) -> None:
        """Make the last events of so many windows that have ended, and hand out all there are."""
        for _ in range(min(most, len(self._ended))):
            request, read, alignment = self._ended[0]
            events = [*read.held, *read.transcript.finish(read.is_truncated, request.n_steps, alignment)]
            self._outbox += [(request, event) for event in events]
            self._ended.popleft()
        self._hand_out()

    def _push(self, request: Request, events: list[EngineEvent]) -> None:
        """Hand out what a reading gives, or hold it until that is known to count."""
        if not events:
            return
        if request.readings.are_held:
            request.held += events
            return
        request.has_segments_out |= any(isinstance(event, SegmentEvent) for event in events)
        self._outbox += [(request, event) for event in events]

    def _drop_cancelled(self) -> None:
        for slot, request in list(self._running.items()):
            if request.is_cancelled:
                self._release(slot)
                self.stats.cancelled()

    def _release(self, slot: int) -> None:
        self._runner.release(slot)
        del self._running[slot]

    def _measure_encode(self, batches: list[list[Request]], elapsed_s: float) -> None:
        full_windows = sum(map(self._share, batches))
        for batch in batches:
            own_s = elapsed_s * self._share(batch) / full_windows
            self.stats.encoded(len(batch), sum(request.audio_s for request in batch), own_s)
        memory = _ENCODE_TIME_MEMORY
        self._window_encode_s = memory * self._window_encode_s + (1 - memory) * elapsed_s / full_windows
        self._owed_s = elapsed_s * self._min_decode_share / (1 - self._min_decode_share)

    def _share(self, batch: list[Request]) -> float:
        """What a call for these windows takes, in full windows."""
        windows = [request.window for request in batch]
        work = sum(self._runner.encode_share(len(window.samples), window.is_interim) for window in windows)
        return max(work, self._runner.least_share)

    def _hand_out(self) -> None:
        if self._outbox:
            outbox, self._outbox = self._outbox, []
            self._deliver(outbox)

    def _fail_all(self) -> None:
        with self._changed:
            self.is_closing = True
            ended = [request for request, _, _ in self._ended]
            waiting = [self._waiting.pop(id) for id in self._batcher.clear()]
            open_requests = [*ended, *self._running.values(), *waiting]
        self._outbox += [(request, self._closed_error()) for request in open_requests if not request.is_cancelled]
        self._hand_out()
        # Last, as it may be what failed before: nobody must wait for it.
        with suppress(Exception):
            for slot in list(self._running):
                self._release(slot)

    def _closed_error(self) -> EngineFailed:
        if self._failure is None:
            return EngineFailed("the engine was closed")
        error = EngineFailed(f"the engine has died: {self._failure!r}")
        error.__cause__ = self._failure
        return error


def _draw(request: Request, attempt: DecodingAttempt) -> Draw:
    window = request.window
    return Draw(attempt.temperature, attempt.seed, len(window.samples) if window.options.attention_times else 0)


def _draft(request: Request, attempt: DecodingAttempt) -> tuple[int, ...]:
    """What of the draft can be of use to an attempt.

    Draws at a temperature are not to be foreseen, and the bonus of hotwords depends on what was written before.
    """
    options = request.window.options
    if attempt.temperature > 0 or options.hotwords:
        return ()
    return options.draft[: request.max_tokens - len(options.prefix) - 1]
