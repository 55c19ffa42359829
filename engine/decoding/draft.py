"""Draft verification, the checking half of speculative decoding. Plain Python."""

from collections.abc import Sequence


def verify_draft(draft: Sequence[int], sampled: Sequence[int]) -> int:
    """Return how many of the draft tokens are accepted: all before the first that differs from the sampled token.

    Args:
        draft: the draft tokens.
        sampled: `sampled[i]` was sampled after `draft[:i]`. One token more than the draft has: the accepted draft
            tokens and the one sampled after them are the output.
    """
    for n_accepted, (drafted, token) in enumerate(zip(draft, sampled, strict=False)):
        if drafted != token:
            return n_accepted
    return min(len(draft), len(sampled))
