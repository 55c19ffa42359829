"""The audio of text of a lost session that the engine still has to translate: held until it is here, then submitted."""

from collections import deque
from dataclasses import dataclass

from tutti_server.app.media.pcm import SampleBuffer
from tutti_server.app.session.decoding.translations import Translations
from tutti_server.app.session.messages.commands import Untranslated
from tutti_server.app.session.speech.coverage import Span
from tutti_server.engine.api import SAMPLE_RATE

ROUNDING_SAMPLES = SAMPLE_RATE // 100
"""How much times of the client may differ from positions, in samples: they are rounded to milliseconds."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    id: int
    """The id that `Translations.add_earlier` gave it."""
    span: Span
    language: str | None


class EarlierAudio:
    """The earlier audio of one channel."""

    def __init__(self, translations: Translations, buffer: SampleBuffer) -> None:
        self._translations = translations
        self._buffer = buffer
        self._waiting: deque[_Waiting] = deque()

    def add(self, earlier: Untranslated, from_s: float) -> None:
        """Translate earlier text, added in the order of its audio, in a session whose first sample is at `from_s`."""
        start, end = (round((time_s - from_s) * SAMPLE_RATE) for time_s in (earlier.start_s, earlier.end_s))
        for id in self._translations.add_earlier(earlier):
            self._waiting.append(_Waiting(id, (start, end), earlier.language))

    def submit(self, *, is_finished: bool = False) -> None:
        """Have the engine translate what is here; if no more audio comes, the rest is not translated."""
        buffer = self._buffer
        while self._waiting and (is_finished or self._waiting[0].span[1] <= buffer.end):
            waiting = self._waiting.popleft()
            start, end = waiting.span
            is_here = buffer.start <= start + ROUNDING_SAMPLES and buffer.start < end <= buffer.end
            samples = buffer.view(max(start, buffer.start), end) if is_here else None
            self._translations.translate_audio(waiting.id, samples, waiting.language)

    def forget_before(self, position: int) -> None:
        """Forget the audio of the channel before a position, but for what is still to be translated."""
        needed = (max(each.span[0], self._buffer.start) for each in self._waiting)
        self._buffer.forget_before(min([position, *needed]))
