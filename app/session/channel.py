"""One channel of a session: its audio becomes speech, speech becomes utterances, utterances become windows.

It counts samples and does no I/O. Windows that have ended go to `decoding/finals.py`; while a window is open,
`decoding/interims.py` shows its text.
"""

from itertools import chain
from typing import assert_never

import numpy as np

from tutti_server.app.media.pcm import NO_SAMPLES, SampleBuffer, Samples
from tutti_server.app.session.core.options import ChannelOptions
from tutti_server.app.session.core.port import Acknowledged, SessionPort
from tutti_server.app.session.core.windows import EndedWindow, OpenWindow, PendingUtterance, WindowKind
from tutti_server.app.session.decoding.finals import Finals
from tutti_server.app.session.decoding.hypotheses import Hypotheses
from tutti_server.app.session.decoding.parts import ChannelParts
from tutti_server.app.session.earlier_audio import EarlierAudio
from tutti_server.app.session.messages import events
from tutti_server.app.session.messages.continuation import ChannelStart
from tutti_server.app.session.speech.coverage import Span
from tutti_server.app.session.speech.detector_generations import DetectorGenerations
from tutti_server.app.session.speech.endpointing import (
    FRAME_SAMPLES,
    Endpointer,
    SpeechBegan,
    SpeechDetector,
    SpeechEnded,
    UpcomingFrames,
)
from tutti_server.app.session.speech.window_cutting import LONG_WINDOW_SAMPLES, find_cut, find_cut_of_filled
from tutti_server.app.session.text.language_choice import ChannelLanguage, UtteranceLanguage
from tutti_server.app.session.text.stabilizer import Stabilizer
from tutti_server.engine.api import SAMPLE_RATE

MIN_MANUAL_SAMPLES = SAMPLE_RATE // 10
"""The audio that begins an utterance in manual mode, in samples (100 ms).

Less can be the rest of a frame that was left after a flush, and begins none.
"""

MAX_LATE_SAMPLES = SAMPLE_RATE
"""How late a detector may notice speech at the beginning of a resumed session, in samples (1 s).

The session resumes where a window began, mostly. Its detector has heard only a few seconds, and notices a part of the
speech later than the one before did; the window begins in the same place nevertheless. Measured over 25 minutes of
speech, resumed at each of 173 utterances, with 10 s of audio before: 117 were noticed in the same frame as without a
loss, 12 more than 0.3 s later, which is more than the padding, and 5 more than 1 s later.
"""


