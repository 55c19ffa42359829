"""One channel of a session: audio into speech, speech into utterances, utterances into windows, and their interims.

A sans-I/O part of the session core: it counts samples, takes decoded audio and engine events, and acts through the
session. Windows that have ended go to `app/session/finals.py`.
"""

from dataclasses import dataclass, replace
from itertools import chain
from typing import assert_never

import numpy as np

from app.media.pcm import SampleBuffer, Samples
from app.session import commands, events
from app.session.coverage import Span, duration
from app.session.endpointing import (
    FRAME_SAMPLES,
    ONSET_WINDOW,
    Endpointer,
    SpeechBegan,
    SpeechDetector,
    SpeechEnded,
    quietest,
)
from app.session.finals import DecodeRequest, FinalOptions, Finals, FinalWindow, PendingUtterance, SessionPort
from app.session.interims import InterimSchedule
from app.session.stabilizer import MakePolicy, Stabilizer
from engine import api
from engine.api import SAMPLE_RATE, WINDOW_SAMPLES

# A window of this length ends at the next pause; how long that must be falls from the endpoint's silence to this.
PAUSE_WANTED_SAMPLES = 2 * WINDOW_SAMPLES // 3
LEAST_PAUSE_MS = 60
# A window that found no pause is cut in the middle of its quietest stretch of this length.
QUIET_SPAN_SAMPLES = 60 * SAMPLE_RATE // 1000
# Gaps of the detected speech from this length on are silence; shorter ones lie between words.
SPEECH_GAP_SAMPLES = SAMPLE_RATE // 5
# In manual mode an utterance begins once there is so much audio for it: the rest of a frame that was left when the last
# one was flushed is none.
MANUAL_SAMPLES = SAMPLE_RATE // 10

