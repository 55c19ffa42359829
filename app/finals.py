"""The windows of one channel that have ended: which of them the engine is asked for, and their texts in order.

Knows nothing of audio still coming in; that is `app/channel.py`.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from app import events
from app.audio import Samples
from app.gate import Gate
from engine import api
from engine.api import SAMPLE_RATE

Span = tuple[int, int]
"""A stretch of the timeline: first position, and the one behind the last."""

# Speech without text beside other text is reported from this length on; shorter stretches are breaths and the
# detector's slack. In a window without any text all of it is reported.
UNCOVERED_SAMPLES = SAMPLE_RATE // 2
# The engine looks at the end of the text before a window; more than this it would cut off itself.
PROMPT_CHARS = 1000


class SessionPort(Protocol):
    """What the parts of a channel ask of its session."""

    def next_utterance(self) -> int: ...
    def next_segment(self) -> int: ...
    def submit(self, channel: int, priority: api.Priority, samples: Samples, options: api.DecodeOptions) -> int: ...
    def cancel(self, job: int) -> None: ...
    def send(self, event: events.Event) -> None: ...
    def acknowledged(self) -> tuple[float, ...]: ...
    def seconds(self, position: int) -> float: ...


@dataclass(slots=True)
class Utterance:
    """Speech between two endpoints; grows from its announcement to its terminal event."""

    number: int
    start: int
    prompt: str
    """Shown to the model while there is no text of its own."""
    text: str = ""
    text_until: int = 0
    """Position where its last segment ended."""
    uncovered: list[Span] = field(default_factory=list)


@dataclass(slots=True)
class FinalWindow:
    """A window that has ended and waits for its text, or for the windows before it."""

    utterance: Utterance
    start: int
    end: int
    samples: Samples
    prefix: tuple[int, ...]
    """Tokens of the text that was shown as stable: the final text begins with it."""
    speech: list[Span]
    is_last: bool
    """The utterance ends with it."""
    job: int | None = None
    events: list[api.SegmentEvent | api.DoneEvent] = field(default_factory=list)
    """Held back while an earlier window is not done; bounded by the tokens of one window."""
    covered: list[Span] = field(default_factory=list)

    @property
    def needs_decoding(self) -> bool:
        """A window that begins in a pause may end without having heard anything."""
        return bool(self.speech or self.prefix)


@dataclass(frozen=True, slots=True)
class FinalOptions:
    language: str | None
    task: api.Task
    max_in_flight: int
    """Windows that the engine is asked for at the same time."""
    carries_context: bool
    """Show the model the text before a window of the same utterance, so that these windows follow one another; without,
    they are decoded side by side."""
    gate: Gate


class Finals:
    """The queue of ended windows of one channel. Texts come out in the order in which the windows were added."""

    def __init__(self, channel: int, session: SessionPort, options: FinalOptions) -> None:
        self._channel = channel
        self._session = session
        self._options = options
        self._windows: deque[FinalWindow] = deque()
        self.n_added = 0
        self.n_done = 0
        self.speech_samples = 0
        self.n_words = 0

    def __len__(self) -> int:
        return len(self._windows)

    @property
    def oldest(self) -> FinalWindow | None:
        return self._windows[0] if self._windows else None

    def holds(self, job: int) -> bool:
        return any(window.job == job for window in self._windows)

    def add(self, window: FinalWindow) -> None:
        self._windows.append(window)
        self.n_added += 1
        self._advance()

    def engine_event(self, job: int, event: api.EngineEvent) -> None:
        """Take in an event of the window that was submitted as `job`."""
        if isinstance(event, api.SegmentEvent | api.DoneEvent):
            next(window for window in self._windows if window.job == job).events.append(event)
            self._advance()

    def options_for(self, utterance: Utterance, prefix: tuple[int, ...]) -> api.DecodeOptions:
        """How a window of this utterance is to be decoded now."""
        carried = utterance.text[-PROMPT_CHARS:] if self._options.carries_context else ""
        return api.DecodeOptions(
            self._options.language, self._options.task, previous_text=carried or utterance.prompt, prefix=prefix
        )

    def abandon(self, unfinished: Utterance | None, speech: list[Span], acknowledged: tuple[float, ...]) -> None:
        """No more text will come: end every utterance with what it has, and report the rest as uncovered.

        Args:
            unfinished: the utterance that still takes in audio, if any.
            speech: what it has heard behind its last window.
            acknowledged: as it was before; what is abandoned is not done.
        """
        for window in self._windows:
            window.utterance.uncovered += _uncovered(window.speech, window.covered, least=1)
            if window.is_last:
                self._send_utterance(window.utterance, window.speech, acknowledged)
        self._windows.clear()
        if unfinished:
            unfinished.uncovered += speech
            self._send_utterance(unfinished, speech, acknowledged)

    def _advance(self) -> None:
        """Submit what may run; hand out the events of the oldest window, and of the next ones while they are done."""
        self._submit()
        while self._windows:
            window = self._windows[0]
            is_done = not window.needs_decoding
            for event in window.events:
                if isinstance(event, api.SegmentEvent):
                    self._read_segment(window, event)
                else:
                    is_done = True
            window.events.clear()
            if not is_done:
                return
            self._windows.popleft()
            self.n_done += 1
            self._finish(window)
            self._submit()

    def _submit(self) -> None:
        previous: FinalWindow | None = None
        n_in_flight = 0
        for window in self._windows:
            if not window.needs_decoding:
                continue
            if window.job is None:
                waits_for_text = (
                    self._options.carries_context and previous is not None and previous.utterance is window.utterance
                )
                if n_in_flight >= self._options.max_in_flight or waits_for_text:
                    return
                options = self.options_for(window.utterance, window.prefix)
                window.job = self._session.submit(self._channel, api.Priority.FINAL, window.samples, options)
            n_in_flight += 1
            previous = window

    def _read_segment(self, window: FinalWindow, event: api.SegmentEvent) -> None:
        segment = event.segment
        is_speech = self._options.gate.is_speech(segment.text, segment.no_speech_prob, segment.avg_logprob)
        utterance = window.utterance
        text = segment.text if utterance.text else segment.text.lstrip()
        # Text that was shown as stable must not be taken back, whatever the gate thinks now.
        if not text or not (is_speech or window.prefix):
            return
        start = min(max(window.start + round(segment.start_s * SAMPLE_RATE), utterance.text_until), window.end)
        end = max(min(window.start + round(segment.end_s * SAMPLE_RATE), window.end), start)
        utterance.text += text
        utterance.text_until = end
        window.covered.append((start, end))
        self.n_words += len(text.split())
        self._session.send(
            events.Segment(
                utterance.number,
                self._session.next_segment(),
                self._channel,
                self._session.seconds(start),
                self._session.seconds(end),
                text,
                event.language,
                segment,
                self._session.seconds(window.start),
            )
        )

    def _finish(self, window: FinalWindow) -> None:
        self.speech_samples += sum(end - start for start, end in window.speech)
        least = UNCOVERED_SAMPLES if window.covered else 1
        window.utterance.uncovered += _uncovered(window.speech, window.covered, least)
        if window.is_last:
            self._send_utterance(window.utterance, window.speech, self._session.acknowledged())

    def _send_utterance(self, utterance: Utterance, last_speech: list[Span], acknowledged: tuple[float, ...]) -> None:
        seconds = self._session.seconds
        end = max(last_speech[-1][1] if last_speech else utterance.start, utterance.text_until)
        self._session.send(
            events.Utterance(
                utterance.number,
                self._channel,
                seconds(utterance.start),
                seconds(end),
                utterance.text,
                tuple((seconds(start), seconds(end)) for start, end in utterance.uncovered),
                min(acknowledged),
                acknowledged,
            )
        )


def _uncovered(speech: list[Span], covered: list[Span], least: int) -> list[Span]:
    """The stretches of speech, of `least` samples or more, that no segment reaches. Both lists are in order."""
    left: list[Span] = []
    for start, end in speech:
        at = start
        for covered_start, covered_end in covered:
            if at < covered_start < end:
                left.append((at, covered_start))
            if covered_start < end and covered_end > at:
                at = min(covered_end, end)
        left.append((at, end))
    return [(start, end) for start, end in left if end - start >= least]
