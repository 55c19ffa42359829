"""One client's session, without I/O: commands and engine events in, effects out.

It knows no socket, task or clock; it counts time in samples received, so the same audio gives the same effects however
it was cut. Its shell, `app/session/engine_driver.py`, performs the effects.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import assert_never

from app.errors import (
    CLOSE_DONE,
    CLOSE_DRAINING,
    CLOSE_OUR_FAULT,
    CLOSE_OVERLOADED,
    CLOSE_POLICY,
    BadMessage,
    BadStart,
    LimitExceeded,
    SessionError,
    WrongState,
)
from app.media.pcm import AudioDecoder, AudioFormat, Samples
from app.session import commands, events
from app.session.channel import Channel, ChannelOptions
from app.session.effects import Cancel, Close, Effect, Send, Submit
from app.session.endpointing import SpeechDetector, WebRtcDetector
from app.session.finals import Context, DecodeRequest, FinalOptions
from app.session.speech_filter import SpeechFilter
from app.session.stabilizer import Agreement, MakePolicy
from engine import api
from engine.api import SAMPLE_RATE
from engine.errors import EngineError, EngineOverloaded

# Flushes that may wait for their answers; one more is refused.
MAX_PENDING_FLUSHES = 64
# A client is told that text is behind from here on, and at most once in this much audio.
LAG_SAMPLES = 2 * SAMPLE_RATE
LAG_EVERY_SAMPLES = SAMPLE_RATE


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """The operator's part of how sessions behave."""

    limits: events.Limits = field(default_factory=events.Limits)
    interim_interval_ms: int = 350
    """Least audio between two interims of an utterance."""
    max_finals_in_flight: int = 2
    """Windows of one channel that the engine is asked for at the same time."""
    context: Context = "utterance"
    """How much of the text before a window the model is shown."""
    sampling: api.Sampling = field(default_factory=api.Sampling)
    """Of finals; interims and second readings are greedy."""
    speech_filter: SpeechFilter = field(default_factory=SpeechFilter)
    make_detector: Callable[[], SpeechDetector] = WebRtcDetector
    make_policy: MakePolicy = Agreement
    """What makes the text of interims stable."""


class _State(Enum):
    NEW = auto()
    OPEN = auto()
    STOPPING = auto()
    """The client said that there is no more audio; finals are still to come."""
    ENDING = auto()
    """We end the session: what was heard is made final first, what still comes is not heard."""
    CLOSED = auto()


@dataclass(slots=True)
class _Marker:
    """A flush that waits until its channels have done what they had heard before it."""

    id: events.FlushId
    finals: list[int]


