"""Which part of an open window's text is stable, decided by one of two policies.

The stable part is kept as tokens. Every later hypothesis of the window, the final one too, is decoded with them as a
forced prefix. That is why text that was shown as stable never changes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Protocol

from tutti_server.app.session.text.stable_trust import Judged, judged, mean_logprob
from tutti_server.app.session.text.stable_word_times import Words, grow, not_before, words_at_end, words_between
from tutti_server.app.session.text.stock_phrases import is_stock_phrase, spoken
from tutti_server.engine.api import SAMPLE_RATE, DoneEvent, Piece, is_punctuation

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
SHOWN_LOGPROB = -1.0
"""A log-probability. A word below it is not shown before three hypotheses in a row have it."""
FIRST_SHOWN_LOGPROB = -1.1
"""The log-probability below which the first word of an utterance waits so: people wait for it most."""
LAST_WORDS = 2
"""The last words of a hypothesis are less certain than the ones before: the audio ends while they are spoken."""
LAST_SHOWN_LOGPROB = -0.1
"""Below it, one of the last words is not shown before a second hypothesis in a row has it."""
REPLACING_LOGPROBS = (-0.07, -0.3)
"""A word takes the place of another one that is shown from the first on, or from the second on when two have it."""
SURE_LOGPROB = -0.12
"""A word with at least this log-probability is stable when two hypotheses in a row have it."""
LOGPROB_PER_AGREEMENT = 0.05
"""How far below `SURE_LOGPROB` a word needs the agreement of one more hypothesis."""
MOST_AGREEMENTS = 10
"""No word needs more hypotheses than these. All of these figures: docs/results/accuracy.md."""


@dataclass(frozen=True, slots=True)
class SeenWord:
    """A word of the newest hypothesis after the stable text."""

    pieces: tuple[Piece, ...]
    """The word, and the timestamps and the punctuation between it and the word before it."""
    n_seen: int
    """How many hypotheses in a row have this word here, after the same words: at least 1."""
    is_same: bool = True
    """Whether the hypothesis before it had it with the same punctuation."""

    @property
    def piece(self) -> Piece:
        """The word itself."""
        return self.pieces[-1]

    @property
    def text(self) -> str:
        """The text of its pieces."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def logprob(self) -> float:
        """How sure the model is of the word, whatever punctuation follows; 0 where the engine does not tell."""
        return 0.0 if self.piece.logprob is None else self.piece.logprob

    @property
    def n_open_marks(self) -> int:
        """How many tokens of punctuation at its end may still become others."""
        is_sure = self.is_same and (self.piece.marks_logprob is None or self.piece.marks_logprob >= SURE_LOGPROB)
        return 0 if is_sure else self.piece.n_marks

    def is_shown(self, *, is_first: bool, n_after: int, shown: str | None) -> bool:
        """Whether there is enough evidence for the word to show it. If not, nor are the words after it.

        Args:
            is_first: whether it is the first word of its window.
            shown: the word that is shown in its place; `None` if there is none.
        """
        if self.n_seen > len(REPLACING_LOGPROBS):
            return True
        if shown is not None:
            return spoken(shown) == spoken(self.text) or self.logprob >= REPLACING_LOGPROBS[self.n_seen - 1]
        if is_first and self.logprob >= FIRST_SHOWN_LOGPROB:
            return True
        is_cut_off = n_after < LAST_WORDS and self.n_seen == 1
        return self.logprob >= (LAST_SHOWN_LOGPROB if is_cut_off else SHOWN_LOGPROB)


class StabilityPolicy(Protocol):
    """Decides, with each hypothesis, how much of the text that is not stable yet becomes stable."""

    needs_attention: bool
    """Whether hypotheses need the peaks of the attention weights (`DecodeOptions.attention_times`).

    If not, a word that becomes stable was in the hypothesis before, too.
    """

    def is_stable(self, word: SeenWord, audio_s: float) -> bool:
        """Whether a word becomes stable if all before it do. It is none of the last `WORDS_KEPT_BACK`."""
        ...


