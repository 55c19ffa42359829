"""Groups embeddings of speech by speaker: how many speakers there are, and where each of them is.

Embeddings are unit vectors, and their similarity is their cosine. Long recordings are first reduced to a bounded number
of small groups, which are then joined by average linkage.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Labels = NDArray[np.int64]

MAX_GROUPS = 160
"""The most small groups that are compared with each other."""
MIN_SHARE = 0.03
"""A speaker with a smaller share of the speech joins the nearest other one, if that leaves two or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakerThresholds:
    """The cosines that belong to a network."""

    joins: float
    """Two groups of embeddings are one speaker if their mean similarity is at least this."""
    knows: float
    """A speaker is a known one if the similarity of their centroids is at least this."""


def cluster(embeddings: Array, joins: float, max_speakers: int) -> Labels:
    """The speaker of each embedding, numbered from 0 in the order of their first embeddings.

    Args:
        embeddings: `(n, dimensions)` unit vectors in the order of time.
        joins: `SpeakerThresholds.joins`.
        max_speakers: the most speakers, at least 1. Above it the most similar ones are joined.
    """
    if not len(embeddings):
        return np.zeros(0, np.int64)
    groups = _groups(embeddings)
    n_groups = int(groups.max()) + 1
    membership = np.zeros((n_groups, len(embeddings)), np.float32)
    membership[groups, np.arange(len(embeddings))] = 1
    labels = linked(membership @ embeddings, membership.sum(1), joins, max_speakers)[groups]
    labels = _without_rare(embeddings, labels)
    # Groups are coarse at their edges: each embedding goes to the speaker whose centroid is nearest.
    labels = np.argmax(embeddings @ centroids(embeddings, labels).T, axis=1)
    return in_order(labels)


def centroids(embeddings: Array, labels: Labels) -> Array:
    """`(speakers, dimensions)` unit vectors: the mean direction of each speaker's embeddings. Every label has some."""
    sums = np.stack([embeddings[labels == each].sum(0) for each in range(int(labels.max()) + 1)])
    out: Array = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9)
    return out


def in_order(labels: Labels) -> Labels:
    """The labels, numbered from 0 in the order in which they first occur."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def _groups(embeddings: Array) -> Labels:
    """A small group for each embedding: at most `MAX_GROUPS`, around embeddings at even distances in time."""
    if len(embeddings) <= MAX_GROUPS:
        return np.arange(len(embeddings))
    seeds = embeddings[np.linspace(0, len(embeddings) - 1, MAX_GROUPS).astype(int)]
    for _ in range(3):
        nearest = np.argmax(embeddings @ seeds.T, axis=1)
        kept = np.unique(nearest)
        seeds = centroids(embeddings, np.searchsorted(kept, nearest))
    return np.unique(np.argmax(embeddings @ seeds.T, axis=1), return_inverse=True)[1]


def linked(sums: Array, sizes: Array, joins: float, max_speakers: int) -> Labels:
    """The cluster of each group. The two most similar are joined until no two are similar enough.

    Args:
        sums: `(groups, dimensions)`: the sum of the unit vectors of each group.
        joins: `SpeakerThresholds.joins`.
    """
    n = len(sums)
    # The mean similarity of all pairs of two groups is the product of their means.
    total, sizes = sums @ sums.T, sizes.astype(np.float32)
    labels, is_alive = np.arange(n), np.ones(n, bool)
    for _ in range(n - 1):
        mean = total / np.outer(sizes, sizes)
        mean[~is_alive] = mean[:, ~is_alive] = -2
        np.fill_diagonal(mean, -2)
        a, b = np.unravel_index(int(np.argmax(mean)), mean.shape)
        if mean[a, b] < joins and is_alive.sum() <= max_speakers:
            break
        total[a] += total[b]
        total[:, a] += total[:, b]
        sizes[a] += sizes[b]
        is_alive[b] = False
        labels[labels == b] = a
    return np.unique(labels, return_inverse=True)[1]


def _without_rare(embeddings: Array, labels: Labels) -> Labels:
    """Speakers with little speech join the nearest one that has more, unless only one is left."""
    counts = np.bincount(labels)
    kept = np.flatnonzero(counts >= max(2, MIN_SHARE * len(labels)))
    if len(kept) in (0, len(counts)):
        return labels
    means = centroids(embeddings, labels)
    nearest = kept[np.argmax(means @ means[kept].T, axis=1)]
    target = np.where(np.isin(np.arange(len(counts)), kept), np.arange(len(counts)), nearest)
    return np.unique(target[labels], return_inverse=True)[1]
