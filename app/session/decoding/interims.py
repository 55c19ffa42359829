"""Decodes the open window of a channel again and again while it grows, and sends the interim texts."""

from dataclasses import dataclass, replace
from typing import assert_never

from tutti_server.app.session.core.acceptance import accepts_interim
from tutti_server.app.session.core.port import DecodeRequest, RequestKind
from tutti_server.app.session.core.windows import OpenWindow
from tutti_server.app.session.decoding.interim_schedule import InterimSchedule
from tutti_server.app.session.decoding.parts import ChannelParts
from tutti_server.app.session.messages import events
from tutti_server.app.session.text.stable_word_times import Words, on_timeline, timed_words
from tutti_server.engine import api
from tutti_server.engine.api import SAMPLE_RATE


@dataclass(slots=True)
class _Newest:
    request: DecodeRequest
    audio_end: int
    """Position after the last sample of the audio."""
    is_decoding: bool = False
    """Whether it has left the engine's queue, so that no newer one can replace it."""


class Interims:
    """The interims of one channel.

    A newer request replaces one that waits in the engine's queue. Until the engine confirms that, the newer one is not
    replaced in its turn.
    """

    def __init__(self, parts: ChannelParts) -> None:
        options = parts.options
        self.channel = parts.finals.channel
        self.decoded_until = 0
        """Position after the audio of the newest interim that was answered."""
        self._hallucination_filter = options.config.hallucination_filter
        self._parts = parts
        self._port = parts.port
        self._finals = parts.finals
        self._endpointer = parts.endpointer
        self._buffer = parts.buffer
        interval_samples = options.config.interim_interval_ms * SAMPLE_RATE // 1000
        self._schedule = InterimSchedule(interval_samples, options.config.extra_interval_s)
        self._window: OpenWindow | None = None
        self._newest: _Newest | None = None
        """What was asked for last, until it is answered."""
        self._replaced: DecodeRequest | None = None
        """A request in the queue that the newest replaces, until the engine confirms that."""

    def open_window(self, window: OpenWindow, *, is_first: bool) -> None:
        """Begin the interims of a window, which may be the first one of its utterance."""
        self._window = window
        if is_first:
            self._schedule.begin_utterance(window.utterance.start)
        else:
            self._schedule.continue_utterance(self._endpointer.position)

    def cancel(self) -> None:
        """Withdraw the requests of the open window, because it has ended or is about to end."""
        if self._newest:
            self._port.cancel(self._newest.request)
        if self._replaced:
            self._port.cancel(self._replaced)
        self._window = self._newest = self._replaced = None

    def submit_if_due(self, window: OpenWindow) -> None:
        """Ask for the text of the open window if it is time to; a request that waits in the queue is replaced.

        Final texts go first, and a request that the engine decodes already is not replaced.
        """
        if self._finals or not window.speech:
            return
        position = self._endpointer.position
        if not self._schedule.is_due(position, window.speech[-1][1], self._parts.options.silence_samples):
            return
        if self._newest and (self._newest.is_decoding or self._replaced):
            return
        self._schedule.note_submitted(position)
        stabilizer = window.stabilizer
        options = self._finals.decode_options(window)
        options = window.utterance.language.channel.for_interim(options, window.speech_s, stabilizer.language)
        has_words = window.utterance.options.start.interim_words
        options = replace(options, attention_times=stabilizer.needs_attention, word_times=has_words)
        samples = self._buffer.view(window.start, position)
        self._replaced = self._newest.request if self._newest else None
        request = self._port.submit(self, RequestKind.INTERIM, samples, options, window.utterance.number)
        self._newest = _Newest(request, position)

    def on_engine_event(self, request: DecodeRequest, event: api.EngineEvent) -> None:
        """Process an event of the newest request; what an older request has decoded is ignored."""
        newest = self._newest
        if newest is None or request is not newest.request:
            if request is self._replaced and isinstance(event, api.SupersededEvent | api.DoneEvent):
                self._replaced = None
            return
        match event:
            case api.StartedEvent():
                newest.is_decoding = True
            case api.SupersededEvent():
                self._newest = None
                self._schedule.forget_submitted()
            case api.DoneEvent():
                self._newest = None
                self.show(event, newest.audio_end)
            case api.SegmentEvent() | api.TranslatedEvent():
                # The end brings all of the text, and interims are not translated.
                pass
            case _:
                assert_never(event)

    def on_dropped(self, request: DecodeRequest) -> None:
        """Go on without an interim: the engine had no room or no time for it."""
        if request is self._replaced:
            self._replaced = None
        elif self._newest and request is self._newest.request:
            self._newest = None
            self._schedule.forget_submitted()

    def give_way(self, position: int) -> None:
        """Withdraw what waits: a speculative final of the audio up to `position` is decoded and shown instead."""
        if self._replaced:
            self._port.cancel(self._replaced)
            self._replaced = None
        if self._newest and not self._newest.is_decoding:
            self._port.cancel(self._newest.request)
            self._newest = None
        self._schedule.note_submitted(position)

    def forget_speculation(self) -> None:
        """The speculative decoding does not come."""
        self._schedule.forget_submitted()

    def show(self, done: api.DoneEvent, end: int) -> None:
        """Send a hypothesis of the open window up to the position `end`, unless it is not accepted as speech."""
        self._schedule.note_answered(self._endpointer.position)
        window = self._window
        assert window
        if end < self.decoded_until:
            # A speculative decoding has overtaken this interim.
            return
        if not window.stabilizer.begins(done):
            # More words have become stable since a speculative decoding was asked for, and it hears others.
            return
        self.decoded_until = end
        if not accepts_interim(self._hallucination_filter, window, done):
            return
        # Stable text has fixed the language of the window, whatever the engine reports for a speculative final.
        is_fixed = window.stabilizer.language is not None
        is_certain = is_fixed or not window.utterance.language.channel.is_in_doubt(done, window.speech_s)
        words = timed_words(done) if window.utterance.options.start.interim_words else ()
        audio_s = (end - window.start) / SAMPLE_RATE
        window.stabilizer.update(done.pieces, end, audio_s, words, language=done.language, is_certain=is_certain)
        # The engine judges only what follows the stable text.
        logprob = window.stabilizer.logprob if window.stabilizer.stable else None
        stable, tail = window.stabilizer.stable, window.stabilizer.tail
        if not window.utterance.text:
            stable, tail = stable.lstrip(), tail if stable.strip() else tail.lstrip()
        if not (stable or tail):
            return
        self._port.send(
            events.Interim(
                utterance=window.utterance.number,
                channel=self.channel,
                start_s=self._port.seconds(max(window.start, window.utterance.start)),
                end_s=self._port.seconds(end),
                stable=stable,
                tail=tail,
                avg_logprob=done.avg_logprob if logprob is None else logprob,
                stable_words=self._on_timeline(window, window.stabilizer.words),
                tail_words=self._on_timeline(window, window.stabilizer.tail_words),
            )
        )

    def _on_timeline(self, window: OpenWindow, words: Words) -> tuple[events.Word, ...]:
        return on_timeline(words, lambda word_s: self._port.seconds(window.start + round(word_s * SAMPLE_RATE)))
