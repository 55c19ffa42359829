"""Deepgram's answer to a recording, made from the events of a session.

Source: the response types of deepgram-sdk 7.17 (`types/listen_v1response*.py`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from tutti_server.app.dialects.deepgram.metadata import Request, warning
from tutti_server.app.dialects.deepgram.options import Options
from tutti_server.app.dialects.deepgram.words import mean_confidence, phrases_in, plain, wire_words
from tutti_server.app.languages import joined
from tutti_server.app.session.messages import events
from tutti_server.app.voices.words_by_speaker import SpokenWord

SENTENCE_ENDS = tuple(".?!。？！…؟۔।")
"""A word that ends in one of these ends its sentence."""

Words = list[dict[str, Any]]


@dataclass(slots=True, kw_only=True)
class _Channel:
    utterances: list[tuple[str, Words]] = field(default_factory=list)
    """The text and the words of each utterance that has text."""
    words: Words = field(default_factory=list)
    """The words of the utterance that has not ended."""
    confidences: list[float] = field(default_factory=list)
    languages: Counter[str] = field(default_factory=Counter)
    """How many words are in each language."""

    probabilities: dict[str, float] = field(default_factory=dict)
    """The probability of each language, as the detector last found it."""

    @property
    def language(self) -> str | None:
        return self.languages.most_common(1)[0][0] if self.languages else None


class Recording:
    """Collects the events of a recording's session. After the last event, `response` is the answer."""

    def __init__(self, options: Options, request: Request, n_channels: int) -> None:
        self._options = options
        self._request = request
        self._channels = [_Channel() for _ in range(n_channels)]
        self._audio_s = 0.0
        self._notices: list[events.Notice] = []
        self.words: list[events.Word] = []
        """All words, if their speakers are wanted."""

    def push(self, event: events.Event) -> None:
        """Add the next event of the session."""
        match event:
            case events.Segment():
                channel = self._channels[event.channel]
                language = event.language if self._options.is_multilingual else None
                channel.words += wire_words(event.words, self._options.is_formatted, language)
                channel.confidences.append(event.confidence)
                self.words += event.words if self._options.max_speakers else ()
                if event.language:
                    channel.languages[event.language] += max(len(event.words), 1)
                if event.language and event.language_probability is not None:
                    channel.probabilities[event.language] = event.language_probability
            case events.Utterance():
                channel = self._channels[event.channel]
                if event.text:
                    channel.utterances.append((event.text, channel.words))
                    channel.words = []
            case events.Notice():
                self._notices.append(event)
            case events.Stopped():
                self._audio_s = event.audio_s

    def label(self, spoken: Iterable[SpokenWord]) -> None:
        """Give each word its speaker, after the last event."""
        speakers = {(each.word.start_s, each.word.end_s): each for each in spoken}
        for channel in self._channels:
            for word in (word for _, words in channel.utterances for word in words):
                each = speakers[word["start"], word["end"]]
                word |= {"speaker": each.speaker, "speaker_confidence": each.confidence}

    def response(self, sha256: str) -> dict[str, Any]:
        """The JSON object of the answer, with the hash of the uploaded bytes in hexadecimal digits."""
        metadata = self._request.metadata(sha256, self._audio_s, len(self._channels), self._options)
        if warnings := list(self._warnings()):
            metadata["warnings"] = warnings
        results: dict[str, Any] = {"channels": [self._channel(channel) for channel in self._channels]}
        if self._options.utterances:
            results["utterances"] = self._utterances()
        return {"metadata": metadata, "results": results}

    def _warnings(self) -> Iterator[dict[str, str]]:
        for name in self._options.ignored:
            yield {"parameter": name, "type": "unsupported_parameter", "message": f"{name}: has no effect here"}
        for name, _, value in (each.partition("=") for each in self._options.adjusted):
            yield {"parameter": name, "type": "adjusted_parameter", "message": f"{name}: taken as {value}"}

        yield from (warning(notice) for notice in self._notices)

    def _channel(self, channel: _Channel) -> dict[str, Any]:
        words = [word for _, words in channel.utterances for word in words]
        texts = [text if self._options.is_formatted else plain(text) for text, _ in channel.utterances]
        alternative: dict[str, Any] = {
            "transcript": joined(texts),
            "confidence": mean_confidence(words) if words else max(channel.confidences, default=0.0),
            "words": words,
        }
        if self._options.is_multilingual and channel.languages:
            alternative["languages"] = [language for language, _ in channel.languages.most_common()]
        if self._options.paragraphs:
            alternative["paragraphs"] = self._paragraphs(channel)
        answer: dict[str, Any] = {"alternatives": [alternative]}
        if self._options.search:
            answer["search"] = phrases_in(self._options.search, words)
        if self._options.detects_language and channel.language:
            answer["detected_language"] = channel.language
            if channel.language in channel.probabilities:
                answer["language_confidence"] = channel.probabilities[channel.language]
        return answer

    def _utterances(self) -> list[dict[str, Any]]:
        """The words of all channels by time, split at pauses of `utt_split` and between speakers."""
        pause_s = self._options.utterance_split_s
        found = [
            self._utterance(number, words)
            for number, channel in enumerate(self._channels)
            for words in _split([word for _, words in channel.utterances for word in words], pause_s)
        ]
        return sorted(found, key=lambda each: (each["start"], each["channel"]))

    def _utterance(self, number: int, words: Words) -> dict[str, Any]:
        start, end = words[0]["start"], words[-1]["end"]
        return {
            "start": start,
            "end": end,
            "confidence": mean_confidence(words),
            "channel": number,
            "transcript": joined(_written(word) for word in words),
            "words": words,
            **_languages(words),
            **_speaker(words),
            "id": str(uuid5(NAMESPACE_URL, f"{self._request.id}:{number}:{start}:{end}")),
        }

    def _paragraphs(self, channel: _Channel) -> dict[str, Any]:
        """One paragraph for each utterance and speaker, split into sentences where there is punctuation."""
        paragraphs = []
        for words in (run for _, utterance in channel.utterances for run in _runs(utterance)):
            sentences = [
                {
                    "text": joined(_written(word) for word in sentence),
                    "start": sentence[0]["start"],
                    "end": sentence[-1]["end"],
                }
                for sentence in _sentences(words)
            ]
            if sentences:
                start, end = sentences[0]["start"], sentences[-1]["end"]
                paragraph = {"sentences": sentences, "num_words": len(words), "start": start, "end": end}
                paragraphs.append(paragraph | _speaker(words))
        texts = (joined(str(each["text"]) for each in paragraph["sentences"]) for paragraph in paragraphs)
        return {"transcript": "\n\n".join(texts), "paragraphs": paragraphs}


