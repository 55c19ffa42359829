"""Decodes the open window at a pause as if its utterance ended there, so that the final text is ready when it does.

The final text of an utterance is decoded from its audio up to `TAIL_SAMPLES` of the silence after it. So at a pause of
that length all audio that the final text depends on is known. If the speaker goes on, the work was for nothing, except
that its text is shown as an interim.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from app.media.pcm import SampleBuffer
from app.session.endpointing import Endpointer
from app.session.finals import Finals
from app.session.interims import Interims
from app.session.jobs import Job, JobKind, SessionPort
from app.session.options import ChannelOptions
from app.session.windows import Decoding, EndedWindow, OpenWindow, WindowKind
from engine import api
from engine.api import SAMPLE_RATE

TAIL_SAMPLES = SAMPLE_RATE // 10
"""Silence after speech that its final text is decoded with, in samples (100 ms). Only what the detector takes for
silence is left out.

Measured with the embedded model and the WebRTC detector, which itself notices the end of speech about 0.1 s late. 277
utterances of synthetic speech had the same words with all of their 500 ms of silence, 240, 160 and 100 ms, and 4 of
them others with 60 ms. Human speech (243 utterances): 71.3 % word errors with all, 71.1 % with 100 ms; calls 78.3 % and
75.0 %.
"""
MAX_TAIL_CUT_SAMPLES = SAMPLE_RATE
"""In manual mode: silence after speech that is left out at most, in samples (1 s). Where there is more, all audio is
decoded, because the detector may have missed quiet speech."""


@dataclass(slots=True, kw_only=True)
class _Speculation:
    """A speculative decoding of a window, from its request on."""

    job: Job
    audio_end: int
    """Position after the last sample that was decoded."""
    decoding: Decoding
    """Gets its events when the final text is known to be this one."""
    is_decoding: bool = False
    """Whether the request has left the engine's queue."""
    events: list[api.SegmentEvent] = field(default_factory=list)
    done: api.DoneEvent | None = None
    window: EndedWindow | None = None
    """The window that ended while it was decoded, and waits for its text."""

    def settle(self) -> bool:
        """Hand the text over to `decoding`, if it begins with all that was shown as stable, in the same language.

        Returns whether it does.
        """
        assert self.done and self.window
        stable = self.window.stable
        tokens = tuple(token for piece in self.done.pieces for token in piece.tokens)
        if tokens[: len(stable.tokens)] != stable.tokens or stable.language not in (None, self.done.language):
            return False
        self.decoding.events.extend([*self.events, self.done])
        return True


