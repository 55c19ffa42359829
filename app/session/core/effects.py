"""What a session asks its shell to do, in order. `app/session/engine_driver.py` does it."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.messages.events import Event
from tutti_server.app.session.observers.speaker_stretches import Stretch, VoiceMemory
from tutti_server.engine import api


@dataclass(frozen=True, slots=True)
class Send:
    """Send an event to the client."""

    event: Event


@dataclass(frozen=True, slots=True, eq=False)
class Submit:
    """Submit a window to the engine, and give its events to `Session.engine_event` under this id."""

    request_id: int
    """The id of the request, unique within the session."""
    window: api.Window
    utterance: int
    """The number of the utterance whose audio it is."""
    is_redecode: bool = False
    """Whether it is missed speech of a window that was decoded already."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Withdraw a window that was submitted; the session needs none of its events any more."""

    request_id: int
    """The id of its `Submit`."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoreTurn:
    """Have the operator's turn model score a pause, and give the probability to `Session.turn_scored`.

    The session does not wait for the answer. One that is still under way for an earlier pause of the channel is not
    needed any more.
    """

    channel: int
    audio_end: int
    """Position after the audio, in samples since the session began."""
    samples: Samples
    """The audio of the utterance before the pause; at most the last `turn_taking.AUDIO_SAMPLES`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Translate:
    """Have the operator's service translate final text, and give what comes of it to `Session.translated`.

    Texts of one channel and language are translated in order.
    """

    id: int
    """The id of the request, unique within the session."""
    channel: int
    language: str
    """The code of the language to translate to."""
    source: str | None
    """The code of the language of the text; `None` if it is not known."""
    text: str


class SessionTranslator(Protocol):
    """Translates the texts of one session."""

    async def translate(self, request: Translate) -> str:
        """Return the translation of a text; texts of one channel and language are translated in order.

        Raises:
            TranslationFailed: there is none, or not in time.
        """
        ...


class Translator(Protocol):
    """Translates the texts of all sessions of this process."""

    @property
    def languages(self) -> tuple[str, ...]:
        """The codes of the languages that it translates to."""
        ...

    def open(self) -> SessionTranslator:
        """Begin a session."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """Translate while the context is open."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class EmbedSpeech:
    """Find the speakers of stretches of speech, and give the answer to `speakers_found`.

    The session asks for no more before it has the answer.
    """

    voices: VoiceMemory
    """What the session knows of voices."""
    stretches: tuple[Stretch, ...]


@dataclass(frozen=True, slots=True)
class LimitSpeakers:
    """Call `give_up_speakers` after this time, unless the session is closed by then: it waits only for speakers now."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection. It is the last effect of a session."""

    code: int
    """The WebSocket close code."""
    reason: str
    """The close reason: a stable code in words, such as `done` or `overloaded`."""


Effect = Send | Submit | Cancel | ScoreTurn | Translate | EmbedSpeech | LimitSpeakers | Close
