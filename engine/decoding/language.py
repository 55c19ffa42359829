"""Which language a window is decoded in, by the detector's probabilities and by what is known already."""

import math
from collections.abc import Mapping

from tutti_server.engine.api import LEAST_LANGUAGE_PROBABILITY

LEAST_OTHER_PROBABILITY = 0.05
"""A window whose text is doubtful is decoded in its second language, too, if that has at least this probability.

The bias counts: a mumbled word hardly changes a language that much was spoken in.
"""


def other_language(probabilities: Mapping[str, float], bias: Mapping[str, float]) -> str | None:
    """Return the second language after `choose_language`, whose arguments these are; `None` if it is too unlikely."""
    first = choose_language(probabilities, bias)
    most = max(bias.values(), default=0.0)  # keeps the powers finite
    likely = {each: share * math.exp(bias.get(each, 0.0) - most) for each, share in probabilities.items()}
    least = LEAST_OTHER_PROBABILITY * sum(likely.values())
    likely.pop(first)
    other = max(likely, key=likely.__getitem__, default=None)
    return other if other is not None and likely[other] > least else None


def choose_language(probabilities: Mapping[str, float], bias: Mapping[str, float]) -> str:
    """Return the likeliest language, with the bias; of equal ones that with the higher probability.

    Args:
        probabilities: of each candidate; one below `LEAST_LANGUAGE_PROBABILITY` counts as that.
        bias: what is added to the logarithm of the probability of some languages.
    """

    def rank(language: str) -> tuple[float, float]:
        probability = probabilities[language]
        return math.log(max(probability, LEAST_LANGUAGE_PROBABILITY)) + bias.get(language, 0.0), probability

    return max(probabilities, key=rank)
