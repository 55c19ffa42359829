"""What a channel must know of the client's options and of the operator's settings."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tutti_server.app.session.core.final_sampling import FinalSampling
from tutti_server.app.session.core.previous_text import Context
from tutti_server.app.session.core.windows import UtteranceOptions
from tutti_server.app.session.messages import commands
from tutti_server.app.session.speech.endpointing import FRAME_SAMPLES, ONSET_WINDOW
from tutti_server.app.session.text.hallucination_filter import HallucinationFilter
from tutti_server.app.session.text.stabilizer import MakePolicy
from tutti_server.app.text_rules.pipeline import TextRuleOptions
from tutti_server.engine.api import SAMPLE_RATE, WINDOW_SAMPLES


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


@dataclass(frozen=True, slots=True)
class FinalOptions:
    """The operator's settings for final texts."""

    max_in_flight: int
    """The most windows of one channel that the engine is asked for at the same time."""
    context: Context
    hallucination_filter: HallucinationFilter
    sampling: FinalSampling
    targets: Targets = field(default_factory=Targets, kw_only=True)
    """The languages that the texts are translated to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelOptions:
    """The options of all channels of a session."""

    endpointing: commands.Endpointing
    prompt: str
    """The client's prompt for each new utterance; `PendingUtterance.prompt` says when the model is shown it."""
    first_prompt: str
    """The prompt of the first utterance, if it is not empty: the text before a reconnect."""
    interim_samples: int | None
    """The least audio between two interims, in samples; `None` for no interims."""
    extra_interval_s: Callable[[], float]
    """Returns by how many seconds that is more at present, because of the engine's load."""
    fills_windows: bool
    """Whether a window goes on over pauses until it is full."""
    speculates: bool
    """Whether a pause is decoded as if the utterance ended there."""
    scores_turns: bool
    """Whether the operator has a turn model, which scores the audio before a pause."""
    text_rules: TextRuleOptions
    """What is done with the text before it is sent."""
    make_policy: MakePolicy
    """Makes the policy that decides which text of a window is stable."""
    utterance: UtteranceOptions
    finals: FinalOptions

    @property
    def is_manual(self) -> bool:
        """Whether the client decides when an utterance ends."""
        return self.endpointing.mode == "manual"

    @property
    def language_delay(self) -> int:
        """How many windows may be decided at the same time; see `ChannelLanguage`."""
        return self.finals.max_in_flight if self.interim_samples is None else 1

    @property
    def silence_samples(self) -> int:
        """The silence that ends an utterance. In manual mode, where none does, it is as long as a window."""
        return WINDOW_SAMPLES if self.is_manual else self.endpointing.silence_ms * SAMPLE_RATE // 1000

    @property
    def padding_samples(self) -> int:
        """Audio before detected speech that belongs to the utterance."""
        return self.endpointing.padding_ms * SAMPLE_RATE // 1000

    @property
    def idle_samples(self) -> int:
        """Audio that is kept in silence: the padding of speech that the detector may announce in a moment."""
        return self.padding_samples + ONSET_WINDOW * FRAME_SAMPLES
