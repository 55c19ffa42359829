"""A window on its way through the engine, and what its decoding attempts give."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from tutti_server.engine.api import (
    SAMPLE_RATE,
    DecodeOptions,
    DoneEvent,
    EngineEvent,
    Priority,
    TranslatedEvent,
    Window,
    WindowTiming,
)
from tutti_server.engine.checkpoint.checkpoint import Checkpoint
from tutti_server.engine.decoding.beam_search import BeamSearch
from tutti_server.engine.decoding.language import choose_language, other_language
from tutti_server.engine.decoding.prompt import max_output_tokens
from tutti_server.engine.decoding.temperature_fallback import TemperatureFallback
from tutti_server.engine.decoding.transcript import TokenTranscript
from tutti_server.engine.errors import EngineError
from tutti_server.engine.replay import Replay

Item = EngineEvent | EngineError
"""What the engine answers a request with; an error is terminal."""


class Translation(Enum):
    """What is known of the translation of a window."""

    NONE = auto()
    """The caller does not want one, or there is nothing to translate."""
    FOLLOWS = auto()
    """The window is translated in its slot, after its text."""
    DROPPED = auto()
    """The engine is too busy."""


@dataclass(eq=False, slots=True)
class AttemptOutput:
    """What one decoding attempt has given so far."""

    transcript: TokenTranscript
    control: tuple[int, ...]
    """The control tokens of this attempt's prompt, as in `Prompt.control`.

    The transcript's tokens, which begin with the forced prefix, follow them. Attempts differ in them: a later
    one may lack the previous text.
    """
    held_events: list[EngineEvent] = field(default_factory=list)
    """The events of this attempt, held until it is known to count. Empty if events are handed out at once."""
    is_truncated: bool = False
    """Whether the token limit ended the attempt."""
    search: BeamSearch | None = field(default=None, kw_only=True)
    """The beam search that decodes the attempt, or its rest; `None` where tokens are sampled one by one."""
    translation: Translation = field(default=Translation.NONE, kw_only=True)
    """Whether the window is translated, decided when its text is known."""

    @property
    def is_cut(self) -> bool:
        """Whether the text ends before the model ended it."""
        return self.is_truncated or self.transcript.is_repetitive


@dataclass(slots=True)
class Milestones:
    """When a request reached each stage, in seconds of the monotonic clock; 0.0 before it did."""

    submitted_s: float = 0.0
    """The request entered the queue."""
    encoding_s: float = 0.0
    """The request left the queue for its encoder call."""
    prefill_s: float = 0.0
    """The prefill of its prompt began."""
    decoding_s: float = 0.0
    """The first token was known."""

    def timing(self, now_s: float) -> WindowTiming:
        """The times of all stages of a request that is decoded now."""
        return WindowTiming(
            queued_s=self.encoding_s - self.submitted_s,
            encode_s=self.prefill_s - self.encoding_s,
            prefill_s=self.decoding_s - self.prefill_s,
            decode_s=now_s - self.decoding_s,
        )


@dataclass(eq=False, slots=True, kw_only=True)
class Request:
    """A checked window on its way through the engine."""

    window: Window
    max_tokens: int
    """The most tokens to decode, the forced prefix included."""
    put: Callable[[Item], None]
    """The function that receives the items of this request, in order.

    The worker never calls it: it passes the request and its items on to `Deliver`.
    """
    id: int = field(default_factory=itertools.count().__next__)
    reached: Milestones = field(default_factory=Milestones)
    """When the request reached its stages."""
    is_cancelled: bool = False
    n_steps: int = 0
    """Decode steps taken after prefill, in all attempts."""
    fallback: TemperatureFallback[AttemptOutput] = field(init=False)
    language_probabilities: dict[str, float] | None = None
    """The probability of every candidate for the language; `None` unless they were detected."""
    other_language: str | None = None
    """The language that the window is decoded in, too, if its text is doubtful; `None` where there is none."""
    output: AttemptOutput | None = None
    """The output of the current attempt; `None` until its prompt is prefilled."""
    begun: AttemptOutput | None = None
    """What greedy choices gave, while beams are about to go on from it."""
    has_segments_out: bool = False
    """Whether a segment was handed out. Then the window cannot be decoded again."""

    replay: Replay = field(default_factory=Replay)
    """Leaves out the events that come again when the window is decoded again."""

    def __post_init__(self) -> None:
        self.fallback = TemperatureFallback(self.window.options)

    def restart(self) -> None:
        """Note that a step of the engine has failed, and prepare to decode the window from the beginning."""
        self.replay.restart()
        self.fallback = TemperatureFallback(self.window.options)
        self.language_probabilities = self.other_language = None
        self.output = self.begun = None
        self.has_segments_out = False

    def last_events(self, output: AttemptOutput, events: list[EngineEvent]) -> list[EngineEvent]:
        """Return what the caller receives at the end of this request.

        Args:
            output: the output that counts.
            events: the last events of its transcript.
        """
        if output.translation is Translation.NONE:
            return events
        marked = [replace(each, translation_follows=True) if isinstance(each, DoneEvent) else each for each in events]
        return [*marked, TranslatedEvent(None)] if output.translation is Translation.DROPPED else marked

    @property
    def caller(self) -> "Request":
        """The request whose caller receives the events."""
        return self

    @property
    def n_slots(self) -> int:
        """The number of slots that it needs: one for each beam."""
        sampling = self.window.options.sampling
        return sampling.beam_size if 0 in sampling.temperatures else 1

    @property
    def queued_s(self) -> float:
        """Seconds that it waited in the queue."""
        return self.reached.encoding_s - self.reached.submitted_s

    @property
    def n_failures(self) -> int:
        """How many steps of the engine have failed while it had this window."""
        return self.replay.n_restarts

    @property
    def language(self) -> str | None:
        """The code of the language of the present attempt; `None` until it is known."""
        return self.fallback.language or self._chosen(choose_language) or self.window.options.language

    def receive_languages(self, probabilities: dict[str, float]) -> None:
        """Note the probability of every candidate for the language.

        An interim is never decoded in two languages: the next one comes soon. Nor is a forced prefix, whose language is
        known.
        """
        self.language_probabilities = probabilities
        if self.window.priority is not Priority.INTERIM and not self.window.options.prefix:
            self.other_language = self._chosen(other_language)

    @property
    def must_hold_events(self) -> bool:
        """Whether no event may be handed out before the last attempt is judged."""
        return self.fallback.must_hold_events or self.other_language is not None

    @property
    def reported_probabilities(self) -> dict[str, float] | None:
        """As `language_probabilities`; where the text shows that another language is spoken, it has the likeliest's."""
        detected, spoken, found = self._chosen(choose_language), self.fallback.language, self.language_probabilities
        if not found or not detected or not spoken:
            return found
        return found | {detected: found[spoken], spoken: found[detected]}

    def _chosen(self, choose: Callable[[dict[str, float], dict[str, float]], str | None]) -> str | None:
        """What a function chooses of the probabilities, if they are known and the caller leaves the language open."""
        options, found = self.window.options, self.language_probabilities
        return choose(found, dict(options.language_bias)) if found and options.language is None else None

    @property
    def needs_detection(self) -> bool:
        """Whether the probabilities of languages are needed and not known, if the model knows several."""
        options = self.window.options
        is_wanted = options.language is None or bool(options.languages)
        return is_wanted and self.language_probabilities is None

    @property
    def audio_s(self) -> float:
        """The length of the window's audio in seconds."""
        return len(self.window.samples) / SAMPLE_RATE


@dataclass(eq=False, slots=True, kw_only=True)
class TranslationRequest(Request):
    """A window whose text is known, and which is translated in its slot, from the same encoding."""

    source: Request
    """The request for the text."""

    @classmethod
    def after(cls, source: Request, checkpoint: Checkpoint, now_s: float) -> "TranslationRequest":
        """Return the request that translates the window of `source`, whose language is known."""
        options = DecodeOptions(task="translate", language=source.language, sampling=source.window.options.sampling)
        return cls(
            window=replace(source.window, options=options),
            max_tokens=max_output_tokens(checkpoint, options),
            put=source.put,
            reached=Milestones(now_s, now_s, now_s, now_s),
            source=source,
        )

    def last_events(self, output: AttemptOutput, events: list[EngineEvent]) -> list[EngineEvent]:
        """Return the one event that the translation is for the caller."""
        return [TranslatedEvent(event) for event in events if isinstance(event, DoneEvent)]

    @property
    def caller(self) -> Request:
        """The request for the text."""
        return self.source


Deliver = Callable[[list[tuple[Request, Item]]], None]
"""Hands over all items of an engine step at once."""
