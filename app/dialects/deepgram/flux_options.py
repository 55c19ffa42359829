"""The options of Deepgram's Flux, `/v2/listen`: its query parameters, and what a `Configure` message changes of them.

Sources: deepgram/deepgram-api-specs, `asyncapi.yml`; deepgram-sdk 7.17 (`listen/v2`, `types/listen_v2*.py`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tutti_server.app.dialects.checks import are_texts, is_boolean, number_from, understood, usable_hotwords
from tutti_server.app.dialects.deepgram import text_options
from tutti_server.app.dialects.deepgram.options import raw_audio
from tutti_server.app.dialects.deepgram.query import Query
from tutti_server.app.errors import NOTHING, BadStart
from tutti_server.app.languages import known_among, language_of
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.messages import commands
from tutti_server.app.text_rules.pipeline import TextRuleOptions

ENGLISH, MULTILINGUAL = "flux-general-en", "flux-general-multi"
"""Deepgram's models: the first transcribes English, the second detects the language."""
CONTAINER_ENCODINGS = ("opus", "ogg-opus")
"""Encodings that arrive in a container. The server recognises the container from its content."""
LIMITS: Mapping[str, tuple[float, float]] = {
    "eot_threshold": (0.5, 1.0),
    "eager_eot_threshold": (0.3, 0.9),
    "eot_timeout_ms": (500, 60_000),
}
"""The least and the greatest value of each threshold, as Deepgram documents them."""
USUAL_SILENCE_MS = commands.Endpointing().silence_ms
"""The silence that ends a turn of the confidence `eot_threshold`, or whose text is not known yet, in milliseconds."""
MAX_TURN_S = 300.0
"""A longer turn ends at its next window, in seconds. It bounds what a session holds; Deepgram documents no limit."""
NEVER = 1.0
"""The value of `eot_threshold` with which only a timeout or the client ends a turn."""
GRANTED = ("mip_opt_out",)
"""Parameters that are fulfilled without an effect: no audio is kept to train a model."""