class Agreement:
    """What consecutive hypotheses agree on is stable: two for a word that the model is sure of, more for others.

    Source of the idea: LocalAgreement-2 in Macháček, Dabre, Bojar, "Turning Whisper into Real-Time Transcription
    System", 2023. That more are needed for words of low probability is ours.
    """

    needs_attention = False

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

    def is_stable(self, word: SeenWord, audio_s: float) -> bool:
        """As in `StabilityPolicy`."""
        peak_s = word.piece.attention_peak_s
        return peak_s is not None and peak_s <= audio_s - ATTENTION_DISTANCE_S


MakePolicy = Callable[[], StabilityPolicy]

POLICIES: dict[str, MakePolicy] = {"agreement": Agreement, "attention": Attention}
"""The policies by their names in the operator's settings."""


class Stabilizer:
    """The stable text of one window. A hypothesis consists of words and timestamps; only words are weighed."""

    def __init__(self, policy: StabilityPolicy) -> None:
        self.tokens: tuple[int, ...] = ()
        """The tokens of the stable text: the forced prefix of the next hypothesis, and of the final text."""
        self.stable = ""
        """The stable text."""
        self.tail = ""
        """The text that is shown after the stable text: words with enough evidence."""
        self.draft: tuple[int, ...] = ()
        """The tokens of the last hypothesis after `tokens`; the next one, or the final text, is likely to have them."""
        self.stable_until = 0
        """Position before which all stable words were spoken."""
        self.language: str | None = None
        """The language of the stable text, which the final text keeps; `None` if there is none, or it has no name."""
        self.words: Words = ()
        """The words of the stable text with the times that the client was shown, if it was shown any."""
        self.judged: list[Judged] = []
        """How sure the model was of the parts of the stable text, in the hypotheses in which they became stable."""
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

    @property
    def logprob(self) -> float | None:
        """The mean log-probability of the stable text and of the last hypothesis after it; `None` if none is known."""
        return mean_logprob([*self.judged, *judged(piece for word in self._seen for piece in word.pieces)])

    def begins(self, done: DoneEvent) -> bool:
        """Whether a decoding begins with the stable text, in its language."""
        tokens = tuple(token for piece in done.pieces for token in piece.tokens)
        return tokens[: len(self.tokens)] == self.tokens and self.language in (None, done.language)

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
            words: the words of the hypothesis with their times, if the client is shown them.
            is_certain: whether its words may become stable.
        """
        latest_s = audio_s + TIMESTAMP_SLACK_S
        pieces = tuple(takewhile(lambda piece: piece.at_s is None or piece.at_s <= latest_s, pieces))
        new_pieces = _after_prefix(pieces, self.tokens, self.stable)
        was_short = len(self._seen) < len(self._shown)
        seen = _seen_words(new_pieces, self._seen)
        texts = [word.text for word in seen]
        is_stock = is_stock_phrase(self.stable + "".join(texts))
        n_stable = self._count_stable(seen, audio_s) if is_certain and not is_stock else 0
        if is_stock_phrase(self.stable + "".join(texts[:n_stable])):
            # What follows it may change, and then it would stand alone.
            n_stable = 0
        stable_until = audio_end if self._policy.needs_attention else self._seen_end
        stable, self._seen = _divide(seen, n_stable)
        self._seen_end = audio_end
        n_tokens = sum(len(piece.tokens) for piece in stable)
        new_tokens = tuple(token for piece in new_pieces for token in piece.tokens)
        self.draft = new_tokens[n_tokens:]
        if stable:
            self.tokens += new_tokens[:n_tokens]
            self.stable += "".join(piece.text for piece in stable)
            self.judged += judged(stable)
            self.stable_until = stable_until
            self.language = language
        n_stable_chars = len(self.stable)
        self.words = grow(self.words, words, n_stable_chars, audio_s)
        since_s = self.words[-1].end_s if self.words else 0.0
        window_start = audio_end - round(audio_s * SAMPLE_RATE)
        self.stable_until = max(self.stable_until, window_start + round(since_s * SAMPLE_RATE))
        before = self._shown_after(texts[:n_stable])
        now = [] if is_stock else self._words_with_evidence(before)
        end = n_stable_chars + sum(map(len, now))
        timed = words_between(words, n_stable_chars, end, since_s)
        if (len(now) < len(self._seen) or not was_short) and _is_same(before[: len(now)], now):
            # What follows differs from what was shown there, but it has not the evidence to take its place; or nothing
            # follows, which is believed when the next hypothesis says so too: some end long before their audio.
            n_chars = sum(map(len, before[len(now) :]))
            timed += not_before(words_at_end(self.tail_words, n_chars), timed[-1].end_s if timed else since_s)
            now = [*now, *before[len(now) :]]
        self._shown, self.tail, self.tail_words = now, "".join(now), timed

    def _words_with_evidence(self, before: list[str]) -> list[str]:
        """The words after the stable text up to the first without enough evidence. Those of `before` are shown."""
        words, last = list[str](), len(self._seen) - 1
        for place, word in enumerate(self._seen):
            is_first = place == 0 and not self.stable
            shown = before[place] if place < len(before) else None
            if not word.is_shown(is_first=is_first, n_after=last - place, shown=shown):
                break
            words.append(word.text)
        return [] if is_stock_phrase(self.stable + "".join(words)) else words

    def _shown_after(self, new_stable: list[str]) -> list[str]:
        """The words shown before, without those that have become stable. Empty if other words have become stable."""
        n_new = len(new_stable)
        return self._shown[n_new:] if _is_same(self._shown[:n_new], new_stable) else []

    def _count_stable(self, words: list[SeenWord], audio_s: float) -> int:
        candidates = words[:-WORDS_KEPT_BACK]
        return sum(1 for _ in takewhile(lambda word: self._policy.is_stable(word, audio_s), candidates))


def _seen_words(pieces: list[Piece], before: list[SeenWord]) -> list[SeenWord]:
    """Find the words of the newest hypothesis, and count for each how many hypotheses in a row have it."""
    words, start = list[SeenWord](), 0
    for index, piece in enumerate(pieces):
        if not piece.is_spoken:
            continue
        word = SeenWord(tuple(pieces[start : index + 1]), 1, is_same=False)
        start, place = index + 1, len(words)
        is_seen = place < len(before) and (not words or words[-1].n_seen > 1)
        if is_seen and spoken(word.text) == spoken(before[place].text):
            is_same = word.piece.text == before[place].piece.text
            word = replace(word, n_seen=before[place].n_seen + 1, is_same=is_same)
        words.append(word)
    return words


def _divide(words: list[SeenWord], n_stable: int) -> tuple[list[Piece], list[SeenWord]]:
    """The pieces of the words that become stable, and the words after them.

    Punctuation at the end of the stable ones that may still change goes with the next word; there always is one.
    """
    stable, others = words[:n_stable], words[n_stable:]
    pieces = [piece for word in stable for piece in word.pieces]
    n_open = stable[-1].n_open_marks if stable else 0
    if n_open:
        last = pieces.pop()
        text = _without_marks(last.text)
        pieces.append(replace(last, tokens=last.tokens[:-n_open], text=text, n_marks=0))
        marks = replace(last, tokens=last.tokens[-n_open:], text=last.text[len(text) :])
        others[0] = replace(others[0], pieces=(marks, *others[0].pieces))
    return pieces, others


def _is_same(words: list[str], others: list[str]) -> bool:
    """Whether two lists have the same words, whatever the punctuation."""
    return list(map(spoken, words)) == list(map(spoken, others))


def _without_marks(text: str) -> str:
    end = len(text)
    while end and is_punctuation(text[end - 1]):
        end -= 1
    return text[:end]


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
            rest = replace(
                piece, tokens=piece.tokens[-n_over:], text=text[len(stable) :], n_marks=min(piece.n_marks, n_over)
            )
            return [rest, *pieces[index + 1 :]]
    return []
