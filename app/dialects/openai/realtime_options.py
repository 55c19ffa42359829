"""What OpenAI Realtime clients set with `session.update`, in either shape, and what it comes to here.

GA nests it under `audio.input`; the older shape is flat. Both are read alike, also mixed. What has no effect is named
in warnings; what cannot be honoured is refused, and then nothing of the update is taken.
Source: openai 3.54 on PyPI, `types/realtime` and `types/beta/realtime`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from app.errors import BadMessage
from app.media.pcm import BYTES_PER_SAMPLE, AudioFormat, Encoding
from app.session import commands
from engine import api
from engine.api import MAX_HOTWORD_BYTES, MAX_HOTWORDS

Remark = dict[str, str]
"""`param` and `message`: something that the client asked for and does not get."""

PCM = AudioFormat("pcm_s16le", 24_000)
# G.711 is 8 kHz always; PCM at other rates than 24 kHz is our extension.
G711: dict[str, Encoding] = {"audio/pcmu": "mulaw", "audio/pcma": "alaw"}
FLAT_FORMATS = {"pcm16": PCM} | {
    name: AudioFormat(G711[kind], 8000) for name, kind in (("g711_ulaw", "audio/pcmu"), ("g711_alaw", "audio/pcma"))
}
LEAST_SILENCE_MS, MOST_SILENCE_MS = 100, 5000
MOST_PADDING_MS = 1000
# How long `semantic_vad` waits at each eagerness. It goes by what was said, which is not looked at here.
EAGERNESS_MS = {"low": 1500, "medium": 800, "auto": 800, "high": 400}
# These models of OpenAI's have no turn detection, and their clients commit for themselves.
MANUAL_MODELS = ("gpt-realtime-whisper", "gpt-live-transcribe")
# Audio that is never committed is committed then, so that what is held stays bounded.
MAX_MANUAL_S = 900.0
MAX_PROMPT_CHARS = 10_000
LOGPROBS = "item.input_audio_transcription.logprobs"
WORDS = "item.input_audio_transcription.words"
"""Our extension: `words` in segment events."""
FLAT_KEYS = {"input_audio_format", "input_audio_transcription", "input_audio_noise_reduction", "turn_detection"}
# What is said about an update is bounded, whatever a client sends.
MAX_REMARKS = 20
MAX_NAME_CHARS = 80


class BadField(BadMessage):
    """A field that cannot be honoured."""

    def __init__(self, param: str, expected: str, got: object) -> None:
        super().__init__("invalid_value", f"{expected} as {param}", got)
        self.param = param


@dataclass(frozen=True, slots=True)
class Settings:
    """What is in force for a connection."""

    audio: AudioFormat = PCM
    asked_model: str | None = None
    language: str | None = None
    prompt: str = ""
    keywords: tuple[str, ...] = ()
    turn_detection: commands.Endpointing | None = None
    """`None`: what clients of the model that was asked for expect."""
    has_logprobs: bool = False
    has_words: bool = False

    @property
    def endpointing(self) -> commands.Endpointing:
        if self.turn_detection:
            return self.turn_detection
        return _MANUAL if (self.asked_model or "").startswith(MANUAL_MODELS) else commands.Endpointing()

    @property
    def is_manual(self) -> bool:
        return self.endpointing.mode == "manual"

    @property
    def bytes_per_s(self) -> int:
        return self.audio.sample_rate * BYTES_PER_SAMPLE[self.audio.encoding]

    def start(self) -> commands.Start:
        return commands.Start(
            audio=self.audio,
            language=self.language,
            endpointing=self.endpointing,
            prompt=self.prompt,
            hotwords=self.keywords,
            words=self.has_words or self.has_logprobs,
        )

    def configure(self) -> commands.Configure:
        words = self.has_words or self.has_logprobs
        return commands.Configure(
            audio=self.audio,
            language=self.language,
            endpointing=self.endpointing,
            prompt=self.prompt,
            hotwords=self.keywords,
            words=words,
        )


_MANUAL = commands.Endpointing(mode="manual", max_utterance_s=MAX_MANUAL_S)


def updated(settings: Settings, session: object, model: api.ModelInfo) -> tuple[Settings, list[Remark]]:
    """The settings with what a `session` object changes of them: absent keys keep their value, `null` takes it back.

    Raises:
        BadField: something in it cannot be honoured.
    """
    fields = _Fields(session, "session")
    fields.drop("id", "object", "expires_at", "client_secret")
    kind = fields.take("type", "transcription or realtime", ("transcription", "realtime").__contains__)
    if kind == "realtime":
        fields.warn("type", "this server transcribes, and does not answer")
    source = fields.inner("audio").inner("input")
    settings = _audio(settings, source, fields)
    for each, key in ((source, "transcription"), (fields, "input_audio_transcription")):
        if each.has(key):
            settings = _transcription(settings, each, key, model)
    for each in (source, fields):
        if each.has("turn_detection"):
            settings = replace(settings, turn_detection=_turn_detection(settings, each))
    for each, key in ((source, "noise_reduction"), (fields, "input_audio_noise_reduction")):
        if each.take(key, "an object or null", _is_object) is not None:
            each.warn(key, "noise is not reduced; the model is used to some")
    settings = _include(settings, fields)
    if fields.take("modalities", "a list of text or audio", _are_texts) not in (None, ["text"]):
        fields.warn("modalities", "there are no spoken answers")
    return settings, fields.warnings()


def named(settings: Settings, name: str | None, model: api.ModelInfo) -> tuple[Settings, list[Remark]]:
    """The settings for a client that asks for a model by name; any name is answered by the one that is served."""
    if name is None or name == model.name:
        return settings, []
    message = f"{name[:MAX_NAME_CHARS]!r} was asked for, {model.name!r} is served"
    return replace(settings, asked_model=name), [{"param": "model", "message": message}]


def described(settings: Settings, session_id: str, model: api.ModelInfo) -> dict[str, Any]:
    """The session in force, in GA's shape."""
    source = {
        "format": _described_format(settings.audio),
        "transcription": _described_transcription(settings, model),
        "noise_reduction": None,
        "turn_detection": _described_turn_detection(settings),
    }
    return _head(session_id) | {"type": "transcription", "audio": {"input": source}, "include": _included(settings)}


