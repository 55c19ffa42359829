"""The settings of a Realtime session, which clients change with `session.update`, in either shape.

The GA shape nests the settings under `audio.input`; the older shape is flat. A client may mix them. Warnings name the
settings without effect. A setting that the server cannot follow fails the whole update.
Source: openai 3.54 on PyPI, `types/realtime` and `types/beta/realtime`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tutti_server.app.dialects.checks import (
    HOTWORDS_EXPECTED,
    are_texts,
    integer_from,
    is_boolean,
    is_integer,
    is_object,
    is_text,
    number_from,
    text_up_to,
    usable_hotwords,
)
from tutti_server.app.dialects.limits import (
    MAX_NAME_CHARS,
    MAX_PADDING_MS,
    MAX_PROMPT_CHARS,
    MAX_SILENCE_MS,
    MIN_SILENCE_MS,
)
from tutti_server.app.dialects.openai.realtime_fields import BadField, Fields, Warnings
from tutti_server.app.errors import BadStart
from tutti_server.app.languages import language_of
from tutti_server.app.media.pcm import BYTES_PER_SAMPLE, AudioFormat, Encoding
from tutti_server.app.session.messages import commands
from tutti_server.engine import api

PCM = AudioFormat("pcm_s16le", 24_000)
"""OpenAI's format for PCM. Other sample rates are our extension."""
G711: dict[str, Encoding] = {"audio/pcmu": "mulaw", "audio/pcma": "alaw"}
"""The types of G.711, which always has 8 kHz."""
FLAT_FORMATS = {"pcm16": PCM} | {
    name: AudioFormat(G711[kind], 8000) for name, kind in (("g711_ulaw", "audio/pcmu"), ("g711_alaw", "audio/pcma"))
}
"""The names of formats in the older shape."""
_MEDIUM = commands.Endpointing(mode="adaptive", silence_ms=500, max_silence_ms=4000, end_confidence=0.5)
EAGERNESS = {
    "low": replace(_MEDIUM, silence_ms=800, max_silence_ms=8000, end_confidence=0.75),
    "medium": _MEDIUM,
    "auto": _MEDIUM,
    "high": replace(_MEDIUM, silence_ms=300, max_silence_ms=2000, end_confidence=0.35),
}
"""When a turn of `semantic_vad` ends. The longest silences are those that OpenAI documents."""
MANUAL_MODELS = ("gpt-realtime-whisper", "gpt-live-transcribe")
"""OpenAI's models without turn detection, by the start of their names. Their clients commit each turn themselves."""
DIARIZING_MODELS = ("gpt-4o-transcribe-diarize",)
"""OpenAI's models that tell speakers apart, by the start of their names."""
MAX_MANUAL_S = 900.0
"""The longest audio without a commit in sessions without turn detection, in seconds.

The server then commits it itself, to bound memory.
"""
LOGPROBS = "item.input_audio_transcription.logprobs"
WORDS = "item.input_audio_transcription.words"
"""Our extension: `words` in segment events."""
FLAT_KEYS = {"input_audio_format", "input_audio_transcription", "input_audio_noise_reduction", "turn_detection"}
"""Keys that only the older shape has at its top level."""
ANSWERS_NOTHING = "this server transcribes, and does not answer"

