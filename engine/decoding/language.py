"""Which language a window is decoded in, by the detector's probabilities and by what is known already."""

import math
from collections.abc import Mapping

from tutti_server.engine.api import LEAST_LANGUAGE_PROBABILITY


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
