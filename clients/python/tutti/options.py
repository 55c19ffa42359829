"""The options of `connect` and `transcribe_file`: their types, and the `start` message that they make.

Each option is a keyword argument: `connect(url, language="en", silence_ms=400)`. Type checkers and editors read the
names and types from the classes below. An option that is left out has the default that its description names.
"""

from __future__ import annotations

import json
import ssl as tls
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypedDict

from tutti.errors import BadOption
from tutti.fields import message_fields, writer
from tutti.messages import (
    AudioFormat,
    Encoding,
    Endpointing,
    EndpointingMode,
    Resume,
    Room,
    SpeakerLimit,
    Start,
    Task,
    TextRules,
)

OPEN_TIMEOUT_S = 10.0
"""Default of `open_timeout_s`, in seconds."""
STARTED_TIMEOUT_S = 40.0
"""Default of `started_timeout_s`, in seconds: a server of several models may need 30 s to load one."""
STOP_TIMEOUT_S = 60.0
"""Default of `stop_timeout_s`, in seconds: a busy server may need long for the last finals."""
RESUME_BUFFER_S = 300.0
"""Default of `resume_buffer_s`, in seconds: an utterance of the usual longest length, and minutes without a server."""
MIN_RESUME_BUFFER_S = 60.0
"""The least `resume_buffer_s` but 0, in seconds: less could not hold an utterance of the usual longest length."""
RESUME_TIMEOUT_S = 300.0
"""Default of `resume_timeout_s`, in seconds."""
CLOSE_TIMEOUT_S = 2.0
"""Default of `close_timeout_s`, in seconds: nothing is lost when the connection is cut, so the wait is short."""


class AudioOptions(TypedDict, total=False):
    """The format of the audio that the session sends."""

    encoding: Encoding
    """How samples become bytes. Default: "pcm_s16le"."""
    sample_rate: int
    """Samples per second and channel, 8000 to 48000. Default: 16000."""
    channels: int
    """The number of channels, 1 to 8. Their samples alternate, and each is transcribed on its own. Default: 1."""


class TranscriptionOptions(TypedDict, total=False):
    """What the server recognises and how, and which events it sends."""

    language: str | None
    """A code such as "en". Default: None, the server detects the language and follows its changes.

    "lock": the server detects it at the beginning, and keeps it.
    """
    languages: Sequence[str]
    """The codes of the languages that are possible, where the server detects the language. Default: all it knows."""
    task: Task
    """Whether to write the language that is spoken, or to translate into English. Default: "transcribe"."""
    translate: Sequence[str]
    """The codes of the languages that final text is translated to, by `Translation` events. Default: none.

    `/page/model` of the server lists them under `translations`.
    """
    interim: bool
    """Whether to send `Interim` events. Default: True."""
    words: bool
    """Whether segments have the times of their words. Default: False."""
    turns: bool
    """Whether to send `Turn` events: a turn has probably ended, goes on after all, or has ended. Default: False."""
    interim_words: bool
    """Whether interims have the times of their stable words, too. Needs `words` and `interim`. Default: False."""
    prompt: str
    """Text that the speech may follow on from, or names that it may contain. Default: none.

    It has at most 10,000 characters.
    """
    hotwords: Sequence[str]
    """Names and terms to expect, as they are written: at most 64. A single string is one of them. Default: none."""
    room: Room | None
    """The room in which the session is published for readers; `Room()` has a name that cannot be guessed.

    `Session.started.room` has its address. Default: None, the session is not published.
    """
    resume: Resume | None
    """The times at which to continue after a `ConnectionLost`. Default: None, a new session."""
    model: str
    """A name of the model, where the server has several. `/v1/models` lists them. Default: the first one."""
    beam_size: int
    """The beams of final text, 1 to 10: more make fewer mistakes and more work. Default: what the server has chosen."""
    channel_names: Sequence[str]
    """A name for each channel, which then is `speaker` of its text, such as ["agent", "caller"]. Default: none."""
    max_speakers: int | None
    """Tell apart up to this many speakers of the one channel, 1 to 10. Default: None, speakers have no labels.

    `speaker` of segments and words is a letter then, and `Speakers` events say who speaks when, and revise it.
    """
    text_rules: TextRules | None
    """Redaction, numerals, replacements and profanity. Default: None, the text is what the model writes."""


class EndpointingOptions(TypedDict, total=False):
    """When an utterance ends. Default of each: None, which means the server's own default."""

    endpointing: EndpointingMode | None
    """How utterances begin and end.

    "vad": with detected speech, and after a silence that is always the same. "adaptive": as "vad", but what was spoken
    decides how long the silence must be. "manual", for push-to-talk: an utterance begins with the first audio, and ends
    with `flush`, with `stop` or at its maximum length. The server's default is "adaptive" where that was measured for
    its model, and "vad" elsewhere; it is always "vad" with one of the four options below.
    """
    silence_ms: int | None
    """Milliseconds of silence that end an utterance, 100 to 5000. Without `endpointing`, it means "vad".

    With "adaptive": one of which the server is as sure as `end_confidence` says, or whose text it does not know yet.
    """
    min_silence_ms: int | None
    """With "adaptive": milliseconds of silence that end an utterance that is certainly complete, 100 to 5000."""
    max_silence_ms: int | None
    """With "adaptive": milliseconds of silence that end any utterance, 100 to 5000."""
    end_confidence: float | None
    """With "adaptive": how sure the server must be that the speaker has finished to end a turn early, 0 to 1.

    A surer one ends before `silence_ms`, a less sure one later.
    """
    eager_confidence: float | None
    """With `turns`: how sure the server must be that the speaker has finished to send an `eager_end`, 0 to 1."""
    min_utterance_s: float | None
    """Silence does not end an utterance that is shorter than this, in seconds, 0 to 10.

    A single word then waits for the words that may follow.
    """
    max_utterance_s: float | None
    """An utterance that is longer than this, in seconds, ends at its next window. 10 to 300."""
    padding_ms: int | None
    """Milliseconds of audio before detected speech that belong to the utterance, 0 to 1000."""
    speech_threshold: float | None
    """How sure the server must be that a sound is speech, 0 to 1. A higher value takes less noise for speech."""


