"""What a client asks of its session, independent of any wire format. Dialects translate their messages to these.

A time is in seconds on the session's timeline: since its first sample, or since `Resume.from_s` if it was resumed.
"""

from dataclasses import dataclass, field, fields
from typing import Literal

from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.messages.events import FlushId, Notice
from tutti_server.app.text_rules.pipeline import TextRuleOptions
from tutti_server.engine import api

EndpointingMode = Literal["vad", "adaptive", "manual"]
"""How the end of an utterance is found.

- `vad`: a speech detector finds its beginning and its end.
- `adaptive`: as `vad`, but how long the silence must be depends on what was spoken before it.
- `manual`: it begins with the first audio, and ends with a flush, with `Stop` or at its maximum length. It is decoded
  even if no speech is detected in it.
"""

MAX_PENDING_FLUSHES = 64
"""The most flushes of a session that may wait for their answers; one more is refused.

This bounds what a session holds.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpointing:
    """When an utterance begins and ends."""

    mode: EndpointingMode | None = "vad"
    """`None`: `adaptive` where that was measured for the model, and `vad` elsewhere."""
    silence_ms: int = 500
    """The silence after speech that ends an utterance, in milliseconds.

    In mode `adaptive` it counts where the text before the silence is not known in time. Where `mode` is `None` and
    becomes `adaptive`, `turn_taking.py` has the silences.
    """
    min_silence_ms: int = 160
    """In mode `adaptive`: the silence that ends an utterance that is certainly complete, in milliseconds."""
    max_silence_ms: int = 1500
    """In mode `adaptive`: the silence that ends any utterance, in milliseconds."""
    end_confidence: float = 0.5
    """In mode `adaptive`: how confident it must be that the speaker has finished for an early end, 0 to 1."""
    eager_confidence: float | None = None
    """A pause is reported by `EagerEnd` if the confidence that the speaker has finished is at least this, 0 to 1.

    `None`: no pause is reported.
    """
    min_utterance_s: float = 0.0
    """Silence does not end an utterance that is shorter than this many seconds: more may follow a single word."""
    max_utterance_s: float = 60.0
    """An utterance that is longer than this many seconds ends where its next window would begin.

    This bounds what a session holds.
    """
    padding_ms: int = 300
    """The audio before detected speech that is decoded with it, in milliseconds: detectors notice soft onsets late."""
    threshold: float | None = None
    """How sure the speech detector must be of speech, 0 to 1; `None` for the operator's value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Untranslated:
    """Final text of a lost session whose translation the client has not received."""

    utterance: int
    """The number under which the client wants the translation."""
    channel: int
    start_s: float
    end_s: float
    text: str
    language: str | None
    """The code of the language of the text; `None` if it is not known."""
    targets: tuple[str, ...]
    """The codes of the languages whose translation is missing."""


