"""Deepgram's query parameters, live and prerecorded, as options; the parameters without effect are listed.

Sources: the query parameters of deepgram-sdk 7.17 (`listen/v1/client.py`, `listen/v1/media/client.py`).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tutti_server.app.dialects.checks import BOOLEANS, is_integer, understood, usable_hotwords
from tutti_server.app.dialects.deepgram.query import Query
from tutti_server.app.dialects.deepgram.text_options import text_rules
from tutti_server.app.dialects.limits import MAX_SILENCE_MS, MAX_SPEAKERS
from tutti_server.app.dialects.text_rules import MAX_PHRASE_CHARS, MAX_PHRASES, is_phrase
from tutti_server.app.errors import NOTHING, BadStart
from tutti_server.app.files.transcription_options import TranscriptionOptions
from tutti_server.app.languages import known_among, language_of
from tutti_server.app.media.pcm import AudioFormat, Encoding
from tutti_server.app.session.messages import commands

RAW: dict[str, Encoding] = {"linear16": "pcm_s16le", "linear32": "pcm_f32le", "mulaw": "mulaw", "alaw": "alaw"}
"""Deepgram's names of raw encodings."""
CONTAINER_ENCODINGS = ("flac", "opus", "ogg-opus", "speex")
"""Encodings that arrive in a container. The server recognises the container from its content."""
SILENCE_MS = 500
"""The silence that ends an utterance by default, in milliseconds."""
MIN_ENDPOINTING_MS = 300
"""The shortest silence that `endpointing` has an effect with, in milliseconds; a shorter one is raised to this.

It is longer than `limits.MIN_SILENCE_MS`: shorter pauses also occur between words, and audio that is cut there is
transcribed wrongly.
"""
MIN_UTTERANCE_END_MS, MAX_UTTERANCE_END_MS = 1000, 5000
SPLIT_S = 0.8
"""Deepgram's default for `utt_split`, in seconds."""
MAX_SPLIT_S = 60.0
MAX_EXTRA = 20
"""The metadata repeats at most this many `extra` parameters."""
MAX_EXTRA_CHARS = 200
"""The metadata repeats at most this many characters of an `extra` parameter."""
DIARIZE_MODELS = {False: ("latest", "v1", "v2"), True: ("latest", "v1")}
"""The values of `diarize_model` for recordings, and for live audio (`True`)."""
MULTI = "multi"
"""The value of `language` that asks for all languages."""
_KEYWORD = re.compile(r"(.*?)(?::([+-]?\d+(?:\.\d+)?))?", re.DOTALL)

GRANTED = {"model", "no_delay", "mip_opt_out"}
"""Parameters that are fulfilled without an effect.

The endpoint chooses the model, text never waits for its formatting, and no audio is kept to train a model.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the URL of a request asks for."""

    start: commands.Start
    """What starts the session; `TranscriptionOptions` for a recording, without the format of its audio."""
    track: str | None = None
    """Which audio track of a recording: a number from 0, or a language; `None` for the default one."""
    audio: AudioFormat | None = None
    """The raw format; `None` for a container, which describes its own format."""
    is_multichannel: bool = False
    """Transcribe each channel on its own."""
    is_multilingual: bool = False
    """Report the language of each text."""
    detects_language: bool = False
    """Report the language of the recording."""
    punctuate: bool = False
    smart_format: bool = False
    reports_endpoints: bool = True
    """Set `speech_final` in the last result of an utterance."""
    utterance_end_s: float | None = None
    """Send `UtteranceEnd` after this many seconds without a word; `None`: never."""
    vad_events: bool = False
    utterances: bool = False
    utterance_split_s: float = SPLIT_S
    """The pause between two utterances of a recording, in seconds."""
    wants_paragraphs: bool = False
    max_speakers: int | None = None
    """Say who has spoken each word, up to this many speakers; `None`: do not."""
    callback: str = ""
    """The address to which the answer of a recording is sent later; empty if it answers the request."""
    callback_method: Literal["POST", "PUT"] = "POST"
    search: tuple[str, ...] = ()
    """Phrases that the answer tells the places of."""
    extra: tuple[tuple[str, str], ...] = ()
    """Names and values that the metadata repeats."""
    ignored: tuple[str, ...] = ()
    """Names of the parameters without effect."""
    adjusted: tuple[str, ...] = ()
    """Parameters whose value was replaced, as `name=value`."""

    @property
    def is_formatted(self) -> bool:
        """Whether the client wants punctuation and case."""
        return self.punctuate or self.smart_format

    @property
    def paragraphs(self) -> bool:
        """Whether the client wants paragraphs. Deepgram's smart formatting includes them."""
        return self.wants_paragraphs or self.smart_format


