"""Turns the tokens of one window into events: segments as they close, and the result at the end.

Plain Python; it uses neither tensors nor threads.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from statistics import median

from tutti_server.engine.api import (
    DoneEvent,
    EngineEvent,
    Piece,
    Segment,
    SegmentEvent,
    WindowTiming,
    Word,
    text_logprob,
)
from tutti_server.engine.checkpoint.tokenizer import CharacterDecoder, Tokenizer
from tutti_server.engine.decoding.beam_search import SampledToken
from tutti_server.engine.decoding.temperature_fallback import Outcome
from tutti_server.engine.decoding.word_placement import N_FIRST_WORDS, SENTENCE_ENDS, place, place_all, usual_s
from tutti_server.engine.decoding.word_timing import Alignment

BROKEN_CHARACTER = "\ufffd"
"""What stands for a character of which a part is missing."""
LAST_TOKEN_S = 0.3
"""How long the last token of a segment is assumed to last, in seconds, where no later token gives its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptInfo:
    """What is known of a window when its first token is sampled."""

    audio_s: float
    """The length of its audio in seconds."""
    language: str | None
    with_timestamps: bool
    """The model marks segments with timestamp tokens."""
    no_speech_prob: float
    with_word_times: bool = False
    """Segments have the times of their words, so they are emitted at the end of the window."""
    temperature: float = 0.0
    language_probabilities: Mapping[str, float] | None = None


@dataclass(slots=True)
class _OpenSegment:
    """A segment whose closing timestamp is not decoded yet."""

    start_s: float = 0.0
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float | None] = field(default_factory=list)
    """The log-probability of each token; `None` where the prefix forced it."""
    text: str = ""


