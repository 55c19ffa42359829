"""The index of the speech bank, sentence by sentence: all that planners need to know about it."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE = 16_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BankSentence:
    """A sentence in the bank."""

    start: int
    """Its first sample in the bank."""
    n_samples: int
    tokens: NDArray[np.int16]
    classes: NDArray[np.int8]
    """CTC classes."""
    words: NDArray[np.int32]
    """`(words, 3)`: tokens up to the end of the word, CTC classes up to its end, and its first sample or -1."""

    @property
    def is_timed(self) -> bool:
        """Whether the start of every word is known, and there are at least three words."""
        return len(self.words) > 2 and bool((self.words[:, 2] >= 0).all())


class Chunk(NamedTuple):
    """The sentences of a chunk file in flat arrays, one after the other."""

    starts: NDArray[np.int64]
    """First sample of each sentence in the bank."""
    lengths: NDArray[np.int64]
    """Samples of each sentence."""
    n_words: NDArray[np.int64]
    tokens: NDArray[np.int16]
    classes: NDArray[np.int8]
    words: NDArray[np.int32]
    """As in `BankSentence`, for all sentences."""

    def sentences(self) -> list[BankSentence]:
        """The sentences one by one."""
        found: list[BankSentence] = []
        token = letter = word = 0
        counts = zip(self.starts.tolist(), self.lengths.tolist(), self.n_words.tolist(), strict=True)
        for start, n_samples, n_words in counts:
            own = self.words[word : word + n_words]
            n_tokens, n_classes = own[-1, :2].tolist()
            tokens, classes = self.tokens[token : token + n_tokens], self.classes[letter : letter + n_classes]
            found.append(BankSentence(start=start, n_samples=n_samples, tokens=tokens, classes=classes, words=own))
            token, letter, word = token + n_tokens, letter + n_classes, word + n_words
        assert token == len(self.tokens) and letter == len(self.classes)
        return found
