"""Aligns the tracks of a call, whose chunks arrive one after another, as the channels of one audio stream."""

from collections.abc import Sequence

import numpy as np

from app.errors import CLOSE_POLICY, LimitExceeded

SAMPLE_RATE = 8000
SAMPLES_PER_MS = SAMPLE_RATE // 1000
SILENCE = b"\xff"
"""The mu-law code of zero."""
JITTER_SAMPLES = 15 * SAMPLES_PER_MS
"""A chunk that is off by at most this much follows the chunk before it without a gap or a cut.

Its timestamp is rounded, and cutting the audio there would click. The limit is below a chunk's 20 ms, so that a missing
chunk is noticed.
"""
MAX_SKEW_SAMPLES = 200 * SAMPLES_PER_MS
"""A track that is further than this behind another track counts as silent, so that the other track is not held up."""
MAX_GAP_S = 60
"""The longest gap between two chunks, in seconds. A longer one is a mistake of the sender, and would cost memory."""


class TrackSync:
    """Puts chunks of mu-law audio at 8 kHz in their places on the call's timeline. Missing chunks become silence."""

    def __init__(self, names: Sequence[str]) -> None:
        self._pending = {name: bytearray() for name in names}
        """The audio of each track that was not returned yet. All of them begin at the same moment."""
        self._start = 0
        """The position at which the pending audio begins, in samples since the start of the call."""
        self.n_late_samples = 0
        """Samples that were dropped, because silence had already been returned in their place."""

    def add(self, name: str, start_ms: int, data: bytes) -> bytes:
        """Add a chunk, and return the audio that is complete now.

        Args:
            name: the track of the chunk.
            start_ms: where the chunk begins, in milliseconds since the start of the call.
            data: mu-law samples.

        Returns:
            mu-law samples with interleaved channels.

        Raises:
            LimitExceeded: the gap before the chunk is longer than `MAX_GAP_S`.
        """
        pending = self._pending[name]
        end = self._start + len(pending)
        gap = start_ms * SAMPLES_PER_MS - end
        if gap > MAX_GAP_S * SAMPLE_RATE:
            got = f"one of {gap / SAMPLE_RATE:.1f} s before {start_ms} ms"
            raise LimitExceeded("too_fast", f"media: expected gaps of at most {MAX_GAP_S} s, got {got}", CLOSE_POLICY)
        if gap > JITTER_SAMPLES:
            pending += SILENCE * gap
        elif gap < -JITTER_SAMPLES:
            n_late = min(-gap, len(data))
            self.n_late_samples += n_late
            data = data[n_late:]
        pending += data
        lengths = [len(each) for each in self._pending.values()]
        return self._pop(max(min(lengths), max(lengths) - MAX_SKEW_SAMPLES))

    def finish(self) -> bytes:
        """Return all audio that is left. Silence follows a track that ends before another track."""
        return self._pop(max(len(each) for each in self._pending.values()))

    def _pop(self, n_samples: int) -> bytes:
        """Remove the first samples of every track and interleave them. A track that is too short gets silence."""
        channels = []
        for pending in self._pending.values():
            pending.extend(SILENCE * (n_samples - len(pending)))
            channels.append(np.frombuffer(bytes(pending[:n_samples]), dtype=np.uint8))
            del pending[:n_samples]
        self._start += n_samples
        return np.stack(channels, axis=1).tobytes()