def _written(word: dict[str, Any]) -> str:
    written: str = word.get("punctuated_word", word["word"])
    return written


def _split(words: Words, pause_s: float) -> Iterator[Words]:
    for run in _runs(words):
        begin = 0
        for end in range(1, len(run) + 1):
            if end == len(run) or run[end]["start"] - run[end - 1]["end"] >= pause_s:
                yield run[begin:end]
                begin = end


def _runs(words: Words) -> Iterator[Words]:
    """The words of one speaker in a row; all of them if no speakers are wanted."""
    for _, run in groupby(words, key=lambda word: word.get("speaker")):
        yield list(run)


def _languages(words: Words) -> dict[str, Any]:
    """The field for the languages of these words, the most frequent one first, if languages are wanted."""
    languages = Counter(word["language"] for word in words if "language" in word)
    return {"languages": [language for language, _ in languages.most_common()]} if languages else {}


def _speaker(words: Words) -> dict[str, Any]:
    """The field for the speaker of these words, if speakers are wanted."""
    return {"speaker": words[0]["speaker"]} if "speaker" in words[0] else {}


def _sentences(words: Words) -> Iterator[Words]:
    begin = 0
    for end, word in enumerate(words, 1):
        if end == len(words) or _written(word).endswith(SENTENCE_ENDS):
            yield words[begin:end]
            begin = end
