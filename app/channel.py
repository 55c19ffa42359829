"""One channel of a session: speech into utterances, utterances into windows, and their order of delivery.

A sans-I/O half of the session core: it counts samples, takes decoded audio and engine events, and appends effects. What
belongs to the session as a whole (numbering, flush markers, the acknowledgement) stays there.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol, assert_never

import numpy as np

from app import events
from app.audio import SampleBuffer, Samples
from app.endpointing import (
    FRAME_SAMPLES,
    ONSET_WINDOW,
    Endpointer,
    SpeechBegan,
    SpeechDetector,
    SpeechEnded,
    quietest,
)
from app.stabilizer import Stabilizer
from engine import api
from engine.api import SAMPLE_RATE, WINDOW_SAMPLES

# Audio kept from before the first voiced frame: detectors hear soft onsets late.
PRE_ROLL_SAMPLES = 300 * SAMPLE_RATE // 1000
# From here on a window ends at a pause; how long the pause must be falls from the endpoint's silence to LEAST_PAUSE_MS.
LAST_THIRD = 2 * WINDOW_SAMPLES // 3
LEAST_PAUSE_MS = 60
# A window that found no pause is cut in the middle of its quietest stretch of this length.
QUIET_SPAN_SAMPLES = 60 * SAMPLE_RATE // 1000
# Speech without text is reported from this length on; shorter stretches are breaths and the detector's slack.
UNCOVERED_SAMPLES = SAMPLE_RATE // 2
# Gaps of the detected speech from this length on are silence; shorter ones lie between words.
SPEECH_GAP_SAMPLES = SAMPLE_RATE // 5
# Audio kept while nobody speaks: the pre-roll of speech that the detector has yet to announce.
IDLE_SAMPLES = PRE_ROLL_SAMPLES + ONSET_WINDOW * FRAME_SAMPLES
PROMPT_CHARS = 400


@dataclass(frozen=True, slots=True)
class ChannelOptions:
    """What a channel needs to know of `start` and of the settings."""

    endpointing: events.Endpointing
    language: str | None
    task: api.Task
    prompt: str
    """Shown to the model before every window that carries no text of its own utterance."""
    first_prompt: str
    """The same before the first utterance, where it is not empty: what was said before a reconnect."""
    interim_samples: int | None
    """Audio between two interims; `None` for no interims."""
    max_finals_in_flight: int
    carries_context: bool
    """Give a window the text before it in its utterance, so that these windows follow one another; without, they are
    decoded independently of each other and side by side."""
    no_speech_threshold: float
    logprob_threshold: float
    compression_ratio_threshold: float


class SessionPort(Protocol):
    """What a channel asks of its session."""

    def next_utterance(self) -> int: ...
    def next_segment(self) -> int: ...
    def submit(self, channel: int, priority: api.Priority, samples: Samples, options: api.DecodeOptions) -> int: ...
    def cancel(self, job: int) -> None: ...
    def send(self, event: events.Event) -> None: ...
    def final_until_s(self) -> float: ...
    def seconds(self, position: int) -> float: ...


@dataclass(slots=True)
class _Utterance:
    """Speech between two endpoints; grows from the moment it is announced to its terminal event."""

    number: int
    start: int
    speech_until: int
    text: str = ""
    last_end: int = 0
    """Position where its last segment ended."""
    uncovered: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class _OpenWindow:
    """The window that is still taking in audio."""

    utterance: _Utterance
    start: int
    stabilizer: Stabilizer = field(default_factory=Stabilizer)
    next_interim: int = 0
    interim_job: int | None = None
    interim_end: int = 0
    interim_has_started: bool = False
    speech: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class _FinalWindow:
    """A window that has ended and waits for its text, or for the windows before it."""

    utterance: _Utterance
    start: int
    end: int
    samples: Samples
    prefix: tuple[int, ...]
    is_last: bool
    """The utterance ends with it."""
    speech: list[tuple[int, int]]
    job: int | None = None
    events: list[api.SegmentEvent | api.DoneEvent] = field(default_factory=list)
    """Held back while an earlier window is not done; bounded by the tokens of one window."""
    covered: list[tuple[int, int]] = field(default_factory=list)

    @property
    def needs_decoding(self) -> bool:
        """A window that begins in a pause may end without having heard anything."""
        return bool(self.speech or self.prefix)


class Channel:
    """Audio in by `take`, engine events in by `engine_event`; effects go out through the session."""

    def __init__(self, number: int, session: SessionPort, detector: SpeechDetector, options: ChannelOptions) -> None:
        self.number = number
        self._session = session
        self._options = options
        self._endpointer = Endpointer(detector, options.endpointing.silence_ms)
        self._buffer = SampleBuffer()
        self._open: _OpenWindow | None = None
        self._finals: deque[_FinalWindow] = deque()
        self._last_cut = 0
        self._prompt = options.first_prompt or options.prompt
        self._final_until = 0
        self.finals_made = 0
        self.finals_done = 0
        self.speech_samples = 0
        self.n_words = 0

    # Audio.

    def take(self, samples: Samples) -> None:
        """Take in audio, frame by frame, so that what happens does not depend on how it was cut."""
        self._buffer.append(samples)
        while self._buffer.end - self._endpointer.position >= FRAME_SAMPLES:
            position = self._endpointer.position
            self._frame(self._endpointer.take(self._buffer.view(position, position + FRAME_SAMPLES)))

    def flush(self) -> None:
        """End the open utterance now, and one that has begun without having been announced."""
        began = self._endpointer.flush()
        if began:
            self._begin(began)
        ended = self._endpointer.end()
        if ended:
            self._end(ended)

    def finish(self) -> None:
        """No more audio: look at the last, incomplete frame too, then flush."""
        n_rest = self._buffer.end - self.position
        if n_rest:
            self.take(np.zeros(FRAME_SAMPLES - n_rest, dtype=np.float32))
        self.flush()

    @property
    def position(self) -> int:
        """Behind the last frame that was looked at."""
        return self._endpointer.position

    @property
    def backlog(self) -> int:
        """Windows that have ended and are not done."""
        return len(self._finals)

    @property
    def behind_samples(self) -> int:
        """How far the audio is ahead of the oldest window that is not answered."""
        if self._finals:
            return self.position - self._finals[0].end
        if self._open and self._open.interim_job is not None:
            return self.position - self._open.interim_end
        return 0

    @property
    def final_until(self) -> int:
        """Position before which nothing will be said any more; never decreases."""
        if self._finals:
            until = self._finals[0].start
        elif self._open:
            until = self._open.start
        else:
            until = self.position - PRE_ROLL_SAMPLES
        self._final_until = max(self._final_until, until)
        return self._final_until

    def _frame(self, change: SpeechBegan | SpeechEnded | None) -> None:
        match change:
            case SpeechBegan():
                self._begin(change)
            case SpeechEnded():
                self._end(change)
            case None:
                pass
            case _:
                assert_never(change)
        if self._open is None:
            self._buffer.forget_before(self.position - IDLE_SAMPLES)
            return
        self._note_speech(self._open)
        cut = self._cut(self._open)
        if cut is not None:
            self._cut_window(self._open, cut)
        if self._open:
            self._maybe_submit_interim(self._open)

    def _begin(self, began: SpeechBegan) -> None:
        window = self._announce(began.at, max(began.at - PRE_ROLL_SAMPLES, self._last_cut, self._buffer.start))
        window.speech.append((began.at, began.at))
        self._open = window

    def _announce(self, speech_start: int, window_start: int) -> _OpenWindow:
        utterance = _Utterance(self._session.next_utterance(), speech_start, speech_start, last_end=window_start)
        at_s = self._session.seconds(speech_start)
        self._session.send(events.SpeechStarted(utterance.number, self.number, at_s))
        window = self._new_window(utterance, window_start)
        if self._options.interim_samples is not None:
            # The first words are waited for most.
            window.next_interim -= self._options.interim_samples // 2
        return window

    def _new_window(self, utterance: _Utterance, start: int) -> _OpenWindow:
        window = _OpenWindow(utterance, start)
        if self._options.interim_samples is not None:
            window.next_interim = self.position + self._options.interim_samples
        return window

    def _end(self, ended: SpeechEnded) -> None:
        assert self._open
        self._note_speech(self._open)
        self._close_window(self._open, self.position, is_last=True)
        self._open = None

    def _note_speech(self, window: _OpenWindow) -> None:
        """Extend the window's stretches of speech up to the last voiced frame."""
        until = self._endpointer.speech_until
        if until <= window.utterance.speech_until:
            return
        window.utterance.speech_until = until
        begin = max(until - FRAME_SAMPLES, window.start)
        if window.speech and begin - window.speech[-1][1] < SPEECH_GAP_SAMPLES:
            window.speech[-1] = (window.speech[-1][0], until)
        else:
            window.speech.append((begin, until))

    # Windows.

    def _cut(self, window: _OpenWindow) -> int | None:
        """Where a window that grows long is to end, if now: in a pause, at last at its quietest moment.

        The pause must follow what is stable already, so it is looked for as the audio comes in, not afterwards.
        """
        length = self.position - window.start
        if length <= LAST_THIRD:
            return None
        pause = self._endpointer.pause_samples
        share_left = (WINDOW_SAMPLES - length) / (WINDOW_SAMPLES - LAST_THIRD)
        least, silence = LEAST_PAUSE_MS, self._options.endpointing.silence_ms
        if pause * 1000 >= (least + (silence - least) * max(share_left, 0.0)) * SAMPLE_RATE:
            return self.position - pause // 2
        if length + FRAME_SAMPLES <= WINDOW_SAMPLES:
            return None
        earliest = min(max(window.start + LAST_THIRD, window.stabilizer.heard_until), self.position)
        return earliest + quietest(self._buffer.view(earliest, self.position), QUIET_SPAN_SAMPLES)

    def _cut_window(self, window: _OpenWindow, cut: int) -> None:
        """End the window at `cut`; what follows moves to the next one, or to the next utterance if this one is long."""
        utterance = window.utterance
        is_last = cut - utterance.start >= self._options.endpointing.max_utterance_s * SAMPLE_RATE
        window.speech, later = _split(window.speech, cut)
        self._close_window(window, cut, is_last)
        if not is_last:
            self._open = self._new_window(utterance, cut)
        elif later or self._endpointer.pause_samples == 0:
            utterance.speech_until = cut
            self._open = self._announce(cut, cut)
            self._open.utterance.speech_until = later[-1][1] if later else cut
        else:
            self._endpointer.end()
            self._open = None
            return
        self._open.speech = later

    def _close_window(self, window: _OpenWindow, end: int, is_last: bool) -> None:
        if window.interim_job is not None:
            self._session.cancel(window.interim_job)
        samples = self._buffer.view(window.start, end).copy()
        final = _FinalWindow(
            window.utterance, window.start, end, samples, window.stabilizer.tokens, is_last, window.speech
        )
        self._finals.append(final)
        self.finals_made += 1
        self._last_cut = end
        self._buffer.forget_before(end)
        self._submit_finals()
        self._deliver()

    def _submit_finals(self) -> None:
        """Submit what may run now, in order: so many at once, and none that needs the text of the one before it."""
        previous: _FinalWindow | None = None
        n_in_flight = 0
        for final in self._finals:
            if not final.needs_decoding:
                continue
            if final.job is None:
                needs_previous = self._options.carries_context and previous is not None
                if n_in_flight >= self._options.max_finals_in_flight or (
                    needs_previous and previous is not None and previous.utterance is final.utterance
                ):
                    return
                options = self._decode_options(final.utterance, final.prefix)
                final.job = self._session.submit(self.number, api.Priority.FINAL, final.samples, options)
            n_in_flight += 1
            previous = final

    def _decode_options(self, utterance: _Utterance, prefix: tuple[int, ...]) -> api.DecodeOptions:
        carried = utterance.text[-PROMPT_CHARS:] if self._options.carries_context else ""
        return api.DecodeOptions(
            language=self._options.language,
            task=self._options.task,
            previous_text=carried or self._prompt,
            prefix=prefix,
        )

    def _maybe_submit_interim(self, window: _OpenWindow) -> None:
        """Read the growing window again when it is time; a reading that waits in the queue is replaced by this one.

        While finals are under way they go first, and a reading that has started is left to finish.
        """
        interval = self._options.interim_samples
        if interval is None or self.position < window.next_interim or self._finals:
            return
        if window.interim_job is not None and window.interim_has_started:
            return
        if window.utterance.speech_until <= window.interim_end and window.interim_job is None:
            return
        window.next_interim = self.position + interval
        window.interim_end = self.position
        window.interim_has_started = False
        options = self._decode_options(window.utterance, window.stabilizer.tokens)
        samples = self._buffer.view(window.start, self.position).copy()
        window.interim_job = self._session.submit(self.number, api.Priority.INTERIM, samples, options)

    # Text.

    def engine_event(self, job: int, event: api.EngineEvent) -> None:
        """Take in an event of one of this channel's windows. Events of windows withdrawn meanwhile are ignored."""
        if self._open and self._open.interim_job == job:
            self._interim_event(self._open, event)
            return
        if isinstance(event, api.SegmentEvent | api.DoneEvent):
            for final in self._finals:
                if final.job == job:
                    final.events.append(event)
                    break
            self._deliver()

    def drop_interim(self, job: int) -> bool:
        """Let go of a reading that the engine had no room for; false if the job is not an interim."""
        if self._open is None or self._open.interim_job != job:
            return False
        self._open.interim_job = None
        return True

    def _interim_event(self, window: _OpenWindow, event: api.EngineEvent) -> None:
        match event:
            case api.StartedEvent():
                window.interim_has_started = True
            case api.SupersededEvent():
                window.interim_job = None
            case api.DoneEvent():
                window.interim_job = None
                self._read_interim(window, event)
            case api.TextEvent() | api.SegmentEvent():
                pass
            case _:
                assert_never(event)

    def _read_interim(self, window: _OpenWindow, done: api.DoneEvent) -> None:
        if self._is_no_speech(done.no_speech_prob, done.avg_logprob) or self._is_loop(done):
            return
        window.stabilizer.update(done.pieces, window.interim_end)
        stable, tail = window.stabilizer.stable, window.stabilizer.tail
        if not window.utterance.text:
            stable, tail = stable.lstrip(), tail if stable.strip() else tail.lstrip()
        self._session.send(
            events.Interim(
                window.utterance.number,
                self.number,
                self._session.seconds(max(window.start, min(window.utterance.start, window.interim_end))),
                self._session.seconds(window.interim_end),
                stable,
                tail,
            )
        )

    def _deliver(self) -> None:
        """Hand out the events of the oldest window, and of the next ones while they are done."""
        while self._finals:
            final = self._finals[0]
            is_done = not final.needs_decoding
            for event in final.events:
                if isinstance(event, api.SegmentEvent):
                    self._read_segment(final, event)
                else:
                    is_done = True
            final.events.clear()
            if not is_done:
                return
            self._finals.popleft()
            self.finals_done += 1
            self._finish_window(final)
            self._submit_finals()

    def _read_segment(self, final: _FinalWindow, event: api.SegmentEvent) -> None:
        segment = event.segment
        is_speech = any(map(str.isalnum, segment.text)) and not self._is_no_speech(
            segment.no_speech_prob, segment.avg_logprob
        )
        # Text that was shown as stable must not be taken back, whatever the gate thinks now.
        if is_speech or final.prefix:
            self._send_segment(final, segment, event.language)

    def _send_segment(self, final: _FinalWindow, segment: api.Segment, language: str | None) -> None:
        utterance = final.utterance
        text = segment.text if utterance.text else segment.text.lstrip()
        if not text:
            return
        start = min(max(final.start + _samples(segment.start_s), utterance.last_end), final.end)
        end = max(min(final.start + _samples(segment.end_s), final.end), start)
        utterance.text += text
        utterance.last_end = end
        final.covered.append((start, end))
        self.n_words += len(text.split())
        self._session.send(
            events.Segment(
                utterance.number,
                self._session.next_segment(),
                self.number,
                self._session.seconds(start),
                self._session.seconds(end),
                text,
                language,
                segment,
                self._session.seconds(final.start),
            )
        )

    def _finish_window(self, final: _FinalWindow) -> None:
        utterance = final.utterance
        self.speech_samples += sum(end - start for start, end in final.speech)
        utterance.uncovered += _uncovered(final.speech, final.covered)
        if not final.is_last:
            return
        self._prompt = self._options.prompt
        seconds = self._session.seconds
        self._session.send(
            events.Utterance(
                utterance.number,
                self.number,
                seconds(utterance.start),
                seconds(max(utterance.speech_until, utterance.last_end)),
                utterance.text,
                tuple((seconds(start), seconds(end)) for start, end in utterance.uncovered),
                self._session.final_until_s(),
            )
        )

    def _is_no_speech(self, no_speech_prob: float, avg_logprob: float) -> bool:
        """The reference's gate. Source: openai/whisper, whisper/transcribe.py, `no_speech_threshold`."""
        return no_speech_prob > self._options.no_speech_threshold and avg_logprob < self._options.logprob_threshold

    def _is_loop(self, done: api.DoneEvent) -> bool:
        return done.compression_ratio > self._options.compression_ratio_threshold


def _samples(seconds: float) -> int:
    return round(seconds * SAMPLE_RATE)


def _split(spans: list[tuple[int, int]], at: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    before = [(start, min(end, at)) for start, end in spans if start < at]
    behind = [(max(start, at), end) for start, end in spans if end > at]
    return before, behind


def _uncovered(speech: list[tuple[int, int]], covered: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The stretches of speech, of `UNCOVERED_SAMPLES` or more, that no segment reaches. Both lists are in order."""
    left: list[tuple[int, int]] = []
    for start, end in speech:
        at = start
        for covered_start, covered_end in covered:
            if at < covered_start < end:
                left.append((at, covered_start))
            if covered_start < end and covered_end > at:
                at = min(max(at, covered_end), end)
        if at < end:
            left.append((at, end))
    return [(start, end) for start, end in left if end - start >= UNCOVERED_SAMPLES]