@dataclass(frozen=True, slots=True)
class FluxThresholds:
    """The confidences and the silence that end a turn."""

    eot_threshold: float = 0.7
    """A turn ends early if the confidence that its speaker has finished is at least this, 0 to 1."""
    eager_eot_threshold: float | None = None
    """A turn probably ends if that confidence is at least this; `None`: such ends are not reported."""
    eot_timeout_ms: int = 5000
    """The silence that ends any turn, in milliseconds."""

    @property
    def wire(self) -> dict[str, float]:
        """The thresholds as a JSON object, without one that is not set."""
        values = {name: getattr(self, name) for name in LIMITS}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def endpointing(self) -> commands.Endpointing:
        """When an utterance of the session ends."""
        is_manual = self.eot_threshold >= NEVER
        return commands.Endpointing(
            mode="adaptive",
            silence_ms=self.eot_timeout_ms if is_manual else min(USUAL_SILENCE_MS, self.eot_timeout_ms),
            max_silence_ms=self.eot_timeout_ms,
            end_confidence=self.eot_threshold,
            eager_confidence=self.eager_eot_threshold,
            max_utterance_s=MAX_TURN_S,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FluxOptions:
    """What a client of Flux asks for."""

    audio: AudioFormat | None = None
    """The raw format; `None` for a container, which describes its own format."""
    is_multilingual: bool = False
    """Detect the language, and report it."""
    languages: tuple[str, ...] = ()
    """The codes that the model knows."""
    language_hints: tuple[str, ...] = ()
    """The codes of the languages that the client expects."""
    thresholds: FluxThresholds = FluxThresholds()
    keyterms: tuple[str, ...] = ()
    text_rules: TextRuleOptions = field(default_factory=TextRuleOptions)
    ignored: tuple[str, ...] = ()
    """Names of the parameters without effect."""
    adjusted: tuple[str, ...] = ()
    """Parameters whose value was replaced, as `name=value`."""

    @property
    def language(self) -> str | None:
        """The code of the language to transcribe; `None` to detect it, or if the model knows one language only."""
        expected = self.language_hints if self.is_multilingual else ("en",)
        return expected[0] if len(expected) == 1 and expected[0] in self.languages else None

    @property
    def candidates(self) -> tuple[str, ...]:
        """The codes of the languages to detect one of; empty for all that the model knows, or if one is given."""
        return self.language_hints if len(self.language_hints) > 1 else ()


def parse(query: Iterable[tuple[str, str]], languages: Sequence[str]) -> FluxOptions:
    """The options in the parameters of a URL.

    Args:
        languages: the codes that the model knows.

    Raises:
        BadStart: a value is wrong, or a parameter is one that the server refuses.
    """
    values = Query(query)
    for name in GRANTED:
        values.texts(name)
    model = values.text("model")
    if model not in (ENGLISH, MULTILINGUAL):
        raise BadStart("model", f"{ENGLISH} or {MULTILINGUAL}", model or NOTHING)
    is_multilingual = model == MULTILINGUAL
    if is_multilingual and len(languages) <= 1:
        values.adjust("model", ENGLISH)
    hints = _language_hints("language_hint", values.texts("language_hint"), is_multilingual, languages)
    wanted_terms = values.texts("keyterm")
    keyterms = usable_hotwords(wanted_terms)
    if len(keyterms) < len(wanted_terms):
        values.adjust("keyterm", f"{len(keyterms)} of {len(wanted_terms)}")
    audio = raw_audio(values, CONTAINER_ENCODINGS)
    if audio is None:
        # The container says which rate it has.
        values.integer("sample_rate", 8000, 48_000)
    return FluxOptions(
        audio=audio,
        is_multilingual=is_multilingual,
        languages=tuple(languages),
        language_hints=hints,
        thresholds=_thresholds(FluxThresholds(), {name: values.text(name) for name in LIMITS}),
        keyterms=keyterms,
        text_rules=text_options.text_rules(values, None if is_multilingual else text_options.ENGLISH),
        ignored=values.ignored(),
        adjusted=values.adjusted,
    )


def configured(options: FluxOptions, message: Mapping[str, Any]) -> FluxOptions:
    """The options after a `Configure` message: what it leaves out stays.

    Raises:
        BadStart: a value is wrong; nothing changes.
    """
    thresholds = message.get("thresholds") or {}
    if not isinstance(thresholds, dict):
        raise BadStart("thresholds", "an object", thresholds)
    changed = options.thresholds
    if "eager_eot_threshold" in thresholds and thresholds["eager_eot_threshold"] is None:
        changed = replace(changed, eager_eot_threshold=None)
    options = replace(options, thresholds=_thresholds(changed, thresholds))
    if (keyterms := message.get("keyterms")) is not None:
        keyterms = [keyterms] if isinstance(keyterms, str) else keyterms
        if not are_texts(keyterms):
            raise BadStart("keyterms", "a list of texts", keyterms)
        # The answer names those in force.
        options = replace(options, keyterms=usable_hotwords(keyterms))
    if (hints := message.get("language_hints")) is not None:
        if not are_texts(hints):
            raise BadStart("language_hints", "a list of language codes", hints)
        codes = _language_hints("language_hints", hints, options.is_multilingual, options.languages)
        options = replace(options, language_hints=codes)
    chosen = {"numerals": options.text_rules.numerals, "profanity_filter": options.text_rules.profanity is not None}
    for name, is_on in chosen.items():
        if understood(message.get(name), is_boolean) not in (None, is_on):
            raise BadStart(name, f"{str(is_on).lower()}, as at the start", message[name])
    return options


def _thresholds(before: FluxThresholds, wanted: Mapping[str, object]) -> FluxThresholds:
    """The thresholds with the values that are given: numbers, or texts of numbers."""
    unknown = wanted.keys() - LIMITS.keys()
    if unknown:
        raise BadStart("thresholds", f"only {', '.join(LIMITS)}", min(unknown))
    values: dict[str, Any] = {
        name: _within(name, value, *LIMITS[name]) for name, value in wanted.items() if value is not None
    }
    if "eot_timeout_ms" in values:
        values["eot_timeout_ms"] = round(values["eot_timeout_ms"])
    thresholds = replace(before, **values)
    eager = thresholds.eager_eot_threshold
    if eager is not None and eager > thresholds.eot_threshold:
        raise BadStart("eager_eot_threshold", f"at most eot_threshold, {thresholds.eot_threshold:g}", eager)
    return thresholds


def _within(name: str, value: object, low: float, high: float) -> float:
    is_valid = number_from(low, high)
    number = understood(value, is_valid)
    if not is_valid(number):
        raise BadStart(name, f"a number from {low:g} to {high:g}", value)
    return float(number)


def _language_hints(
    name: str, wanted: Sequence[str], is_multilingual: bool, languages: Sequence[str]
) -> tuple[str, ...]:
    """The values of a field as codes that the model knows, without their regions."""
    if wanted and not is_multilingual:
        raise BadStart(name, f"none with another model than {MULTILINGUAL}", wanted[0])
    for each in wanted:
        if language_of(each, languages) not in languages:
            raise BadStart(name, f"one of {', '.join(languages)} with or without a region", each)
    return known_among(wanted, languages)
