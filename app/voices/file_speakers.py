"""Who speaks when in a recording: embeds it window by window as it is read, and clusters all windows at the end.

Text does not wait for it, and the audio is not kept.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tutti_server.app.media.pcm import Samples
from tutti_server.app.voices.speaker_clustering import SpeakerThresholds, centroids, cluster
from tutti_server.engine.api import SAMPLE_RATE

WINDOW_S = 1.5
"""The length of the windows, in seconds."""
HOP_S = 0.75
"""The distance of the windows, in seconds."""
MIN_RMS = 1e-3
"""A window with a smaller root mean square is silence and is not embedded."""
MAX_SPEAKERS = 10
"""The most speakers of a recording, unless the client names fewer."""

Embed = Callable[[Sequence[Samples]], Awaitable[NDArray[np.float32]]]
"""Embeds stretches, as `EmbedderBatcher.embed` does."""
Span = tuple[float, float]
"""A start and an end, in seconds."""


class Diarizer:
    """Listens to one recording. `listen` passes its audio on; `speakers` answers once it has ended."""

    def __init__(self, embed: Embed) -> None:
        self._embed = embed
        self._vectors: list[NDArray[np.float32]] = []
        self._starts_s: list[float] = []
        """When each embedded window begins."""
        self._rest: Samples = np.zeros(0, np.float32)
        self._position = 0
        """The first sample of `_rest`."""
        self._before_rest: Samples = self._rest
        """The samples of the last window before `_rest`."""

    async def listen(self, audio: AsyncIterator[Samples]) -> AsyncGenerator[Samples, None]:
        """Pass on the audio of a recording, mono float32 at 16 kHz, and embed its windows."""
        async for piece in audio:
            yield piece
            await self._push(piece)

    async def _push(self, samples: Samples) -> None:
        self._rest = np.concatenate([self._rest, samples])
        size, hop = int(WINDOW_S * SAMPLE_RATE), int(HOP_S * SAMPLE_RATE)
        n = max(0, (len(self._rest) - size) // hop + 1)
        windows = [self._rest[i * hop : i * hop + size] for i in range(n)]
        loud = [i for i, each in enumerate(windows) if float(np.sqrt(np.mean(each * each))) >= MIN_RMS]
        if loud:
            self._vectors += list(await self._embed([windows[i] for i in loud]))
            self._starts_s += [(self._position + i * hop) / SAMPLE_RATE for i in loud]
        if n:
            self._before_rest = self._rest[(n - 1) * hop : n * hop].copy()
        self._rest = self._rest[n * hop :].copy()
        self._position += n * hop

    async def finish(self) -> None:
        """Embed the last window, which ends with the recording. A recording that is shorter than a window is one."""
        if self._position and len(self._rest) <= int((WINDOW_S - HOP_S) * SAMPLE_RATE):
            return
        window = np.concatenate([self._before_rest, self._rest])[-int(WINDOW_S * SAMPLE_RATE) :]
        is_all = self._position == 0
        if len(window) and (is_all or float(np.sqrt(np.mean(window * window))) >= MIN_RMS):
            self._vectors += list(await self._embed([window]))
            self._starts_s.append((self._position + len(self._rest) - len(window)) / SAMPLE_RATE)

    def speakers(self, speech: Iterable[Span], thresholds: SpeakerThresholds, max_speakers: int) -> "Speakers":
        """The speakers of the recording, after `finish`. It takes most of a second for hours of speech: use a thread.

        Args:
            speech: where speech is, in seconds. Windows that it fills less than half count for nothing, unless none
                is filled as much.
        """
        if not self._starts_s:
            return Speakers(np.zeros((0, 1), np.float32), np.zeros(0), np.zeros(0, np.int64))
        starts, vectors = np.array(self._starts_s), np.stack(self._vectors)
        filled = _filled(starts, list(speech))
        kept = filled >= 0.5 * WINDOW_S
        if not kept.any():
            kept = filled >= filled.max()
        starts, vectors = starts[kept], vectors[kept]
        return Speakers(vectors, starts + WINDOW_S / 2, cluster(vectors, thresholds.joins, max_speakers))


def _filled(starts: NDArray[np.float64], speech: Sequence[Span]) -> NDArray[np.float64]:
    filled = np.zeros(len(starts))
    for start_s, end_s in speech:
        # Of many hours of windows, few are near.
        first, last = np.searchsorted(starts, (start_s - WINDOW_S, end_s))
        near = starts[first:last]
        filled[first:last] += np.clip(np.minimum(near + WINDOW_S, end_s) - np.maximum(near, start_s), 0, None)
    return filled


class Speakers:
    """The speakers of a recording, numbered from 0 in the order in which they first speak."""

    def __init__(self, vectors: NDArray[np.float32], middles_s: NDArray[np.float64], labels: NDArray[np.int64]) -> None:
        """Embeddings of windows with speech, the middle of each in seconds, and its speaker."""
        self._middles_s = middles_s
        self.centroids = centroids(vectors, labels) if len(labels) else vectors
        """`(speakers, dimensions)` unit vectors."""
        self._scores = vectors @ self.centroids.T if len(labels) else vectors

    @property
    def n(self) -> int:
        """How many speakers there are."""
        return len(self.centroids)

    def speaking(self, start_s: float, end_s: float) -> tuple[int, float] | None:
        """Who speaks between two times in seconds, and a confidence from 0 to 1; `None` if there was no speech at all.

        The windows around the middle of the stretch decide, the nearer the more.
        """
        if not len(self._middles_s):
            return None
        middle_s = (start_s + end_s) / 2
        after = int(np.searchsorted(self._middles_s, middle_s))
        nearest_s = min(abs(float(each) - middle_s) for each in self._middles_s[max(after - 1, 0) : after + 1])
        reach = max(HOP_S, (end_s - start_s) / 2, nearest_s + 1e-6)
        # Of many hours of windows, few are near.
        first, last = np.searchsorted(self._middles_s, (middle_s - reach * 1.001, middle_s + reach * 1.001))
        distance = np.abs(self._middles_s[first:last] - middle_s)
        weights = np.clip(1 - distance / (reach * 1.001), 0, None) + 1e-9 * (distance <= reach)
        scores = weights @ self._scores[first:last] / weights.sum()
        best = int(np.argmax(scores))
        others = np.delete(scores, best)
        # Not a probability: 0.5 where two speakers are equally similar, and more by the difference of their cosines.
        margin = float(scores[best] - others.max()) if len(others) else 1.0
        return best, round(min(1.0, 0.5 + margin), 3)

    def known(self, references: NDArray[np.float32], knows: float) -> dict[int, int]:
        """Which known speakers take part: the reference of a speaker, by its number. Each is taken once, best first.

        Args:
            references: `(known, dimensions)` unit vectors.
            knows: `SpeakerThresholds.knows`.
        """
        if not self.n or not len(references):
            return {}
        similar = self.centroids @ references.T
        found: dict[int, int] = {}
        for flat in np.argsort(-similar, axis=None):
            speaker, reference = (int(each) for each in np.unravel_index(int(flat), similar.shape))
            if similar[speaker, reference] < knows:
                break
            if speaker not in found and reference not in found.values():
                found[speaker] = reference
        return found