@dataclass(frozen=True, slots=True)
class Resume:
    """The times from which a client continues after it lost its connection, and the text before them."""

    from_s: tuple[float, ...]
    """One time for all channels, or one for each: the last `Utterance.resume_from_s` that the client received."""
    prompt: str = ""
    """The text before that time."""
    audio_from_s: float | None = None
    """The time of the first sample that the client sends; `None` for the least of `from_s`.

    Only the speech detector processes the audio before `from_s`: it adapts to the noise and to the voice, and would
    find the beginning of speech late without it.
    """
    detector_from_s: tuple[float | None, ...] = ()
    """One time for each channel: the `Utterance.detector_from_s` that came with `from_s`, or nothing.

    The channel's detector processes the audio from its time on, and finds the speech that the lost session would have
    found. Where it is `None`, it processes all audio, and may find speech somewhat later.
    """
    language: tuple[str | None, ...] = field(default=(), kw_only=True)
    """The language of each channel before that time, or one for all, if the server had detected it.

    It goes on with this language, and needs as much evidence for another one as in a session that was not lost. A
    language that is not a candidate here is ignored.
    """
    untranslated: tuple[Untranslated, ...] = field(default=(), kw_only=True)
    """Text before `from_s` that is still to be translated. The engine needs its audio, from `audio_from_s` on."""
    voices: str = field(default="", kw_only=True)
    """The last `Utterance.voices` that the client received: the same speakers keep their numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomRequest:
    """The room in which a session is published."""

    name: str | None = None
    """`None` for a name that cannot be guessed."""
    token: str | None = None
    """Proves that the room is the client's, which has spoken in it before."""
    title: str = ""
    """The title that readers see; empty for the one that the room has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start the session; the first command."""

    audio: AudioFormat = field(default_factory=AudioFormat)
    """The format of the audio to come."""
    model: str | None = None
    """A name of the model that transcribes; `None` for the first one of the server."""
    language: str | None = None
    """A language code of the model; `None` lets the server detect the language."""
    languages: tuple[str, ...] = ()
    """The languages that are possible if `language` is `None`; empty for all that the model knows."""
    locks_language: bool = False
    """Whether a language that was detected stays for all of the session, as soon as there is enough evidence for it."""
    task: api.Task = "transcribe"
    """Whether speech is transcribed, or translated to English."""
    translate: tuple[str, ...] = ()
    """The codes of the languages that final text is translated to, beside the text."""
    interim: bool = True
    """Whether interims are sent."""
    endpointing: Endpointing = field(default_factory=Endpointing)
    prompt: str = ""
    """Text that the model is shown before a window, where the operator's context mode gives it no earlier text.

    Mode `none` shows it for every window, `utterance` until the utterance has text, and `channel` until the channel has
    text, and again after a window that repeated itself or gave no text.
    """
    hotwords: tuple[str, ...] = ()
    """Names and terms to expect; the limits are those of `tutti_server.engine.api.DecodeOptions`."""
    beam_size: int | None = None
    """The beams of final texts; interims are greedy. `None` for the operator's number."""
    words: bool = False
    """Whether every final word gets a start, an end and a confidence."""
    interim_words: bool = False
    """Whether every word of an interim does, too. Needs `words` and `interim`."""
    resume: Resume | None = None
    """`None` for a new session."""
    resumes: bool = False
    """Whether the client resumes when the server ends the session without fault of the client.

    Such an end then leaves the open utterances open, because what was cut in the middle of a word would stay cut.
    """
    channel_names: tuple[str, ...] = ()
    """What the client calls the speaker of each channel; for the dialect, which repeats it in the text."""
    max_speakers: int | None = None
    """The most speakers of the one channel to tell apart; `None`: speakers are of no interest."""
    follows_speakers: bool = True
    """Whether labels that come after their text reach the client. If not, no end of the session waits for them."""
    text_rules: TextRuleOptions = field(default_factory=TextRuleOptions)
    """What is done with the text before it is sent."""
    room: RoomRequest | None = None
    """Where the session is published. The session itself does nothing about it."""
    notices: tuple[Notice, ...] = ()
    """What the dialect could not honour; the client receives it in `Started`."""


@dataclass(frozen=True, slots=True)
class Audio:
    """Process audio of the present format."""

    data: bytes
    """May be cut anywhere, also inside a sample."""


@dataclass(frozen=True, slots=True)
class Flush:
    """End the open utterances now; `Flushed` answers when their text was sent."""

    id: FlushId
    """The client's own name for it."""
    channel: int | None = None
    """The only channel to flush; `None` flushes all of them."""


@dataclass(frozen=True, slots=True)
class Discard:
    """Forget the audio of the open utterances: they end with their stable text. Ended utterances are not affected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configure:
    """Change options for the utterances to come. The fields are those of `Start`.

    Audio format and endpointing change at once. Another endpointing mode ends the open utterances first.
    """

    audio: AudioFormat
    """The format of the audio after this command; the number of channels cannot change."""
    language: str | None
    languages: tuple[str, ...] = ()
    locks_language: bool = False
    endpointing: Endpointing
    prompt: str
    hotwords: tuple[str, ...]
    words: bool
    interim_words: bool = False

    @classmethod
    def of(cls, start: Start) -> "Configure":
        """The options of a start that may change while the session goes on."""
        return cls(**{each.name: getattr(start, each.name) for each in fields(cls)})


@dataclass(frozen=True, slots=True)
class Keepalive:
    """Do nothing: the client is still there."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End the session when all audio is final; no more audio comes."""


Command = Start | Audio | Flush | Discard | Configure | Keepalive | Stop


@dataclass(frozen=True, slots=True)
class Media:
    """The next bytes of a container (WAV, Ogg, WebM, ...) that arrives in pieces.

    A dialect returns it among its commands, but the session never receives it. The shell, which owns the decoder,
    replaces it by `Audio` of 16 kHz `pcm_f32le`, the format of such a session. It stands here because dialects
    translate client messages to the types of this module. `Command` does not contain it.
    """

    data: bytes
