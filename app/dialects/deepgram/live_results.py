"""Deepgram's live results: the events of a session become `Results`, `SpeechStarted` and `UtteranceEnd` messages.

A final result is held until the next event of its channel, because only that event shows whether the result is the
last one of its utterance (`speech_final`) or the answer to a `Finalize` (`from_finalize`).
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tutti_server.app.dialects.deepgram.options import Options
from tutti_server.app.dialects.deepgram.words import mean_confidence, phrases_in, plain, wire_words
from tutti_server.app.session.messages import events

Message = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class _Channel:
    index: list[int]
    """The number of the channel, and how many channels there are."""
    until_s: float = 0.0
    """The end of the last final result, in seconds; the next result begins there."""
    held: Message | None = None
    """A final result that may be the last one of its utterance."""
    open: dict[int, float] = field(default_factory=dict)
    """The utterances that have not ended, by number, and when each began, in seconds."""
    word_end_s: float | None = None
    """The end of the last word, in seconds; `None` once an `UtteranceEnd` was sent for it."""
    language: str | None = None
    """The language of the last segment that has one."""
    flushed: set[int] = field(default_factory=set)
    """Utterances that a `Finalize` ended and whose text is not complete."""

    @property
    def is_idle(self) -> bool:
        return not self.open and self.held is None


@dataclass(frozen=True, slots=True)
class _Finalize:
    channels: Sequence[int]
    received_s: float
    """How much audio had been received, in seconds."""


class LiveResults:
    """Makes the messages about the speech of one stream."""

    def __init__(self, options: Options, n_channels: int, metadata: Message) -> None:
        self.features = {"punctuate": options.punctuate, "smart_format": options.smart_format}
        """The formatting that is on. `Configure` changes it."""
        self._options = options
        self._metadata = metadata
        self._channels = [_Channel(index=[number, n_channels]) for number in range(n_channels)]
        self._finalizes: deque[_Finalize] = deque()
        """The `Finalize` messages that have no answer yet, oldest first."""
        self._received_s = 0.0

    @property
    def n_channels(self) -> int:
        """How many channels get results."""
        return len(self._channels)

    @property
    def n_finalizes(self) -> int:
        """How many `Finalize` messages have no answer."""
        return len(self._finalizes)

    def add_finalize(self, channel: int | None) -> None:
        """Note a `Finalize` for one channel or for all. `flushed` answers the oldest one."""
        channels = range(self.n_channels) if channel is None else (channel,)
        self._finalizes.append(_Finalize(channels, self._received_s))

    def audio_received(self, until_s: float) -> list[Message]:
        """Audio up to this time was received. Returns the `UtteranceEnd` messages that are due."""
        self._received_s = until_s
        return [
            message
            for channel in self._channels
            if channel.is_idle
            for message in self._utterance_end(channel, until_s)
        ]

    def speech_started(self, event: events.SpeechStarted) -> Iterator[Message]:
        """An utterance begins."""
        channel = self._channels[event.channel]
        if channel.is_idle:
            yield from self._utterance_end(channel, event.at_s)
        channel.open[event.utterance] = event.at_s
        if self._options.vad_events:
            yield {"type": "SpeechStarted", "channel": channel.index, "timestamp": event.at_s}

    def interim(self, event: events.Interim) -> Iterator[Message]:
        """Send text that may change."""
        channel = self._channels[event.channel]
        yield from _release(channel)
        if not self._options.start.interim:
            return
        text = (event.stable + event.tail).strip()
        transcript = text if self._is_formatted else plain(text)
        language = channel.language if self._options.is_multilingual else None
        words = wire_words([*event.stable_words, *event.tail_words], self._is_formatted, language)
        alternative = self._alternative(channel, transcript, events.confidence(event.avg_logprob), words)
        yield self._result(channel, event.end_s, alternative, is_final=False)

    def segment(self, event: events.Segment) -> Iterator[Message]:
        """Final text, which is held."""
        channel = self._channels[event.channel]
        yield from _release(channel)
        channel.language = event.language or channel.language
        language = channel.language if self._options.is_multilingual else None
        words = wire_words(event.words, self._is_formatted, language)
        if words:
            yield from self._utterance_end(channel, words[0]["start"])
        channel.word_end_s = words[-1]["end"] if words else event.end_s
        transcript = event.text.strip() if self._is_formatted else plain(event.text)
        confidence = mean_confidence(words) if words else event.confidence
        alternative = self._alternative(channel, transcript, confidence, words)
        channel.held = self._result(channel, event.end_s, alternative, is_final=True)
        channel.until_s = max(channel.until_s, event.end_s)
        if event.goes_on:
            yield from _release(channel)

    def endpoint(self, event: events.Endpoint) -> None:
        """An utterance ends; its text follows."""
        if event.flush is not None:
            self._channels[event.channel].flushed.add(event.utterance)

    def utterance(self, event: events.Utterance) -> Iterator[Message]:
        """An utterance is complete: its last result says so, or an empty one if no result is held."""
        channel = self._channels[event.channel]
        channel.open.pop(event.utterance, None)
        if channel.held is None:
            channel.held = self._empty_result(channel, event.end_s)
        channel.held["speech_final"] = self._options.reports_endpoints
        if event.utterance in channel.flushed:
            # The answer to `Finalize` follows, and marks this result as well.
            channel.flushed.discard(event.utterance)
        else:
            yield from _release(channel)
            until_s = min(channel.open.values(), default=self._received_s)
            yield from self._utterance_end(channel, until_s)

    def flushed(self) -> Iterator[Message]:
        """Answer the oldest `Finalize`: the last result of each channel, or an empty one if no result is held."""
        finalize = self._finalizes.popleft()
        for number in finalize.channels:
            channel = self._channels[number]
            if channel.held is None:
                channel.held = self._empty_result(channel, finalize.received_s)
            channel.held["from_finalize"] = True
            yield from _release(channel)

    def release_all(self) -> Iterator[Message]:
        """The results that are held. Nothing follows them."""
        for channel in self._channels:
            yield from _release(channel)

    @property
    def _is_formatted(self) -> bool:
        return any(self.features.values())

    def _utterance_end(self, channel: _Channel, until_s: float) -> Iterator[Message]:
        """An `UtteranceEnd`, if no word followed the last one for as long as the client asked for."""
        after_s = self._options.utterance_end_s
        if after_s is None or channel.word_end_s is None or until_s - channel.word_end_s < after_s:
            return
        yield {"type": "UtteranceEnd", "channel": channel.index, "last_word_end": channel.word_end_s}
        channel.word_end_s = None

    def _empty_result(self, channel: _Channel, end_s: float) -> Message:
        result = self._result(channel, end_s, self._alternative(channel, "", 0.0, []), is_final=True)
        channel.until_s = max(channel.until_s, end_s)
        return result

    def _alternative(self, channel: _Channel, transcript: str, confidence: float, words: list[Message]) -> Message:
        alternative: Message = {"transcript": transcript, "confidence": confidence, "words": words}
        if self._options.is_multilingual and channel.language:
            alternative["languages"] = [channel.language]
        return alternative

    def _result(self, channel: _Channel, end_s: float, alternative: Message, is_final: bool) -> Message:
        """A result that begins where the last final one ended, or with its first word if that is earlier.

        It is earlier where an utterance reaches back, to where its sound began, before the end of an empty result.
        """
        start_s = min([channel.until_s, *(word["start"] for word in alternative["words"][:1])])
        answer: Message = {"alternatives": [alternative]}
        if self._options.search and is_final:
            answer["search"] = phrases_in(self._options.search, alternative["words"])
        return {
            "type": "Results",
            "channel_index": channel.index,
            "duration": round(max(end_s - start_s, 0.0), 3),
            "start": start_s,
            "is_final": is_final,
            "speech_final": False,
            "from_finalize": False,
            "channel": answer,
            "metadata": self._metadata,
        }


def _release(channel: _Channel) -> Iterator[Message]:
    if channel.held is not None:
        held, channel.held = channel.held, None
        yield held