def parse(
    query: Iterable[tuple[str, str]], languages: Sequence[str], is_live: bool, tells_speakers: bool = False
) -> Options:
    """The options in the parameters of a URL.

    Args:
        languages: the codes that the model knows.
        is_live: the audio is live, not a recording.
        tells_speakers: whether the server has a speaker network. It tells the speakers of one channel apart; elsewhere
            the parameters have no effect, and are listed.

    Raises:
        BadStart: a value is wrong, or a parameter is one that the server refuses.
    """
    values = Query(query)
    callback, callback_method = _callback(values, is_live)
    for name in GRANTED:
        values.texts(name)
    is_multichannel = values.boolean("multichannel")
    audio, channels = _audio(values, is_multichannel, is_live)
    wanted = _language(values, languages)
    detects_language, candidates = _detects(values, languages)
    silence_ms, reports_endpoints = _endpointing(values) if is_live else (SILENCE_MS, False)
    language = None if wanted == MULTI or detects_language else wanted
    shared: dict[str, Any] = {
        "language": language,
        "languages": candidates,
        "locks_language": detects_language and wanted != MULTI,
        "hotwords": _hotwords(values),
        "words": True,
        "text_rules": text_rules(values, language),
    }
    interim = is_live and values.boolean("interim_results")
    max_speakers = _max_speakers(values, is_live) if tells_speakers and not is_multichannel else None
    start: commands.Start = TranscriptionOptions(**shared)
    if is_live:
        start = commands.Start(
            **shared,
            audio=audio or AudioFormat("pcm_f32le", channels=channels or 1),
            interim=interim,
            interim_words=interim,
            endpointing=commands.Endpointing(silence_ms=silence_ms),
            max_speakers=max_speakers,
            follows_speakers=False,
        )
    return Options(
        start=start,
        track=None if is_live or audio else values.text("track"),
        audio=audio,
        is_multichannel=is_multichannel,
        is_multilingual=wanted == MULTI or (is_live and detects_language),
        detects_language=detects_language and not is_live,
        punctuate=values.boolean("punctuate"),
        smart_format=values.boolean("smart_format"),
        reports_endpoints=reports_endpoints,
        utterance_end_s=_utterance_end(values) if is_live else None,
        vad_events=is_live and values.boolean("vad_events"),
        utterances=not is_live and values.boolean("utterances"),
        utterance_split_s=SPLIT_S if is_live else values.number("utt_split", SPLIT_S, MAX_SPLIT_S),
        max_speakers=max_speakers,
        wants_paragraphs=not is_live and values.boolean("paragraphs"),
        search=_search(values),
        callback=callback,
        callback_method=callback_method,
        extra=tuple(map(_pair, values.texts("extra")[:MAX_EXTRA])),
        ignored=values.ignored(),
        adjusted=values.adjusted,
    )


def _callback(values: Query, is_live: bool) -> tuple[str, Literal["POST", "PUT"]]:
    """Return the address to which the answer is sent later, and the HTTP method; empty for none."""
    callback = values.text("callback") or ""
    if is_live and callback:
        # A client that needs it must not get a transcript without it.
        raise BadStart("callback", "none, as results are sent over this connection only; leave it out", callback)
    method = None if is_live else values.text("callback_method")
    if method and not callback:
        raise BadStart("callback_method", "callback with it", method)
    if method and method.upper() not in ("POST", "PUT"):
        raise BadStart("callback_method", "POST or PUT", method)
    return callback, "PUT" if method and method.upper() == "PUT" else "POST"


def raw_audio(values: Query, containers: Sequence[str]) -> AudioFormat | None:
    """The format of raw audio of one channel; `None` for a container, whose encoding is none or one of `containers`."""
    encoding = values.text("encoding")
    if encoding in RAW:
        sample_rate = values.integer("sample_rate", 8000, 48_000)
        if sample_rate is None:
            raise BadStart("sample_rate", f"an integer from 8000 to 48000 with encoding={encoding}", NOTHING)
        return AudioFormat(RAW[encoding], sample_rate)
    if encoding is not None and encoding not in containers:
        known = ", ".join((*RAW, *containers))
        raise BadStart("encoding", f"one of {known}, or none for what is in a container", encoding)
    return None


def _audio(values: Query, is_multichannel: bool, is_live: bool) -> tuple[AudioFormat | None, int | None]:
    """The raw format, or `None` for a container; and the number of channels, or `None` if the audio itself says it."""
    if raw := raw_audio(values, CONTAINER_ENCODINGS):
        n_channels = values.integer("channels", 1, 8) or 1
        return replace(raw, channels=n_channels, is_mixed=not is_multichannel), n_channels
    if not (is_live and is_multichannel):
        # The container says how many channels it holds.
        return None, None
    channels = values.integer("channels", 1, 8)
    if channels is None:
        raise BadStart("channels", "how many there are, with multichannel and a live container", NOTHING)
    return None, channels