class ConnectionOptions(TypedDict, total=False):
    """How to reach the server, and how long to wait for it."""

    api_key: str | None
    """The key that the server requires. Default: None, no key."""
    ssl: tls.SSLContext | None
    """The certificates to trust on wss:// and https://. Default: None, those that the system trusts."""
    proxy: str | Literal[True] | None
    """The address of a proxy, None for no proxy, or True for the proxy that the system names. Default: True."""
    open_timeout_s: float
    """Seconds to wait for the connection and the WebSocket handshake. Default: 10."""
    started_timeout_s: float
    """Seconds to wait for `started` after `start` was sent. Default: 40."""
    stop_timeout_s: float
    """Seconds to wait for each event after `stop` was sent. Default: 60."""
    close_timeout_s: float
    """Seconds to wait for the closing handshake; then the connection is cut. Default: 2."""


class ResumeOptions(TypedDict, total=False):
    """What happens when the connection of a session is lost."""

    resume_buffer_s: float
    """How much audio is kept to send it again, in seconds: 60 or more. 0: a loss is raised as an error. Default: 300.

    Only audio that is not final is kept. What an outage makes longer than this is lost, the oldest first.
    """
    resume_timeout_s: float
    """Seconds after which a session that cannot be resumed ends with the error of the last attempt. Default: 300."""


class SessionOptions(
    TranscriptionOptions,
    EndpointingOptions,
    ConnectionOptions,
    ResumeOptions,
    total=False,
):
    """All options of `connect` except the audio format."""


class ConnectOptions(AudioOptions, SessionOptions, total=False):
    """All options of `connect`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProgress:
    """How far the transcription of a file has come."""

    sent_bytes: int
    total_bytes: int
    """The size of the file."""
    final_until_s: float = 0.0
    """The end of the newest segment, in seconds."""
    audio_s: float | None = None
    """The length of the recording in seconds; None until the end, except for WAV files, which state it."""


OnProgress: TypeAlias = Callable[[FileProgress], None]
"""Called whenever a part of a file was sent, or a part of its audio has its text."""


def check_option_names(function: str, options: Mapping[str, object], known: Set[str]) -> None:
    """Check that every option that a function was given is a known one.

    Type checkers find a wrong name before the program runs; this finds it in programs that are not checked.

    Raises:
        TypeError: an option has a name that does not exist.
    """
    for name in options:
        if name not in known:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")


def resume_buffer_s(options: ConnectOptions) -> float:
    """The option of that name.

    Raises:
        BadOption: it is too short.
    """
    value = options.get("resume_buffer_s", RESUME_BUFFER_S)
    if value != 0 and not value >= MIN_RESUME_BUFFER_S:
        raise BadOption("resume_buffer_s", f"{MIN_RESUME_BUFFER_S:g} or more, or 0", value)
    return value


def texts(value: Sequence[str] | None) -> tuple[str, ...]:
    """The texts of an option. A string is a sequence of strings too, but the caller means one text and not letters."""
    return (value,) if isinstance(value, str) else tuple(value or ())


def check_texts(options: Mapping[str, object]) -> None:
    """Check that all texts in the values of options, which JSON can hold, can be sent.

    Raises:
        BadOption: a text holds half of a surrogate pair, which UTF-8 cannot encode.
    """
    for name, value in options.items():
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise BadOption(name, "text of whole characters, not half of a surrogate pair", value) from error


def start_message(options: ConnectOptions) -> Start:
    """The `start` message that asks the server for a session with these options.

    Raises:
        BadOption: an option cannot work.
    """
    given: Mapping[str, Any] = {**options}
    names = {"mode": "endpointing", "threshold": "speech_threshold"}
    endpointing = Endpointing(
        **{each.name: given.get(names.get(each.name, each.name)) for each in message_fields(Endpointing)}
    )
    max_speakers = options.get("max_speakers")
    start = Start(
        audio=AudioFormat(**{name: given[name] for name in AudioOptions.__optional_keys__ & given.keys()}),
        model=options.get("model"),
        language=options.get("language"),
        languages=texts(options.get("languages")) or None,
        task=options.get("task", "transcribe"),
        translate=texts(options.get("translate")) or None,
        interim=options.get("interim", True),
        # Not sent when False, the default: servers that have no word times answer the field with a warning.
        words=options.get("words") or None,
        turns=options.get("turns") or None,
        interim_words=options.get("interim_words") or None,
        endpointing=None if endpointing == Endpointing() else endpointing,
        prompt=options.get("prompt") or None,
        hotwords=texts(options.get("hotwords")) or None,
        beam_size=options.get("beam_size"),
        resume=options.get("resume"),
        room=options.get("room"),
        channel_names=texts(options.get("channel_names")) or None,
        speakers=None if max_speakers is None else SpeakerLimit(max=max_speakers),
        text_rules=options.get("text_rules"),
        resumes=resume_buffer_s(options) > 0 or None,
    )
    check_texts(writer(Start)(start))
    return start