class Channel:
    """Receives the channel's audio by `feed`. What follows from it goes out through the session.

    All positions are in samples since the session began. Everything happens at the end of a frame, so that the same
    audio gives the same events however it was cut.
    """

    def __init__(
        self,
        number: int,
        port: SessionPort,
        detector: SpeechDetector,
        options: ChannelOptions,
        start: ChannelStart,
    ) -> None:
        """Make a channel.

        Args:
            number: of the channel within the session, from 0.
            detector: decides which frames are speech; this channel's own.
            start: where it begins. Only the detector receives audio before `start.done_until`.
        """
        language = ChannelLanguage(options.language, options.language_delay, start.language)
        self.number = number
        self.finals = Finals(number, port, options, language)
        """The queue of the ended windows: decodes them and sends their final texts, in order."""
        self._port = port
        self._options = options
        endpointing = options.start.endpointing
        detector.set_threshold(endpointing.threshold)
        first = start.detector_from or 0
        origin = round(port.from_s * SAMPLE_RATE)
        self._endpointer = Endpointer(detector, endpointing.silence_ms, endpointing.min_utterance_s, first)
        is_exact = start.detector_from is not None
        self._detector_generations = DetectorGenerations(self._endpointer, first, origin, is_exact=is_exact)
        self._buffer = SampleBuffer()
        self._parts = ChannelParts(options, port, self.finals, self._endpointer, self._buffer)
        self._hypotheses = Hypotheses(self._parts, lambda window: self._end_here(window, self._kind))
        self._open: OpenWindow | None = None
        self._done_until = start.done_until
        """Position up to which the text of the session that this one continues is final; 0 if it continues none."""
        self._last_cut = start.done_until
        """Position where the last window ended, or before which all audio was discarded."""
        self._prompt = start.prompt or options.start.prompt
        """The prompt of the next utterance."""
        self.earlier = EarlierAudio(self.finals.translations, self._buffer)
        """The audio of a lost session's text that is still to be translated."""

    # How far it has come.

    @property
    def position(self) -> int:
        """Position after the last frame that was processed, or after audio that even the detector does not need."""
        return min(self._endpointer.position, self._buffer.end)

    @property
    def final_until(self) -> int:
        """Position before which no more text comes; it never decreases."""
        if self.finals.oldest:
            return self.finals.oldest.start
        if self._open:
            return self._open.start
        return max(self._buffer.start, self._last_cut)

    @property
    def detector_from(self) -> int | None:
        """Return where a detector must begin to find the same speech from `final_until` on.

        `None` if that lies inside an utterance, or where one was cut.
        """
        first = self.finals.oldest or self._open
        return first.utterance.detector_from if first else self._detector_generations.start_for(self.final_until)

    @property
    def translated_until_s(self) -> float:
        """The time before which no more translations come; it never decreases."""
        return self.finals.translations.translated_until_s(self._port.seconds(self.final_until))

    @property
    def lag_samples(self) -> int:
        """How far the audio is ahead of its text, in samples.

        Counts from the end of the first window that has no final text yet. With interims, it also counts from speech
        that no answered interim contains.
        """
        oldest = self.finals.oldest
        since = [oldest.end] if oldest else []
        decoded_until = self._hypotheses.decoded_until
        if decoded_until is not None:
            speech = chain(self.finals.speech(), self._open.speech if self._open else ())
            since += [max(start, decoded_until) for start, end in speech if end > decoded_until]
        return self.position - min(since) if since else 0

    # Audio.

    def hold(self, samples: Samples) -> UpcomingFrames:
        """Keep audio that the next `feed` processes. Returns the frames that the detector receives then."""
        self._buffer.append(samples)
        return self._endpointer.detector, self._next_frames()

    def feed(self, samples: Samples) -> None:
        """Process audio, frame by frame; an incomplete frame waits for more."""
        self._buffer.append(samples)
        self.earlier.submit()
        if self._buffer.end < self._endpointer.position:
            # The detector of a continued session begins later: it does not need this audio.
            self.earlier.forget_before(self._buffer.end)
        endpointer = self._endpointer
        for frame, change in endpointer.push(self._next_frames()):
            begin = endpointer.position - FRAME_SAMPLES
            if begin >= self._done_until:
                self._port.note_frame(begin, frame, endpointer.voiced_until > begin)
            self._on_frame(change)

    def _next_frames(self) -> Samples:
        first = self._endpointer.position
        n_frames = max(self._buffer.end - first, 0) // FRAME_SAMPLES
        return self._buffer.view(first, first + n_frames * FRAME_SAMPLES) if n_frames else NO_SAMPLES

    def flush(self, flush_id: events.FlushId | None = None) -> None:
        """End the open utterance now, and speech that has begun and was not announced yet."""
        if self.position <= self._done_until:
            self._endpointer.reset()
        began = self._endpointer.flush()
        if began:
            self._begin_speech(began)
        self._endpointer.end()
        if self._open:
            self._end_here(self._open, self._kind, flush_id, is_flushed=True)

    def turn_scored(self, audio_end: int, probability: float) -> None:
        """The turn model has scored the pause that is judged by the audio up to `audio_end`."""
        self._hypotheses.turn_scored(audio_end, probability)

    def discard(self) -> None:
        """Forget all audio that is not part of an ended utterance; the open one ends with its stable text."""
        if self._open:
            self._end_here(self._open, WindowKind.DISCARDED)
        self._endpointer.reset()
        self._last_cut = max(self._last_cut, self.position)
        self.earlier.forget_before(self.position)

    def configure(self, options: ChannelOptions) -> None:
        """Change the options. The open utterance keeps its own; another endpointing mode ends it first."""
        if options.is_manual != self._options.is_manual:
            self.flush()
            self._last_cut = max(self._last_cut, self._buffer.start)
        if options.language != self._options.language:
            self.finals.language = ChannelLanguage(options.language, options.language_delay)
        self._options = self._parts.options = options
        self._prompt, endpointing = options.start.prompt, options.start.endpointing
        self._endpointer.detector.set_threshold(endpointing.threshold)
        self._endpointer.configure(endpointing.silence_ms, endpointing.min_utterance_s)

    def finish(self) -> None:
        """Process the last, incomplete frame, then flush, because the channel gets no more audio."""
        n_rest = self._buffer.end - self.position
        if n_rest:
            self.feed(np.zeros(FRAME_SAMPLES - n_rest, dtype=np.float32))
        self.earlier.submit(is_finished=True)
        self.flush()

    def abandon(self, acknowledged: Acknowledged) -> None:
        """End every announced utterance with its text so far. `acknowledged` is from before any was abandoned."""
        ended: EndedWindow | None = None
        if self._open:
            self._send_endpoint(self._open, self.position)
            ended = self._open.end(self.position, NO_SAMPLES, self._kind, is_last=True)
            self._last_cut = self._open.start
            self._open = None
        self.finals.abandon(ended, acknowledged)

    def _on_frame(self, change: SpeechBegan | SpeechEnded | None) -> None:
        position = self._endpointer.position
        if position <= self._done_until:
            # An utterance of the earlier session ended where this one goes on.
            if position + FRAME_SAMPLES > self._done_until:
                self._endpointer.reset()
            self._forget_idle(position)
            return
        if self._options.is_manual and not self._open and position - self._last_cut >= MIN_MANUAL_SAMPLES:
            self._begin_utterance(self._last_cut, self._last_cut, [])
        match change:
            case None:
                pass
            case SpeechBegan():
                self._begin_speech(change)
            case SpeechEnded():
                if self._open and not self._options.is_manual:
                    self._end_here(self._open, self._kind)
            case _:
                assert_never(change)
        if self._open:
            self._open.extend_speech(self._endpointer.speech_until)
            cut = self._find_cut(self._open, position)
            if cut is not None:
                self._cut_window(self._open, cut)
        if not self._open:
            self._detector_generations.renew_in_silence(position - FRAME_SAMPLES, position)
            self._forget_idle(position)
            return
        self._hypotheses.update(self._open)

    def _forget_idle(self, position: int) -> None:
        """Forget audio that no utterance can begin with any more."""
        idle_samples = self._options.idle_samples
        may_be_late = self._is_continued and position - self._done_until <= MAX_LATE_SAMPLES + idle_samples
        self.earlier.forget_before(min(self._done_until, position) if may_be_late else position - idle_samples)

    # Utterances.

    def _begin_speech(self, began: SpeechBegan) -> None:
        if self._open:
            self._open.speech.append((max(began.position, self._open.start), self._endpointer.speech_until))
        elif not self._options.is_manual:
            window_start = max(began.position - self._options.padding_samples, self._last_cut, self._buffer.start)
            if self._is_continued and window_start - self._done_until <= MAX_LATE_SAMPLES:
                window_start = self._done_until
            speech_start = max(began.position, window_start)
            self._begin_utterance(speech_start, window_start, [(speech_start, speech_start)])

    @property
    def _is_continued(self) -> bool:
        """Whether the session goes on after an earlier one, has decoded nothing yet, and may have a late detector."""
        has_decoded = self._last_cut != self._done_until
        return self._done_until > 0 and not has_decoded and not self._detector_generations.is_exact

    def _begin_utterance(self, start: int, window_start: int, speech: list[Span]) -> None:
        utterance = PendingUtterance(
            number=next(self._port.utterance_numbers),
            start=start,
            prompt=self._prompt,
            options=self._options,
            language=UtteranceLanguage(self.finals.language),
            text_until=window_start,
            detector_from=self._detector_generations.start_for(window_start),
        )
        self._prompt = self._options.start.prompt
        self._port.send(
            events.SpeechStarted(
                utterance=utterance.number,
                channel=self.number,
                at_s=self._port.seconds(start),
                is_detected=not self._options.is_manual,
                from_s=self._port.seconds(window_start),
            )
        )
        self._open_window(utterance, window_start, speech, is_first=True)

    def _open_window(self, utterance: PendingUtterance, start: int, speech: list[Span], *, is_first: bool) -> None:
        stabilizer = Stabilizer(self._options.config.make_policy())
        window = OpenWindow(utterance=utterance, start=start, speech=speech, stabilizer=stabilizer)
        self._hypotheses.open_window(window, is_first=is_first)
        self._open = window

    def _end_here(
        self,
        window: OpenWindow,
        kind: WindowKind,
        flush_id: events.FlushId | None = None,
        *,
        is_flushed: bool = False,
    ) -> None:
        """End the open utterance at the present position. Its text is decoded from the audio up to its last silence."""
        window.extend_speech(self._endpointer.speech_until)
        position, audio_end = self.position, self._hypotheses.audio_end(window, is_flushed=is_flushed)
        # First of all, because the utterance may be final at once, and tells the client where the detector begins.
        self._detector_generations.renew(position)
        self._endpointer.reset()
        self._send_endpoint(window, position, flush_id, is_discarded=kind is WindowKind.DISCARDED)
        self._close_window(window, position, kind, is_last=True, audio_end=audio_end, is_flushed=is_flushed)

    def _send_endpoint(
        self, window: OpenWindow, end: int, flush_id: events.FlushId | None = None, is_discarded: bool = False
    ) -> None:
        self._port.send(
            events.Endpoint(
                utterance=window.utterance.number,
                channel=self.number,
                end_s=self._port.seconds(end),
                flush=flush_id,
                is_discarded=is_discarded,
                confidence=self._hypotheses.confidence(window),
            )
        )

    # Windows.

    def _cut_window(self, window: OpenWindow, cut: int) -> None:
        """End the window at `cut`. The audio after it begins the next window, of this utterance or of a new one."""
        is_manual = self._options.is_manual
        is_last = cut - window.utterance.start >= self._options.start.endpointing.max_utterance_s * SAMPLE_RATE
        speech_after = window.split_speech(cut)
        if not is_last:
            self._close_window(window, cut, self._kind, is_last=False)
            self._open_window(window.utterance, cut, speech_after, is_first=False)
            return
        self._detector_generations.cut(cut)
        self._send_endpoint(window, cut)
        self._close_window(window, cut, self._kind, is_last=True)
        if self._endpointer.pause_samples and not speech_after and not is_manual:
            # It is silent now: the next utterance begins with the next speech.
            self._endpointer.end()
            self._detector_generations.renew(self.position)
        else:
            self._begin_utterance(cut, cut, speech_after or ([] if is_manual else [(cut, cut)]))

    def _close_window(
        self,
        window: OpenWindow,
        end: int,
        kind: WindowKind,
        *,
        is_last: bool,
        audio_end: int | None = None,
        is_flushed: bool = False,
    ) -> None:
        """End the open window at `end`, and add it to `self.finals`, which decodes it and sends its text.

        Its text is decoded from the audio before `audio_end`, or from all of it.
        """
        is_discarded, audio_end = kind is WindowKind.DISCARDED, end if audio_end is None else audio_end
        samples = NO_SAMPLES if is_discarded else self._buffer.view(window.start, audio_end)
        self._last_cut = end
        self._buffer.forget_before(end)
        ended = window.end(end, samples, kind, is_last)
        self._hypotheses.end_window(ended, audio_end, is_flushed=is_flushed)
        self._open = None
        self.finals.add(ended)

    @property
    def _kind(self) -> WindowKind:
        """The kind of a window that ends now and is not discarded."""
        return WindowKind.MANUAL if self._options.is_manual else WindowKind.DETECTED

    def _find_cut(self, window: OpenWindow, position: int) -> int | None:
        """The position at which the open window is cut now, after the frame that ends at `position`, if it is."""
        if position - window.start <= LONG_WINDOW_SAMPLES:
            return None
        if self._options.config.fills_windows:
            return find_cut_of_filled(window.start, position, window.speech, self._buffer.view)
        return find_cut(
            start=window.start,
            end=position,
            pause_samples=self._endpointer.pause_samples,
            silence_ms=self._options.start.endpointing.silence_ms,
            stable_until=window.stabilizer.stable_until,
            view=self._buffer.view,
        )