_NO_SAMPLES: Samples = np.zeros(0, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class ChannelOptions:
    """What a channel needs to know of `start` and of the operator's settings."""

    endpointing: commands.Endpointing
    prompt: str
    """Shown to the model while an utterance has no text of its own."""
    first_prompt: str
    """The same for the first utterance, where it is not empty: what was said before a reconnect."""
    interim_samples: int | None
    """Least audio between two interims; `None` for no interims."""
    make_policy: MakePolicy
    asked: DecodeRequest
    finals: FinalOptions

    @property
    def is_manual(self) -> bool:
        return self.endpointing.mode == "manual"

    @property
    def silence_samples(self) -> int:
        """What ends an utterance; in manual mode more than a window holds, as none does."""
        return WINDOW_SAMPLES if self.is_manual else self.endpointing.silence_ms * SAMPLE_RATE // 1000

    @property
    def padding_samples(self) -> int:
        return self.endpointing.padding_ms * SAMPLE_RATE // 1000

    @property
    def idle_samples(self) -> int:
        """Audio kept while nobody speaks: the padding of speech that the detector has yet to announce."""
        return self.padding_samples + ONSET_WINDOW * FRAME_SAMPLES


@dataclass(slots=True)
class _OpenWindow:
    """The window that is still taking in audio."""

    utterance: PendingUtterance
    start: int
    speech: list[Span]
    stabilizer: Stabilizer
    interim_job: int | None = None
    replaced_job: int | None = None
    """A reading that `interim_job` has replaced in the queue, until the engine says so."""
    interim_end: int = 0
    """Up to where the newest reading goes, answered or not."""
    interim_has_started: bool = False


class Channel:
    """Audio in by `take`, engine events in by `engine_event`; what comes of it goes out through the session."""

    def __init__(
        self, number: int, session: SessionPort, detector: SpeechDetector, options: ChannelOptions, done_until: int
    ) -> None:
        """Args:
        done_until: what lies before this position is final already, in an earlier session, and is not heard.
        """
        self.number = number
        self.finals = Finals(number, session, options.finals)
        self._session = session
        self._options = options
        endpointing = options.endpointing
        self._endpointer = Endpointer(detector, endpointing.silence_ms, endpointing.min_utterance_s)
        interim_samples = options.interim_samples
        self._interims = InterimSchedule(interim_samples, options.silence_samples) if interim_samples else None
        self._read_until = 0
        """Behind the audio of the newest interim that was answered."""
        self._buffer = SampleBuffer()
        self._open: _OpenWindow | None = None
        self._done_until = done_until
        self._last_cut = done_until
        self._prompt = options.first_prompt or options.prompt

    # Audio.

    def take(self, samples: Samples) -> None:
        """Take in audio, frame by frame, so that what happens does not depend on how it was cut."""
        n_done = min(max(self._done_until - self._buffer.end, 0), len(samples))
        if n_done:
            samples = np.concatenate((np.zeros(n_done, dtype=np.float32), samples[n_done:]))
        self._buffer.append(samples)
        while self._buffer.end - self.position >= FRAME_SAMPLES:
            self._frame(self._endpointer.take(self._buffer.view(self.position, self.position + FRAME_SAMPLES)))

    def flush(self, flush_id: events.FlushId | None = None) -> None:
        """End the open utterance now, and one that has begun without having been announced."""
        began = self._endpointer.flush()
        if began:
            self._speech_began(began)
        self._endpointer.end()
        if self._open:
            self._end(self._open, flush_id)

    def discard(self) -> None:
        """Forget all audio that is not part of an utterance that has ended."""
        if self._open:
            self._note_speech(self._open)
            self._close_window(self._open, self.position, is_last=True, is_discarded=True)
            self._open = None
        self._endpointer.forget()
        self._last_cut = max(self._last_cut, self.position)
        self._buffer.forget_before(self.position)

    def configure(self, options: ChannelOptions) -> None:
        """Hear utterances from the next one on in another way; another mode ends the open one first."""
        if options.is_manual != self._options.is_manual:
            self.flush()
            self._last_cut = max(self._last_cut, self._buffer.start)
        self._options = options
        self._prompt = options.prompt
        self._endpointer.adjust(options.endpointing.silence_ms, options.endpointing.min_utterance_s)
        if self._interims:
            self._interims.adjust(options.silence_samples)

    def finish(self) -> None:
        """No more audio: look at the last, incomplete frame too, then flush."""
        n_rest = self._buffer.end - self.position
        if n_rest:
            self.take(np.zeros(FRAME_SAMPLES - n_rest, dtype=np.float32))
        self.flush()

    def abandon(self, acknowledged: tuple[float, ...]) -> None:
        """No more text will come: end what was announced with what there is."""
        window, self._open = self._open, None
        ended = self._ended(window, self.position, _NO_SAMPLES, is_last=True) if window else None
        if window:
            self._send_endpoint(window, self.position)
        self.finals.abandon(ended, acknowledged)

    @property
    def position(self) -> int:
        """Behind the last frame that was looked at."""
        return self._endpointer.position

    @property
    def behind_samples(self) -> int:
        """How far the audio is ahead of its text: of the first window whose final is due, or of speech that no reading
        which was answered has heard, where interims were asked for.
        """
        oldest = self.finals.oldest
        since = [oldest.end] if oldest else []
        if self._interims:
            speech = chain(self.finals.speech(), self._open.speech if self._open else ())
            unread = next((max(start, self._read_until) for start, end in speech if end > self._read_until), None)
            since += [] if unread is None else [unread]
        return self.position - min(since, default=self.position)

    @property
    def final_until(self) -> int:
        """Position before which nothing will be said any more; never decreases."""
        if self.finals.oldest:
            return self.finals.oldest.start
        if self._open:
            return self._open.start
        return max(self._buffer.start, self._last_cut)

    def _frame(self, change: SpeechBegan | SpeechEnded | None) -> None:
        if self._options.is_manual and not self._open and self.position - self._last_cut >= MANUAL_SAMPLES:
            self._open = self._announce(self._last_cut, self._last_cut, [])
        match change:
            case SpeechBegan():
                self._speech_began(change)
            case SpeechEnded():
                if self._open and not self._options.is_manual:
                    self._end(self._open)
            case None:
                pass
            case _:
                assert_never(change)
        if self._open:
            self._note_speech(self._open)
            cut = self._cut(self._open)
            if cut is not None:
                self._cut_window(self._open, cut)
        if self._open:
            self._maybe_submit_interim(self._open)
        else:
            self._buffer.forget_before(self.position - self._options.idle_samples)

    def _speech_began(self, began: SpeechBegan) -> None:
        if self._open:
            self._open.speech.append((max(began.at, self._open.start), self._endpointer.speech_until))
        elif not self._options.is_manual:
            window_start = max(began.at - self._options.padding_samples, self._last_cut, self._buffer.start)
            speech_start = max(began.at, window_start)
            self._open = self._announce(speech_start, window_start, [(speech_start, speech_start)])

    def _announce(self, utterance_start: int, window_start: int, speech: list[Span]) -> _OpenWindow:
        number, asked = self._session.next_utterance(), self._options.asked
        utterance = PendingUtterance(number, utterance_start, self._prompt, asked, text_until=window_start)
        self._prompt = self._options.prompt
        at_s, from_s = self._session.seconds(utterance_start), self._session.seconds(window_start)
        is_detected = not self._options.is_manual
        self._session.send(events.SpeechStarted(utterance.number, self.number, at_s, is_detected, from_s))
        if self._interims:
            self._interims.begin(utterance_start)
        return _OpenWindow(utterance, window_start, speech, self._stabilizer())

    def _stabilizer(self) -> Stabilizer:
        return Stabilizer(self._options.make_policy())

    def _end(self, window: _OpenWindow, flush_id: events.FlushId | None = None) -> None:
        self._note_speech(window)
        self._close_window(window, self.position, is_last=True, flush_id=flush_id)
        self._open = None

    def _note_speech(self, window: _OpenWindow) -> None:
        """Extend the window's stretches of speech up to the last voiced frame."""
        until = self._endpointer.speech_until
        if until <= (window.speech[-1][1] if window.speech else window.start):
            return
        begin = max(until - FRAME_SAMPLES, window.start)
        if window.speech and begin - window.speech[-1][1] < SPEECH_GAP_SAMPLES:
            window.speech[-1] = (window.speech[-1][0], until)
        else:
            window.speech.append((begin, until))

    # Windows.

    def _cut(self, window: _OpenWindow) -> int | None:
        """Where a window that grows long is to end, if now: in a pause, at last at its quietest moment.

        The cut must lie behind what is stable already, so it is looked for as the audio comes in, not afterwards.
        """
        length = self.position - window.start
        if length <= PAUSE_WANTED_SAMPLES:
            return None
        share_left = max(WINDOW_SAMPLES - length, 0) / (WINDOW_SAMPLES - PAUSE_WANTED_SAMPLES)
        wanted_ms = LEAST_PAUSE_MS + (self._options.endpointing.silence_ms - LEAST_PAUSE_MS) * share_left
        pause = min(self._endpointer.pause_samples, length)
        if pause * 1000 >= wanted_ms * SAMPLE_RATE:
            return self.position - pause // 2
        if length + FRAME_SAMPLES <= WINDOW_SAMPLES:
            return None
        earliest = min(max(window.start + PAUSE_WANTED_SAMPLES, window.stabilizer.heard_until), self.position)
        return earliest + quietest(self._buffer.view(earliest, self.position), QUIET_SPAN_SAMPLES)

    def _cut_window(self, window: _OpenWindow, cut: int) -> None:
        """End the window at `cut`; what follows moves to the next one, or to the next utterance if this one is long."""
        is_last = cut - window.utterance.start >= self._options.endpointing.max_utterance_s * SAMPLE_RATE
        before, behind = _split(window.speech, cut)
        window.speech = before
        self._close_window(window, cut, is_last)
        if not is_last:
            self._open = _OpenWindow(window.utterance, cut, behind, self._stabilizer())
            if self._interims:
                self._interims.go_on(self.position)
        elif self._endpointer.pause_samples and not behind and not self._options.is_manual:
            # Nobody is speaking; the next utterance begins when somebody does.
            self._endpointer.end()
            self._open = None
        else:
            self._open = self._announce(cut, cut, behind or ([] if self._options.is_manual else [(cut, cut)]))

    def _close_window(
        self,
        window: _OpenWindow,
        end: int,
        is_last: bool,
        flush_id: events.FlushId | None = None,
        is_discarded: bool = False,
    ) -> None:
        for job in (window.interim_job, window.replaced_job):
            if job is not None:
                self._session.cancel(job)
        samples = _NO_SAMPLES if is_discarded else self._buffer.view(window.start, end).copy()
        self._last_cut = end
        self._buffer.forget_before(end)
        if is_last:
            self._send_endpoint(window, end, flush_id, is_discarded)
        self.finals.add(self._ended(window, end, samples, is_last, is_discarded))

    def _send_endpoint(
        self, window: _OpenWindow, end: int, flush_id: events.FlushId | None = None, is_discarded: bool = False
    ) -> None:
        end_s = self._session.seconds(end)
        self._session.send(events.Endpoint(window.utterance.number, self.number, end_s, flush_id, is_discarded))

    def _ended(
        self, window: _OpenWindow, end: int, samples: Samples, is_last: bool, is_discarded: bool = False
    ) -> FinalWindow:
        stabilizer = window.stabilizer
        return FinalWindow(
            window.utterance,
            window.start,
            end,
            samples,
            stabilizer.tokens,
            stabilizer.draft,
            stabilizer.stable,
            stabilizer.heard_until,
            window.speech,
            is_last,
            is_forced=self._options.is_manual,
            is_discarded=is_discarded,
        )

    # Interims.

    def _maybe_submit_interim(self, window: _OpenWindow) -> None:
        """Read the growing window again when it is time; a reading that waits in the queue is replaced by this one.

        While finals are under way they go first, and a reading that has started is left to finish.
        """
        schedule = self._interims
        if schedule is None or self.finals or not window.speech:
            return
        if not schedule.is_due(self.position, window.speech[-1][1]):
            return
        if window.interim_job is not None and (window.interim_has_started or window.replaced_job is not None):
            return
        schedule.asked(self.position)
        window.replaced_job = window.interim_job
        window.interim_end = self.position
        window.interim_has_started = False
        stabilizer = window.stabilizer
        options = self.finals.reading_options(window.utterance, stabilizer.tokens, stabilizer.draft)
        options = replace(options, attention_times=stabilizer.needs_attention)
        samples = self._buffer.view(window.start, self.position).copy()
        window.interim_job = self._session.submit(self.number, api.Priority.INTERIM, samples, options)

    def engine_event(self, job: int, event: api.EngineEvent) -> None:
        """Take in an event of one of this channel's windows; readings that were replaced meanwhile are ignored."""
        if self.finals.holds(job):
            self.finals.engine_event(job, event)
        elif self._open and self._open.interim_job == job:
            self._interim_event(self._open, event)
        elif self._open and self._open.replaced_job == job:
            if isinstance(event, api.SupersededEvent | api.DoneEvent):
                self._open.replaced_job = None

    def abandon_job(self, job: int) -> bool:
        """Let go of a reading that the engine had no room for; false if an utterance's text depends on it."""
        if self._open and self._open.interim_job == job:
            self._open.interim_job = None
            if self._interims:
                self._interims.leave()
        if self._open and self._open.replaced_job == job:
            self._open.replaced_job = None
        return self.finals.drop_redecode(job) or not self.finals.holds(job)

    def _interim_event(self, window: _OpenWindow, event: api.EngineEvent) -> None:
        assert self._interims
        match event:
            case api.StartedEvent():
                window.interim_has_started = True
            case api.SupersededEvent():
                window.interim_job = None
                self._interims.leave()
            case api.DoneEvent():
                window.interim_job = None
                self._interims.answered(self.position)
                self._read_until = window.interim_end
                self._read_interim(window, event)
            case api.SegmentEvent():
                pass
            case _:
                assert_never(event)

    def _read_interim(self, window: _OpenWindow, done: api.DoneEvent) -> None:
        speech_filter = self._options.finals.speech_filter
        if not speech_filter.is_speech(done.text, done.no_speech_prob, done.avg_logprob) or speech_filter.is_loop(
            done.compression_ratio
        ):
            return
        # The first words become stable and lead every later reading on: music was held to begin with "In the", and
        # where they were wrong in babble, the rest of the utterance was lost.
        speech_s = duration(window.speech) / SAMPLE_RATE
        is_doubtful = not speech_filter.is_trusted(done.avg_logprob) or speech_filter.is_too_short(
            speech_s, done.avg_logprob
        )
        if is_doubtful and not window.stabilizer.tokens:
            return
        window.stabilizer.update(done.pieces, window.interim_end, (window.interim_end - window.start) / SAMPLE_RATE)
        stable, tail = window.stabilizer.stable, window.stabilizer.tail
        if not window.utterance.text:
            stable, tail = stable.lstrip(), tail if stable.strip() else tail.lstrip()
        seconds = self._session.seconds
        self._session.send(
            events.Interim(
                window.utterance.number,
                self.number,
                seconds(max(window.start, window.utterance.start)),
                seconds(window.interim_end),
                stable,
                tail,
                done.avg_logprob,
            )
        )


def _split(spans: list[Span], at: int) -> tuple[list[Span], list[Span]]:
    before = [(start, min(end, at)) for start, end in spans if start < at]
    behind = [(max(start, at), end) for start, end in spans if end > at]
    return before, behind
