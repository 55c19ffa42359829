"""Decodes the open window at a pause as if its utterance ended there, so that the final text is ready when it does.

The final text of an utterance is decoded from its audio up to `TAIL_SAMPLES` of the silence after it, or, if a flush
ends it sooner, up to `FLUSH_TAIL_SAMPLES` of quiet. So at a pause of that length all audio that the final text depends
on is known. If the speaker goes on, the work was for nothing, except that its text is shown as an interim.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tutti_server.app.session.core.port import DecodeRequest, RequestKind
from tutti_server.app.session.core.windows import Decoding, EndedWindow, OpenWindow, WindowKind
from tutti_server.app.session.decoding.interims import Interims
from tutti_server.app.session.decoding.parts import ChannelParts
from tutti_server.app.session.messages.events import DecodingCounts
from tutti_server.engine import api
from tutti_server.engine.api import SAMPLE_RATE

TAIL_SAMPLES = SAMPLE_RATE // 10
"""Silence after the last voiced frame that a final text is decoded with, in samples (100 ms).

Measured with a Whisper of 11 M parameters: 277 utterances of synthetic
speech have the same words as with all of their 500 ms of silence, and 4 have others with 60 ms.
"""
FLUSH_TAIL_SAMPLES = SAMPLE_RATE * 80 // 1000
"""Quiet after speech that the text of a flushed utterance is decoded with, in samples (80 ms).

A client that flushes knows sooner than the detector that its speaker has finished. Measured in the same way: 2.61 % of
the words of synthetic speech are wrong with all audio; with 80, 60 and 40 ms of quiet 2.59, 2.64 and 2.83 %.
"""
MAX_FLUSH_SILENCE_SAMPLES = SAMPLE_RATE * 160 // 1000
"""Silence from which on a pause is no longer one that ends by a flush, in samples (160 ms).

A client that flushes by habit does so sooner. So a pause that it flushes is decoded once, and a longer one twice.
"""
MAX_QUIET_SPEECH_SAMPLES = SAMPLE_RATE // 4
"""The longest audio that is quiet while the detector takes it for speech, in samples (0.25 s); more is soft speech.

The WebRTC detector notices the end of speech 0.1 s late, and in one case of ten 0.2 s.
"""
MAX_TAIL_CUT_SAMPLES = SAMPLE_RATE
"""The most silence after speech that is left out in manual mode, in samples (1 s).

