"""One window's tokens become events: text as it grows, segments as they close, the result at the end.

Plain Python; knows nothing of tensors or threads.
"""

import zlib
from dataclasses import dataclass

from engine.api import DoneEvent, EngineEvent, Segment, SegmentEvent, TextEvent
from engine.tokenizer import CharacterDecoder, Tokenizer


@dataclass(frozen=True, slots=True)
class TranscriptInfo:
    """What is known of a window when its first token is sampled."""

    audio_s: float
    language: str | None
    with_timestamps: bool
    no_speech_prob: float


class Transcript:
    """Takes the tokens of one window one by one.

    Texts of segments add up to the text: what stands between segments or before a first timestamp is never lost.
    """

    def __init__(self, tokenizer: Tokenizer, info: TranscriptInfo) -> None:
        self._tokenizer = tokenizer
        self._info = info
        self._characters = CharacterDecoder(tokenizer)
        self._tokens: list[int] = []
        self._logprobs: list[float] = []
        self._text = ""
        self._segments: list[Segment] = []
        # Of the open segment:
        self._start_s = 0.0
        self._segment_tokens: list[int] = []
        self._segment_logprobs: list[float] = []
        self._segment_text = ""

    @property
    def n_tokens(self) -> int:
        """Tokens so far, the forced prefix included and the end token not."""
        return len(self._tokens)

    def push(self, token: int, logprob: float | None) -> list[EngineEvent]:
        """Take the next token; `logprob` is `None` where the prefix forced it."""
        if logprob is not None:
            self._logprobs.append(logprob)
        if token == self._tokenizer.eot:
            return []
        self._tokens.append(token)
        self._segment_tokens.append(token)
        if logprob is not None:
            self._segment_logprobs.append(logprob)
        events: list[EngineEvent] = self._grow(self._characters.push(token))
        if self._info.with_timestamps and self._tokenizer.is_timestamp(token):
            events += self._mark(self._tokenizer.time_s(token))
        return events

    def finish(self, *, is_truncated: bool, n_steps: int) -> list[EngineEvent]:
        """End the transcript. The open segment, if it has text, ends with the audio."""
        events: list[EngineEvent] = self._grow(self._characters.flush())
        if self._segment_text:
            events += self._close(self._info.audio_s)
        done = DoneEvent(
            text=self._text,
            pieces=tuple(self._tokenizer.split(self._tokens, self._info.language)),
            segments=tuple(self._segments),
            language=self._info.language,
            no_speech_prob=self._info.no_speech_prob,
            avg_logprob=_mean(self._logprobs),
            compression_ratio=compression_ratio(self._text),
            is_truncated=is_truncated,
            n_steps=n_steps,
        )
        return [*events, done]

    def _grow(self, text: str) -> list[EngineEvent]:
        self._text += text
        self._segment_text += text
        return [TextEvent(text)] if text else []

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
        )
        self._segments.append(segment)
        self._start_s = end_s
        self._segment_tokens = []
        self._segment_logprobs = []
        self._segment_text = ""
        return [SegmentEvent(segment, self._info.language)]


def compression_ratio(text: str) -> float:
    """Bytes of the text over its bytes after zlib (openai/whisper, whisper/utils.py); 0.0 for no text."""
    encoded = text.encode("utf-8")
    return len(encoded) / len(zlib.compress(encoded)) if encoded else 0.0


def _mean(logprobs: list[float]) -> float:
    return sum(logprobs) / len(logprobs) if logprobs else 0.0
