"""Turns of a channel: at a pause it judges whether the speaker has finished, and how much more silence that needs.

`app/session/speech/turn_taking.py` has the rule; this module applies it to the open utterance and reports the rest. The
evidence is the text of the utterance and, where the operator has a turn model, the probability that this finds in the
audio. Either may come first. The text is judged at once, so it may end the utterance before the model has answered.
"""

from dataclasses import dataclass, replace

import numpy as np

from tutti_server.app.media.pcm import NO_SAMPLES
from tutti_server.app.session.core.acceptance import accepts_interim
from tutti_server.app.session.core.windows import EndedWindow, OpenWindow, PendingUtterance, SentEagerEnd
from tutti_server.app.session.decoding.parts import ChannelParts
from tutti_server.app.session.messages import events
from tutti_server.app.session.speech.endpointing import SpeechEnded
from tutti_server.app.session.speech.turn_taking import AUDIO_SAMPLES, PauseEvidence, confidence_of, required_silence_ms
from tutti_server.engine import api


@dataclass(slots=True)
class _Pause:
    audio_end: int
    """Position after the audio that it is judged by."""
    probability: float | None = None
    """The probability that the turn has ended, by the turn model; `None` until it has answered."""
    evidence: PauseEvidence | None = None
    """What the text says about the pause; `None` until there is a text."""
    confidence: float | None = None
    """How sure it is that the speaker has finished; `None` until there is a text."""


class Turns:
    """Judges the pauses of one channel by the hypotheses that were decoded there, and by the turn model."""

    def __init__(self, parts: ChannelParts) -> None:
        """Make the judge of a channel, whose endpointer ends the utterance after the silence that a pause needs."""
        self._channel = parts.finals.channel
        self._parts = parts
        self._port = parts.port
        self._endpointer = parts.endpointer
        self._has_model = parts.options.config.score_turn is not None
        self._pause = _Pause(0)
        """The last pause that was judged or scored."""
        self._earlier = NO_SAMPLES
        """The last audio of the open utterance before its open window, as much as the turn model can use."""

    def confidence(self, audio_end: int) -> float | None:
        """The confidence that the speaker has finished; `None` if no hypothesis up to `audio_end` was judged."""
        confidence = self._pause.confidence if self._pause.audio_end == audio_end else None
        return None if confidence is None else round(confidence, 3)

    def score(self, window: OpenWindow, audio_end: int) -> None:
        """Have the turn model judge a pause by the audio before `audio_end`, if its answer is of use."""
        endpointing = self._parts.options.start.endpointing
        if self._has_model and (endpointing.mode == "adaptive" or endpointing.eager_confidence is not None):
            start = max(window.start, audio_end - AUDIO_SAMPLES)
            samples = np.concatenate((self._earlier, self._parts.buffer.view(start, audio_end)))[-AUDIO_SAMPLES:]
            self._port.score_turn(self._channel, audio_end, samples)

    def scored(self, window: OpenWindow, audio_end: int, probability: float) -> SpeechEnded | None:
        """Note the answer of the turn model, and judge the pause anew if it was judged already.

        Returns the end of speech if it is due.
        """
        pause = self._pause_at(audio_end)
        pause.probability = probability
        return self._decide(window, pause, pause.evidence) if pause.evidence else None

    def end_window(self, window: EndedWindow) -> None:
        """The open window has ended, and its utterance if this was the last one."""
        if window.is_last:
            self._pause, self._earlier = _Pause(0), NO_SAMPLES
        elif self._has_model:
            self._earlier = np.concatenate((self._earlier, window.samples))[-AUDIO_SAMPLES:].copy()

    def judge(self, window: OpenWindow, done: api.DoneEvent, audio_end: int) -> SpeechEnded | None:
        """Judge a pause by the hypothesis of the open window up to `audio_end`. Returns the end of speech if it is due.

        A hypothesis that is probably a hallucination is no evidence: the usual silence ends the utterance then.
        """
        options = self._parts.options
        if options.is_manual or not accepts_interim(options.config.hallucination_filter, window, done):
            return None
        evidence = PauseEvidence(
            text=(window.utterance.text + done.text).strip(),
            language="en" if window.utterance.options.start.task == "translate" else done.language,
            last_text_logprob=done.last_text_logprob,
            avg_logprob=done.avg_logprob,
        )
        return self._decide(window, self._pause_at(audio_end), evidence)

    def _pause_at(self, audio_end: int) -> _Pause:
        if self._pause.audio_end != audio_end:
            self._pause = _Pause(audio_end)
        return self._pause

    def _decide(self, window: OpenWindow, pause: _Pause, evidence: PauseEvidence) -> SpeechEnded | None:
        """Judge a pause by all that is known of it. Returns the end of speech if it is due."""
        utterance, endpointing = window.utterance, self._parts.options.start.endpointing
        evidence = replace(evidence, audio_probability=pause.probability)
        confidence = confidence_of(evidence)
        pause.evidence, pause.confidence = evidence, confidence
        if utterance.eager_end and utterance.eager_end.text != evidence.text:
            self._send_resumed(utterance)
        eager_confidence = endpointing.eager_confidence
        if not utterance.eager_end and eager_confidence is not None and confidence >= eager_confidence:
            self._send_eager_end(utterance, evidence.text, confidence)
        if endpointing.mode != "adaptive":
            return None
        return self._endpointer.require_silence(required_silence_ms(confidence, endpointing))

    def update(self, window: OpenWindow) -> None:
        """Note whether the speaker has gone on after an eager end. Called after each frame."""
        eager_end = window.utterance.eager_end
        if eager_end and self._endpointer.speech_until > eager_end.speech_until:
            self._send_resumed(window.utterance)

    def _send_resumed(self, utterance: PendingUtterance) -> None:
        utterance.eager_end = None
        at_s = self._port.seconds(self._endpointer.position)
        self._port.send(events.SpeechResumed(utterance=utterance.number, channel=self._channel, at_s=at_s))

    def _send_eager_end(self, utterance: PendingUtterance, text: str, confidence: float) -> None:
        utterance.eager_end = SentEagerEnd(text, self._endpointer.speech_until)
        self._port.send(
            events.EagerEnd(
                utterance=utterance.number,
                channel=self._channel,
                at_s=self._port.seconds(self._endpointer.speech_until),
                text=text,
                confidence=round(confidence, 3),
            )
        )
