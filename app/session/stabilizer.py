"""Which part of an open window's text is stable, decided by one of two policies.

The stable part is kept as tokens. Every later hypothesis of the window, the final one too, is decoded with them as a
forced prefix. That is why text that was shown as stable never changes.
"""

from collections.abc import Callable
from itertools import takewhile
from typing import Protocol

from app.session.stable_words import Words, grow, words_between
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


class StabilityPolicy(Protocol):
    """Decides, with each hypothesis, how much of the text that is not stable yet becomes stable."""

    needs_attention: bool
    """Whether hypotheses need the peaks of the attention weights (`DecodeOptions.attention_times`)."""

    def count_stable(self, words: list[Piece], audio_s: float, audio_end: int) -> tuple[int, int]:
        """Weigh the words of a newer hypothesis that follow the stable text.

        Args:
            words: these words, in order.
            audio_s: the audio that was decoded, in seconds.
            audio_end: the position after the audio that was decoded.

        Returns:
            How many of the words become stable, and the position before which those were spoken.
        """
        ...


class Agreement:
    """What two consecutive hypotheses agree on is stable, except the last words of the newer one.

    Source of the idea: LocalAgreement-2 in Macháček, Dabre, Bojar, "Turning Whisper into Real-Time Transcription
    System", 2023.
    """

    needs_attention = False

    def __init__(self) -> None:
        self._previous: list[Piece] = []
        self._previous_end = 0

    def count_stable(self, words: list[Piece], audio_s: float, audio_end: int) -> tuple[int, int]:
        """As in `StabilityPolicy`; the words are kept for the next call."""
        pairs = zip(words[:-WORDS_KEPT_BACK], self._previous, strict=False)
        n_agreed = sum(1 for _ in takewhile(lambda pair: pair[0].text == pair[1].text, pairs))
        stable_until = self._previous_end
        self._previous, self._previous_end = words[n_agreed:], audio_end
        return n_agreed, stable_until


class Attention:
    """A word is stable if the attention of it and of all words before it peaks well before the end of the audio.

    Source of the idea: AlignAtt in Papi, Turchi, Negri, "AlignAtt: Using Attention-based Audio-Translation Alignments
    as a Guide for Simultaneous Speech Translation", 2023.
    """

    needs_attention = True

    def __init__(self, distance_s: float = ATTENTION_DISTANCE_S) -> None:
        self._distance_s = distance_s

    def count_stable(self, words: list[Piece], audio_s: float, audio_end: int) -> tuple[int, int]:
        """As in `StabilityPolicy`."""
        until_s = audio_s - self._distance_s
        peaks = (word.attention_peak_s for word in words[:-WORDS_KEPT_BACK])
        n_stable = sum(1 for _ in takewhile(lambda peak_s: peak_s is not None and peak_s <= until_s, peaks))
        return n_stable, audio_end


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
        """The text of the last hypothesis after the stable text."""
        self.draft: tuple[int, ...] = ()
        """The tokens of the last hypothesis after `tokens`; the next one is likely to go on with them."""
        self.stable_until = 0
        """Position before which all stable words were spoken."""
        self.language: str | None = None
        """The language of the stable text; `None` if there is none, or if the model names no language."""
        self.words: Words = ()
        """The words of the stable text, if hypotheses have words with times."""
        self.tail_words: Words = ()
        """The words of the tail, if the last hypothesis has words with times."""
        self._policy = policy

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
        n_stable, stable_until = self._policy.count_stable(new_words, audio_s, audio_end) if is_certain else (0, 0)
        if n_stable:
            n_pieces = _index_after_words(new_pieces, n_stable)
            self.tokens += tuple(token for piece in new_pieces[:n_pieces] for token in piece.tokens)
            self.stable += "".join(piece.text for piece in new_pieces[:n_pieces])
            self.stable_until = stable_until
            self.language = language
            new_pieces, new_words = new_pieces[n_pieces:], new_words[n_stable:]
        self.draft = tuple(token for piece in new_pieces for token in piece.tokens)
        self.tail = "".join(piece.text for piece in new_words)
        n_stable_chars = len(self.stable)
        self.words = grow(self.words, words, n_stable_chars, audio_s)
        since_s = self.words[-1].end_s if self.words else 0.0
        window_start = audio_end - round(audio_s * SAMPLE_RATE)
        self.stable_until = max(self.stable_until, window_start + round(since_s * SAMPLE_RATE))
        self.tail_words = words_between(words, n_stable_chars, n_stable_chars + len(self.tail), since_s)


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
            return [Piece(piece.tokens[-n_over:], text[len(stable) :], piece.at_s), *pieces[index + 1 :]]
    return []


def _index_after_words(pieces: list[Piece], n_words: int) -> int:
    """The index after the first `n_words` words among the pieces."""
    for index, piece in enumerate(pieces):
        if piece.at_s is None:
            n_words -= 1
            if n_words == 0:
                return index + 1
    raise AssertionError("the pieces have fewer words than became stable")
