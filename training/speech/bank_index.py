"""What is said in the bank, sentence by sentence: all that planning needs to know of it."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE = 16_000


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence in the bank; its words share flat arrays."""

    start: int
    """Sample in the bank."""
    n_samples: int
    tokens: NDArray[np.int16]
    classes: NDArray[np.int8]
    words: NDArray[np.int32]
    """`(words, 3)`: tokens and CTC classes up to the word's end, and the sample it begins at or -1."""

    @property
    def is_timed(self) -> bool:
        return len(self.words) > 2 and bool((self.words[:, 2] >= 0).all())


class Chunk(NamedTuple):
    """Sentences of a chunk file in flat arrays, one after another."""

    starts: NDArray[np.int64]
    """Samples in the bank."""
    lengths: NDArray[np.int64]
    """Samples."""
    n_words: NDArray[np.int64]
    tokens: NDArray[np.int16]
    classes: NDArray[np.int8]
    words: NDArray[np.int32]
    """As in `Said`, of all sentences."""

    def sentences(self) -> list[Said]:
        said, token, letter, word = [], 0, 0, 0
        counts = zip(self.starts.tolist(), self.lengths.tolist(), self.n_words.tolist(), strict=True)
        for start, n_samples, n_words in counts:
            own = self.words[word : word + n_words]
            n_tokens, n_classes = own[-1, :2].tolist()
            tokens, classes = self.tokens[token : token + n_tokens], self.classes[letter : letter + n_classes]
            said.append(Said(start, n_samples, tokens, classes, own))
            token, letter, word = token + n_tokens, letter + n_classes, word + n_words
        assert token == len(self.tokens) and letter == len(self.classes)
        return said
