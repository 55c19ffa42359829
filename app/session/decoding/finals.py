"""The ended windows of one channel: asks the engine for their texts, and sends these in order.

It knows nothing of the audio that still arrives; that is `app/session/channel.py`.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from tutti_server.app.session.core.acceptance import accepts_redecoded, accepts_segment, is_silent
from tutti_server.app.session.core.options import ChannelOptions
from tutti_server.app.session.core.port import Acknowledged, DecodeRequest, RequestKind, SessionPort
from tutti_server.app.session.core.previous_text import PreviousText
from tutti_server.app.session.core.windows import Decoding, EndedWindow, OpenWindow, WindowKind
from tutti_server.app.session.decoding.translations import Translations
from tutti_server.app.session.messages import events
from tutti_server.app.session.speech.coverage import (
    MIN_UNCOVERED_SAMPLES,
    Span,
    duration,
    latest_end,
    plausible_end,
    uncovered,
)
from tutti_server.app.session.text.language_choice import ChannelLanguage
from tutti_server.app.session.text.segment_times import LEAD_SAMPLES, end_of_words, tightened
from tutti_server.app.session.text.stable_trust import with_stable_trust
from tutti_server.app.session.text.stable_word_times import on_timeline, with_stable_times, words_from
from tutti_server.engine import api
from tutti_server.engine.api import SAMPLE_RATE


class Finals:
    """The queue of ended windows of one channel. Texts are sent in the order in which the windows were added.

    A window stays in the queue until all of its text was sent. Only the first window of the queue sends text.
    """

    def __init__(self, channel: int, port: SessionPort, options: ChannelOptions, language: ChannelLanguage) -> None:
        self.channel = channel
        self.language = language
        """Decides the language of the windows of utterances to come."""
        self.translations = Translations(channel, port, options.targets, options.config.hallucination_filter)
        """The translations of the texts that were sent."""
        self._port = port
        self._options = options
        self._filter = options.config.hallucination_filter
        self._windows: deque[EndedWindow] = deque()
        self._previous_text = PreviousText(options.context)
        self.n_added = 0
        """Windows added so far."""
        self.n_done = 0
        """Windows whose text was sent."""
        self.speech_samples = 0
        """Samples of detected speech in the windows that are done."""
        self.n_words = 0
        """The number of words that were sent."""

    def __len__(self) -> int:
        return len(self._windows)

    @property
    def n_to_decode(self) -> int:
        """Windows that wait for the engine, or that were discarded while an earlier window waits.

        The others have no speech. Each of them follows one of these, which it waits for.
        """
        return sum(window.needs_decoding or window.kind is WindowKind.DISCARDED for window in self._windows)

    @property
    def oldest(self) -> EndedWindow | None:
        """The first window that is not done."""
        return self._windows[0] if self._windows else None

    def speech(self) -> Iterator[Span]:
        """The speech detected in all windows that are not done, in order."""
        for window in self._windows:
            yield from window.speech

    def decode_options(self, window: OpenWindow | EndedWindow) -> api.DecodeOptions:
        """How the engine decodes a window, for an interim or its final text; its language is left open."""
        utterance, start = window.utterance, window.utterance.options.start
        return api.DecodeOptions(
            task=start.task,
            previous_text=self._previous_text.of(utterance) or utterance.prompt,
            prefix=window.stabilizer.tokens,
            draft=window.stabilizer.draft,
            hotwords=start.hotwords,
        )

    def final_options(self, window: OpenWindow | EndedWindow, n_before: int = 0) -> api.DecodeOptions:
        """How the engine decodes a window for its final text; `n_before` windows before it are not done."""
        options, requested = self.decode_options(window), window.utterance.options
        language = window.utterance.language.channel
        latest = latest_end(window.speech) if options.task == "transcribe" else None
        options = language.for_final(options, window.speech_s, window.stabilizer.language, n_before)
        return replace(
            options,
            word_times=requested.has_words,
            latest_end_s=None if latest is None else (latest - window.start) / SAMPLE_RATE,
            sampling=self._options.sampling.now,
            translates=bool(requested.targets.by_engine),
        )

    def add(self, window: EndedWindow) -> None:
        """Put a window that has ended at the end of the queue."""
        self._windows.append(window)
        self.n_added += 1
        self.advance()

    def advance(self) -> None:
        """Submit what may run, and send the text of the first windows as far as it has come."""
        self._submit()
        while self._windows:
            window = self._windows[0]
            if window.needs_decoding and not self._send_decoded(window):
                return
            self._windows.popleft()
            self.n_done += 1
            self._finish(window)
            self._port.answer_flushes()
            self._submit()

    # Submit what may run.

    def _submit(self) -> None:
        previous: EndedWindow | None = None
        n_in_flight = 0
        for window in self._windows:
            if not window.needs_decoding:
                continue
            if window.decoding is None:
                if n_in_flight >= self._options.config.max_finals_in_flight:
                    return
                if previous and self._previous_text.must_wait(window, previous):
                    return
                if previous and window.utterance.language.channel.must_wait:
                    return
                self._submit_window(window, n_in_flight)
            n_in_flight += 1
            previous = window

    def _submit_window(self, window: EndedWindow, n_before: int) -> None:
        options = self.final_options(window, n_before)
        window.decoding = Decoding(had_context=bool(options.previous_text or options.prefix))
        self._port.submit(self, RequestKind.FINAL, window.samples, options, window.utterance.number, window)

    # Process the events of the engine.

    def on_engine_event(self, request: DecodeRequest, event: api.EngineEvent) -> None:
        """Process an event of a window, or of missed speech in it."""
        window = request.window
        assert window and window.decoding
        if isinstance(event, api.DoneEvent) and event.translation_follows:
            stretch = window.redecoding.stretch if request.kind is RequestKind.REDECODE else None
            self.translations.expect(request, window.decoding.translation, stretch.start if stretch else window.start)
        if not isinstance(event, api.SegmentEvent | api.DoneEvent):
            return
        if request.kind is RequestKind.FINAL:
            window.decoding.events.append(event)
        elif isinstance(event, api.DoneEvent):
            window.decoding.is_repetitive |= self._is_repetitive(event)
            self._send_redecoded(window, event)
        self.advance()

    def _is_repetitive(self, done: api.DoneEvent) -> bool:
        return done.is_repetitive or self._filter.is_repetitive(done.compression_ratio)

    def on_dropped(self, request: DecodeRequest) -> None:
        """Go on without the text of missed speech."""
        assert request.kind is RequestKind.REDECODE and request.window
        request.window.redecoding.finish()
        self.advance()

    def _send_decoded(self, window: EndedWindow) -> bool:
        """Send the text of a window as far as it has come, up to missed speech; true if the window is done."""
        decoding = window.decoding
        assert decoding
        while decoding.events and not window.redecoding.stretch:
            event = decoding.events[0]
            if isinstance(event, api.DoneEvent):
                decoding.is_repetitive |= self._is_repetitive(event)
                decoding.language_probabilities = event.language_probabilities
                if is_silent(self._filter, window, event):
                    return True
                if event.text_end_s is not None:
                    self._extend_last_text(window, event.segments[-1].text, event.text_end_s)
                if not self._redecode_missed(window, window.end, "", event.language):
                    return True
                continue
            segment, shown_until_s = with_stable_times(event.segment, window.stabilizer.words, window.n_processed_chars)
            if accepts_segment(self._filter, window, segment):
                start = min(window.start + round(segment.start_s * SAMPLE_RATE), window.end)
                if self._redecode_missed(window, start, segment.text, event.language):
                    # The segment stays first: it is sent after the missed speech.
                    continue
                window.utterance.language.add(event.language, event.language_probability, segment.text)
                shown_until = window.start + round(shown_until_s * SAMPLE_RATE)
                segment = with_stable_trust(segment, window.stabilizer.judged, window.n_processed_chars)
                self._send_segment(window, segment, event.language, window.span, shown_until)
            else:
                decoding.refused = segment.text
            window.n_processed_chars += len(segment.text)
            decoding.events.popleft()
        return False

    def _extend_last_text(self, window: EndedWindow, text: str, text_end_s: float) -> None:
        """Extend the last text of a window to where the engine has found its end, later than the model's timestamp."""
        assert window.decoding
        if not window.sent.times or text == window.decoding.refused:
            return
        (start, _), end = window.sent.times[-1], window.utterance.text_until
        new_end = min(window.start + round(text_end_s * SAMPLE_RATE), window.end)
        new_end = plausible_end(text, window.speech, start, new_end)
        if new_end - end > LEAD_SAMPLES:
            window.utterance.text_until = new_end
            window.sent.times[-1] = (start, new_end)

    # Decode missed speech again.

    def _redecode_missed(self, window: EndedWindow, until: int, following_text: str, language: str | None) -> bool:
        """Ask the engine for speech between the last segment and `until`; false if none was missed there.

        The model is shown neither prompt nor prefix, because these may have misled the first decoding attempt.
        """
        stretch = window.redecoding.find(window.speech, max(window.utterance.text_until, window.start), until)
        if stretch is None or window.unsent_stable:
            return False
        requested = window.utterance.options
        options = api.DecodeOptions(
            task=requested.start.task,
            hotwords=requested.start.hotwords,
            word_times=requested.has_words,
            translates=bool(requested.targets.by_engine),
        )
        speech_s = duration(stretch.speech) / SAMPLE_RATE
        options = window.utterance.language.channel.for_missed(options, speech_s, language)
        samples = window.samples[stretch.start - window.start : stretch.end - window.start]
        self._port.submit(self, RequestKind.REDECODE, samples, options, window.utterance.number, window)
        window.redecoding.start(stretch, following_text)
        window.utterance.counts.n_redecodes += 1
        return True

    def _send_redecoded(self, window: EndedWindow, done: api.DoneEvent) -> None:
        stretch, following_text = window.redecoding.stretch, window.redecoding.following_text
        assert stretch
        window.redecoding.finish()
        if self._filter.is_repetitive(done.compression_ratio):
            return
        refused = ""
        for segment in done.segments:
            if accepts_redecoded(self._filter, segment, refused, window.utterance.text, following_text):
                window.utterance.language.add(done.language, None, segment.text)
                self._send_segment(window, segment, done.language, (stretch.start, stretch.end))
            else:
                refused = segment.text
        if done.is_truncated and window.utterance.text_until > stretch.start:
            # The speech after it was heard by no decoding.
            window.redecoding.checked_until = window.utterance.text_until
        missed = uncovered(stretch.speech, window.covered, min_samples=1)
        window.utterance.counts.recovered_s += (duration(stretch.speech) - duration(missed)) / SAMPLE_RATE

    # Send in order.

    def _send_segment(
        self, window: EndedWindow, segment: api.Segment, language: str | None, audio: Span, shown_until: int = 0
    ) -> None:
        """Send a segment that was decoded from the audio between two positions; its times count from the first.

        Its words up to the position `shown_until` were shown with their times, so it does not end before.
        """
        utterance = window.utterance
        text = segment.text if utterance.text else segment.text.lstrip()
        if not text:
            return
        start = min(max(audio[0] + round(segment.start_s * SAMPLE_RATE), utterance.text_until), audio[1])
        end = max(min(audio[0] + round(segment.end_s * SAMPLE_RATE), audio[1]), start)
        has_words = bool(segment.words) and utterance.options.start.task == "transcribe"
        if has_words:
            end = end_of_words(segment, audio[0], (start, end), audio[1])
        shown = tightened(segment, audio[0], (start, end)) if has_words else (start, end)
        end = max(plausible_end(text, window.speech, shown[0], end), shown_until)
        utterance.text += text
        utterance.text_until = end
        self._previous_text.append(segment.text)
        window.covered.append((start, end))
        start, end = shown[0], max(min(shown[1], end), shown_until)
        window.sent.text += text
        window.sent.times.append((start, end))
        window.sent.language = language
        self.n_words += len(text.split())
        self._port.send(
            events.Segment(
                utterance=utterance.number,
                id=next(self._port.segment_numbers),
                channel=self.channel,
                start_s=self._port.seconds(start),
                end_s=self._port.seconds(end),
                text=text,
                language=language,
                language_probability=utterance.language.probability(language),
                source=segment,
                window_start_s=self._port.seconds(audio[0]),
                words=self._words(segment, audio[0], (start, end)),
                goes_on=not window.is_last,
            )
        )

    def _words(self, segment: api.Segment, origin: int, sent: Span) -> tuple[events.Word, ...]:
        """The words of a segment with their times on the session's timeline, inside the segment as it is sent."""

        def to_timeline(word_s: float) -> float:
            return self._port.seconds(min(max(origin + round(word_s * SAMPLE_RATE), sent[0]), sent[1]))

        return on_timeline(segment.words or (), to_timeline)

    def _send_stable(self, window: EndedWindow) -> None:
        """Send the text that was shown as stable, because no final text of it comes."""
        end_s = (window.stabilizer.stable_until - window.start) / SAMPLE_RATE
        words = words_from(window.stabilizer.words, window.n_processed_chars)
        segment = api.Segment(
            start_s=0.0,
            end_s=end_s,
            text=window.unsent_stable,
            tokens=(),
            avg_logprob=0.0,
            compression_ratio=1.0,
            no_speech_prob=0.0,
            words=words or None,
        )
        segment = with_stable_trust(segment, window.stabilizer.judged, window.n_processed_chars)
        shown_until = window.start + round((words[-1].end_s if words else 0.0) * SAMPLE_RATE)
        self._send_segment(window, segment, window.stabilizer.language, window.span, shown_until)

    def _finish(self, window: EndedWindow) -> None:
        """Report speech without text, as all text of the window was sent; end its utterance if it is the last."""
        self.speech_samples += duration(window.speech)
        if window.kind is WindowKind.DISCARDED and window.unsent_stable:
            self._send_stable(window)
        self._previous_text.window_ended(window)
        if window.decoding and window.covered:
            window.utterance.language.channel.add(window.decoding.language_probabilities, window.speech_s)
        min_samples = MIN_UNCOVERED_SAMPLES if window.covered else 1
        window.utterance.uncovered += uncovered(window.speech, window.sent.times, min_samples)
        window.utterance.detector_from = None
        self.translations.add(window)
        if window.is_last:
            is_complete = window.kind is not WindowKind.DISCARDED
            self._end_utterance(window, self._port.acknowledged(), is_complete)
        self.translations.advance()

    def abandon(self, unfinished: EndedWindow | None, acknowledged: Acknowledged) -> None:
        """End every utterance without further text: send its stable text, and report the speech that has no text.

        Args:
            unfinished: the window that was open, if any.
            acknowledged: the value of `SessionPort.acknowledged` before this call; what is abandoned is not final.
        """
        windows = [*self._windows, *([unfinished] if unfinished else [])]
        self._windows.clear()
        for window in windows:
            if window.unsent_stable:
                self._send_stable(window)
            window.utterance.uncovered += uncovered(window.speech, window.sent.times, min_samples=1)
            if window.is_last:
                self._end_utterance(window, acknowledged, is_complete=False)

    def _end_utterance(self, last: EndedWindow, acknowledged: Acknowledged, is_complete: bool) -> None:
        """Send the end of the utterance that ends with this window."""
        utterance = last.utterance
        seconds = self._port.seconds
        language = None if utterance.options.language.named else utterance.language.language
        end = max(last.speech[-1][1] if last.speech else utterance.start, utterance.text_until)
        if utterance.eager_end and utterance.eager_end.text != utterance.text.strip():
            # The text of the eager end was another one.
            at_s = seconds(last.end)
            self._port.send(events.SpeechResumed(utterance=utterance.number, channel=self.channel, at_s=at_s))
        self._port.send(
            events.Utterance(
                utterance=utterance.number,
                channel=self.channel,
                start_s=seconds(utterance.start),
                end_s=seconds(end),
                text=utterance.text,
                language=language,
                language_probability=utterance.language.probability(language),
                uncovered=tuple((seconds(start), seconds(end)) for start, end in utterance.uncovered),
                final_until_s=min(acknowledged.until_s),
                resume_from_s=acknowledged.until_s,
                detector_from_s=acknowledged.detector_from_s,
                translated_until_s=self._port.translated_until() if self._options.targets else (),
                counts=utterance.counts,
                is_complete=is_complete,
            )
        )
