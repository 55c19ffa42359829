"""Tells the speakers of one live session apart: groups embeddings as they come, and looks at all groups anew each time.

Memory is bounded: there are at most `MAX_ONLINE_GROUPS` groups of similar embeddings, of which only sums are kept, and
the stretches whose speaker may still be revised are counted. Only a thread works on it at a time.
"""

import base64
import binascii
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tutti_server.app.voices.file_speakers import MAX_SPEAKERS
from tutti_server.app.voices.speaker_clustering import MIN_SHARE, Labels, SpeakerThresholds, linked

Array = NDArray[np.float32]

MAX_ONLINE_GROUPS = 64
"""The most groups. Above it the two most similar ones become one."""
MAX_REVISABLE = 800
"""The most stretches whose speaker may be revised: ten minutes of speech without a pause."""
MIN_STRETCHES, MAX_MIN_STRETCHES = 2, 4
"""A speaker with fewer stretches joins the nearest other one, until there are more. As many are required as `MIN_SHARE`
says, but no fewer and no more than these, so that a new speaker is noticed soon in a short session and in a long one.
"""
VOICES_HEAD = "v2"
"""Begins what `LiveClusters.voices` writes, for a later version that writes something else."""
FIRST_VOICES_HEAD = "v1."
"""Began what earlier versions wrote, without the name of the network. Their network is gone."""
MAX_WEIGHT = 255
"""The most stretches that a known voice counts for in a session that goes on."""


@dataclass(slots=True)
class _Group:
    speaker: int
    """The number of its speaker, as it was last answered."""
    stretches: list[int]
    """The ids of its stretches whose speaker may still be revised."""


