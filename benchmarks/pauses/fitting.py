"""Fits the weights of a `TurnModel` to pauses whose kinds are known."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.session.turn_taking import PauseEvidence, find_features

COST = {"end": 1.0, "sentence": 1.0, "number": 3.0, "spelling": 3.0}
"""How much a pause counts: a number that is cut is worse than an answer that is late."""
REGULARISATION = 1.0
"""The weight of the squared weights: no feature is trusted without bounds for a few pauses."""
N_STEPS = 50
"""Steps of Newton's method; a handful is enough."""


def fit(pauses: Sequence[tuple[str, PauseEvidence]]) -> dict[str, float]:
    """Fit a logistic function that tells the pauses labelled `end` from all others.

    Args:
        pauses: labels, which are keys of `COST`, and evidence.
    """
    features = [find_features(evidence) for _, evidence in pauses]
    values = np.array([list(each.values()) for each in features])
    is_end = np.array([label == "end" for label, _ in pauses], dtype=float)
    costs = np.array([COST[label] for label, _ in pauses])
    weights = np.zeros(values.shape[1])
    for _ in range(N_STEPS):
        probabilities = 1 / (1 + np.exp(-values @ weights))
        slope = values.T @ (costs * (probabilities - is_end)) + REGULARISATION * weights
        weights -= np.linalg.solve(_curvature(values, costs * probabilities * (1 - probabilities)), slope)
    return dict(zip(features[0], map(float, weights), strict=True))


def _curvature(values: NDArray[np.float64], spread: NDArray[np.float64]) -> NDArray[np.float64]:
    return (values * spread[:, None]).T @ values + REGULARISATION * np.eye(values.shape[1])
