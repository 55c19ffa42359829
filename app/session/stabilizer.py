"""Which part of a growing window's text is stable, kept back from the edge of the audio, by one of two policies.

The stable part is kept as tokens. Every later hypothesis of the window, the final one too, is decoded with them as a
forced prefix, and that is why text once shown as stable never changes.
"""

from collections.abc import Callable
from itertools import takewhile
from typing import Protocol

from engine.api import Piece

# The last words of a hypothesis may be cut off by the end of the audio, so they never become stable.
WORDS_KEPT_BACK = 1
# A timestamp may lie this far behind the end of the audio. One that lies farther was made up, and what follows it is
# not read: once stable, it would leave no room for the times of the words still to come.
TIMESTAMP_SLACK_S = 0.2
# What is looked at as a word is begun lies near its beginning; chosen with `benchmarks.stability`.
ATTENTION_DISTANCE_S = 0.3


class StabilityPolicy(Protocol):
    """Says of each hypothesis how much of what is not stable yet becomes so."""

    needs_attention: bool
    """Whether hypotheses must say where the model looked (`DecodeOptions.attention_times`)."""

    def take(self, words: list[Piece], audio_s: float, audio_end: int) -> tuple[int, int]:
        """Weigh the words behind the stable text, read from `audio_s` of audio that ends at `audio_end`.

        Returns:
            How many of them become stable, and the position before which those were spoken.
        """
        ...


class Agreement:
    """What two hypotheses in a row agree on is stable, but for the last words of the newer one.

    Source of the idea: LocalAgreement-2 in Macháček, Dabre, Bojar, "Turning Whisper into Real-Time Transcription
    System", 2023.
    """

    needs_attention = False

    def __init__(self) -> None:
        self._previous: list[Piece] = []
        self._previous_end = 0

    def take(self, words: list[Piece], audio_s: float, audio_end: int) -> tuple[int, int]:
        pairs = zip(words[:-WORDS_KEPT_BACK], self._previous, strict=False)
        n_agreed = sum(1 for _ in takewhile(lambda pair: pair[0].text == pair[1].text, pairs))
        heard_until = self._previous_end
        self._previous, self._previous_end = words[n_agreed:], audio_end
        return n_agreed, heard_until


class Attention:
    """A word is stable once the model looked at audio well before the end as it wrote the word and those before it.

    Source of the idea: AlignAtt in Papi, Turchi, Negri, "AlignAtt: Using Attention-based Audio-Translation Alignments
    as a Guide for Simultaneous Speech Translation", 2023.
    """

    needs_attention = True

    def __init__(self, distance_s: float = ATTENTION_DISTANCE_S) -> None:
        self._distance_s = distance_s

    def take(self, words: list[Piece], audio_s: float, audio_end: int) -> tuple[int, int]:
        until_s = audio_s - self._distance_s
        looks = (word.attention_peak_s for word in words[:-WORDS_KEPT_BACK])
        n_heard = sum(1 for _ in takewhile(lambda look_s: look_s is not None and look_s <= until_s, looks))
        return n_heard, audio_end


MakePolicy = Callable[[], StabilityPolicy]

POLICIES: dict[str, MakePolicy] = {"agreement": Agreement, "attention": Attention}
"""By the names that an operator chooses them by."""


class Stabilizer:
    """Stable text of one window. Pieces are words and timestamps; only words are weighed."""

    def __init__(self, policy: StabilityPolicy) -> None:
        self.tokens: tuple[int, ...] = ()
        """What later decodes must begin with."""
        self.stable = ""
        self.tail = ""
        self.draft: tuple[int, ...] = ()
        """What the last hypothesis had behind `tokens`: the next one is likely to begin with it."""
        self.heard_until = 0
        """Position on the timeline before which all stable words were spoken."""
        self._policy = policy

    @property
    def needs_attention(self) -> bool:
        return self._policy.needs_attention

    def update(self, pieces: tuple[Piece, ...], audio_end: int, audio_s: float) -> None:
        """Take in a newer hypothesis, which begins with `tokens`.

        Args:
            audio_end: the position up to which the audio was read.
            audio_s: how much was read.
        """
        latest_s = audio_s + TIMESTAMP_SLACK_S
        pieces = tuple(takewhile(lambda piece: piece.at_s is None or piece.at_s <= latest_s, pieces))
        fresh = _behind(pieces, self.tokens, self.stable)
        words = [piece for piece in fresh if piece.at_s is None]
        n_stable, heard_until = self._policy.take(words, audio_s, audio_end)
        if n_stable:
            n_taken = _index_behind_words(fresh, n_stable)
            self.tokens += tuple(token for piece in fresh[:n_taken] for token in piece.tokens)
            self.stable += "".join(piece.text for piece in fresh[:n_taken])
            self.heard_until = heard_until
            fresh, words = fresh[n_taken:], words[n_stable:]
        self.draft = tuple(token for piece in fresh for token in piece.tokens)
        self.tail = "".join(piece.text for piece in words)


def _behind(pieces: tuple[Piece, ...], prefix: tuple[int, ...], stable: str) -> list[Piece]:
    """The pieces that follow the forced prefix; one that the prefix ends inside ("Hello" of "Hello,") is cut there."""
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


def _index_behind_words(pieces: list[Piece], n_words: int) -> int:
    for index, piece in enumerate(pieces):
        if piece.at_s is None:
            n_words -= 1
            if n_words == 0:
                return index + 1
    raise AssertionError("fewer words than agreed on")