def described_flat(settings: Settings, session_id: str, model: api.ModelInfo) -> dict[str, Any]:
    """The session in force, in the older shape."""
    names = {audio: name for name, audio in FLAT_FORMATS.items()}
    return _head(session_id) | {
        "modalities": ["text"],
        # Only who has set it in GA's shape can have another one.
        "input_audio_format": names.get(settings.audio) or _described_format(settings.audio),
        "input_audio_transcription": _described_transcription(settings, model),
        "input_audio_noise_reduction": None,
        "turn_detection": _described_turn_detection(settings),
        "include": _included(settings),
    }


def is_flat(session: object) -> bool | None:
    """Whether a `session` object has the older shape; `None` if it may be either."""
    if not isinstance(session, dict):
        return None
    if "audio" in session or "type" in session:
        return False
    return True if FLAT_KEYS & session.keys() else None


def _head(session_id: str) -> dict[str, Any]:
    return {"id": session_id, "object": "realtime.transcription_session"}


def _described_format(audio: AudioFormat) -> dict[str, Any]:
    kinds = {encoding: kind for kind, encoding in G711.items()}
    if audio.encoding in kinds:
        return {"type": kinds[audio.encoding]}
    return {"type": "audio/pcm", "rate": audio.sample_rate}


def _described_transcription(settings: Settings, model: api.ModelInfo) -> dict[str, Any]:
    transcription = {"model": model.name, "language": settings.language, "prompt": settings.prompt}
    return transcription | ({"keywords": list(settings.keywords)} if settings.keywords else {})


def _described_turn_detection(settings: Settings) -> dict[str, Any] | None:
    if settings.is_manual:
        return None
    endpointing = settings.endpointing
    return {
        "type": "server_vad",
        "prefix_padding_ms": endpointing.padding_ms,
        "silence_duration_ms": endpointing.silence_ms,
    }


def _included(settings: Settings) -> list[str]:
    return [name for name, is_on in ((LOGPROBS, settings.has_logprobs), (WORDS, settings.has_words)) if is_on]


