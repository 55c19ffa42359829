"""Which part of a growing window's text is stable: what two consecutive hypotheses agree on, kept back from the edge.

The stable part is kept as tokens. Every later hypothesis of the window, the final one too, is decoded with them as a
forced prefix, and that is why text once shown as stable never changes. Source of the idea: LocalAgreement-2 in
Macháček, Dabre, Bojar, "Turning Whisper into Real-Time Transcription System", 2023.
"""

from itertools import takewhile

from engine.api import Piece

# The last words of a hypothesis may be cut off by the end of the audio, so they never become stable.
WORDS_KEPT_BACK = 1
# A timestamp may lie this far behind the end of the audio. One that lies farther was made up, and what follows it is
# not read: once stable, it would leave no room for the times of the words still to come.
TIMESTAMP_SLACK_S = 0.2


class Stabilizer:
    """Stable text of one window. Pieces are words and timestamps; only words are compared."""

    def __init__(self) -> None:
        self.tokens: tuple[int, ...] = ()
        """What later decodes must begin with."""
        self.stable = ""
        self.tail = ""
        self.draft: tuple[int, ...] = ()
        """What the last hypothesis had behind `tokens`: the next one is likely to begin with it."""
        self.heard_until = 0
        """Position on the timeline before which all stable words were spoken, as they were read from audio that ended
        there."""
        self._previous: list[Piece] = []
        self._previous_end = 0

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
        agreed = sum(
            1
            for _ in takewhile(
                lambda pair: pair[0].text == pair[1].text, zip(words[:-WORDS_KEPT_BACK], self._previous, strict=False)
            )
        )
        if agreed:
            n_taken = _index_behind_words(fresh, agreed)
            self.tokens += tuple(token for piece in fresh[:n_taken] for token in piece.tokens)
            self.stable += "".join(piece.text for piece in fresh[:n_taken])
            self.heard_until = self._previous_end
            fresh, words = fresh[n_taken:], words[agreed:]
        self.draft = tuple(token for piece in fresh for token in piece.tokens)
        self.tail = "".join(piece.text for piece in words)
        self._previous = words
        self._previous_end = audio_end


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
