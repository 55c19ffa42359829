"""Deepgram's query parameters, live and prerecorded: what they come to here, and which of them change nothing.

Sources: the query parameters of deepgram-sdk 7.17 (`listen/v1/client.py`, `listen/v1/media/client.py`).
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.errors import BadStart
from app.media.pcm import AudioFormat, Encoding
from engine.api import MAX_HOTWORD_BYTES, MAX_HOTWORDS

RAW: dict[str, Encoding] = {"linear16": "pcm_s16le", "linear32": "pcm_f32le", "mulaw": "mulaw", "alaw": "alaw"}
IN_CONTAINERS = ("flac", "opus", "ogg-opus", "speex")
"""Encodings that come in a container of their own, which is recognised by what it holds."""
SILENCE_MS = 500
LEAST_SILENCE_MS, MOST_SILENCE_MS = 300, 5000
"""Shorter pauses lie between words too; what is cut there is read wrongly."""
LEAST_UTTERANCE_END_MS, MOST_UTTERANCE_END_MS = 1000, 5000
SPLIT_S = 0.8
"""Deepgram's default for `utt_split`."""
MAX_EXTRA = 20
MAX_EXTRA_CHARS = 200
# What is said of parameters is bounded, whatever a client sends.
MAX_NAMED = 20
MAX_NAME_CHARS = 40

BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
OFF = ("false", "0", "")
MULTI = "multi"
MOST_SPLIT_S = 60.0
_KEYWORD = re.compile(r"(.*?)(?::([+-]?\d+(?:\.\d+)?))?", re.DOTALL)

# Without effect here, and none is wanted: any name of a model is answered by the one that is served, text is never held
# back to be formatted, and nothing is kept that a model could be trained on.
GRANTED = {"model", "no_delay", "mip_opt_out"}
# Who asks for these must not get a transcript that lacks what was asked for.
REFUSED = {
    "callback": "results are sent over this connection only; leave it out",
    "redact": "nothing is redacted by this server; leave it out",
}


@dataclass(frozen=True, slots=True)
class Options:
    audio: AudioFormat | None = None
    """`None`: a container, which says for itself what it holds."""
    is_multichannel: bool = False
    channels: int | None = None
    language: str | None = None
    """`None`: detected."""
    is_multilingual: bool = False
    """Say of every text which language it is in."""
    detects_language: bool = False
    """Say of a recording which language it is in."""
    hotwords: tuple[str, ...] = ()
    punctuate: bool = False
    smart_format: bool = False
    interim: bool = False
    silence_ms: int = SILENCE_MS
    tells_endpoints: bool = True
    utterance_end_s: float | None = None
    vad_events: bool = False
    utterances: bool = False
    split_s: float = SPLIT_S
    wants_paragraphs: bool = False
    extra: tuple[tuple[str, str], ...] = ()
    ignored: tuple[str, ...] = ()
    """Parameters that change nothing, by name."""
    adjusted: tuple[str, ...] = ()
    """Parameters whose value was replaced, as `name=value`."""

    @property
    def is_formatted(self) -> bool:
        """Punctuation and case are wanted."""
        return self.punctuate or self.smart_format

    @property
    def paragraphs(self) -> bool:
        """With Deepgram, smart formatting brings them along."""
        return self.wants_paragraphs or self.smart_format


def parse(query: Iterable[tuple[str, str]], languages: Sequence[str], is_live: bool) -> Options:
    """What the parameters of a URL ask for.

    Args:
        languages: the codes that the model knows.

    Raises:
        BadStart: a value cannot be honoured, or must not be left out of account.
    """
    values = _Values(query)
    for name, why in REFUSED.items():
        if asked := values.texts(name):
            raise BadStart(name, f"none, as {why}", asked[0])
    for name in GRANTED:
        values.texts(name)
    is_multichannel = values.boolean("multichannel")
    audio, channels = _audio(values, is_multichannel, is_live)
    language = _language(values, languages)
    detects_language = not is_live and _detects(values)
    silence_ms, tells_endpoints = _endpointing(values) if is_live else (SILENCE_MS, False)
    return Options(
        audio=audio,
        is_multichannel=is_multichannel,
        channels=channels,
        language=None if language == MULTI or detects_language else language,
        is_multilingual=language == MULTI,
        detects_language=detects_language,
        hotwords=_hotwords(values),
        punctuate=values.boolean("punctuate"),
        smart_format=values.boolean("smart_format"),
        interim=is_live and values.boolean("interim_results"),
        silence_ms=silence_ms,
        tells_endpoints=tells_endpoints,
        utterance_end_s=_utterance_end(values) if is_live else None,
        vad_events=is_live and values.boolean("vad_events"),
        utterances=not is_live and values.boolean("utterances"),
        split_s=SPLIT_S if is_live else values.number("utt_split", SPLIT_S, MOST_SPLIT_S),
        wants_paragraphs=not is_live and values.boolean("paragraphs"),
        extra=tuple(map(_pair, values.texts("extra")[:MAX_EXTRA])),
        ignored=values.ignored(),
        adjusted=tuple(values.adjusted),
    )


def hotwords(keyterms: Iterable[str]) -> tuple[str, ...]:
    """Of these terms, as many as the engine takes."""
    terms = (text.strip() for text in keyterms)
    return tuple(text for text in terms if 0 < len(text.encode()) <= MAX_HOTWORD_BYTES)[:MAX_HOTWORDS]


