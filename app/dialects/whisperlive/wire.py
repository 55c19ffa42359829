"""WhisperLive's protocol: options as one JSON message, then raw audio; the last segments are told again and again.

Source: whisper-live 0.10.0 on PyPI, `whisper_live/client.py` and `whisper_live/server.py`.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, assert_never

import numpy as np

from app.dialects.json_text import read_object, write_object
from app.dialects.native.wire import MAX_KEY_CHARS, MAX_NOTICES, MAX_PROMPT_CHARS
from app.errors import BadMessage, BadStart, shorten
from app.live.dialect import Read
from app.media.pcm import AudioFormat, Encoding
from app.session import commands, events
from app.session.effects import Close
from app.languages import WITHOUT_SPACES
from engine.api import MAX_HOTWORD_BYTES, MAX_HOTWORDS

END_OF_AUDIO = b"END_OF_AUDIO"
# Only with this one does the client keep the segments that are completed.
BACKEND = "faster_whisper"
# Reference clips of speakers, which some clients send, come as base64 in the options.
MAX_TEXT_CHARS = 1 << 20
MAX_UID_CHARS = 200
# As many as the original keeps.
MAX_SEGMENTS = 500
AUDIO_FORMATS: dict[str, Encoding] = {"float32": "pcm_f32le", "int16": "pcm_s16le", "uint8": "pcm_s16le"}
# The client keeps a completed segment if it starts where the one before has ended or later, each time that it is told.
LEAST_SEGMENT_S = 0.001
SILENCE_MS = (100, 5000)
# A client that is told these may connect again; with an error it would give up.
GO_ON_ELSEWHERE = frozenset({"draining", "overloaded", "engine_failed", "engine_stalled", "idle", "slow_reader"})

# What asks for something that is not done here, and what is said about it.
_WITHOUT_EFFECT: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("use_vad", lambda value: value is False, "speech is always detected"),
    ("no_speech_thresh", lambda value: value not in (None, 0.45), "the server decides what is no speech"),
    ("clip_audio", bool, "no audio is left out"),
    ("same_output_threshold", lambda value: value not in (None, 10), "the server decides when text is completed"),
    ("enable_translation", bool, "segments are not translated; task translate is, where the model can"),
    ("enable_diarization", bool, "speakers are not told apart"),
    ("known_speakers", bool, "speakers are not told apart"),
)
# These say more about options above, and have no effect without them.
_PARTS_OF_OTHERS = ("target_language", "max_speakers", "diarization_threshold", "hf_token")


class WhisperLive:
    """One client. It is told nothing of `lag`, which its protocol has no word for."""

    idle_timeout_s = None
    max_text_chars = MAX_TEXT_CHARS

    def __init__(self) -> None:
        self._uid: str | None = None
        self._is_started = False
        self._model: str | None = None
        self._is_uint8 = False
        self._wants_words = False
        self._language: str | None = None
        self._knows_language = False
        self._completed: deque[dict[str, Any]] = deque(maxlen=MAX_SEGMENTS)
        self._until_s = 0.0
        """Where the last completed segment ends."""
        self._shown: tuple[int, str] | None = None
        """The incomplete segment that the client has been told last, and its utterance."""

    def open(self) -> Iterable[Read]:
        return ()

    def read(self, message: str | bytes) -> Iterable[Read]:
        if isinstance(message, bytes):
            if message == END_OF_AUDIO:
                return (commands.Stop(),)
            return (commands.Audio(_widened(message) if self._is_uint8 else message),)
        if self._is_started:
            raise BadMessage("unexpected_text", "audio in binary messages behind the options", message)
        start = self._start(read_object(message))
        self._is_started = True
        return (start,)

    def heard(self, until_s: float) -> Iterable[events.Reply]:
        return ()

    def close(self, close: Close) -> Close:
        return close

    # Options.

    def _start(self, options: dict[str, Any]) -> commands.Start:
        options = dict(options)

        def take(name: str, expected: str, is_valid: Callable[[Any], bool], default: Any = None) -> Any:
            value = options.pop(name, None)
            if value is None:
                return default
            if not is_valid(value):
                raise BadStart(name, expected, value)
            return value

        uid = take("uid", f"text of at most {MAX_UID_CHARS} characters", _is_text(MAX_UID_CHARS))
        if uid is None:
            raise BadStart("uid", f"text of at most {MAX_UID_CHARS} characters", None)
        self._uid = uid
        formats = ", ".join(AUDIO_FORMATS)
        audio_format = take("audio_format", f"one of {formats}", lambda value: value in list(AUDIO_FORMATS), "float32")
        n_segments = take("send_last_n_segments", "a whole number above 0", _is_count, 10)
        self._is_uint8 = audio_format == "uint8"
        self._wants_words = take("word_timestamps", "true or false", lambda value: isinstance(value, bool), False)
        self._completed = deque(maxlen=min(n_segments, MAX_SEGMENTS))
        self._language = take("language", "a language code or null", _is_text(20)) or None
        self._knows_language = self._language is not None
        self._model = take("model", "a name", _is_text(MAX_PROMPT_CHARS))
        prompt = f"text of at most {MAX_PROMPT_CHARS} characters"
        notes = [f"send_last_n_segments: at most {MAX_SEGMENTS} are sent"] if n_segments > MAX_SEGMENTS else []
        hotwords, more = _hotwords(options.pop("hotwords", None))
        silence_ms, about_silence = _silence_ms(options.pop("vad_parameters", None))
        start = commands.Start(
            audio=AudioFormat(AUDIO_FORMATS[audio_format], 16_000, 1),
            language=self._language,
            task=take(
                "task", "transcribe or translate", lambda value: value in ("transcribe", "translate"), "transcribe"
            ),
            endpointing=commands.Endpointing(silence_ms=silence_ms),
            prompt=take("initial_prompt", prompt, _is_text(MAX_PROMPT_CHARS), ""),
            hotwords=hotwords,
            words=self._wants_words,
        )
        notes += more + about_silence
        for name, asks, answer in _WITHOUT_EFFECT:
            value = options.pop(name, None)
            notes += [f"{name}: has no effect; {answer}"] if asks(value) else []
        for name in _PARTS_OF_OTHERS:
            options.pop(name, None)
        notes += [f"{name[:MAX_KEY_CHARS]}: unknown option; ignored" for name in options]
        notices = tuple(events.Notice("not_honoured", note) for note in notes[:MAX_NOTICES])
        return replace(start, notices=notices)

    # Events.

    def write(self, event: events.Event) -> Iterable[str]:
        match event:
            case events.Started():
                notes = [notice.message for notice in event.notices]
                if self._model not in (None, event.model):
                    notes.insert(0, f"model: {shorten(self._model)} is not served here; {event.model} is")
                yield self._message(message="SERVER_READY", backend=BACKEND)
                if notes:
                    yield self._message(status="WARNING", message="; ".join(notes))
            case events.Interim():
                yield from self._interim(event)
            case events.Segment():
                yield from self._segment(event)
            case events.Utterance():
                yield from self._utterance(event)
            case events.Notice():
                yield self._message(status="WARNING", message=event.message)
            case events.Failure():
                goes_on = not event.is_fatal or event.code in GO_ON_ELSEWHERE
                yield self._message(status="WARNING" if goes_on else "ERROR", message=event.message)
                if event.is_fatal and goes_on:
                    yield self._message(message="DISCONNECT")
            case events.SpeechStarted() | events.Endpoint() | events.Flushed() | events.Lag() | events.Stopped():
                pass
            case _:
                assert_never(event)

    def wait(self, minutes: float) -> str:
        """There is no room for this client; how long it should stay away."""
        return self._message(status="WAIT", message=minutes)

    def _interim(self, event: events.Interim) -> Iterable[str]:
        text = self._spaced(event.stable + event.tail)
        if not text.strip() or self._shown == (event.utterance, text):
            return
        self._shown = (event.utterance, text)
        start_s = max(event.start_s, self._until_s)
        yield self._segments(_entry(start_s, max(event.end_s, start_s), text))

    def _segment(self, event: events.Segment) -> Iterable[str]:
        if event.language and not self._knows_language:
            self._language, self._knows_language = event.language, True
            yield self._message(language=event.language)
        text = self._spaced(event.text)
        if not text.strip():
            return
        # As the client will read them: two times that are told apart here may be told as the same millisecond.
        start_s = round(max(event.start_s, self._until_s), 3)
        self._until_s = round(max(event.end_s, start_s + LEAST_SEGMENT_S), 3)
        entry = _entry(start_s, self._until_s, text)
        if self._wants_words:
            entry["words"] = [
                {
                    "word": self._spaced(word.text),
                    "start": _time(word.start_s),
                    "end": _time(word.end_s),
                    "probability": word.confidence,
                }
                for word in event.words
            ]
        if self._shown is not None and self._shown[1] != text:
            # At the end the client adds what it was shown last to its subtitles, unless that is how they end.
            yield self._segments(entry)
        self._shown = None
        self._completed.append({**entry, "completed": True})
        yield self._segments()

    def _utterance(self, event: events.Utterance) -> Iterable[str]:
        """An interim that no final follows is taken back."""
        if self._shown is None or self._shown[0] != event.utterance:
            return
        self._shown = None
        start_s = max(event.start_s, self._until_s)
        yield self._segments(_entry(start_s, max(event.end_s, start_s), ""))

    def _segments(self, incomplete: dict[str, Any] | None = None) -> str:
        # Never an empty list, which the client trips over.
        return self._message(segments=[*self._completed, *([incomplete] if incomplete is not None else [])])

    def _spaced(self, text: str) -> str:
        """With the space in front that Whisper's text has: the client joins texts as they are."""
        return text if self._language in WITHOUT_SPACES or text.startswith(" ") else f" {text}"

    def _message(self, **fields: Any) -> str:
        return write_object({"uid": self._uid, **fields})


