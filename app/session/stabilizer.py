"""Which part of an open window's text is stable, decided by one of two policies.

The stable part is kept as tokens. Every later hypothesis of the window, the final one too, is decoded with them as a
forced prefix. That is why text that was shown as stable never changes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from typing import Protocol

from app.session.stable_words import Words, grow, not_before, words_at_end, words_between
from engine.api import SAMPLE_RATE, Piece

WORDS_KEPT_BACK = 1
"""How many of the last words of a hypothesis never become stable: the end of the audio may have cut them off."""
TIMESTAMP_SLACK_S = 0.2
"""How far a timestamp may lie after the end of the audio, in seconds.

A timestamp that lies farther was made up, and what follows it is ignored. If it became stable, no time would be left
for the words to come.
"""
ATTENTION_DISTANCE_S = 0.3
"""How far before the end of the audio the attention of a stable word must peak, in seconds.

The attention peaks near the beginning of a word. Chosen with `benchmarks.stability`.
"""


SHOWN_AT_LOGPROBS = (-0.4, -1.3)
"""Log-probabilities. A word below the first is not shown before two hypotheses in a row have it, and below the second
not before three have it. Nor are the words after it.
"""
FIRST_SHOWN_LOGPROB = -1.1
"""The first of `SHOWN_AT_LOGPROBS` for the first word of an utterance: people wait for it most."""
SURE_LOGPROB = -0.35
"""A word with at least this log-probability is stable when two hypotheses in a row have it."""
LOGPROB_PER_AGREEMENT = 0.2
"""How far below `SURE_LOGPROB` a word needs the agreement of one more hypothesis."""
MOST_AGREEMENTS = 10
"""No word needs more hypotheses than these. All of these figures: docs/results/accuracy.md."""


@dataclass(frozen=True, slots=True)
class SeenWord:
    """A word of the newest hypothesis after the stable text."""

    piece: Piece
    n_seen: int
    """How many hypotheses in a row have this word here, after the same words: at least 1."""

    @property
    def logprob(self) -> float:
        """How sure the model is of the word; 0 where the engine does not tell."""
        return 0.0 if self.piece.logprob is None else self.piece.logprob

    def is_shown(self, *, is_first: bool) -> bool:
        """Whether there is enough evidence for the word to show it.

        Args:
            is_first: whether it is the first word of its window.
        """
        if is_first and self.logprob >= FIRST_SHOWN_LOGPROB:
            return True
        return self.n_seen > len(SHOWN_AT_LOGPROBS) or self.logprob >= SHOWN_AT_LOGPROBS[self.n_seen - 1]


class StabilityPolicy(Protocol):
    """Decides, with each hypothesis, how much of the text that is not stable yet becomes stable."""

    needs_attention: bool
    """Whether hypotheses need the peaks of the attention weights (`DecodeOptions.attention_times`)."""
    needs_agreement: bool
    """Whether stable words were in the hypothesis before, too."""

    def is_stable(self, word: SeenWord, audio_s: float) -> bool:
        """Whether a word becomes stable if all words before it do.

        Args:
            word: a word of the newest hypothesis, none of the last `WORDS_KEPT_BACK`.
            audio_s: the audio that was decoded, in seconds.
        """
        ...


class Agreement:
    """What consecutive hypotheses agree on is stable: two for a word that the model is sure of, more for others.

    Source of the idea: LocalAgreement-2 in Macháček, Dabre, Bojar, "Turning Whisper into Real-Time Transcription
    System", 2023. That more are needed for words of low probability is ours.
    """

    needs_attention = False
    needs_agreement = True

    def is_stable(self, word: SeenWord, audio_s: float) -> bool:
        """As in `StabilityPolicy`."""
        n_more = max(0, math.ceil((SURE_LOGPROB - word.logprob) / LOGPROB_PER_AGREEMENT))
        return word.n_seen >= min(2 + n_more, MOST_AGREEMENTS)


class Attention:
    """A word is stable if the attention of it and of all words before it peaks well before the end of the audio.

    Source of the idea: AlignAtt in Papi, Turchi, Negri, "AlignAtt: Using Attention-based Audio-Translation Alignments
    as a Guide for Simultaneous Speech Translation", 2023.
    """

    needs_attention = True
    needs_agreement = False

    def __init__(self, distance_s: float = ATTENTION_DISTANCE_S) -> None:
        self._distance_s = distance_s

    def is_stable(self, word: SeenWord, audio_s: float) -> bool:
        """As in `StabilityPolicy`."""
        peak_s = word.piece.attention_peak_s
        return peak_s is not None and peak_s <= audio_s - self._distance_s


MakePolicy = Callable[[], StabilityPolicy]

POLICIES: dict[str, MakePolicy] = {"agreement": Agreement, "attention": Attention}
"""The policies by their names in the operator's settings."""


