"""The options that a WhisperLive client sends as its first message.

Source: whisper-live 0.10.0 on PyPI, `whisper_live/client.py` and `whisper_live/server.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

from tutti_server.app.dialects.checks import (
    Check,
    are_texts,
    is_boolean,
    is_integer,
    is_number,
    number_from,
    text_up_to,
    understood,
    usable_hotwords,
)
from tutti_server.app.dialects.limits import (
    MAX_NAME_CHARS,
    MAX_NOTICES,
    MAX_PROMPT_CHARS,
    MAX_SILENCE_MS,
    MIN_SILENCE_MS,
)
from tutti_server.app.errors import BadStart, shorten
from tutti_server.app.languages import language_of
from tutti_server.app.media.pcm import AudioFormat, Encoding
from tutti_server.app.session.messages import commands, events
from tutti_server.engine import api
from tutti_server.engine.api import MAX_HOTWORD_BYTES, MAX_HOTWORDS, SAMPLE_RATE

MAX_UID_CHARS = 200
MAX_LANGUAGE_CHARS = 20
MAX_PATH_CHARS = len("vad_parameters.") + MAX_NAME_CHARS
"""A warning repeats at most this many characters of the name of an option in `vad_parameters`."""
MAX_SEGMENTS = 500
"""The most segments that one message repeats: as many as the original server keeps."""
AUDIO_FORMATS: dict[str, Encoding] = {"float32": "pcm_f32le", "int16": "pcm_s16le", "uint8": "pcm_s16le"}
"""The client's audio formats, and what the session receives. The dialect widens `uint8` samples to 16 bits."""
DEFAULT_SEGMENTS = 10

_WITHOUT_EFFECT: tuple[tuple[str, Check, Callable[[Any], bool], str], ...] = (
    ("use_vad", is_boolean, lambda value: value is False, "speech is always detected"),
    ("no_speech_thresh", is_number, lambda value: value != 0.45, "the server decides what is no speech"),
    ("clip_audio", is_boolean, bool, "no audio is left out"),
    ("same_output_threshold", is_number, lambda value: value != 10, "the server decides when text is completed"),
    ("enable_translation", is_boolean, bool, "segments are not translated; task translate is, where the model can"),
    ("enable_diarization", is_boolean, bool, "speakers are not told apart"),
    ("known_speakers", are_texts, bool, "speakers are not told apart"),
)
"""Options without an effect: the name, usual values, whether one asks for an effect, and the reason for the client."""
_DEPENDENT_OPTIONS = ("target_language", "max_speakers", "diarization_threshold", "hf_token")
"""Options that refine those above, and have no effect without them. The server does not mention them."""


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """What a client asked for, apart from its `uid`."""

    start: commands.Start
    model: str | None
    n_segments: int
    """How many completed segments each message repeats."""
    is_uint8: bool
    """The audio is unsigned 8-bit samples."""


def pop_uid(options: dict[str, Any]) -> str:
    """Remove the client's `uid` from its options and return it.

    Raises:
        BadStart: there is no `uid`, or it is no text.
    """
    expected = f"text of at most {MAX_UID_CHARS} characters"
    uid = _pop(options, "uid", expected, text_up_to(MAX_UID_CHARS))
    if uid is None:
        raise BadStart("uid", expected, None)
    return str(uid)


