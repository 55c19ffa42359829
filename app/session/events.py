"""What a session takes in (commands), what it says (events) and what it asks to be done (effects).

All of it is independent of any wire format; dialects translate. Times are seconds on the session's timeline: since its
first sample, or since `Resume.from_s` for a resumed one.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

from engine import api

Encoding = Literal["pcm_s16le", "pcm_f32le", "mulaw", "alaw"]
EndpointingMode = Literal["vad", "manual"]
FlushId = str | int


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """Raw audio as it arrives; the samples of several channels are interleaved."""

    encoding: Encoding = "pcm_s16le"
    sample_rate: int = 16_000
    channels: int = 1
    is_mixed: bool = False
    """The channels are mixed into one before they are heard."""

    @property
    def n_heard(self) -> int:
        """Channels that are transcribed, each on its own."""
        return 1 if self.is_mixed else self.channels


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


def confidence(avg_logprob: float) -> float:
    """The probability of a token, on geometric average, in thousandths."""
    return round(min(math.exp(avg_logprob), 1.0), 3)


# Commands: what a client says.


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


# Events: what the session says.


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the client should know and that changes nothing: an option ignored, a key unknown."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Limits:
    max_message_bytes: int = 1 << 20
    max_ahead_s: float = 60.0
    """How far audio may run ahead of the clock."""
    idle_timeout_s: float = 60.0
    max_window_s: float = float(api.WINDOW_S)


@dataclass(frozen=True, slots=True)
class Started:
    session_id: str
    model: str
    limits: Limits
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    utterance: int
    channel: int
    at_s: float
    is_detected: bool = True
    """False in mode `manual`, where an utterance begins with the first audio."""
    from_s: float = 0.0
    """Where its audio begins, the padding included."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """No more audio belongs to an utterance that was announced; its text may still come. One for each, before its
    `Utterance`.
    """

    utterance: int
    channel: int
    end_s: float
    """Where its audio ends, the silence that showed the end included."""
    flush: FlushId | None = None
    """The flush that ended it, if one did."""
    is_discarded: bool = False


@dataclass(frozen=True, slots=True)
class Interim:
    """The reading of an utterance behind the segments sent so far: `stable` only grows, `tail` may change."""

    utterance: int
    channel: int
    start_s: float
    end_s: float
    stable: str
    tail: str
    avg_logprob: float = 0.0
    """Of the whole reading."""


@dataclass(frozen=True, slots=True)
class Word:
    text: str
    """With its punctuation, without spaces around it."""
    start_s: float
    end_s: float
    confidence: float


@dataclass(frozen=True, slots=True)
class Segment:
    """Final text. The texts of an utterance's segments, joined as they are, make the utterance's text."""

    utterance: int
    id: int
    channel: int
    start_s: float
    end_s: float
    text: str
    language: str | None
    source: api.Segment
    """As the engine decoded it; its times count from the start of its window."""
    window_start_s: float
    words: tuple[Word, ...] = ()
    """Where they were asked for."""
    goes_on: bool = False
    """The utterance has a window behind this segment's, so that this is hardly its last."""

    @property
    def confidence(self) -> float:
        return confidence(self.source.avg_logprob)


@dataclass(frozen=True, slots=True)
class Utterance:
    """The one terminal event of an utterance."""

    utterance: int
    channel: int
    start_s: float
    end_s: float
    text: str
    uncovered: tuple[tuple[float, float], ...]
    """Stretches of detected speech without text."""
    final_until_s: float
    """Audio before it is done on all channels and may be forgotten by the client."""
    resume_from_s: tuple[float, ...]
    """The same for each channel; `final_until_s` is the least of them."""
    n_redecodes: int = 0
    """Stretches of speech without text that were read again; for the operator, not for the client."""
    recovered_s: float = 0.0
    """Speech that has text thanks to them."""
    is_complete: bool = True
    """False where the session had to end, or the client discarded its audio, before all of it was read."""


@dataclass(frozen=True, slots=True)
class Flushed:
    id: FlushId


@dataclass(frozen=True, slots=True)
class Lag:
    behind_s: float


@dataclass(frozen=True, slots=True)
class Failure:
    """An error told to the client; after a fatal one the session is over."""

    code: str
    message: str
    is_fatal: bool


@dataclass(frozen=True, slots=True)
class Stopped:
    audio_s: float
    speech_s: float
    words: int


@dataclass(frozen=True, slots=True)
class Media:
    """The next bytes of a container (WAV, Ogg, WebM, ...) on its way in; the shell makes `Audio` of the started format
    of it, which is 16 kHz `pcm_f32le`.
    """

    data: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """A dialect's own answer to its client, as it goes out; it keeps its place among the events."""

    text: str


Event = Started | SpeechStarted | Endpoint | Interim | Segment | Utterance | Flushed | Lag | Notice | Failure | Stopped


# Effects: what the session asks its shell to do, in order.


@dataclass(frozen=True, slots=True)
class Send:
    event: Event


@dataclass(frozen=True, slots=True, eq=False)
class Submit:
    """Give the window to the engine and its events back to the session under this number."""

    job: int
    window: api.Window


@dataclass(frozen=True, slots=True)
class Cancel:
    """Withdraw a window; none of its events is wanted any more."""

    job: int


@dataclass(frozen=True, slots=True)
class Close:
    """Nothing follows: end the connection with this WebSocket close code."""

    code: int
    reason: str


Effect = Send | Submit | Cancel | Close
