"""The text before a window that the model is shown, so that names and sentences go on across windows."""

from typing import assert_never

from tutti_server.app.session.core.options import Context
from tutti_server.app.session.core.windows import EndedWindow, PendingUtterance

MAX_PREVIOUS_CHARS = 1000
"""The most characters of previous text that are kept. The engine would cut off the beginning of a longer text."""


class PreviousText:
    """The end of a channel's text, as context for its next windows."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._channel_text = ""

    def append(self, text: str) -> None:
        """Text of the channel was sent. Where the model is not shown it, it is not kept."""
        if self._context != "channel":
            return
        self._channel_text = (self._channel_text + text)[-MAX_PREVIOUS_CHARS:]

    def window_ended(self, window: EndedWindow) -> None:
        """Forget the text of the channel after a window without text, or with text that repeats itself.

        Only mode `channel` uses this text: in mode `utterance` the next window is still shown that of its utterance.

        Text that misled the model must not mislead it again. Source: openai/whisper, whisper/transcribe.py,
        `prompt_reset_since`, which depends on the temperature of the decoding attempt.
        """
        if window.decoding and (window.decoding.is_repetitive or not window.covered):
            self._channel_text = ""

    def of(self, utterance: PendingUtterance) -> str:
        """The text that the model is shown before the next window of this utterance."""
        match self._context:
            case "none":
                return ""
            case "utterance":
                return utterance.text[-MAX_PREVIOUS_CHARS:]
            case "channel":
                return self._channel_text
            case _:
                assert_never(self._context)

    def must_wait(self, window: EndedWindow, previous: EndedWindow) -> bool:
        """Whether a window is shown text of the window before it, which must be decoded first."""
        if self._context == "utterance":
            return previous.utterance is window.utterance
        return self._context == "channel"
