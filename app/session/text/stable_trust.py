"""How sure the model was of a text whose beginning had become stable before it was decoded.

The engine knows log-probabilities only of what follows the forced prefix, and after a long prefix little follows: a
full stop, and a timestamp. What the prefix has was judged by the hypotheses in which it became stable.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from tutti_server.engine import api


class Judged(NamedTuple):
    """A part of a text, and how sure the model is of it."""

    n_chars: int
    logprob: float | None
    """The mean over its words, as `api.text_logprob`; `None` where that is not known."""


def judged(pieces: Iterable[api.Piece]) -> list[Judged]:
    """How sure the model is of each piece of a text."""
    return [Judged(len(piece.text), api.text_logprob([piece])) for piece in pieces]


def mean_logprob(parts: Iterable[Judged]) -> float | None:
    """The mean over all characters that were judged; `None` without any."""
    known = [(n_chars, logprob) for n_chars, logprob in parts if n_chars and logprob is not None]
    n_known = sum(n_chars for n_chars, _ in known)
    return sum(n_chars * logprob for n_chars, logprob in known) / n_known if known else None


def with_stable_trust(segment: api.Segment, stable: Sequence[Judged], n_before: int) -> api.Segment:
    """Let `avg_logprob` of a final segment be that of all its words, where some were stable before.

    Args:
        segment: a final segment of the window.
        stable: the parts of the window's stable text, with which its final text begins.
        n_before: the length of the final text before the segment.
    """
    end = n_before + len(segment.text)
    inside, at = list[Judged](), 0
    for part in stable:
        begin, at = at, at + part.n_chars
        inside.append(part._replace(n_chars=max(min(at, end) - max(begin, n_before), 0)))
    if not any(part.n_chars for part in inside):
        return segment
    rest = Judged(max(end - max(at, n_before), 0), segment.text_logprob)
    mean = mean_logprob([*inside, rest])
    return segment if mean is None else replace(segment, avg_logprob=mean)