class Session:
    """Feed it with `receive` and `engine_event`; perform what they return, in order."""

    def __init__(self, session_id: str, model: api.ModelInfo, config: SessionConfig) -> None:
        self.id = session_id
        self._model = model
        self._config = config
        self._state = _State.NEW
        self._effects: list[Effect] = []
        self._channels: list[Channel] = []
        self._options: ChannelOptions | None = None
        self._audio: AudioFormat | None = None
        self._decoder: AudioDecoder | None = None
        self._from_s = 0.0
        self.is_resumed = False
        self.max_utterance_s = 0.0
        self._n_utterances = 0
        self._n_segments = 0
        self._n_jobs = 0
        self._job_channel: dict[int, Channel] = {}
        self._markers: deque[_Marker] = deque()
        self._next_lag = 0
        self._reason_to_end: SessionError | None = None

    # What the shell may ask.

    @property
    def is_closed(self) -> bool:
        return self._state is _State.CLOSED

    @property
    def is_stopping(self) -> bool:
        """No more audio is expected; finals are still to come."""
        return self._state in (_State.STOPPING, _State.ENDING)

    @property
    def limits(self) -> events.Limits:
        return self._config.limits

    @property
    def n_channels(self) -> int:
        """Transcribed, each on its own; 0 before the session has started."""
        return len(self._channels)

    @property
    def audio_s(self) -> float:
        """Seconds of audio taken in."""
        return self._channels[0].position / SAMPLE_RATE if self._channels else 0.0

    @property
    def now_s(self) -> float:
        """The end of the audio taken in, as a time on the session's timeline."""
        return self._from_s + self.audio_s

    @property
    def bytes_per_s(self) -> int:
        """Of the audio as it arrives; 0 before the session has started."""
        return self._decoder.bytes_per_s if self._decoder else 0

    def duration_s(self, data: bytes) -> float:
        """How long so many bytes of this session's audio last."""
        return len(data) / self.bytes_per_s if self.bytes_per_s else 0.0

    @property
    def backlog(self) -> int:
        """Windows of all channels that have ended and wait for the engine; when they are many the shell stops reading.

        Those that heard nothing wait only for the ones before them. As none follows another, they at most double what
        is held.
        """
        return sum(channel.finals.n_to_decode for channel in self._channels)

    # What happens to it.

    def receive(self, command: commands.Command) -> list[Effect]:
        """Carry out a command. What is wrong with it is answered with a `Failure`; a fatal one ends the session."""
        if self._state is _State.CLOSED:
            return []
        try:
            self._receive(command)
        except SessionError as error:
            self._fail(error)
        return self._taken()

    def engine_event(self, job: int, event: api.EngineEvent) -> list[Effect]:
        """Take in an event of a window that was submitted under `job`."""
        channel = self._job_channel.get(job)
        if channel is None or self._state is _State.CLOSED:
            return []
        if isinstance(event, api.DoneEvent | api.SupersededEvent):
            del self._job_channel[job]
        channel.engine_event(job, event)
        self._answer()
        return self._taken()

    def engine_error(self, job: int, error: EngineError) -> list[Effect]:
        """The engine could not take or finish the window. Without room for it, an interim or the second reading of a
        stretch is let go; anything else ends the session.
        """
        is_overloaded = isinstance(error, EngineOverloaded)
        close_code = CLOSE_OVERLOADED if is_overloaded else CLOSE_OUR_FAULT
        return self._give_up(job, SessionError(error.code, str(error), close_code), may_go_on=is_overloaded)

    def engine_stalled(self, job: int, waited_s: float) -> list[Effect]:
        """The engine has not finished the window in time, and will not be waited for. An interim or a second reading is
        let go; without a final the session ends, and its last utterances say what is done, so that the client can go on
        elsewhere.
        """
        message = f"no final text within {waited_s:g} s; resume from resume_from_s, on another server if there is one"
        return self._give_up(job, SessionError("engine_stalled", message, CLOSE_OUR_FAULT), may_go_on=True)

    def _give_up(self, job: int, error: SessionError, may_go_on: bool) -> list[Effect]:
        channel = self._job_channel.pop(job, None)
        if channel is None or self._state is _State.CLOSED:
            return []
        if may_go_on and channel.abandon_job(job):
            self._answer()
        else:
            self._fail(error)
        return self._taken()

    def fail(self, error: SessionError) -> list[Effect]:
        """The shell or the dialect found something wrong with what the client did."""
        if self._state is not _State.CLOSED:
            if isinstance(error, BadStart) and self._state is not _State.NEW:
                error = _already_started()
            self._fail(error)
        return self._taken()

    def end(self, reason: SessionError) -> list[Effect]:
        """End the session, but make final what was heard first; the reason is the last that the client is told."""
        match self._state:
            case _State.NEW:
                self._fail(reason)
            case _State.OPEN | _State.STOPPING:
                self._reason_to_end = reason
                was_open = self._state is _State.OPEN
                self._state = _State.ENDING
                if was_open:
                    self._finish_audio()
                self._answer()
            case _State.ENDING | _State.CLOSED:
                pass
            case _:
                assert_never(self._state)
        return self._taken()

    def drain(self) -> list[Effect]:
        """The server is going down: the client is to go on elsewhere."""
        if self._state is _State.STOPPING:
            return []
        message = "the server is going down; what was heard is final; reconnect elsewhere"
        return self.end(SessionError("draining", message, CLOSE_DRAINING))

    # Commands.

    def _receive(self, command: commands.Command) -> None:
        match command:
            case commands.Start():
                if self._state is not _State.NEW:
                    raise _already_started()
                self._start(command)
            case commands.Keepalive():
                pass
            case commands.Audio() | commands.Flush() | commands.Discard() | commands.Configure() | commands.Stop() if (
                self._state is _State.NEW
            ):
                name = type(command).__name__.lower()
                raise WrongState("not_started", f"{name}: expected start first", CLOSE_POLICY)
            case commands.Audio() | commands.Flush() | commands.Discard() | commands.Configure() | commands.Stop() if (
                self._state is _State.STOPPING
            ):
                name = type(command).__name__.lower()
                raise WrongState("audio_after_stop", f"{name}: nothing is taken after stop")
            case commands.Audio():
                if self._state is _State.OPEN:
                    assert self._decoder
                    self._take(self._decoder.decode(command.data))
            case commands.Flush():
                self._flush(command)
            case commands.Discard():
                if self._state is _State.OPEN:
                    self._discard()
            case commands.Configure():
                if self._state is _State.OPEN:
                    self._configure(command)
            case commands.Stop():
                if self._state is _State.OPEN:
                    self._state = _State.STOPPING
                    self._finish_audio()
                    self._answer()
            case _:
                assert_never(command)

    def _start(self, start: commands.Start) -> None:
        if not self._knows(start.language):
            raise BadStart("language", self._known_languages, start.language)
        if start.task not in self._model.tasks:
            raise BadStart("task", f"one of {', '.join(self._model.tasks)} with this model", start.task)
        self.is_resumed = start.resume is not None
        self.max_utterance_s = start.endpointing.max_utterance_s
        n_channels = start.audio.n_heard
        from_s = start.resume.from_s if start.resume else (0.0,)
        if len(from_s) not in (1, n_channels):
            raise BadStart("resume.from_s", f"a number, or a list of {n_channels}, one for each channel", list(from_s))
        self._from_s = min(from_s)
        done_until = [round((each - self._from_s) * SAMPLE_RATE) for each in from_s] * (n_channels // len(from_s))
        interim_samples = self._config.interim_interval_ms * SAMPLE_RATE // 1000
        self._options = options = ChannelOptions(
            endpointing=start.endpointing,
            prompt=start.prompt,
            first_prompt=start.resume.prompt if start.resume else "",
            interim_samples=interim_samples if start.interim else None,
            make_policy=self._config.make_policy,
            asked=DecodeRequest(start.language, start.task, start.hotwords, start.words),
            finals=FinalOptions(
                self._config.max_finals_in_flight,
                self._config.context,
                self._config.speech_filter,
                self._config.sampling,
            ),
        )
        self._audio, self._decoder = start.audio, AudioDecoder(start.audio)
        self._channels = [
            Channel(number, self, self._config.make_detector(), options, done_until[number])
            for number in range(n_channels)
        ]
        self._state = _State.OPEN
        self.send(events.Started(self.id, self._model.name, self._config.limits, start.notices))

    def _take(self, channels: list[Samples]) -> None:
        for channel, samples in zip(self._channels, channels, strict=True):
            channel.take(samples)
        behind = max(channel.behind_samples for channel in self._channels)
        position = self._channels[0].position
        if behind >= LAG_SAMPLES and position >= self._next_lag:
            self._next_lag = position + LAG_EVERY_SAMPLES
            self.send(events.Lag(round(behind / SAMPLE_RATE, 3)))

    def _flush(self, flush: commands.Flush) -> None:
        if len(self._markers) >= MAX_PENDING_FLUSHES:
            raise LimitExceeded("too_many_flushes", f"flush: {MAX_PENDING_FLUSHES} flushes wait for their answers")
        assert self._decoder
        self._take(self._decoder.drain())
        flushed = [channel for channel in self._channels if flush.channel in (None, channel.number)]
        for channel in flushed:
            channel.flush(flush.id)
        finals = [channel.finals.n_added if channel in flushed else 0 for channel in self._channels]
        self._markers.append(_Marker(flush.id, finals))
        self._answer()

    def _discard(self) -> None:
        assert self._decoder
        self._take(self._decoder.drain())
        for channel in self._channels:
            channel.discard()

    def _configure(self, wanted: commands.Configure) -> None:
        assert self._decoder and self._options and self._audio
        if not self._knows(wanted.language):
            raise BadMessage("bad_message", f"{self._known_languages} as language", wanted.language)
        if wanted.audio.n_heard != self._audio.n_heard:
            raise BadMessage("bad_message", f"{self._audio.n_heard} channels, as before", wanted.audio.n_heard)
        if wanted.audio != self._audio:
            self._drain_decoder()
            self._audio, self._decoder = wanted.audio, AudioDecoder(wanted.audio)
        self.max_utterance_s = wanted.endpointing.max_utterance_s
        asked = DecodeRequest(wanted.language, self._options.asked.task, wanted.hotwords, wanted.words)
        self._options = replace(
            self._options, endpointing=wanted.endpointing, prompt=wanted.prompt, first_prompt="", asked=asked
        )
        for channel in self._channels:
            channel.configure(self._options)

    def _knows(self, language: str | None) -> bool:
        return language is None or language in self._model.languages

    @property
    def _known_languages(self) -> str:
        known = ", ".join(self._model.languages) or "none: this model knows one language only"
        return f"null or one of the model's languages ({known})"

    def _drain_decoder(self) -> None:
        """No more audio of this format follows."""
        assert self._decoder
        if self._decoder.n_rest_bytes:
            n_rest = self._decoder.n_rest_bytes
            message = f"audio: expected whole samples of every channel, got {n_rest} bytes more at the end; left out"
            self.send(events.Failure("incomplete_sample", message, is_fatal=False))
        self._take(self._decoder.drain())

    def _finish_audio(self) -> None:
        self._drain_decoder()
        for channel in self._channels:
            channel.finish()

    # Answers.

    def _answer(self) -> None:
        """Answer the flushes whose audio is final, and end the session when all of it is."""
        while self._markers and all(
            channel.finals.n_done >= n_finals
            for channel, n_finals in zip(self._channels, self._markers[0].finals, strict=True)
        ):
            self.send(events.Flushed(self._markers.popleft().id))
        if self.is_stopping and not any(channel.finals for channel in self._channels):
            self._finish()

    def _finish(self) -> None:
        if self._reason_to_end:
            self._fail(self._reason_to_end)
            return
        speech_s = sum(channel.finals.speech_samples for channel in self._channels) / SAMPLE_RATE
        n_words = sum(channel.finals.n_words for channel in self._channels)
        self.send(events.Stopped(round(self.audio_s, 3), round(speech_s, 3), n_words))
        self._close(CLOSE_DONE, "done")

    def _fail(self, error: SessionError) -> None:
        if error.close_code is None:
            self.send(events.Failure(error.code, error.message, is_fatal=False))
            return
        acknowledged = self.acknowledged()
        for channel in self._channels:
            channel.abandon(acknowledged)
        self.send(events.Failure(error.code, error.message, is_fatal=True))
        self._close(error.close_code, error.code)

    def _close(self, code: int, reason: str) -> None:
        self._state = _State.CLOSED
        self._effects += [Cancel(job) for job in self._job_channel]
        self._job_channel.clear()
        self._effects.append(Close(code, reason))

    def _taken(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    # What channels ask for (`SessionPort`).

    def next_utterance(self) -> int:
        self._n_utterances += 1
        return self._n_utterances - 1

    def next_segment(self) -> int:
        self._n_segments += 1
        return self._n_segments - 1

    def submit(self, channel: int, priority: api.Priority, samples: Samples, options: api.DecodeOptions) -> int:
        job = self._n_jobs
        self._n_jobs += 1
        self._job_channel[job] = self._channels[channel]
        self._effects.append(
            Submit(
                job, api.Window(samples=samples, session=self.id, channel=channel, priority=priority, options=options)
            )
        )
        return job

    def cancel(self, job: int) -> None:
        if self._job_channel.pop(job, None):
            self._effects.append(Cancel(job))

    def send(self, event: events.Event) -> None:
        self._effects.append(Send(event))

    def acknowledged(self) -> tuple[float, ...]:
        """For each channel the time before which nothing will be said any more; none of them ever decreases."""
        return tuple(self.seconds(channel.final_until) for channel in self._channels)

    def seconds(self, position: int) -> float:
        """A position in samples as a time on the session's timeline."""
        return round(self._from_s + position / SAMPLE_RATE, 3)


def _already_started() -> WrongState:
    return WrongState("already_started", "start: the session has started already")
