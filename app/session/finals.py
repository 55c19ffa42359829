"""The windows of one channel that have ended: which of them the engine is asked for, and their texts in order.

Knows nothing of audio still coming in; that is `app/session/channel.py`.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, assert_never

from app.media.pcm import Samples
from app.session import events
from app.session.coverage import (
    UNCOVERED_SAMPLES,
    Missed,
    Span,
    duration,
    missed,
    n_letters,
    repeats,
    spoken_until,
    uncovered,
)
from app.session.speech_filter import SpeechFilter
from engine import api
from engine.api import SAMPLE_RATE

# Stretches of one window that are read again, so that its final comes in bounded time.
MAX_REDECODES = 2
# The engine looks at the end of the text before a window; more than this it would cut off itself.
PROMPT_CHARS = 1000

Context = Literal["none", "utterance", "channel"]
"""The text before a window that the model is shown: none, so that windows are decoded side by side; that of its own
utterance, whose windows then follow one another; or all of its channel, whose windows then do."""


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
class PendingUtterance:
    """Speech between two endpoints; grows from its announcement to its terminal event."""

    number: int
    start: int
    prompt: str
    """Shown to the model while there is no text of its own."""
    asked: "DecodeRequest"
    text: str = ""
    text_until: int = 0
    """Position where its last segment ended."""
    uncovered: list[Span] = field(default_factory=list)
    n_redecodes: int = 0
    recovered_samples: int = 0
    """Speech that has text thanks to them."""


@dataclass(frozen=True, slots=True)
class _Redecode:
    """A stretch that the engine is asked for once more, on its own."""

    job: int
    missed: Missed
    following_text: str


@dataclass(slots=True)
class FinalWindow:
    """A window that has ended and waits for its text, or for the windows before it."""

    utterance: PendingUtterance
    start: int
    end: int
    samples: Samples
    prefix: tuple[int, ...]
    """Tokens of the text that was shown as stable: the final text begins with it."""
    draft: tuple[int, ...]
    """Tokens that the last interim had behind them."""
    stable: str
    """That text."""
    stable_until: int
    """Position before which it was spoken."""
    speech: list[Span]
    is_last: bool
    """The utterance ends with it."""
    is_forced: bool = False
    """The client says that it is speech: it is read even where the detector heard none."""
    is_discarded: bool = False
    """The client wants no text of it but what was stable."""
    n_sent_chars: int = 0
    """How much of its text has been handed out."""
    job: int | None = None
    events: deque[api.SegmentEvent | api.DoneEvent] = field(default_factory=deque)
    """Held back while an earlier window is not done, or speech before them is read again; bounded by the tokens of one
    window."""
    covered: list[Span] = field(default_factory=list)
    checked_until: int = 0
    """Position up to which speech that was passed over has been looked for."""
    redecode: _Redecode | None = None
    """What must be answered before the next event is handed out."""
    n_redecodes: int = 0
    is_repetitive: bool = False
    """A reading of it repeated itself."""
    had_context: bool = False
    """Its reading had a text before it or a prefix, which may have led it astray."""

    @property
    def unsent_stable(self) -> str:
        """What of the stable text is still to be handed out; nothing may be put in front of it."""
        return self.stable[self.n_sent_chars :]

    @property
    def needs_decoding(self) -> bool:
        """A window that begins in a pause may end without having heard anything."""
        return not self.is_discarded and bool(self.is_forced or self.speech or self.prefix)


@dataclass(frozen=True, slots=True)
class DecodeRequest:
    """How the client wants an utterance to be read."""

    language: str | None
    task: api.Task
    hotwords: tuple[str, ...] = ()
    words: bool = False
    """Find out when every word was said."""


@dataclass(frozen=True, slots=True)
class FinalOptions:
    max_in_flight: int
    """Windows that the engine is asked for at the same time."""
    context: Context
    speech_filter: SpeechFilter
    sampling: api.Sampling = field(default_factory=api.Sampling)


class Finals:
    """The queue of ended windows of one channel. Texts come out in the order in which the windows were added."""

    def __init__(self, channel: int, session: SessionPort, options: FinalOptions) -> None:
        self._channel = channel
        self._session = session
        self._options = options
        self._windows: deque[FinalWindow] = deque()
        self._text = ""
        """The end of the channel's text, as context."""
        self.n_added = 0
        self.n_done = 0
        self.speech_samples = 0
        self.n_words = 0

    def __len__(self) -> int:
        return len(self._windows)

    @property
    def n_to_decode(self) -> int:
        """Those that wait for the engine, or were discarded while one before them does; the others have heard nothing,
        and each of them follows one of these.
        """
        return sum(window.needs_decoding or window.is_discarded for window in self._windows)

    @property
    def oldest(self) -> FinalWindow | None:
        return self._windows[0] if self._windows else None

    def speech(self) -> Iterator[Span]:
        """What was heard in all of them, in order."""
        for window in self._windows:
            yield from window.speech

    def holds(self, job: int) -> bool:
        return any(window.job == job or _redecodes(window, job) for window in self._windows)

    def add(self, window: FinalWindow) -> None:
        self._windows.append(window)
        self.n_added += 1
        self._advance()

    def engine_event(self, job: int, event: api.EngineEvent) -> None:
        """Take in an event of a window, or of a stretch of one, that was submitted as `job`."""
        window = next(window for window in self._windows if window.job == job or _redecodes(window, job))
        if not isinstance(event, api.SegmentEvent | api.DoneEvent):
            return
        if isinstance(event, api.DoneEvent):
            window.is_repetitive |= event.is_repetitive or self._options.speech_filter.is_loop(event.compression_ratio)
        if window.job == job:
            window.events.append(event)
        elif isinstance(event, api.DoneEvent):
            self._read_redecode(window, event)
        self._advance()

    def drop_redecode(self, job: int) -> bool:
        """Do without a stretch that the engine had no room for; false if the job is none."""
        window = next((window for window in self._windows if _redecodes(window, job)), None)
        if window is None:
            return False
        window.redecode = None
        self._advance()
        return True

    def reading_options(
        self, utterance: PendingUtterance, prefix: tuple[int, ...], draft: tuple[int, ...]
    ) -> api.DecodeOptions:
        """How a window of this utterance is to be decoded."""
        return api.DecodeOptions(
            language=utterance.asked.language,
            task=utterance.asked.task,
            previous_text=self._text_before(utterance) or utterance.prompt,
            prefix=prefix,
            draft=draft,
            hotwords=utterance.asked.hotwords,
        )

    def _text_before(self, utterance: PendingUtterance) -> str:
        match self._options.context:
            case "none":
                return ""
            case "utterance":
                return utterance.text[-PROMPT_CHARS:]
            case "channel":
                return self._text
            case _:
                assert_never(self._options.context)

    def abandon(self, unfinished: FinalWindow | None, acknowledged: tuple[float, ...]) -> None:
        """No more text will come: end every utterance with what was shown of it as stable, and report the rest.

        Args:
            unfinished: the window that still takes in audio, if any.
            acknowledged: as it was before; what is abandoned is not done.
        """
        windows = [*self._windows, *([unfinished] if unfinished else [])]
        self._windows.clear()
        for window in windows:
            if window.unsent_stable:
                self._send_stable(window)
            window.utterance.uncovered += uncovered(window.speech, window.covered, least=1)
            if window.is_last:
                self._send_utterance(window, acknowledged, is_complete=False)

    def _advance(self) -> None:
        """Submit what may run; hand out the events of the oldest window, and of the next ones while they are done."""
        self._submit()
        while self._windows:
            window = self._windows[0]
            if window.needs_decoding and not self._read(window):
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
                if n_in_flight >= self._options.max_in_flight or self._needs_text_of(previous, window):
                    return
                options = self.reading_options(window.utterance, window.prefix, window.draft)
                options = replace(options, word_times=window.utterance.asked.words, sampling=self._options.sampling)
                window.had_context = bool(options.previous_text or options.prefix)
                window.job = self._session.submit(self._channel, api.Priority.FINAL, window.samples, options)
            n_in_flight += 1
            previous = window

    def _needs_text_of(self, previous: FinalWindow | None, window: FinalWindow) -> bool:
        if previous is None or self._options.context == "none":
            return False
        return self._options.context == "channel" or previous.utterance is window.utterance

    def _read(self, window: FinalWindow) -> bool:
        """Hand out what has come of a window, up to speech that is to be read again first; true if that was all."""
        while window.events and not window.redecode:
            event = window.events[0]
            if isinstance(event, api.DoneEvent):
                if self._is_silent(window, event) or not self._redecode(window, window.end, "", event.language):
                    return True
                continue
            segment = event.segment
            # Text that was shown as stable must not be taken back, whatever the speech_filter thinks now.
            if window.prefix or self._is_speech(window, segment):
                start = min(window.start + round(segment.start_s * SAMPLE_RATE), window.end)
                if self._redecode(window, start, segment.text, event.language):
                    continue
                self._send_segment(window, segment, event.language, (window.start, window.end))
            window.n_sent_chars += len(segment.text)
            window.events.popleft()
        return False

    def _is_speech(self, window: FinalWindow, segment: api.Segment) -> bool:
        speech_filter = self._options.speech_filter
        is_too_short = not window.is_forced and speech_filter.is_too_short(
            duration(window.speech) / SAMPLE_RATE, segment.avg_logprob
        )
        return not (is_too_short or self._is_implausible(window, segment, window.start)) and speech_filter.is_speech(
            segment.text, segment.no_speech_prob, segment.avg_logprob
        )

    def _is_silent(self, window: FinalWindow, done: api.DoneEvent) -> bool:
        """Whether the model, with nothing to lead it astray, heard nobody in all of the window: it would say the same
        again, and noise is to cost one reading.
        """
        return not (window.covered or window.had_context) and self._options.speech_filter.is_silence(
            done.no_speech_prob
        )

    def _is_implausible(self, window: FinalWindow, segment: api.Segment, origin: int) -> bool:
        """Whether there is far less or far more text than its time, counted from `origin`, can hold."""
        speech_filter = self._options.speech_filter
        start, end = (min(origin + round(at_s * SAMPLE_RATE), window.end) for at_s in (segment.start_s, segment.end_s))
        is_sparse = spoken_until(segment.text, window.speech, start, end) < end
        length_s = segment.end_s - segment.start_s
        return speech_filter.is_sparse_low_confidence(
            is_sparse, segment.avg_logprob
        ) or speech_filter.is_implausibly_dense(
            n_letters(segment.text), length_s, segment.avg_logprob, segment.compression_ratio
        )

    def _redecode(self, window: FinalWindow, until: int, following_text: str, language: str | None) -> bool:
        """Ask the engine once more for speech behind the last segment and before `until`; false if there is no need.

        Without prompt and prefix, as these may be what led the first reading astray.
        """
        since = max(window.utterance.text_until, window.checked_until, window.start)
        window.checked_until = max(until, since)
        stretch = missed(window.speech, since, until)
        if not stretch or window.unsent_stable or window.n_redecodes >= MAX_REDECODES:
            return False
        samples = window.samples[stretch.start - window.start : stretch.end - window.start]
        asked = window.utterance.asked
        options = api.DecodeOptions(
            language=asked.language or language,
            task=asked.task,
            hotwords=asked.hotwords,
            word_times=asked.words,
        )
        job = self._session.submit(self._channel, api.Priority.FINAL, samples, options)
        window.redecode = _Redecode(job, stretch, following_text)
        window.n_redecodes += 1
        window.utterance.n_redecodes += 1
        return True

    def _read_redecode(self, window: FinalWindow, done: api.DoneEvent) -> None:
        assert window.redecode
        stretch, following_text = window.redecode.missed, window.redecode.following_text
        window.redecode = None
        speech_filter = self._options.speech_filter
        if speech_filter.is_loop(done.compression_ratio):
            return
        for segment in done.segments:
            is_speech = speech_filter.is_speech_after_all(segment.text, segment.no_speech_prob, segment.avg_logprob)
            is_speech = is_speech and not self._is_implausible(window, segment, stretch.start)
            if is_speech and not repeats(segment.text, window.utterance.text, following_text):
                self._send_segment(window, segment, done.language, (stretch.start, stretch.end))
        left = uncovered(stretch.speech, window.covered, least=1)
        window.utterance.recovered_samples += duration(stretch.speech) - duration(left)

    def _send_segment(self, window: FinalWindow, segment: api.Segment, language: str | None, heard: Span) -> None:
        """Hand out a segment that was read from the audio of `heard`."""
        utterance = window.utterance
        text = segment.text if utterance.text else segment.text.lstrip()
        if not text:
            return
        start = min(max(heard[0] + round(segment.start_s * SAMPLE_RATE), utterance.text_until), heard[1])
        end = max(min(heard[0] + round(segment.end_s * SAMPLE_RATE), heard[1]), start)
        end = spoken_until(text, window.speech, start, end)
        utterance.text += text
        utterance.text_until = end
        self._text = (self._text + segment.text)[-PROMPT_CHARS:]
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
                language,
                segment,
                self._session.seconds(heard[0]),
                self._words(segment, heard, (start, end)),
                not window.is_last,
            )
        )

    def _send_stable(self, window: FinalWindow) -> None:
        """Hand out what was shown as stable, for want of a final reading of it."""
        end_s = (window.stable_until - window.start) / SAMPLE_RATE
        segment = api.Segment(
            start_s=0.0,
            end_s=end_s,
            text=window.unsent_stable,
            tokens=(),
            avg_logprob=0.0,
            compression_ratio=1.0,
            no_speech_prob=0.0,
        )
        self._send_segment(window, segment, window.utterance.asked.language, (window.start, window.end))

    def _words(self, segment: api.Segment, heard: Span, sent: Span) -> tuple[events.Word, ...]:
        """Their times on the session's timeline, inside the segment as it is sent."""

        def at_s(window_s: float) -> float:
            return self._session.seconds(min(max(heard[0] + round(window_s * SAMPLE_RATE), sent[0]), sent[1]))

        return tuple(
            events.Word(word.text.strip(), at_s(word.start_s), at_s(word.end_s), round(word.probability, 3))
            for word in segment.words or ()
        )

    def _finish(self, window: FinalWindow) -> None:
        self.speech_samples += duration(window.speech)
        if window.is_discarded and window.unsent_stable:
            self._send_stable(window)
        if window.needs_decoding and (window.is_repetitive or not window.covered):
            # What misled one reading must not mislead the next. Source: openai/whisper, whisper/transcribe.py,
            # `prompt_reset_since`, which goes by the temperature that a reading took.
            self._text = ""
        least = UNCOVERED_SAMPLES if window.covered else 1
        window.utterance.uncovered += uncovered(window.speech, window.covered, least)
        if window.is_last:
            self._send_utterance(window, self._session.acknowledged(), is_complete=not window.is_discarded)

    def _send_utterance(self, last: FinalWindow, acknowledged: tuple[float, ...], is_complete: bool) -> None:
        """End the utterance of its last window."""
        utterance = last.utterance
        seconds = self._session.seconds
        end = max(last.speech[-1][1] if last.speech else utterance.start, utterance.text_until)
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
                utterance.n_redecodes,
                utterance.recovered_samples / SAMPLE_RATE,
                is_complete,
            )
        )


def _redecodes(window: FinalWindow, job: int) -> bool:
    return window.redecode is not None and window.redecode.job == job