def _language(values: Query, languages: Sequence[str]) -> str | None:
    """A code that the model knows, or `MULTI`, which other spellings of a language to detect stand for, too."""
    wanted = values.text("language")
    if wanted is None:
        return "en" if "en" in languages else None
    code = language_of(wanted, languages)
    if code is None:
        if len(languages) == 1:
            values.adjust("language", languages[0])
        return MULTI
    if code not in languages:
        raise BadStart("language", f"multi, or one of {', '.join(languages)} with or without a region", wanted)
    if re.split(r"[^a-z]", wanted.strip().lower())[0] != code:
        values.adjust("language", code)
    return code


def _detects(values: Query, languages: Sequence[str]) -> tuple[bool, tuple[str, ...]]:
    """Whether `detect_language` is on, and the languages that it names, as far as the model knows them."""
    wanted = values.texts("detect_language")
    # "no" is Norwegian.
    switches = [each.lower() for each in wanted if each.lower() in BOOLEANS and each.lower() not in languages]
    named = [each for each in wanted if each.lower() not in switches]
    candidates = known_among(named, languages)
    is_on = bool(candidates) or (bool(switches) and BOOLEANS[switches[0]])
    if named and not is_on:
        raise BadStart("detect_language", f"true, false, or some of {', '.join(languages)}", named[0])
    is_contradicted = any(BOOLEANS[each] != is_on for each in switches)
    if is_contradicted or any(language_of(each, languages) not in languages for each in named):
        values.adjust("detect_language", ",".join(candidates) or str(is_on).lower())
    return is_on, candidates


def _max_speakers(values: Query, is_live: bool) -> int | None:
    """The most speakers to tell apart, if they are to be. There is one network, whatever version the client names.

    `max_speakers` is our extension; without `diarize` it has no effect, and is listed.
    """
    wanted = values.boolean("diarize")
    model, known = values.text("diarize_model"), DIARIZE_MODELS[is_live]
    if model is not None and model not in known:
        raise BadStart("diarize_model", f"one of {', '.join(known)}", model)
    if not wanted and model is None:
        return None
    return values.integer("max_speakers", 1, MAX_SPEAKERS) or MAX_SPEAKERS


def _endpointing(values: Query) -> tuple[int, bool]:
    """The silence that ends an utterance, in milliseconds, and whether results say that an utterance has ended."""
    wanted = values.text("endpointing")
    # Digits are milliseconds.
    if wanted is None or (wanted.lower() in BOOLEANS and not wanted.isdigit()):
        return SILENCE_MS, wanted is None or BOOLEANS[wanted.lower()]
    wanted_ms = understood(wanted, is_integer)
    if not is_integer(wanted_ms) or wanted_ms < 0:
        raise BadStart("endpointing", "milliseconds, true or false", wanted)
    silence_ms = min(max(wanted_ms, MIN_ENDPOINTING_MS), MAX_SILENCE_MS)
    if silence_ms != wanted_ms:
        values.adjust("endpointing", silence_ms)
    return silence_ms, True


def _utterance_end(values: Query) -> float | None:
    after_ms = values.integer("utterance_end_ms", MIN_UTTERANCE_END_MS, MAX_UTTERANCE_END_MS)
    return None if after_ms is None else after_ms / 1000


def _hotwords(values: Query) -> tuple[str, ...]:
    """Key terms, and keywords without their weights, up to the engine's limit."""
    keyterms = values.texts("keyterm")
    keywords = [_KEYWORD.fullmatch(text) for text in values.texts("keywords")]
    boosted = [match[1] for match in keywords if match and not (match[2] or "").startswith("-")]
    accepted = usable_hotwords([*keyterms, *boosted])
    if len(accepted) < len(keyterms) + len(keywords):
        values.adjust("keyterm" if keyterms else "keywords", f"{len(accepted)} of {len(keyterms) + len(keywords)}")
    elif any(match and match[2] for match in keywords):
        values.adjust("keywords", "without weights")
    return accepted


def _search(values: Query) -> tuple[str, ...]:
    phrases = tuple(values.texts("search"))
    if len(phrases) > MAX_PHRASES or not all(map(is_phrase, phrases)):
        expected = f"at most {MAX_PHRASES} phrases of at most {MAX_PHRASE_CHARS} characters, each with a word"
        raise BadStart("search", expected, phrases[0] if len(phrases) <= MAX_PHRASES else len(phrases))
    return phrases


def _pair(text: str) -> tuple[str, str]:
    key, _, value = text[:MAX_EXTRA_CHARS].partition(":")
    return key, value