class Speculations:
    """The speculative decodings of one channel, one at a time."""

    def __init__(
        self,
        options: ChannelOptions,
        session: SessionPort,
        finals: Finals,
        endpointer: Endpointer,
        buffer: SampleBuffer,
        interims: Interims | None,
        on_text: Callable[[api.DoneEvent, int], None],
    ) -> None:
        """Make the speculative decodings of a channel.

        Args:
            options: those of the channel.
            session: where jobs go.
            finals: the ended windows of the channel, which get the texts.
            endpointer: it knows how far the channel's audio has come, and how far its speech.
            buffer: the channel's audio.
            interims: shows the texts, if the client wants interims.
            on_text: called with each hypothesis of the open window while its pause goes on, and the position after the
                audio that was decoded.
        """
        self.channel = finals.channel
        self._session = session
        self._finals = finals
        self._endpointer = endpointer
        self._buffer = buffer
        self._interims = interims
        self._on_text = on_text
        self._options = options
        self._current: _Speculation | None = None
        """That of the open window."""
        self._awaited: dict[int, _Speculation] = {}
        """Those whose windows have ended, by the ids of their jobs."""
        self._submitted_until = 0
        """Position after the audio of the last request."""
        self._delay = 0
        """How long answers take, in samples of audio that arrives meanwhile."""

    def configure(self, options: ChannelOptions) -> None:
        """Change the options."""
        self._options = options

    @property
    def is_running(self) -> bool:
        """Whether the engine has a speculative decoding of the open window."""
        return self._current is not None and self._current.done is None

    def audio_end(self, window: OpenWindow) -> int:
        """Position after the audio that the text of the window is decoded from, if its utterance ends now."""
        position, audio_end = self._endpointer.position, self._endpointer.voiced_until + TAIL_SAMPLES
        if not window.speech or audio_end <= window.start:
            return position
        if self._options.is_manual and position - audio_end > MAX_TAIL_CUT_SAMPLES:
            return position
        return min(audio_end, position)

    def update(self, window: OpenWindow) -> None:
        """After each frame: begin at a pause, and withdraw what waits in the engine's queue if speech goes on."""
        audio_end = self.audio_end(window)
        current = self._current
        if current and not current.done and not current.is_decoding and audio_end != current.audio_end:
            self._withdraw()
        is_pause = audio_end == self._endpointer.voiced_until + TAIL_SAMPLES
        if not self._options.speculates or not is_pause or audio_end == self._submitted_until:
            return
        if not self.is_running and not self._finals:
            self._begin_if_useful(window, audio_end)

    def _begin_if_useful(self, window: OpenWindow, audio_end: int) -> None:
        """Begin if the answer is expected before the silence ends the utterance: a later one saves no time.

        This is the rule that spares a busy engine. After each pause that it passes over, answers are expected sooner.
        """
        self._submitted_until = audio_end
        if self._endpointer.pause_samples + self._delay >= self._options.silence_samples:
            self._delay //= 2
            return
        stabilizer = window.stabilizer
        options = self._finals.final_options(window.utterance, window.stable, window.speech_s)
        had_context = bool(options.previous_text or options.prefix)
        if self._interims:
            self._interims.give_way(self._endpointer.position)
            options = replace(options, attention_times=stabilizer.needs_attention)
        samples = self._buffer.view(window.start, audio_end).copy()
        job = self._session.submit(self, JobKind.SPECULATIVE, samples, options)
        self._current = _Speculation(job=job, audio_end=audio_end, decoding=Decoding(had_context))
        window.utterance.counts.n_speculative += 1

    def end_window(self, window: EndedWindow, audio_end: int) -> None:
        """The open window has ended. It gets the speculative decoding, if that is of all audio of its final text.

        Args:
            window: the window as it ended.
            audio_end: position after the audio that its final text is decoded from.
        """
        current, self._current = self._current, None
        if current is None:
            return
        is_usable = window.kind is not WindowKind.DISCARDED and current.audio_end == audio_end
        if not is_usable or not (current.done or current.is_decoding):
            self._session.cancel(current.job)
            return
        current.window = window
        if current.done is None:
            self._awaited[current.job.id] = current
        elif not current.settle():
            return
        window.decoding = current.decoding
        window.utterance.counts.is_speculative = True

    # What the engine answers.

    def on_engine_event(self, job: Job, event: api.EngineEvent) -> None:
        """Process an event of a speculative decoding."""
        speculation = self._awaited.get(job.id, self._current)
        if speculation is None or speculation.job is not job:
            return
        match event:
            case api.StartedEvent():
                speculation.is_decoding = True
            case api.SegmentEvent():
                speculation.events.append(event)
            case api.DoneEvent():
                speculation.done = event
                self._on_done(speculation, event)
            case api.SupersededEvent():
                self.on_dropped(job)

    def _on_done(self, speculation: _Speculation, done: api.DoneEvent) -> None:
        if speculation is self._current:
            delay = self._endpointer.position - speculation.audio_end
            self._delay = (self._delay + delay) // 2
            if self._interims:
                self._interims.show(done, speculation.audio_end)
            if speculation.audio_end == self._endpointer.voiced_until + TAIL_SAMPLES:
                self._on_text(done, speculation.audio_end)
            return
        del self._awaited[speculation.job.id]
        if speculation.settle():
            self._finals.advance()
        else:
            self._decode_anew(speculation)

    def on_dropped(self, job: Job) -> None:
        """Go on without a speculative decoding: the engine had no room or no time for it."""
        awaited = self._awaited.pop(job.id, None)
        if awaited:
            self._decode_anew(awaited)
        elif self._current and self._current.job is job:
            self._current = None
            if self._interims:
                self._interims.forget_speculation()

    def _decode_anew(self, speculation: _Speculation) -> None:
        """Have the window decoded as if there had been no speculation."""
        assert speculation.window
        speculation.window.decoding = None
        speculation.window.utterance.counts.is_speculative = False
        self._finals.advance()

    def _withdraw(self) -> None:
        assert self._current
        self._session.cancel(self._current.job)
        self._current = None