def _audio(settings: Settings, source: "_Fields", flat: "_Fields") -> Settings:
    if flat.has("input_audio_format"):
        expected = f"one of {', '.join(FLAT_FORMATS)}"
        name = flat.take("input_audio_format", expected, lambda value: value in (None, *FLAT_FORMATS))
        settings = replace(settings, audio=FLAT_FORMATS[name] if name else PCM)
    if not source.has("format"):
        return settings
    if source.is_null("format"):
        return replace(settings, audio=PCM)
    audio_format = source.inner("format")
    kind = audio_format.take(
        "type", "one of audio/pcm, audio/pcmu, audio/pcma", lambda value: value in ("audio/pcm", *G711), is_needed=True
    )
    rates = (8000, 8000) if kind in G711 else (8000, 48_000)
    expected = f"an integer from {rates[0]} to {rates[1]}, or nothing"
    rate = audio_format.take("rate", expected, lambda value: _is_integer(value) and rates[0] <= value <= rates[1])
    if kind in G711:
        return replace(settings, audio=AudioFormat(G711[kind], 8000))
    return replace(settings, audio=AudioFormat("pcm_s16le", rate or PCM.sample_rate))


def _transcription(settings: Settings, parent: "_Fields", key: str, model: api.ModelInfo) -> Settings:
    if parent.is_null(key):
        parent.warn(key, "transcription cannot be turned off, as it is all that this server does")
        return replace(settings, asked_model=None, language=None, prompt="", keywords=())
    fields = parent.inner(key)
    if fields.has("model"):
        name = fields.take("model", "a name", _is_text)
        settings, warnings = named(replace(settings, asked_model=None), name, model)
        for warning in warnings:
            fields.warn("model", warning["message"])
    if fields.has("languages"):
        languages = fields.take("languages", "a list of language codes", _are_texts) or []
        codes = {_language(fields, "languages", each, model) for each in languages}
        if len(codes) > 1:
            fields.warn("languages", "the language is detected among all that the model knows")
        settings = replace(settings, language=codes.pop() if len(codes) == 1 else None)
    if fields.has("language"):
        code = fields.take("language", "a language code", _is_text)
        if code or not fields.was_taken("languages"):
            settings = replace(settings, language=_language(fields, "language", code or None, model))
    if fields.has("prompt"):
        expected = f"text of at most {MAX_PROMPT_CHARS} characters"
        prompt = fields.take("prompt", expected, lambda value: _is_text(value) and len(value) <= MAX_PROMPT_CHARS)
        settings = replace(settings, prompt=prompt or "")
    if fields.has("keywords"):
        expected = f"a list of at most {MAX_HOTWORDS} texts of 1 to {MAX_HOTWORD_BYTES} bytes"
        keywords = fields.take("keywords", expected, _are_keywords) or []
        settings = replace(settings, keywords=tuple(each.strip() for each in keywords))
    if fields.take("delay", "a text", _is_text) is not None:
        fields.warn("delay", "text is sent as soon as it is stable")
    return settings


def _language(fields: "_Fields", key: str, code: str | None, model: api.ModelInfo) -> str | None:
    """A code as the model knows it, of any region ("en-GB")."""
    if code is None:
        return None
    short = code.replace("_", "-").partition("-")[0].lower()
    if short in model.languages:
        return short
    if short == "en" and not model.languages:
        # Checkpoints that know one language only know English, and cannot be told so.
        return None
    raise BadField(fields.name(key), f"one of {', '.join(model.languages) or 'en'}", code)