Where there is more, all audio is decoded, because the detector may have missed quiet speech.
"""
LEAST_SUCCESS = 0.5
"""The least fraction of utterances with a speculative decoding whose text it gave; below, the engine is spared."""
N_SMOOTHED = 4
"""The number of utterances over which this fraction is smoothed."""
RETRY_AFTER = 9
"""An engine that is spared is tried again after this many utterances."""


@dataclass(slots=True, kw_only=True)
class _Speculation:
    """A speculative decoding of a window, from its request on."""

    request: DecodeRequest
    audio_start: int
    """Position of the first sample that was decoded."""
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
    has_lost_translation: bool = False
    """Whether its translation was withdrawn before it had come."""

    @property
    def is_waiting(self) -> bool:
        return not (self.is_decoding or self.done)

    def settle(self) -> bool:
        """Give the text to `decoding` and return true, if it begins with all stable text, in the same language."""
        assert self.done and self.window
        if not self.window.stabilizer.begins(self.done):
            return False
        self.decoding.events.extend([*self.events, self.done])
        return True


@dataclass(slots=True)
class _Record:
    """How many of the last utterances got their text from a speculative decoding."""

    success: float = 1.0
    """The smoothed fraction, of those that had one."""
    n_passed_over: int = 0
    """Utterances without any since the last one that had some."""

    def add(self, counts: DecodingCounts) -> None:
        if counts.n_speculative:
            self.success += (counts.is_speculative - self.success) / N_SMOOTHED
            self.n_passed_over = 0
        else:
            self.n_passed_over += 1

    @property
    def is_good(self) -> bool:
        """Whether the next utterance should have one."""
        return self.success >= LEAST_SUCCESS or self.n_passed_over >= RETRY_AFTER


class Speculations:
    """The speculative decodings of one channel, one at a time."""

    def __init__(
        self, parts: ChannelParts, interims: Interims | None, on_text: Callable[[api.DoneEvent, int], None]
    ) -> None:
        """Make the speculative decodings of a channel.

        Args:
            on_text: called with each hypothesis of the open window while its pause goes on, and the position after the
                audio that was decoded.
        """
        self.channel = parts.finals.channel
        self._parts = parts
        self._port = parts.port
        self._finals = parts.finals
        self._endpointer = parts.endpointer
        self._buffer = parts.buffer
        self._interims = interims
        self._on_text = on_text
        self._current: _Speculation | None = None
        """The speculative final of the open window."""
        self._awaited: dict[int, _Speculation] = {}
        """The speculative finals whose windows have ended, by the ids of their decode requests."""
        self._expects_flush: bool | None = None
        """Whether the client ended the last utterance by a flush. `None`: there was none."""
        self._submitted_until = 0
        """Position after the audio of the last request."""
        self._record = _Record()

    @property
    def is_running(self) -> bool:
        """Whether the engine has a speculative decoding of the open window."""
        return self._current is not None and self._current.done is None

    def audio_end(self, window: OpenWindow, *, is_flushed: bool) -> int:
        """Position after the audio that the text of the window is decoded from, if its utterance ends now."""
        pause_end = self._pause_end(window, is_flushed=is_flushed)
        return self._endpointer.position if pause_end is None else pause_end

    def _pause_end(self, window: OpenWindow, *, is_flushed: bool) -> int | None:
        """The end of the audio to decode, where enough silence follows the speech; else `None`."""
        endpointer, is_manual = self._endpointer, self._parts.options.is_manual
        pause_end = endpointer.voiced_until + TAIL_SAMPLES
        if is_flushed and self._is_quiet(window) and (pause_end > endpointer.position or self._is_flush_pause):
            pause_end = endpointer.loud_until + FLUSH_TAIL_SAMPLES
        if not window.start < pause_end <= endpointer.position or not window.speech:
            return None
        is_too_long = is_manual and endpointer.position - pause_end > MAX_TAIL_CUT_SAMPLES
        return None if is_too_long else pause_end

    def _is_quiet(self, window: OpenWindow) -> bool:
        """Whether what the detector still takes for speech is no more than the quiet after loud speech."""
        loud_until = self._endpointer.loud_until
        return loud_until > window.start and self._endpointer.voiced_until - loud_until <= MAX_QUIET_SPEECH_SAMPLES

    @property
    def _may_be_flushed(self) -> bool:
        """Whether to be ready for a flush. In the first utterance that is worth it where the detector is late."""
        if self._parts.options.is_manual or self._expects_flush is not None:
            return self._parts.options.is_manual or bool(self._expects_flush)
        return self._endpointer.voiced_until - self._endpointer.loud_until > TAIL_SAMPLES - FLUSH_TAIL_SAMPLES

    @property
    def _is_flush_pause(self) -> bool:
        """Whether this is a pause that the client ends by a flush, by habit and so far."""
        silence = self._endpointer.position - self._endpointer.voiced_until
        return bool(self._parts.options.is_manual or self._expects_flush) and silence < MAX_FLUSH_SILENCE_SAMPLES

    def is_pause(self, audio_end: int) -> bool:
        """Whether the pause that is decoded up to `audio_end` still goes on."""
        return audio_end == self._endpointer.voiced_until + TAIL_SAMPLES

    def update(self, window: OpenWindow) -> int | None:
        """Begin at a pause, and withdraw what waits in the engine's queue if speech goes on. Called after each frame.

        Returns the position after the audio that the engine was asked to decode, if it was.
        """
        if not self._parts.options.config.speculates:
            return None
        pause_end = self._pause_end(window, is_flushed=self._may_be_flushed)
        current = self._current
        if current and current.is_waiting and pause_end != current.audio_end:
            self._port.cancel(current.request)
            self.on_dropped(current.request)
        if current and pause_end is None:
            self._forget_translation(current)
        if pause_end is None or pause_end == self._submitted_until or self.is_running or self._finals:
            return None
        return pause_end if self._begin_if_worth_it(window, pause_end) else None

    def _begin_if_worth_it(self, window: OpenWindow, audio_end: int) -> bool:
        """Begin unless the engine's answers have come too late for most of the last utterances.

        This is the rule that spares a busy engine. Now and then an utterance tries again.
        """
        self._submitted_until = audio_end
        if not self._record.is_good:
            return False
        options = self._finals.final_options(window)
        had_context = bool(options.previous_text or options.prefix)
        if self._interims:
            self._interims.give_way(self._endpointer.position)
            options = replace(options, attention_times=window.stabilizer.needs_attention)
        samples = self._buffer.view(window.start, audio_end)
        if self._current:
            self._forget_translation(self._current)
        request = self._port.submit(self, RequestKind.SPECULATIVE, samples, options, window.utterance.number)
        self._current = _Speculation(
            request=request, audio_start=window.start, audio_end=audio_end, decoding=Decoding(had_context)
        )
        window.utterance.counts.n_speculative += 1
        return True

    def end_window(self, window: EndedWindow, audio_end: int, *, is_flushed: bool) -> None:
        """The open window has ended. It gets the speculative decoding of all audio of its final text, if there is one.

        Args:
            audio_end: position after the audio that its final text is decoded from.
            is_flushed: whether the client ended its utterance.
        """
        self._adopt(window, audio_end)
        if window.is_last and window.kind is not WindowKind.DISCARDED:
            self._expects_flush = is_flushed
            self._record.add(window.utterance.counts)

    def _forget_translation(self, speculation: _Speculation) -> None:
        """Withdraw the translation of a text that does not become final."""
        speculation.has_lost_translation |= self._finals.translations.forget(speculation.request)

    def _adopt(self, window: EndedWindow, audio_end: int) -> None:
        """Give a window that has ended its text, if it was decoded or is being decoded; else withdraw what is not."""
        window.utterance.counts.is_speculative = False
        current, self._current = self._current, None
        if current is None:
            return
        is_usable = window.kind is not WindowKind.DISCARDED and current.audio_end == audio_end
        if not is_usable or current.has_lost_translation or current.is_waiting:
            self._port.cancel(current.request)
            self._forget_translation(current)
            return
        current.window = window
        if current.done is None:
            self._awaited[current.request.id] = current
        elif not current.settle():
            self._forget_translation(current)
            return
        window.decoding = current.decoding
        window.utterance.counts.is_speculative = True

    # What the engine answers.

    def on_engine_event(self, request: DecodeRequest, event: api.EngineEvent) -> None:
        """Process an event of a speculative decoding."""
        speculation = self._find(request)
        match event:
            case api.StartedEvent():
                speculation.is_decoding = True
            case api.SegmentEvent():
                speculation.events.append(event)
            case api.DoneEvent():
                speculation.done = event
                if event.translation_follows:
                    translations = self._finals.translations
                    translations.expect(request, speculation.decoding.translation, speculation.audio_start)
                self._on_done(speculation, event)
            case api.SupersededEvent():
                self.on_dropped(request)

    def _on_done(self, speculation: _Speculation, done: api.DoneEvent) -> None:
        if speculation.window is None:
            if self._interims:
                self._interims.show(done, speculation.audio_end)
            if self.is_pause(speculation.audio_end):
                self._on_text(done, speculation.audio_end)
            return
        del self._awaited[speculation.request.id]
        if speculation.settle():
            self._finals.advance()
        else:
            self._forget_translation(speculation)
            self._decode_anew(speculation)

    def on_dropped(self, request: DecodeRequest) -> None:
        """Go on without a speculative decoding: the engine had no room or no time for it."""
        speculation = self._find(request)
        if speculation.window:
            del self._awaited[request.id]
            self._decode_anew(speculation)
            return
        self._current = None
        if self._interims:
            self._interims.forget_speculation()

    def _find(self, request: DecodeRequest) -> _Speculation:
        """The speculative decoding of this request; whatever is given up has withdrawn its own."""
        current = self._current
        return current if current and current.request is request else self._awaited[request.id]

    def _decode_anew(self, speculation: _Speculation) -> None:
        assert speculation.window
        speculation.window.decoding = None
        speculation.window.utterance.counts.is_speculative = False
        self._finals.advance()
