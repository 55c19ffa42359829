"""What a session must know of the operator's settings, and its channels of them and of the client's options."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from tutti_server.app.session.core.effects import Translator
from tutti_server.app.session.core.final_beams import FinalBeams
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.observers.speaker_stretches import SpeakerTeller
from tutti_server.app.session.speech.endpointing import (
    FRAME_SAMPLES,
    ONSET_WINDOW,
    DetectAhead,
    SpeechDetector,
    WebRtcDetector,
)
from tutti_server.app.session.speech.turn_taking import TurnScorer
from tutti_server.app.session.text.hallucination_filter import HallucinationFilter
from tutti_server.app.session.text.language_choice import LanguageRequest
from tutti_server.app.session.text.stabilizer import Agreement, MakePolicy
from tutti_server.app.text_rules.redaction import Kind
from tutti_server.engine import api
from tutti_server.engine.api import SAMPLE_RATE, WINDOW_SAMPLES

Context = Literal["none", "utterance", "channel"]
"""How much of the text before a window the model is shown. Where there is none, it is shown the client's prompt.

- `none`: no text. Windows are decoded side by side.
- `utterance`: the text of the window's own utterance. The windows of an utterance are decoded one after another.
- `channel`: the text of the whole channel. All windows of a channel are decoded one after another.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
    """The operator's settings for sessions."""

    limits: events.Limits = field(default_factory=events.Limits)
    """The limits that clients receive at the start."""
    interim_interval_ms: int = 350
    """The least audio between two interims of an utterance, in milliseconds."""
    extra_interval_s: Callable[[], float] = lambda: 0.0
    """Returns by how many seconds this interval is longer at present, because of the engine's load."""
    speculates: bool = False
    """Whether a pause is decoded as if the utterance ended there, so that the final text is ready when it does."""
    final_priority: api.Priority = api.Priority.FINAL
    """The priority of final texts and re-decodes in the engine's queue."""
    max_finals_in_flight: int = 2
    """The most ended windows of one channel that the engine is asked for at the same time."""
    fills_windows: bool = False
    """Whether a window goes on over pauses until it is full: for recordings, whose text no one waits for."""
    context: Context = "utterance"
    """How much of the text before a window the model is shown."""
    sampling: api.Sampling = field(default_factory=api.Sampling)
    """How the tokens of final texts are drawn, but for the beams; interims and re-decodes are greedy."""
    beam_size: int | None = None
    """The beams of final texts and of recordings; `None` chooses by the model, and live by the engine's time."""
    hallucination_filter: HallucinationFilter = field(default_factory=HallucinationFilter)
    """The thresholds that decoded text must pass before the client receives it."""
    make_detector: Callable[[], SpeechDetector] = WebRtcDetector
    """Makes the speech detector of a channel."""
    detect_ahead: DetectAhead | None = None
    """Prepares these detectors for audio; the shells of sessions call it. `None` if they need no preparation."""
    score_turn: TurnScorer | None = None
    """The operator's turn model, which scores the audio before a pause; the shells of sessions call it."""
    translator: Translator | None = None
    """The operator's service for translations; the shells of sessions call it."""
    redact: tuple[Kind, ...] = ()
    """What no text contains, whatever clients ask for."""
    speaker_teller: SpeakerTeller | None = None
    """Tells speakers apart; the shells of sessions call it. `None` if it cannot be asked for."""
    make_policy: MakePolicy = Agreement
    """Makes the policy that decides which text of an open window is stable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The languages that final text is translated to."""

    by_engine: tuple[str, ...] = ()
    """The languages to which the engine translates: English, or none."""
    by_service: tuple[str, ...] = ()
    source: str | None = None
    """The language of all text; `None` where each window has its own."""

    def __bool__(self) -> bool:
        return bool(self.by_engine or self.by_service)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelOptions:
    """The options of all channels of a session, and of each utterance, which keeps those with which it began."""

    start: commands.Start
    """What the client asks for, with the operator's redaction; a `Configure` changes it."""
    config: SessionConfig
    language: LanguageRequest
    """The language, or what is left open of it."""
    targets: Targets
    """The languages that final text is translated to."""
    sampling: FinalBeams
    """How final texts are decoded."""

    @property
    def is_manual(self) -> bool:
        """Whether the client decides when an utterance ends."""
        return self.start.endpointing.mode == "manual"

    @property
    def has_words(self) -> bool:
        """Whether final words need times: the client wants them, or the rules of its text do."""
        return self.start.words or bool(self.start.text_rules)

    @property
    def context(self) -> Context:
        """How much of the text before a window the model is shown."""
        # The text of a channel would keep what must not be written down.
        must_forget = self.config.context == "channel" and self.start.text_rules.redacts
        return "utterance" if must_forget else self.config.context

    @property
    def language_delay(self) -> int:
        """How many windows may be decided at the same time; see `ChannelLanguage`."""
        return 1 if self.start.interim else self.config.max_finals_in_flight

    @property
    def silence_samples(self) -> int:
        """The silence that ends an utterance. In manual mode, where none does, it is as long as a window."""
        return WINDOW_SAMPLES if self.is_manual else self.start.endpointing.silence_ms * SAMPLE_RATE // 1000

    @property
    def padding_samples(self) -> int:
        """Audio before detected speech that belongs to the utterance."""
        return self.start.endpointing.padding_ms * SAMPLE_RATE // 1000

    @property
    def idle_samples(self) -> int:
        """Audio that is kept in silence: the padding of speech that the detector may announce in a moment."""
        return self.padding_samples + ONSET_WINDOW * FRAME_SAMPLES
