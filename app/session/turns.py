"""Turns of a channel: at a pause it judges whether the speaker has finished, and how much more silence that needs.

`app/session/turn_taking.py` has the rule; this module applies it to the open utterance and reports what follows.
"""

from app.session import events
from app.session.acceptance import accepts_interim
from app.session.endpointing import Endpointer, SpeechEnded
from app.session.jobs import SessionPort
from app.session.options import ChannelOptions
from app.session.turn_taking import PauseEvidence, TurnModel, required_silence_ms
from app.session.windows import OpenWindow, PendingUtterance, SentEagerEnd
from engine import api


class Turns:
    """Judges the pauses of one channel by the hypotheses that were decoded there."""

    def __init__(self, channel: int, options: ChannelOptions, session: SessionPort, endpointer: Endpointer) -> None:
        """Make the judge of a channel.

        Args:
            channel: its number.
            options: those of the channel.
            session: where events go.
            endpointer: it ends the utterance after the silence that a pause needs.
        """
        self._channel = channel
        self._options = options
        self._session = session
        self._endpointer = endpointer
        self._model = TurnModel()
        self._judged_until = 0
        """Position after the audio of the last hypothesis that was judged."""
        self._confidence = 0.0

    def configure(self, options: ChannelOptions) -> None:
        """Change the options."""
        self._options = options

    def confidence(self, audio_end: int) -> float | None:
        """The confidence that the speaker has finished; `None` if no hypothesis up to `audio_end` was judged."""
        return round(self._confidence, 3) if self._judged_until == audio_end else None

    def judge(self, window: OpenWindow, done: api.DoneEvent, audio_end: int) -> SpeechEnded | None:
        """Judge a pause by the hypothesis of the open window up to `audio_end`. Returns the end of speech if it is due.

        A hypothesis that is probably a hallucination is no evidence: the usual silence ends the utterance then.
        """
        if self._options.is_manual or not accepts_interim(self._options.finals.hallucination_filter, window, done):
            return None
        utterance, endpointing = window.utterance, self._options.endpointing
        text = (utterance.text + done.text).strip()
        evidence = PauseEvidence(text=text, language=done.language, last_text_logprob=done.last_text_logprob)
        self._judged_until, self._confidence = audio_end, self._model.confidence(evidence)
        if utterance.eager_end and utterance.eager_end.text != text:
            self._send_resumed(utterance)
        eager_confidence = endpointing.eager_confidence
        if not utterance.eager_end and eager_confidence is not None and self._confidence >= eager_confidence:
            self._send_eager_end(utterance, text)
        if endpointing.mode != "adaptive":
            return None
        return self._endpointer.require_silence(required_silence_ms(self._confidence, endpointing))

    def update(self, window: OpenWindow) -> None:
        """After each frame: note whether the speaker has gone on after an eager end."""
        eager_end = window.utterance.eager_end
        if eager_end and self._endpointer.speech_until > eager_end.speech_until:
            self._send_resumed(window.utterance)

    def _send_resumed(self, utterance: PendingUtterance) -> None:
        utterance.eager_end = None
        at_s = self._session.seconds(self._endpointer.position)
        self._session.send(events.SpeechResumed(utterance=utterance.number, channel=self._channel, at_s=at_s))

    def _send_eager_end(self, utterance: PendingUtterance, text: str) -> None:
        utterance.eager_end = SentEagerEnd(text, self._endpointer.speech_until)
        self._session.send(
            events.EagerEnd(
                utterance=utterance.number,
                channel=self._channel,
                at_s=self._session.seconds(self._endpointer.speech_until),
                text=text,
                confidence=round(self._confidence, 3),
            )
        )