def parse(options: dict[str, Any]) -> ClientOptions:
    """Parse the options, without `uid`. The start command's notices name what has no effect.

    Raises:
        BadStart: a value is wrong.
    """
    options = dict(options)
    formats_expected = f"one of {', '.join(AUDIO_FORMATS)}"
    audio_format = _pop(options, "audio_format", formats_expected, list(AUDIO_FORMATS).__contains__, "float32")
    n_segments = _pop(options, "send_last_n_segments", "a whole number above 0", _is_count, DEFAULT_SEGMENTS)
    words = _pop(options, "word_timestamps", "true or false", is_boolean, False)
    language = language_of(_pop(options, "language", "a language code or null", text_up_to(MAX_LANGUAGE_CHARS)))
    model = _pop(options, "model", "a name", text_up_to(MAX_PROMPT_CHARS))
    hotwords, hotword_notes = _hotwords(options.pop("hotwords", None))
    endpointing, vad_notes = _endpointing(options.pop("vad_parameters", None))
    task = _pop(options, "task", "transcribe or translate", get_args(api.Task).__contains__, "transcribe")
    prompt_expected = f"text of at most {MAX_PROMPT_CHARS} characters"
    prompt = _pop(options, "initial_prompt", prompt_expected, text_up_to(MAX_PROMPT_CHARS), "")
    notes = [f"send_last_n_segments: at most {MAX_SEGMENTS} are sent"] if n_segments > MAX_SEGMENTS else []
    notes += hotword_notes + vad_notes + _without_effect(options)
    start = commands.Start(
        audio=AudioFormat(AUDIO_FORMATS[audio_format], SAMPLE_RATE, 1),
        language=language,
        # WhisperLive keeps the first language that it detects.
        locks_language=language is None,
        task=task,
        endpointing=endpointing,
        prompt=prompt,
        hotwords=hotwords,
        words=words,
        notices=tuple(events.Notice("not_honoured", note) for note in notes[:MAX_NOTICES]),
    )
    return ClientOptions(start, model, min(n_segments, MAX_SEGMENTS), audio_format == "uint8")


def _pop(options: dict[str, Any], name: str, expected: str, is_valid: Check, default: Any = None) -> Any:
    """Remove an option and return its value; the default if it is absent, null or an empty text."""
    value = understood(options.pop(name, None), is_valid)
    if value is None or value == "":
        return default
    if not is_valid(value):
        raise BadStart(name, expected, value)
    return value


def _without_effect(options: dict[str, Any]) -> list[str]:
    notes = []
    for name, is_usual, asks_for_effect, reason in _WITHOUT_EFFECT:
        value = understood(options.pop(name, None), is_usual)
        if value not in (None, "") and asks_for_effect(value):
            notes.append(f"{name}: has no effect; {reason}")
    unknown = [name for name, value in options.items() if name not in _DEPENDENT_OPTIONS and value != ""]
    return notes + [f"{name[:MAX_NAME_CHARS]}: unknown option; ignored" for name in unknown]


def _is_count(value: Any) -> bool:
    return is_integer(value) and value > 0


def _hotwords(value: Any) -> tuple[tuple[str, ...], list[str]]:
    """The hotwords, and sentences about those that were dropped.

    The value is a text with commas between the hotwords, or a list. A phrase that is too long is split into words.
    """
    if value is None:
        return (), []
    parts = value.split(",") if isinstance(value, str) else value
    if not are_texts(parts):
        raise BadStart("hotwords", "text, or a list of texts", value)
    wanted: list[str] = []
    for part in map(str.strip, parts):
        wanted += [part] if len(part.encode()) <= MAX_HOTWORD_BYTES else part.split()
    accepted = usable_hotwords(wanted)
    n_dropped = sum(map(bool, wanted)) - len(accepted)
    limits = f"at most {MAX_HOTWORDS} of at most {MAX_HOTWORD_BYTES} bytes are taken"
    return accepted, [f"hotwords: {limits}; {n_dropped} left out"] if n_dropped else []


def _endpointing(value: Any) -> tuple[commands.Endpointing, list[str]]:
    """The endpointing in `vad_parameters`, or the choice of the service, and sentences about what has no effect."""
    if value in (None, ""):
        return commands.Endpointing(mode=None), []
    if not isinstance(value, dict):
        raise BadStart("vad_parameters", "an object or null", value)
    given = {f"vad_parameters.{name}": each for name, each in value.items()}
    threshold = _pop(given, "vad_parameters.threshold", "a number from 0 to 1", number_from(0, 1))
    name = "vad_parameters.min_silence_duration_ms"
    wanted = _pop(given, name, "milliseconds", is_number)
    unknown = [each for each, content in given.items() if content != ""]
    notes = [f"{each[:MAX_PATH_CHARS]}: has no effect; the server decides" for each in unknown]
    if wanted is None:
        return commands.Endpointing(mode=None, threshold=threshold), notes
    silence_ms = round(min(max(wanted, MIN_SILENCE_MS), MAX_SILENCE_MS))
    if silence_ms != wanted:
        notes.append(f"{name}: {shorten(wanted)} is taken as {silence_ms}")
    return commands.Endpointing(silence_ms=silence_ms, threshold=threshold), notes
