"""What a client tells its session, independent of any wire format; dialects translate.

Times are seconds on the session's timeline: since its first sample, or since `Resume.from_s` for a resumed one.
"""

from dataclasses import dataclass, field
from typing import Literal

from app.media.pcm import AudioFormat
from app.session.events import FlushId, Notice
from engine import api

EndpointingMode = Literal["vad", "manual"]

MAX_PENDING_FLUSHES = 64
"""Flushes of a session that may wait for their answers at the same time; the session refuses one more."""


@dataclass(frozen=True, slots=True)
class Endpointing:
    """When an utterance begins and ends."""

    mode: EndpointingMode = "vad"
    """`vad`: as speech is detected. `manual`: an utterance begins with the first audio and ends with a flush, `stop` or
    its maximum; it is read whether speech is detected in it or not."""
    silence_ms: int = 500
    """Silence after speech that ends an utterance."""
    min_utterance_s: float = 0.0
    """Silence does not end an utterance before it has lasted so long: a single word waits for what may follow."""
    max_utterance_s: float = 60.0
    """A longer utterance is ended where its next window would begin, so that what it holds stays bounded."""
    padding_ms: int = 300
    """Audio heard from before the first frame of speech, as detectors hear soft onsets late."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Where a client that lost its connection goes on."""

    from_s: tuple[float, ...]
    """One time for all channels, or one for each: the newest `Utterance.resume_from_s`."""
    prompt: str = ""
    """Text before that moment."""


@dataclass(frozen=True, slots=True)
class Start:
    audio: AudioFormat = field(default_factory=AudioFormat)
    language: str | None = None
    """`None`: detected for every window."""
    task: api.Task = "transcribe"
    interim: bool = True
    endpointing: Endpointing = field(default_factory=Endpointing)
    prompt: str = ""
    hotwords: tuple[str, ...] = ()
    """Names and terms to expect; limits as in `engine.api.DecodeOptions`."""
    words: bool = False
    """Say of every final word when it was said."""
    resume: Resume | None = None
    notices: tuple["Notice", ...] = ()
    """What the dialect could not honour; told to the client in `Started`."""


@dataclass(frozen=True, slots=True)
class Audio:
    data: bytes


@dataclass(frozen=True, slots=True)
class Flush:
    id: FlushId
    channel: int | None = None
    """`None`: all of them."""


@dataclass(frozen=True, slots=True)
class Discard:
    """Forget the audio of the open utterance: it ends with the text that was stable. Those that have ended stay."""


@dataclass(frozen=True, slots=True)
class Configure:
    """Hear utterances from the next one on in another way; the fields are those of `Start`.

    Audio and endpointing change at once. Another mode of endpointing ends the open utterance first.
    """

    audio: AudioFormat
    """With as many channels as before."""
    language: str | None
    endpointing: Endpointing
    prompt: str
    hotwords: tuple[str, ...]
    words: bool


@dataclass(frozen=True, slots=True)
class Keepalive:
    pass


@dataclass(frozen=True, slots=True)
class Stop:
    pass


Command = Start | Audio | Flush | Discard | Configure | Keepalive | Stop


@dataclass(frozen=True, slots=True)
class Media:
    """The next bytes of a container (WAV, Ogg, WebM, ...) on its way in; the shell makes `Audio` of the started format
    of it, which is 16 kHz `pcm_f32le`.
    """

    data: bytes