class TokenTranscript:
    """Collects the tokens of one window, one by one.

    The texts of the segments add up to the text: what stands between segments or before a first timestamp is kept.
    """

    def __init__(self, tokenizer: Tokenizer, info: TranscriptInfo) -> None:
        self._tokenizer = tokenizer
        self._info = info
        self._characters = CharacterDecoder(tokenizer)
        self._tokens: list[int] = []
        self._text_tokens: list[int] = []
        self._token_logprobs: list[float | None] = []
        """The log-probability of every token; `None` where the prefix forced it."""
        self._attention_peaks_s: list[float | None] = []
        """The attention peak of every token, in seconds; `None` where there is none."""
        self._has_attention_peaks = False
        self._text = ""
        self._segments: list[Segment] = []
        self._closed: list[Piece] = []
        """The words and timestamps of all segments."""
        self._open = _OpenSegment()
        self._last_text_logprob: float | None = None
        self._end_logprob: float | None = None
        self.is_repetitive = False
        """Whether the text was cut where it began to repeat itself."""

    @property
    def text_tokens(self) -> list[int]:
        """The tokens without timestamps. The list must not be changed."""
        return self._text_tokens

    @property
    def n_tokens(self) -> int:
        """The number of tokens so far, with the forced prefix and without the end token."""
        return len(self._tokens)

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens so far, with the forced prefix and without the end token."""
        return tuple(self._tokens)

    @property
    def sampled(self) -> list[SampledToken]:
        """The tokens so far that no prefix forced."""
        columns = zip(self._tokens, self._token_logprobs, self._attention_peaks_s, strict=True)
        return [SampledToken(token, logprob, peak_s) for token, logprob, peak_s in columns if logprob is not None]

    @property
    def outcome(self) -> Outcome:
        """How good the output is so far. A character whose bytes are not complete does not count."""
        return Outcome(self._avg_logprob, compression_ratio(self._text), self._info.no_speech_prob, self.is_repetitive)

    @property
    def _avg_logprob(self) -> float:
        return _mean(_sampled([*self._token_logprobs, self._end_logprob]))

    def ends_before(self, time_s: float) -> bool:
        """Whether the model has ended the last segment before this time, in seconds, and no text follows."""
        return bool(self._segments) and not self._open.text and self._segments[-1].end_s < time_s

    def push(self, token: int, logprob: float | None, attention_peak_s: float | None = None) -> list[EngineEvent]:
        """Add the next token and return the events that it causes.

        Args:
            logprob: its log-probability; `None` where the prefix forced it.
            attention_peak_s: see `Piece`.
        """
        if token == self._tokenizer.eot:
            self._end_logprob = logprob
            return []
        self._tokens.append(token)
        self._token_logprobs.append(logprob)
        self._attention_peaks_s.append(attention_peak_s)
        self._has_attention_peaks |= attention_peak_s is not None
        segment = self._open
        segment.tokens.append(token)
        segment.logprobs.append(logprob)
        if text := self._characters.push(token):
            self._text += text
            segment.text += text
        if not self._tokenizer.is_timestamp(token):
            self._text_tokens.append(token)
            self._last_text_logprob = logprob
            return []
        return self._mark(self._tokenizer.time_s(token)) if self._info.with_timestamps else []

    def cut_repetition(self, n_text_tokens: int) -> None:
        """Remove the last text tokens, which only repeat others, as far as the open segment holds them.

        The repetition may begin inside a character: the first part of that is removed with it.
        """
        while self._open.logprobs and self._open.logprobs[-1] is not None:
            if n_text_tokens <= 0 and not self._tokenizer.decode(self._open.tokens).endswith(BROKEN_CHARACTER):
                break
            token = self._tokens.pop()
            self._token_logprobs.pop()
            self._attention_peaks_s.pop()
            self._open.tokens.pop()
            self._open.logprobs.pop()
            if not self._tokenizer.is_timestamp(token):
                self._text_tokens.pop()
                n_text_tokens -= 1
        self._last_text_logprob = self._end_logprob = None
        self._characters.flush()
        self._open.text = self._tokenizer.decode(self._open.tokens)
        self._text = "".join(segment.text for segment in self._segments) + self._open.text
        self.is_repetitive = True

    def finish(
        self,
        is_truncated: bool,
        n_steps: int,
        alignment: Alignment | None = None,
        timing: WindowTiming | None = None,
    ) -> list[EngineEvent]:
        """End the transcript and return its last events. The open segment, if it has text, ends with the audio.

        If it was cut, it ends with its last token: what the audio has after that is in no text.

        Args:
            is_truncated: the token limit ended the text.
            n_steps: decode steps taken after prefill, in all attempts.
            alignment: of all tokens so far, if there are any. Needed where word times were asked for, where the text
                was cut, and where the model's last timestamp is not believed.
            timing: where the time of the window went.
        """
        events: list[EngineEvent] = []
        text_end_s: float | None = None
        text = self._characters.flush()
        self._text += text
        self._open.text += text
        if self._open.text:
            end_s = self._info.audio_s
            if (self.is_repetitive or is_truncated) and alignment:
                end_s = min(max(alignment.starts_s[-1] + LAST_TOKEN_S, self._open.start_s), end_s)
            events += self._close(end_s)
        if self._info.with_word_times:
            self._segments = self._with_words(alignment or Alignment((), (), ()))
            events += [self._segment_event(segment) for segment in self._segments]
        elif alignment and not (self.is_repetitive or is_truncated):
            text_end_s = max((word.end_s for word in self._with_words(alignment)[-1].words or ()), default=None)
        done = DoneEvent(
            text=self._text,
            pieces=tuple(self._pieces()),
            segments=tuple(self._segments),
            language=self._info.language,
            no_speech_prob=self._info.no_speech_prob,
            avg_logprob=self._avg_logprob,
            compression_ratio=compression_ratio(self._text),
            is_truncated=is_truncated,
            n_steps=n_steps,
            is_repetitive=self.is_repetitive,
            temperature=self._info.temperature,
            language_probabilities=self._info.language_probabilities,
            last_text_logprob=self._last_text_logprob,
            end_logprob=self._end_logprob,
            text_end_s=text_end_s,
            timing=timing,
        )
        return [*events, done]

    def _pieces(self) -> Iterator[Piece]:
        """Yield all words and timestamps. Those of closed segments are known: a timestamp ends each."""
        pieces = (*self._closed, *self._split_open())
        if not self._has_attention_peaks:
            yield from pieces
            return
        end = 0
        for piece in pieces:
            begin, end = end, end + len(piece.tokens)
            peaks_s = [peak_s for peak_s in self._attention_peaks_s[begin:end] if peak_s is not None]
            yield replace(piece, attention_peak_s=max(peaks_s)) if peaks_s else piece

    def _split_open(self) -> list[Piece]:
        """Return the words of the open segment, with how sure the model is of each, and its timestamps."""
        return self._tokenizer.split(self._open.tokens, self._info.language, self._open.logprobs)

    def _mark(self, time_s: float) -> list[EngineEvent]:
        """Add a timestamp: it closes the open segment if that has text, otherwise it opens the next one."""
        time_s = min(max(time_s, self._open.start_s), self._info.audio_s)
        if self._open.text:
            return self._close(time_s)
        self._open.start_s = time_s
        return []

    def _close(self, end_s: float) -> list[EngineEvent]:
        pieces = self._split_open()
        self._closed += pieces
        segment = Segment(
            start_s=self._open.start_s,
            end_s=end_s,
            text=self._open.text,
            tokens=tuple(self._open.tokens),
            avg_logprob=_mean(_sampled(self._open.logprobs)),
            compression_ratio=compression_ratio(self._open.text),
            no_speech_prob=self._info.no_speech_prob,
            temperature=self._info.temperature,
            text_logprob=text_logprob(pieces),
        )
        self._segments.append(segment)
        self._open = _OpenSegment(end_s)
        return [] if self._info.with_word_times else [self._segment_event(segment)]

    def _segment_event(self, segment: Segment) -> SegmentEvent:
        info = self._info
        probabilities = info.language_probabilities
        probability = probabilities.get(info.language) if probabilities and info.language else None
        return SegmentEvent(segment, info.language, probability)

    def _with_words(self, alignment: Alignment) -> list[Segment]:
        """Return the segments, whose tokens follow one another, with the times of their words."""
        audio_s = self._info.audio_s
        starts_s = [min(start_s, audio_s) for start_s in alignment.starts_s]
        segments: list[Segment] = []
        end = 0
        free_s = audio_s
        for segment in self._segments:
            timed: list[tuple[Word, int]] = []
            lengths_s: list[float] = []
            n_before = 0
            for piece in self._tokenizer.split(segment.tokens, self._info.language):
                begin, end = end, end + len(piece.tokens)
                if piece.at_s is not None:
                    # Timestamps are aligned like words, and often take the time of the word after them.
                    free_s = min(free_s, starts_s[begin])
                    continue
                start_s = starts_s[begin]
                end_s = starts_s[end] if end < len(starts_s) else _end_of_last(start_s, lengths_s, audio_s)
                start_s = min(start_s, max(free_s, end_s - usual_s(piece.text)))
                word = Word(piece.text, start_s, end_s, _mean(alignment.probabilities[begin:end]))
                timed.append((word, n_before))
                start_s, end_s = place(word.text, start_s, end_s, alignment.sounds_s, n_before=N_FIRST_WORDS)
                lengths_s.append(end_s - start_s)
                n_before = 0 if piece.text.rstrip().endswith(SENTENCE_ENDS) else n_before + 1
                free_s = audio_s
            segments.append(replace(segment, words=place_all(timed, alignment.sounds_s)))
        return segments


def _end_of_last(start_s: float, lengths_s: list[float], audio_s: float) -> float:
    """Return the end of a word after which no token gives a time: it lasts twice the median, as in the reference."""
    return min(round(start_s + 2 * median(lengths_s or [audio_s]), 2), audio_s)


@lru_cache(maxsize=16)
def compression_ratio(text: str) -> float:
    """Return the bytes of the text over its bytes after zlib (openai/whisper, whisper/utils.py); 0.0 for no text."""
    encoded = text.encode("utf-8")
    return len(encoded) / len(zlib.compress(encoded)) if encoded else 0.0


def _sampled(logprobs: Sequence[float | None]) -> list[float]:
    return [logprob for logprob in logprobs if logprob is not None]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
