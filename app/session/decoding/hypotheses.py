"""The hypotheses of a channel's open window: interims, speculative finals, and what these say of the speaker's turn."""

from collections.abc import Callable

from tutti_server.app.session.core.windows import EndedWindow, OpenWindow
from tutti_server.app.session.decoding.interims import Interims
from tutti_server.app.session.decoding.parts import ChannelParts
from tutti_server.app.session.decoding.speculation import Speculations
from tutti_server.app.session.decoding.turns import Turns
from tutti_server.engine import api


class Hypotheses:
    """Has the open window decoded while it grows. All positions are in samples since the session began."""

    def __init__(self, parts: ChannelParts, end_utterance: Callable[[OpenWindow], None]) -> None:
        """Make the hypotheses of a channel; `end_utterance` is called when a speaker has finished."""
        self._interims = Interims(parts) if parts.options.start.interim else None
        self._speculations = Speculations(parts, self._interims, self._judge_pause)
        self._turns = Turns(parts)
        self._end_utterance = end_utterance
        self._window: OpenWindow | None = None

    @property
    def decoded_until(self) -> int | None:
        """Position after the audio of the newest hypothesis that was shown; `None` without interims."""
        return self._interims.decoded_until if self._interims else None

    def open_window(self, window: OpenWindow, *, is_first: bool) -> None:
        """A window opens; it may be the first one of its utterance."""
        self._window = window
        if self._interims:
            self._interims.open_window(window, is_first=is_first)

    def update(self, window: OpenWindow) -> None:
        """Ask for the hypothesis that is due after a frame, if any."""
        self._turns.update(window)
        audio_end = self._speculations.update(window)
        if audio_end is not None and self._speculations.is_pause(audio_end):
            self._turns.score(window, audio_end)
        if self._interims and not self._speculations.is_running:
            self._interims.submit_if_due(window)

    def audio_end(self, window: OpenWindow, *, is_flushed: bool) -> int:
        """Position after the audio that the text of the window is decoded from, if its utterance ends now."""
        return self._speculations.audio_end(window, is_flushed=is_flushed)

    def confidence(self, window: OpenWindow) -> float | None:
        """The confidence that the speaker has finished; `None` if no hypothesis of all the audio was judged."""
        return self._turns.confidence(self._speculations.audio_end(window, is_flushed=False))

    def end_window(self, window: EndedWindow, audio_end: int, *, is_flushed: bool) -> None:
        """The open window has ended; its speculative final is its text, if it is of the audio up to `audio_end`."""
        self._window = None
        self._turns.end_window(window)
        if self._interims:
            self._interims.cancel()
        self._speculations.end_window(window, audio_end, is_flushed=is_flushed)

    def _judge_pause(self, done: api.DoneEvent, audio_end: int) -> None:
        """The window was decoded up to a pause, which may be long enough now to end the utterance."""
        assert self._window
        if self._turns.judge(self._window, done, audio_end):
            self._end_utterance(self._window)

    def turn_scored(self, audio_end: int, probability: float) -> None:
        """The turn model has scored the pause up to `audio_end`, whose utterance may be over by that."""
        if not self._window or not self._speculations.is_pause(audio_end):
            return
        if self._turns.scored(self._window, audio_end, probability):
            self._end_utterance(self._window)