class Stabilizer:
    """The stable text of one window. A hypothesis consists of words and timestamps; only words are weighed."""

    def __init__(self, policy: StabilityPolicy) -> None:
        self.tokens: tuple[int, ...] = ()
        """The tokens of the stable text: the prefix of the next hypothesis."""
        self.stable = ""
        """The stable text."""
        self.tail = ""
        """The text that is shown after the stable text: words with enough evidence."""
        self.draft: tuple[int, ...] = ()
        """The tokens of the last hypothesis after `tokens`; the next one is likely to go on with them."""
        self.stable_until = 0
        """Position before which all stable words were spoken."""
        self.language: str | None = None
        """The language of the stable text; `None` if there is none, or if the model names no language."""
        self.words: Words = ()
        """The words of the stable text, if hypotheses have words with times."""
        self.tail_words: Words = ()
        """The words of the tail, if hypotheses have words with times."""
        self._policy = policy
        self._seen: list[SeenWord] = []
        """The words of the last hypothesis after the stable text."""
        self._shown: list[str] = []
        """The words of the tail, as text."""
        self._seen_end = 0
        """The position after the audio of the last hypothesis."""

    @property
    def needs_attention(self) -> bool:
        """Whether hypotheses need the peaks of the attention weights."""
        return self._policy.needs_attention

    def update(
        self,
        pieces: tuple[Piece, ...],
        audio_end: int,
        audio_s: float,
        words: Words = (),
        *,
        language: str | None = None,
        is_certain: bool = True,
    ) -> None:
        """Process a newer hypothesis, which begins with `tokens`.

        Args:
            pieces: the words and timestamps of the hypothesis.
            audio_end: the position after the audio that was decoded.
            audio_s: the audio that was decoded, in seconds.
            words: the words of the hypothesis with their times, if the client is shown them.
            language: the language in which the hypothesis was decoded.
            is_certain: whether its words may become stable.
        """
        latest_s = audio_s + TIMESTAMP_SLACK_S
        pieces = tuple(takewhile(lambda piece: piece.at_s is None or piece.at_s <= latest_s, pieces))
        new_pieces = _after_prefix(pieces, self.tokens, self.stable)
        new_words = [piece for piece in new_pieces if piece.at_s is None]
        seen = _seen_words(new_words, self._seen)
        n_stable = self._count_stable(seen, audio_s) if is_certain else 0
        stable_until = self._seen_end if self._policy.needs_agreement else audio_end
        self._seen, self._seen_end = seen[n_stable:], audio_end
        if n_stable:
            n_pieces = _index_after_words(new_pieces, n_stable)
            self.tokens += tuple(token for piece in new_pieces[:n_pieces] for token in piece.tokens)
            self.stable += "".join(piece.text for piece in new_pieces[:n_pieces])
            self.stable_until = stable_until
            self.language = language
            new_pieces = new_pieces[n_pieces:]
        self.draft = tuple(token for piece in new_pieces for token in piece.tokens)
        n_stable_chars = len(self.stable)
        self.words = grow(self.words, words, n_stable_chars, audio_s)
        since_s = self.words[-1].end_s if self.words else 0.0
        window_start = audio_end - round(audio_s * SAMPLE_RATE)
        self.stable_until = max(self.stable_until, window_start + round(since_s * SAMPLE_RATE))
        now = self._words_with_evidence()
        end = n_stable_chars + sum(map(len, now))
        timed = words_between(words, n_stable_chars, end, since_s)
        before = self._shown_after([word.piece.text for word in seen[:n_stable]])
        if len(now) < len(self._seen) and before[: len(now)] == now:
            # What follows differs from what was shown there, but it has not the evidence to take its place.
            n_chars = sum(map(len, before[len(now) :]))
            timed += not_before(words_at_end(self.tail_words, n_chars), timed[-1].end_s if timed else since_s)
            now = before
        self._shown, self.tail, self.tail_words = now, "".join(now), timed

    def _words_with_evidence(self) -> list[str]:
        """The words of the last hypothesis after the stable text, up to the first without enough evidence."""
        first = None if self.stable else self._seen[0] if self._seen else None
        shown = takewhile(lambda word: word.is_shown(is_first=word is first), self._seen)
        return [word.piece.text for word in shown]

    def _shown_after(self, new_stable: list[str]) -> list[str]:
        """The words shown before, without those that have become stable. Empty if other words have become stable."""
        n_new = len(new_stable)
        return self._shown[n_new:] if self._shown[:n_new] == new_stable else []

    def _count_stable(self, words: list[SeenWord], audio_s: float) -> int:
        """How many of the words after the stable text become stable."""
        candidates = words[:-WORDS_KEPT_BACK]
        return sum(1 for _ in takewhile(lambda word: self._policy.is_stable(word, audio_s), candidates))


def _seen_words(words: list[Piece], before: list[SeenWord]) -> list[SeenWord]:
    """Count for each word of the newest hypothesis how many hypotheses in a row have it.

    Args:
        words: those of the newest hypothesis after the stable text.
        before: the words of the hypothesis before it, after the same stable text.
    """
    pairs = zip(words, before, strict=False)
    n_same = sum(1 for _ in takewhile(lambda pair: pair[0].text == pair[1].piece.text, pairs))
    counts = [word.n_seen + 1 for word in before[:n_same]] + [1] * (len(words) - n_same)
    return list(map(SeenWord, words, counts))


def _after_prefix(pieces: tuple[Piece, ...], prefix: tuple[int, ...], stable: str) -> list[Piece]:
    """The pieces after the forced prefix. A piece that the prefix ends inside ("Hello" of "Hello,") is cut there."""
    n_tokens, text = 0, ""
    for index, piece in enumerate(pieces):
        if n_tokens >= len(prefix):
            return list(pieces[index:])
        n_tokens += len(piece.tokens)
        text += piece.text
        n_over = n_tokens - len(prefix)
        if n_over > 0:
            rest = Piece(piece.tokens[-n_over:], text[len(stable) :], piece.at_s, logprob=piece.logprob)
            return [rest, *pieces[index + 1 :]]
    return []


def _index_after_words(pieces: list[Piece], n_words: int) -> int:
    """The index after the first `n_words` words among the pieces."""
    for index, piece in enumerate(pieces):
        if piece.at_s is None:
            n_words -= 1
            if n_words == 0:
                return index + 1
    raise AssertionError("the pieces have fewer words than became stable")
