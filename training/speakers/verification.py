"""How well a network tells held-out voices apart: equal error rate over pairs of clips."""

from collections.abc import Callable, Mapping
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

CLIPS_EACH = 8
"""Clips of each voice."""


def clips(audio: Mapping[int, NDArray[np.int16]], seconds: float) -> tuple[Tensor, NDArray[np.int64]]:
    """Clips of every voice at even distances, `(n, samples)` float32, and the number of the voice of each."""
    n_samples = int(seconds * 16_000)
    rows, ids = [], []
    for speaker, samples in sorted(audio.items()):
        if len(samples) < 2 * n_samples:
            continue
        for start in np.linspace(0, len(samples) - n_samples, CLIPS_EACH).astype(int):
            rows.append(samples[start : start + n_samples])
            ids.append(speaker)
    return torch.from_numpy(np.stack(rows).astype(np.float32) / 32768), np.array(ids)


def equal_error(embed: Callable[[Tensor], Tensor], x: Tensor, ids: NDArray[np.int64]) -> dict[str, float]:
    """The equal error rate in percent, its threshold, and the mean cosines of equal and of different voices."""
    vectors = embed(x).float().cpu().numpy()
    cosines = vectors @ vectors.T
    pairs = np.array(list(combinations(range(len(ids)), 2)))
    scores = cosines[pairs[:, 0], pairs[:, 1]]
    is_same = ids[pairs[:, 0]] == ids[pairs[:, 1]]
    same, different = np.sort(scores[is_same]), np.sort(scores[~is_same])
    thresholds = np.linspace(-1, 1, 801)
    misses = np.searchsorted(same, thresholds) / len(same)
    alarms = 1 - np.searchsorted(different, thresholds) / len(different)
    at = int(np.argmin(np.abs(misses - alarms)))
    return {
        "eer_percent": round(50 * float(misses[at] + alarms[at]), 2),
        "threshold": round(float(thresholds[at]), 3),
        "same": round(float(same.mean()), 3),
        "different": round(float(different.mean()), 3),
    }
