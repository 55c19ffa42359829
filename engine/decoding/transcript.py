"""One window's tokens become events: text as it grows, segments as they close, the result at the end.

Plain Python; knows nothing of tensors or threads.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median

from engine.api import DoneEvent, EngineEvent, Piece, Segment, SegmentEvent, Word
from engine.checkpoint.tokenizer import CharacterDecoder, Tokenizer
from engine.decoding.temperature_fallback import Outcome
from engine.decoding.word_timing import Alignment

LAST_TOKEN_S = 0.3
"""How long the last token of a segment is taken to last where nothing tells."""


@dataclass(frozen=True, slots=True)
class TranscriptInfo:
    """What is known of a window when its first token is sampled."""

    audio_s: float
    language: str | None
    with_timestamps: bool
    no_speech_prob: float
    with_word_times: bool = False
    """Segments are held back for their words."""
    temperature: float = 0.0
    language_probabilities: Mapping[str, float] | None = None


class TokenTranscript:
    """Takes the tokens of one window one by one.

    Texts of segments add up to the text: what stands between segments or before a first timestamp is never lost.
    """

    def __init__(self, tokenizer: Tokenizer, info: TranscriptInfo) -> None:
        self._tokenizer = tokenizer
        self._info = info
        self._characters = CharacterDecoder(tokenizer)
        self._tokens: list[int] = []
        self._text_tokens: list[int] = []
        self._logprobs: list[float] = []
        self._attended_s: list[float | None] = []
        """Of every token."""
        self._text = ""
        self.is_repetitive = False
        """It was cut where it only went round in circles."""
        self._segments: list[Segment] = []
        # Of the open segment:
        self._start_s = 0.0
        self._segment_tokens: list[int] = []
        self._segment_logprobs: list[float] = []
        self._segment_text = ""

    @property
    def text_tokens(self) -> list[int]:
        """Without timestamps. Not to be changed."""
        return self._text_tokens

    @property
    def n_tokens(self) -> int:
        """Tokens so far, the forced prefix included and the end token not."""
        return len(self._tokens)

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(self._tokens)

    @property
    def outcome(self) -> Outcome:
        """How good the reading is, so far."""
        # As far as the decoder of characters has not held back part of one.
        return Outcome(
            _mean(self._logprobs), compression_ratio(self._text), self._info.no_speech_prob, self.is_repetitive
        )

    def push(self, token: int, logprob: float | None, attention_peak_s: float | None = None) -> list[EngineEvent]:
        """Take the next token; `logprob` is `None` where the prefix forced it."""
        if logprob is not None:
            self._logprobs.append(logprob)
        if token == self._tokenizer.eot:
            return []
        self._tokens.append(token)
        self._attended_s.append(attention_peak_s)
        self._segment_tokens.append(token)
        if logprob is not None:
            self._segment_logprobs.append(logprob)
        self._append_text(self._characters.push(token))
        if not self._tokenizer.is_timestamp(token):
            self._text_tokens.append(token)
            return []
        return self._mark(self._tokenizer.time_s(token)) if self._info.with_timestamps else []

    def cut_loop(self, n_text_tokens: int) -> None:
        """Take back the last text tokens, which only repeat others, as far as the open segment holds them."""
        while n_text_tokens and self._segment_logprobs:
            token = self._tokens.pop()
            self._attended_s.pop()
            self._segment_tokens.pop()
            self._segment_logprobs.pop()
            self._logprobs.pop()
            if not self._tokenizer.is_timestamp(token):
                self._text_tokens.pop()
                n_text_tokens -= 1
        self._characters.flush()
        self._segment_text = self._tokenizer.decode(self._segment_tokens)
        self._text = "".join(segment.text for segment in self._segments) + self._segment_text
        self.is_repetitive = True

    def finish(self, is_truncated: bool, n_steps: int, alignment: Alignment | None = None) -> list[EngineEvent]:
        """End the transcript. The open segment, if it has text, ends with the audio.

        Args:
            alignment: of all tokens so far, if there are any: where word times were asked for, and behind `cut_loop`.
        """
        events: list[EngineEvent] = []
        self._append_text(self._characters.flush())
        if self._segment_text:
            end_s = self._info.audio_s
            if self.is_repetitive and alignment:
                end_s = min(max(alignment.starts_s[-1] + LAST_TOKEN_S, self._start_s), end_s)
            events += self._close(end_s)
        if self._info.with_word_times:
            self._segments = self._with_words(alignment or Alignment((), ()))
            events += [SegmentEvent(segment, self._info.language) for segment in self._segments]
        done = DoneEvent(
            text=self._text,
            pieces=tuple(self._pieces()),
            segments=tuple(self._segments),
            language=self._info.language,
            no_speech_prob=self._info.no_speech_prob,
            avg_logprob=_mean(self._logprobs),
            compression_ratio=compression_ratio(self._text),
            is_truncated=is_truncated,
            n_steps=n_steps,
            is_repetitive=self.is_repetitive,
            temperature=self._info.temperature,
            language_probabilities=self._info.language_probabilities,
        )
        return [*events, done]

    def _pieces(self) -> Iterator[Piece]:
        at = 0
        for piece in self._tokenizer.split(self._tokens, self._info.language):
            begin, at = at, at + len(piece.tokens)
            looks_s = [look_s for look_s in self._attended_s[begin:at] if look_s is not None]
            yield replace(piece, attention_peak_s=max(looks_s)) if looks_s else piece

    def _append_text(self, text: str) -> None:
        self._text += text
        self._segment_text += text

    def _mark(self, at_s: float) -> list[EngineEvent]:
        """A timestamp closes the open segment if that has text, else it opens the next one."""
        at_s = min(max(at_s, self._start_s), self._info.audio_s)
        if self._segment_text:
            return self._close(at_s)
        self._start_s = at_s
        return []

    def _close(self, end_s: float) -> list[EngineEvent]:
        segment = Segment(
            start_s=self._start_s,
            end_s=end_s,
            text=self._segment_text,
            tokens=tuple(self._segment_tokens),
            avg_logprob=_mean(self._segment_logprobs),
            compression_ratio=compression_ratio(self._segment_text),
            no_speech_prob=self._info.no_speech_prob,
            temperature=self._info.temperature,
        )
        self._segments.append(segment)
        self._start_s = end_s
        self._segment_tokens = []
        self._segment_logprobs = []
        self._segment_text = ""
        return [] if self._info.with_word_times else [SegmentEvent(segment, self._info.language)]

    def _with_words(self, alignment: Alignment) -> list[Segment]:
        """The segments, whose tokens follow one another, with the times of their words."""
        audio_s = self._info.audio_s
        starts_s = [min(start_s, audio_s) for start_s in alignment.starts_s]
        segments: list[Segment] = []
        at = 0
        for segment in self._segments:
            words: list[Word] = []
            for piece in self._tokenizer.split(segment.tokens, self._info.language):
                begin, at = at, at + len(piece.tokens)
                if piece.at_s is None:
                    end_s = starts_s[at] if at < len(starts_s) else _end_of_last(starts_s[begin], words, audio_s)
                    words.append(Word(piece.text, starts_s[begin], end_s, _mean(alignment.probabilities[begin:at])))
            segments.append(replace(segment, words=tuple(words)))
        return segments


def _end_of_last(start_s: float, before: list[Word], audio_s: float) -> float:
    """Of a word behind which no token tells the time: it is given twice the usual length, as the reference does."""
    usual_s = median([word.end_s - word.start_s for word in before] or [audio_s])
    return min(round(start_s + 2 * usual_s, 2), audio_s)


@lru_cache(maxsize=16)
def compression_ratio(text: str) -> float:
    """Bytes of the text over its bytes after zlib (openai/whisper, whisper/utils.py); 0.0 for no text."""
    encoded = text.encode("utf-8")
    return len(encoded) / len(zlib.compress(encoded)) if encoded else 0.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