class LiveClusters:
    """The speakers of one session."""

    def __init__(self, thresholds: SpeakerThresholds, max_speakers: int, voices: str = "", network: str = "") -> None:
        """Begin without any, or with those of a session that is continued.

        Args:
            voices: what `voices` returned in the other session. Those of another network are forgotten, and its
                speakers are learnt anew: embeddings of two networks cannot be compared.
            network: `SpeakerModel.network`.

        Raises:
            ValueError: `voices` is something else.
        """
        self._joins = thresholds.joins
        self._network = network
        self._max_speakers = max_speakers
        self._groups: list[_Group] = []
        self._sums: Array = np.zeros((0, 0), np.float32)
        """The sum of the embeddings of each group, in the order of `_groups`, as is `_sizes`."""
        self._sizes: Array = np.zeros(0, np.float32)
        self._revisable: deque[int] = deque()
        """The stretches of all groups, the oldest first."""
        if voices:
            self._restore(voices)

    def add(self, ids: Sequence[int], vectors: Array, are_short: Sequence[bool]) -> dict[int, int]:
        """The speakers of stretches: of these, and of earlier ones that belong to another speaker after all.

        Args:
            vectors: `(stretches, dimensions)` unit vectors.
            are_short: whether each is too short to be a group. It gets the speaker who is the most similar.

        Raises:
            ValueError: a vector holds numbers that are not finite.
        """
        if not np.isfinite(vectors).all():
            raise ValueError("expected embeddings of finite numbers")
        if len(self._groups) and self._sums.shape[1] != vectors.shape[1]:
            # A client has made up voices with the name of this network.
            self._groups, self._sums, self._sizes = [], np.zeros((0, 0), np.float32), np.zeros(0, np.float32)
        before = {stretch: group.speaker for group in self._groups for stretch in group.stretches}
        short: dict[int, Array] = {}
        for id_, vector, is_short in zip(ids, vectors, are_short, strict=True):
            if is_short and self._groups:
                short[id_] = vector
            else:
                self._append(id_, vector)
        self._number(self._labels())
        found = {stretch: group.speaker for group in self._groups for stretch in group.stretches}
        changed = {id_: speaker for id_, speaker in found.items() if before.get(id_) != speaker}
        changed |= {id_: self._attach(id_, vector) for id_, vector in short.items()}
        self._bound()
        return changed

    def _attach(self, id_: int, vector: Array) -> int:
        """The speaker whose embeddings are the most similar. It is revised with the nearest of the speaker's groups.

        The groups stay as they are: a short stretch says too little of a voice.
        """
        speakers = np.array([group.speaker for group in self._groups])
        similar = {
            int(each): float((self._sums[speakers == each].sum(0) / self._sizes[speakers == each].sum()) @ vector)
            for each in np.unique(speakers)
        }
        speaker = max(similar, key=lambda each: similar[each])
        own = np.flatnonzero(speakers == speaker)
        nearest = own[int(np.argmax(self._sums[own] @ vector / self._sizes[own]))]
        self._groups[nearest].stretches.append(id_)
        self._revisable.append(id_)
        return speaker

    def voices(self) -> str:
        """What another session needs to know the same speakers again, as text: a direction for each, and a weight."""
        speakers = sorted({group.speaker for group in self._groups})
        parts = []
        for speaker in speakers:
            own = [index for index, group in enumerate(self._groups) if group.speaker == speaker]
            direction, weight = self._sums[own].sum(0), min(float(self._sizes[own].sum()), MAX_WEIGHT)
            # Whole numbers from -127 to 127 keep the cosine to about a thousandth.
            scaled = np.round(127 * direction / max(float(np.abs(direction).max()), 1e-9)).astype(np.int8)
            mean = float(np.linalg.norm(direction)) / float(self._sizes[own].sum())
            parts.append(bytes((speaker, round(weight), min(round(255 * mean), 255))) + scaled.tobytes())
        data = base64.urlsafe_b64encode(b"".join(parts)).decode().rstrip("=")
        return f"{VOICES_HEAD}.{self._network}.{len(speakers)}.{data}" if speakers else ""

    def _restore(self, voices: str) -> None:
        if voices.startswith(FIRST_VOICES_HEAD):
            return
        try:
            head, network, count, data = voices.split(".")
            n = int(count)
            raw = base64.b64decode(data + "=" * (-len(data) % 4), altchars=b"-_", validate=True)
            if head != VOICES_HEAD or not 0 < n <= MAX_SPEAKERS or len(raw) % n or len(raw) // n < 4:
                raise ValueError
            parts = np.frombuffer(raw, np.uint8).reshape(n, -1)
            if len(set(parts[:, 0].tolist())) < n or int(parts[:, 0].max()) >= MAX_SPEAKERS:
                raise ValueError
        except (ValueError, binascii.Error):
            raise ValueError("it is damaged, or of another version") from None
        if network != self._network:
            return
        for part in parts:
            direction = part[3:].view(np.int8).astype(np.float32)
            direction /= max(float(np.linalg.norm(direction)), 1e-9)
            size = np.float32(max(int(part[1]), 1))
            self._add_group(_Group(int(part[0]), []), direction * size * np.float32(part[2] / 255), size)

    def _append(self, id_: int, vector: Array) -> None:
        self._add_group(_Group(-1, [id_]), vector, np.float32(1))
        self._revisable.append(id_)
        if len(self._groups) > MAX_ONLINE_GROUPS:
            self._join_nearest()

    def _add_group(self, group: _Group, total: Array, size: np.float32) -> None:
        self._groups.append(group)
        self._sums = np.concatenate([self._sums.reshape(-1, len(total)), total[None]])
        self._sizes = np.append(self._sizes, size).astype(np.float32)

    def _join_nearest(self) -> None:
        """The two groups with the most similar embeddings become one."""
        means = self._sums / self._sizes[:, None]
        similar = means @ means.T
        np.fill_diagonal(similar, -2)
        kept, gone = sorted(int(each) for each in np.unravel_index(int(np.argmax(similar)), similar.shape))
        self._sums[kept] += self._sums[gone]
        self._sizes[kept] += self._sizes[gone]
        group, other = self._groups[kept], self._groups.pop(gone)
        group.stretches += other.stretches
        group.speaker = other.speaker if group.speaker < 0 else group.speaker
        self._sums, self._sizes = np.delete(self._sums, gone, 0), np.delete(self._sizes, gone)

    def _labels(self) -> Labels:
        labels = linked(self._sums, self._sizes, self._joins, self._max_speakers)
        totals = np.bincount(labels, self._sizes)
        required = min(max(MIN_STRETCHES, MIN_SHARE * totals.sum()), MAX_MIN_STRETCHES)
        kept = np.flatnonzero(totals >= required)
        if len(kept) not in (0, len(totals)):
            # A single stretch is a noise, two voices at once, or the beginning of what a new speaker has to tell.
            sums = np.stack([self._sums[labels == each].sum(0) for each in range(len(totals))])
            means = sums / totals[:, None]
            nearest = kept[np.argmax(means @ means[kept].T, axis=1)]
            labels = np.where(np.isin(labels, kept), labels, nearest[labels])
        return np.unique(labels, return_inverse=True)[1]

    def _number(self, labels: Labels) -> None:
        """Give each cluster the number that most of its stretches had, or the lowest that is free."""
        claims: dict[tuple[int, int], float] = {}
        for label, group, size in zip(labels.tolist(), self._groups, self._sizes.tolist(), strict=True):
            if group.speaker >= 0:
                claims[label, group.speaker] = claims.get((label, group.speaker), 0.0) + size
        numbers: dict[int, int] = {}
        for label, speaker in sorted(claims, key=lambda each: -claims[each]):
            if label not in numbers and speaker not in numbers.values():
                numbers[label] = speaker
        for label in labels.tolist():
            if label not in numbers:
                numbers[label] = min(set(range(len(labels) + 1)) - set(numbers.values()))
        for label, group in zip(labels.tolist(), self._groups, strict=True):
            group.speaker = numbers[label]

    def _bound(self) -> None:
        """Forget which stretches the oldest groups hold, as far as there are too many."""
        while len(self._revisable) > MAX_REVISABLE:
            oldest = self._revisable.popleft()
            for group in self._groups:
                if oldest in group.stretches:
                    group.stretches.remove(oldest)
                    break