def _entry(start_s: float, end_s: float, text: str) -> dict[str, Any]:
    return {"start": _time(start_s), "end": _time(end_s), "text": text, "completed": False}


def _time(seconds: float) -> str:
    return f"{seconds:.3f}"


def _widened(data: bytes) -> bytes:
    """Unsigned 8-bit samples as signed ones of 16 bits."""
    samples = np.frombuffer(data, dtype=np.uint8).astype("<i2")
    return ((samples - 128) * 256).astype("<i2").tobytes()


def _is_text(most: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and len(value) <= most


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _hotwords(value: Any) -> tuple[tuple[str, ...], list[str]]:
    """Text with commas between the words, or a list; a phrase that is too long is taken word by word."""
    if value is None:
        return (), []
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise BadStart("hotwords", "text, or a list of texts", value)
    wanted: list[str] = []
    for part in map(str.strip, parts):
        wanted += [part] if len(part.encode()) <= MAX_HOTWORD_BYTES else part.split()
    fitting = [word for word in wanted if 0 < len(word.encode()) <= MAX_HOTWORD_BYTES]
    left_out = sum(map(bool, wanted)) - len(fitting[:MAX_HOTWORDS])
    limits = f"at most {MAX_HOTWORDS} of at most {MAX_HOTWORD_BYTES} bytes are taken"
    return tuple(fitting[:MAX_HOTWORDS]), [f"hotwords: {limits}; {left_out} left out"] if left_out else []


def _silence_ms(value: Any) -> tuple[int, list[str]]:
    """How much silence ends an utterance, and what else was asked for."""
    default = commands.Endpointing().silence_ms
    if value is None:
        return default, []
    if not isinstance(value, dict):
        raise BadStart("vad_parameters", "an object or null", value)
    name = "min_silence_duration_ms"
    notes = [
        f"vad_parameters.{each[:MAX_KEY_CHARS]}: has no effect; the server decides" for each in value if each != name
    ]
    asked = value.get(name, default)
    if isinstance(asked, bool) or not isinstance(asked, int | float):
        raise BadStart(f"vad_parameters.{name}", "milliseconds", asked)
    silence_ms = round(min(max(asked, SILENCE_MS[0]), SILENCE_MS[1]))
    if silence_ms != asked:
        notes.append(f"vad_parameters.{name}: {shorten(asked)} is taken as {silence_ms}")
    return silence_ms, notes
