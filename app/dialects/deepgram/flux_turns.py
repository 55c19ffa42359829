"""The turns of Deepgram's Flux: the events of a session become `TurnInfo` messages, without their numbers.

A turn is an utterance. Turns are reported one after the other: the next one is announced when the one before it has
ended, although its audio may be transcribed already.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tutti_server.app.dialects.deepgram.flux_options import FluxOptions
from tutti_server.app.dialects.deepgram.words import mean_confidence
from tutti_server.app.session.messages import events

Message = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class _Turn:
    start_s: float
    end_s: float
    """The time up to which its audio was transcribed."""
    text: str = ""
    words: list[Message] = field(default_factory=list)
    final_texts: list[str] = field(default_factory=list)
    final_words: list[Message] = field(default_factory=list)
    languages: Counter[str] = field(default_factory=Counter)
    """How many final words are in each language."""
    confidence: float = 0.0
    """The last known confidence that the speaker has finished; 0 while the speaker goes on."""
    trigger: str = "timeout"
    """Why it ends, once its end is known."""
    is_announced: bool = False
    is_eager: bool = False
    """Whether it has probably ended, with `text`."""
    is_over: bool = False
    """Whether it has ended and only its final text is missing."""

    def words_of(self, text: str) -> list[Message]:
        """The words of another transcript, of which only the text is known."""
        confidence = mean_confidence(self.words)
        known = "".join(self.final_texts).strip()
        if not text.startswith(known):
            return _words(text, confidence)
        return self.final_words + _words(text[len(known) :], confidence)


class Turns:
    """Makes the `TurnInfo` messages of one stream."""

    def __init__(self, options: FluxOptions) -> None:
        self.options = options
        """The options in force. `Configure` changes them."""
        self.is_closing = False
        """Whether the client has ended the stream."""
        self._turns: dict[int, _Turn] = {}
        """The turns that have not been reported as ended, by the number of their utterance, oldest first."""
        self._index = 0
        """The number of the oldest turn."""

    def speech_started(self, event: events.SpeechStarted) -> None:
        """A turn begins; it is announced with its first words."""
        self._turns[event.utterance] = _Turn(start_s=event.from_s, end_s=event.from_s)

    def interim(self, event: events.Interim) -> Iterator[Message]:
        """Send text that may change. A turn that has probably ended keeps the text of its `EagerEndOfTurn`."""
        turn = self._turns[event.utterance]
        if turn.is_eager or turn.is_over:
            return
        text = event.stable + event.tail
        turn.end_s = max(turn.end_s, event.end_s)
        turn.words = turn.final_words + _interim_words(event, text)
        before, turn.text = turn.text, "".join([*turn.final_texts, text]).strip()
        yield from self._announce(turn)
        if turn.text != before and before:
            yield from self._report(turn, "Update")

    def segment(self, event: events.Segment) -> None:
        """Final text. It is shown with the next interim, or at the end of the turn."""
        turn = self._turns[event.utterance]
        turn.final_texts.append(event.text)
        turn.final_words += _timed(event.words) or _words(event.text, event.confidence)
        if event.language:
            turn.languages[event.language] += max(len(event.words), 1)

    def eager_end(self, event: events.EagerEnd) -> Iterator[Message]:
        """A turn has probably ended. Without words it is not announced yet."""
        turn = self._turns[event.utterance]
        text = event.text.strip()
        if not text:
            return
        if text != turn.text:
            turn.words = turn.words_of(text)
        turn.text, turn.confidence, turn.is_eager = text, event.confidence, True
        turn.end_s = max(turn.end_s, event.at_s)
        was_announced = turn.is_announced
        yield from self._announce(turn)
        if was_announced:
            yield from self._report(turn, "EagerEndOfTurn")

    def resumed(self, event: events.SpeechResumed) -> Iterator[Message]:
        """A turn that has probably ended goes on, or has another text."""
        turn = self._turns[event.utterance]
        if turn.is_eager:
            turn.is_eager = False
            if not turn.is_over:
                turn.confidence = 0.0
            turn.end_s = max(turn.end_s, event.at_s)
            yield from self._report(turn, "TurnResumed")

    def endpoint(self, event: events.Endpoint) -> None:
        """A turn has ended; its text follows."""
        turn = self._turns[event.utterance]
        turn.is_over = True
        turn.end_s = max(turn.end_s, event.end_s)
        if event.confidence is not None:
            turn.confidence = event.confidence
        if event.flush is not None or self.is_closing:
            turn.trigger = "manual"
        elif turn.confidence >= self.options.thresholds.eot_threshold:
            turn.trigger = "model"

    def utterance(self, event: events.Utterance) -> Iterator[Message]:
        """A turn is final. One without words, such as a cough, is reported only if it was announced.

        A turn that an error has cut off has no end.
        """
        turn = self._turns[event.utterance]
        if event.is_complete:
            text = event.text.strip()
            # The session promises the text of the eager end, unless the client ends the turn.
            is_another = turn.is_eager and text != turn.text
            turn.text, turn.words, turn.is_eager = text, turn.final_words, False
            yield from self._announce(turn)
            if is_another:
                yield from self._report(turn, "TurnResumed")
            if turn.is_announced:
                yield from self._report(turn, "EndOfTurn", trigger=turn.trigger)
                self._index += 1
        del self._turns[event.utterance]
        for following in self._turns.values():
            yield from self._announce(following)
            break

    def update(self) -> Iterator[Message]:
        """The state of the present turn, if its speaker goes on."""
        for turn in self._turns.values():
            if not turn.is_eager and not turn.is_over:
                yield from self._report(turn, "Update")
            break

    def _announce(self, turn: _Turn) -> Iterator[Message]:
        """Announce the oldest turn with its first words; it may have ended probably."""
        if not turn.is_announced and turn.text and turn is next(iter(self._turns.values())):
            turn.is_announced = True
            yield from self._report(turn, "StartOfTurn")
            if turn.is_eager:
                yield from self._report(turn, "EagerEndOfTurn")

    def _report(self, turn: _Turn, event: str, **extra: object) -> Iterator[Message]:
        if not turn.is_announced:
            return
        info: Message = {
            "type": "TurnInfo",
            "event": event,
            "turn_index": self._index,
            "audio_window_start": turn.start_s,
            "audio_window_end": turn.end_s,
            "transcript": turn.text,
            "words": turn.words,
            "end_of_turn_confidence": turn.confidence,
            **extra,
        }
        if self.options.is_multilingual and turn.languages:
            info["languages"] = [language for language, _ in turn.languages.most_common()]
        if self.options.language_hints:
            info["languages_hinted"] = list(self.options.language_hints)
        yield info


def _interim_words(event: events.Interim, text: str) -> list[Message]:
    words = (*event.stable_words, *event.tail_words)
    if [word.text for word in words] == text.split():
        return _timed(words)
    return _words(text, events.confidence(event.avg_logprob))


def _timed(words: Iterable[events.Word]) -> list[Message]:
    return [
        {"word": word.text, "confidence": word.confidence, "start": word.start_s, "end": word.end_s} for word in words
    ]


def _words(text: str, confidence: float) -> list[Message]:
    """The words of a text whose times are not known."""
    return [{"word": word, "confidence": confidence} for word in text.split()]