def _turn_detection(settings: Settings, parent: "_Fields") -> commands.Endpointing:
    if parent.is_null("turn_detection"):
        return _MANUAL
    fields = parent.inner("turn_detection")
    kind = fields.take(
        "type", "server_vad or semantic_vad", lambda value: value in (None, "server_vad", "semantic_vad")
    )
    for key in ("create_response", "interrupt_response"):
        if fields.take(key, "true or false", lambda value: isinstance(value, bool)):
            fields.warn(key, "there are no answers to create or interrupt")
    if fields.take("idle_timeout_ms", "an integer", _is_integer) is not None:
        fields.warn("idle_timeout_ms", "there are no answers that a silence could call for")
    if kind == "semantic_vad":
        eagerness = fields.take("eagerness", f"one of {', '.join(EAGERNESS_MS)}", tuple(EAGERNESS_MS).__contains__)
        silence_ms = EAGERNESS_MS[eagerness or "auto"]
        fields.warn("type", f"turns end after {silence_ms} ms of silence, whatever was said")
        return commands.Endpointing(silence_ms=silence_ms)
    if fields.take("threshold", "a number from 0 to 1", lambda value: _is_number(value) and 0 <= value <= 1) not in (
        None,
        0.5,
    ):
        fields.warn("threshold", "the detector has no such setting")
    before = commands.Endpointing() if settings.is_manual else settings.endpointing
    padding_ms = _nearest(fields, "prefix_padding_ms", before.padding_ms, 0, MOST_PADDING_MS)
    silence_ms = _nearest(fields, "silence_duration_ms", before.silence_ms, LEAST_SILENCE_MS, MOST_SILENCE_MS)
    return commands.Endpointing(silence_ms=silence_ms, padding_ms=padding_ms)


def _nearest(fields: "_Fields", key: str, before: int, least: int, most: int) -> int:
    """What is wanted, or the nearest to it that can be had, which is said."""
    wanted: int | None = fields.take(key, "an integer of at least 0", _is_count)
    if wanted is None:
        return before
    nearest = min(max(wanted, least), most)
    if nearest != wanted:
        fields.warn(key, f"it is {nearest}; {least} to {most} can be had")
    return nearest


def _include(settings: Settings, fields: "_Fields") -> Settings:
    if not fields.has("include"):
        return settings
    included = fields.take("include", "a list of texts", _are_texts) or []
    for name in included:
        if name not in (LOGPROBS, WORDS):
            fields.warn("include", f"{name[:MAX_NAME_CHARS]}: unknown; ignored")
    return replace(settings, has_logprobs=LOGPROBS in included, has_words=WORDS in included)


class _Fields:
    """Takes known keys out of a JSON object; what is left over at the end has no effect, which is said."""

    def __init__(self, values: object, path: str) -> None:
        if not isinstance(values, dict):
            raise BadField(path, "an object", values)
        self._values = dict(values)
        self._taken: set[str] = set()
        self._path = path
        self._inner: list[_Fields] = []
        self._warnings: list[Remark] = []

    def has(self, key: str) -> bool:
        return key in self._values

    def was_taken(self, key: str) -> bool:
        return key in self._taken

    def is_null(self, key: str) -> bool:
        """Whether its value is `null`, which is taken then."""
        if self._values.get(key, ...) is not None:
            return False
        self.drop(key)
        return True

    def drop(self, *keys: str) -> None:
        for key in keys:
            self._values.pop(key, None)

    def take(self, key: str, expected: str, is_valid: Callable[[Any], bool], is_needed: bool = False) -> Any:
        """Its value; `None` where it is `null` or absent and not needed."""
        value = self._values.pop(key, None)
        self._taken.add(key)
        if (value is not None or is_needed) and not is_valid(value):
            raise BadField(self.name(key), expected, value)
        return value

    def inner(self, key: str) -> "_Fields":
        value = self._values.pop(key, None)
        inner = _Fields({} if value is None else value, self.name(key))
        self._inner.append(inner)
        return inner

    def warn(self, key: str, message: str) -> None:
        self._warnings.append({"param": self.name(key), "message": message})

    def warnings(self) -> list[Remark]:
        """All of them; keys without a value ask for nothing."""
        unknown = [self.name(key[:MAX_NAME_CHARS]) for key, value in self._values.items() if value is not None]
        own = [*self._warnings, *({"param": name, "message": "has no effect on this server"} for name in unknown)]
        return [*own, *(warning for inner in self._inner for warning in inner.warnings())][:MAX_REMARKS]

    def name(self, key: str) -> str:
        return f"{self._path}.{key}"


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _are_keywords(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= MAX_HOTWORDS
        and all(isinstance(each, str) and 1 <= len(each.strip().encode()) <= MAX_HOTWORD_BYTES for each in value)
    )


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