def _audio(values: "_Values", is_multichannel: bool, is_live: bool) -> tuple[AudioFormat | None, int | None]:
    """The raw format, or `None` for a container; and how many channels there are, where that is said."""
    encoding = values.text("encoding")
    if encoding in RAW:
        sample_rate = values.integer("sample_rate", 8000, 48_000)
        if sample_rate is None:
            raise BadStart("sample_rate", f"an integer from 8000 to 48000 with encoding={encoding}", None)
        n_channels = values.integer("channels", 1, 8) or 1
        return AudioFormat(RAW[encoding], sample_rate, n_channels, is_mixed=not is_multichannel), n_channels
    if encoding is not None and encoding not in IN_CONTAINERS:
        known = ", ".join((*RAW, *IN_CONTAINERS))
        raise BadStart("encoding", f"one of {known}, or none for what is in a container", encoding)
    if not (is_live and is_multichannel):
        # What is in the container, it says itself.
        return None, None
    channels = values.integer("channels", 1, 8)
    if channels is None:
        raise BadStart("channels", "how many there are, with multichannel and a live container", None)
    return None, channels


def _language(values: "_Values", languages: Sequence[str]) -> str | None:
    """A code that the model knows, or `MULTI`. Regions make no difference to it, but for Cantonese."""
    asked = values.text("language")
    if asked is None:
        return "en" if "en" in languages else None
    if asked.lower() == MULTI:
        if len(languages) == 1:
            values.adjust("language", languages[0])
        return MULTI
    code = asked.lower().partition("-")[0]
    if asked.lower() == "zh-hk" and "yue" in languages:
        return "yue"
    if code not in languages:
        raise BadStart("language", f"multi, or one of {', '.join(languages)} with or without a region", asked)
    return code


def _detects(values: "_Values") -> bool:
    """`detect_language`: true, false, or the languages to choose among, which are chosen among all the same."""
    asked = values.texts("detect_language")
    if not asked or asked[0].lower() in BOOLEANS:
        return bool(asked) and BOOLEANS[asked[0].lower()]
    values.adjust("detect_language", "true")
    return True


def _endpointing(values: "_Values") -> tuple[int, bool]:
    """Milliseconds of silence that end an utterance, and whether the client wants to hear that it has ended."""
    asked = values.text("endpointing")
    if asked is None or asked.lower() == "true":
        return SILENCE_MS, True
    if asked.lower() == "false":
        return SILENCE_MS, False
    if not asked.isascii() or not asked.isdigit():
        raise BadStart("endpointing", "milliseconds, true or false", asked)
    silence_ms = min(max(int(asked[:9]), LEAST_SILENCE_MS), MOST_SILENCE_MS)
    if silence_ms != int(asked[:9]):
        values.adjust("endpointing", silence_ms)
    return silence_ms, True


def _utterance_end(values: "_Values") -> float | None:
    after_ms = values.integer("utterance_end_ms", LEAST_UTTERANCE_END_MS, MOST_UTTERANCE_END_MS)
    return None if after_ms is None else after_ms / 1000


def _hotwords(values: "_Values") -> tuple[str, ...]:
    """Key terms, and keywords without their weights; as many as the engine takes."""
    keyterms = values.texts("keyterm")
    keywords = [_KEYWORD.fullmatch(text) for text in values.texts("keywords")]
    boosted = [match[1] for match in keywords if match and not (match[2] or "").startswith("-")]
    taken = hotwords([*keyterms, *boosted])
    if len(taken) < len(keyterms) + len(keywords):
        values.adjust("keyterm" if keyterms else "keywords", f"{len(taken)} of {len(keyterms) + len(keywords)}")
    elif any(match and match[2] for match in keywords):
        values.adjust("keywords", "without weights")
    return taken


def _pair(text: str) -> tuple[str, str]:
    key, _, value = text[:MAX_EXTRA_CHARS].partition(":")
    return key, value


class _Values:
    """Takes known parameters out of a query; what is left over at the end changed nothing."""

    def __init__(self, query: Iterable[tuple[str, str]]) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in query:
            self._values.setdefault(name, []).append(value)
        self.adjusted: list[str] = []

    def texts(self, name: str) -> list[str]:
        """All values of a parameter; an empty one, as some clients send for an option that is not set, is none."""
        return [value for value in self._values.pop(name, []) if value]

    def text(self, name: str) -> str | None:
        return next(iter(self.texts(name)), None)

    def boolean(self, name: str) -> bool:
        value = self.text(name)
        if value is None:
            return False
        if value.lower() not in BOOLEANS:
            raise BadStart(name, "true or false", value)
        return BOOLEANS[value.lower()]

    def integer(self, name: str, least: int, most: int) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not (value.isascii() and value.isdigit() and len(value) < 10 and least <= int(value) <= most):
            raise BadStart(name, f"an integer from {least} to {most}", value)
        return int(value)

    def number(self, name: str, default: float, most: float) -> float:
        """From 0 on."""
        value = self.text(name)
        try:
            number = default if value is None else float(value)
        except ValueError:
            number = math.nan
        if not 0 <= number <= most:
            raise BadStart(name, f"a number from 0 to {most:g}", value)
        return number

    def adjust(self, name: str, value: object) -> None:
        """Take note that something else was made of a parameter."""
        self.adjusted.append(f"{name}={value}")

    def ignored(self) -> tuple[str, ...]:
        """Names of what has not been taken, unless it only says that something is not wanted."""
        asked = (name for name, values in self._values.items() if any(value.lower() not in OFF for value in values))
        return tuple(name[:MAX_NAME_CHARS] for name in sorted(asked))[:MAX_NAMED]