_MANUAL = commands.Endpointing(mode="manual", max_utterance_s=MAX_MANUAL_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class RealtimeSettings:
    """The settings in force on one connection."""

    audio: AudioFormat = PCM
    requested_model: str | None = None
    """The name of a model that the client asked for, if it is not the first name of one of the server's."""
    served: api.ModelCard | None = None
    """The server's model that the client asked for; `None` for the first one."""
    language: str | None = None
    """A language code, or `None` to detect the language."""
    languages: tuple[str, ...] = ()
    """The languages to detect one of, if `language` is `None`; empty for all that the model knows."""
    prompt: str = ""
    keywords: tuple[str, ...] = ()
    turn_detection: commands.Endpointing | None = None
    """How turns end; `None` for what clients of the model in `requested_model` expect."""
    eagerness: str | None = None
    """The name in `EAGERNESS`, if the client chose `semantic_vad`."""
    has_logprobs: bool = False
    has_words: bool = False

    @property
    def endpointing(self) -> commands.Endpointing:
        """Return the client's choice of when a turn ends."""
        if self.turn_detection:
            return self.turn_detection
        return _MANUAL if (self.requested_model or "").startswith(MANUAL_MODELS) else commands.Endpointing()

    @property
    def is_manual(self) -> bool:
        """Whether the client commits each turn itself."""
        return self.endpointing.mode == "manual"

    @property
    def wants_speakers(self) -> bool:
        """Whether clients of the model in `requested_model` expect the speakers of segments."""
        return (self.requested_model or "").startswith(DIARIZING_MODELS)

    @property
    def bytes_per_s(self) -> int:
        """Bytes of audio in a second."""
        return self.audio.sample_rate * BYTES_PER_SAMPLE[self.audio.encoding]

    def start(self) -> commands.Start:
        """The command that starts the session with these settings."""
        return commands.Start(
            audio=self.audio,
            model=self.served.name if self.served else None,
            language=self.language,
            languages=self.languages,
            endpointing=self.endpointing,
            prompt=self.prompt,
            hotwords=self.keywords,
            words=self.has_words or self.has_logprobs,
        )

    def configure(self) -> commands.Configure:
        """The command that changes a session that has started."""
        return commands.Configure.of(self.start())


Meant = Callable[[str | None], api.ModelCard]
"""Returns the model that a client means by a name, and the first one for `None`. Raises `BadStart` if there is none."""


def updated(settings: RealtimeSettings, session: object, meant: Meant) -> tuple[RealtimeSettings, Warnings]:
    """The settings after an update: absent keys keep their value, `null` restores the default.

    Args:
        session: the `session` object of the update.

    Returns:
        The new settings, and warnings about what has no effect.

    Raises:
        BadField: the server cannot follow one of the settings.
    """
    fields = Fields(session, "session")
    fields.discard("id", "object", "expires_at", "client_secret")
    kind = fields.pop("type", "transcription or realtime", ("transcription", "realtime").__contains__)
    if kind == "realtime":
        fields.warn("type", ANSWERS_NOTHING)
    source = fields.nested("audio").nested("input")
    source.discard_empty("format", "transcription", "turn_detection")
    fields.discard_empty("input_audio_format", "input_audio_transcription", "turn_detection", "include")
    settings = _audio(settings, source, fields)
    for each, key in ((source, "transcription"), (fields, "input_audio_transcription")):
        if each.has(key):
            settings = _transcription(settings, each, key, meant)
    for each in (source, fields):
        if each.has("turn_detection"):
            settings = _turn_detection(settings, each)
    for each, key in ((source, "noise_reduction"), (fields, "input_audio_noise_reduction")):
        if each.pop(key, "an object or null", is_object) is not None:
            each.warn(key, "noise is not reduced; the model is used to some")
    settings = _include(settings, fields)
    if fields.pop("modalities", "a list of text or audio", are_texts) not in (None, ["text"]):
        fields.warn("modalities", "this server does not speak")
    return settings, fields.warnings()


def named(settings: RealtimeSettings, name: str | None, meant: Meant) -> tuple[RealtimeSettings, Warnings]:
    """The settings after the client asked for a model by name.

    Where that is not a name of the model that answers, a warning says so.

    Raises:
        BadField: none of several models answers to the name.
    """
    try:
        card = meant(name)
    except BadStart as error:
        raise BadField("model", error.message, name) from error
    settings = replace(settings, served=None if card.name == meant(None).name else card)
    if name is None or name == card.name:
        return settings, []
    message = f"{name[:MAX_NAME_CHARS]!r} was asked for, {card.name!r} is served"
    warnings = [] if name in card.aliases else [{"param": "model", "message": message}]
    return replace(settings, requested_model=name), warnings


def is_flat(session: object) -> bool | None:
    """Whether a `session` object has the older shape; `None` if it may have either."""
    if not isinstance(session, dict):
        return None
    if "audio" in session or "type" in session:
        return False
    return True if FLAT_KEYS & session.keys() else None


def _audio(settings: RealtimeSettings, source: Fields, flat: Fields) -> RealtimeSettings:
    if flat.has("input_audio_format"):
        expected = f"one of {', '.join(FLAT_FORMATS)}"
        name = flat.pop("input_audio_format", expected, lambda value: value in (None, *FLAT_FORMATS))
        settings = replace(settings, audio=FLAT_FORMATS[name] if name else PCM)
    if not source.has("format"):
        return settings
    if source.pop_null("format"):
        return replace(settings, audio=PCM)
    audio_format = source.nested("format")
    kinds = ("audio/pcm", *G711)
    kind = audio_format.pop("type", f"one of {', '.join(kinds)}", kinds.__contains__, is_required=True)
    rates = (8000, 8000) if kind in G711 else (8000, 48_000)
    expected = f"an integer from {rates[0]} to {rates[1]}, or nothing"
    rate = audio_format.pop("rate", expected, integer_from(*rates))
    if kind in G711:
        return replace(settings, audio=AudioFormat(G711[kind], 8000))
    return replace(settings, audio=AudioFormat("pcm_s16le", rate or PCM.sample_rate))


def _transcription(settings: RealtimeSettings, parent: Fields, key: str, meant: Meant) -> RealtimeSettings:
    if parent.pop_null(key):
        parent.warn(key, "transcription cannot be turned off, because this server does nothing else")
        return replace(settings, requested_model=None, served=None, language=None, languages=(), prompt="", keywords=())
    fields = parent.nested(key)
    fields.discard_empty("model", "languages", "keywords")
    if fields.has("model"):
        name = fields.pop("model", "a name", is_text)
        settings, warnings = named(replace(settings, requested_model=None), name, meant)
        for warning in warnings:
            fields.warn("model", warning["message"])
    card = settings.served or meant(None)
    settings = _languages(settings, fields, card)
    if fields.was_popped("model"):
        settings = _kept_languages(settings, fields, card)
    if fields.has("prompt"):
        prompt_expected = f"text of at most {MAX_PROMPT_CHARS} characters"
        prompt = fields.pop("prompt", prompt_expected, text_up_to(MAX_PROMPT_CHARS))
        settings = replace(settings, prompt=prompt or "")
    if fields.has("keywords"):
        keywords = fields.pop("keywords", "a list of texts", are_texts) or []
        settings = replace(settings, keywords=usable_hotwords(keywords))
        if len(settings.keywords) < len(keywords):
            used = f"{len(settings.keywords)} of {len(keywords)} are used"
            fields.warn("keywords", f"expected {HOTWORDS_EXPECTED}; {used}")
    if fields.pop("delay", "a text", is_text) is not None:
        fields.warn("delay", "text is sent as soon as it is stable")
    return settings


def _languages(settings: RealtimeSettings, fields: Fields, model: api.ModelCard) -> RealtimeSettings:
    """The settings with `language` and with the hints of `languages`, which have no effect beside a language."""
    if fields.has("languages"):
        hints = fields.pop("languages", "a list of language codes", are_texts) or []
        settings = _hinted(settings, fields, hints, model)
    if fields.has("language"):
        code = fields.pop("language", "a language code", is_text)
        if code and settings.languages and fields.was_popped("languages"):
            fields.warn("languages", "the language is named, so it is not detected")
        if code or not fields.was_popped("languages"):
            settings = replace(settings, language=_language(fields, "language", code or None, model), languages=())
    return settings


def _kept_languages(settings: RealtimeSettings, fields: Fields, model: api.ModelCard) -> RealtimeSettings:
    """The settings with their languages as another model knows them."""
    if settings.languages:
        return _hinted(settings, fields, settings.languages, model)
    return replace(settings, language=_language(fields, "language", settings.language, model))


def _hinted(settings: RealtimeSettings, fields: Fields, hints: Iterable[str], model: api.ModelCard) -> RealtimeSettings:
    """The settings with the languages to detect one of; a single one needs no detection."""
    codes = dict.fromkeys(_language(fields, "languages", each, model) for each in hints)
    known = tuple(code for code in codes if code)
    return replace(settings, language=known[0] if len(known) == 1 else None, languages=known[1:] and known)


def _language(fields: Fields, key: str, code: str | None, model: api.ModelCard) -> str | None:
    """A language code as the model knows it: `en` for `en-GB`; `None` for one that is to be detected."""
    if code is None:
        return None
    short = language_of(code, model.languages)
    if short is None or short in model.languages:
        return short
    raise BadField(fields.name(key), f"one of {', '.join(model.languages)}", code)


def _turn_detection(settings: RealtimeSettings, parent: Fields) -> RealtimeSettings:
    """The settings with the endpointing that `turn_detection` asks for; `null` is none."""
    if parent.pop_null("turn_detection"):
        return replace(settings, turn_detection=_MANUAL, eagerness=None)
    fields = parent.nested("turn_detection")
    kind = fields.pop("type", "server_vad or semantic_vad", lambda value: value in (None, "server_vad", "semantic_vad"))
    for key in ("create_response", "interrupt_response"):
        if fields.pop(key, "true or false", is_boolean):
            fields.warn(key, "there are no answers to create or interrupt")
    if fields.pop("idle_timeout_ms", "an integer", is_integer) is not None:
        fields.warn("idle_timeout_ms", "there are no answers to give after a silence")
    if kind == "semantic_vad":
        eagerness = fields.pop("eagerness", f"one of {', '.join(EAGERNESS)}", tuple(EAGERNESS).__contains__) or "auto"
        return replace(settings, turn_detection=EAGERNESS[eagerness], eagerness=eagerness)
    before = settings.endpointing if settings.endpointing.mode == "vad" else commands.Endpointing()
    padding_ms = _clamped(fields, "prefix_padding_ms", before.padding_ms, 0, MAX_PADDING_MS)
    silence_ms = _clamped(fields, "silence_duration_ms", before.silence_ms, MIN_SILENCE_MS, MAX_SILENCE_MS)
    wanted = fields.pop("threshold", "a number from 0 to 1", number_from(0, 1))
    threshold = before.threshold if wanted is None else float(wanted)
    endpointing = commands.Endpointing(silence_ms=silence_ms, padding_ms=padding_ms, threshold=threshold)
    return replace(settings, turn_detection=endpointing, eagerness=None)


def _clamped(fields: Fields, key: str, before: int, low: int, high: int) -> int:
    """A number of the client's, or the nearest one from `low` to `high`, with a warning."""
    wanted: int | None = fields.pop(key, "an integer of at least 0", _is_count)
    if wanted is None:
        return before
    clamped = min(max(wanted, low), high)
    if clamped != wanted:
        fields.warn(key, f"expected {low} to {high}; {clamped} is used")
    return clamped


def _is_count(value: int) -> bool:
    return is_integer(value) and value >= 0


def _include(settings: RealtimeSettings, fields: Fields) -> RealtimeSettings:
    if not fields.has("include"):
        return settings
    included = fields.pop("include", "a list of texts", are_texts) or []
    for name in included:
        if name not in (LOGPROBS, WORDS):
            fields.warn("include", f"{name[:MAX_NAME_CHARS]}: unknown; ignored")
    return replace(settings, has_logprobs=LOGPROBS in included, has_words=WORDS in included)
