"""The tracks of a call, which arrive in chunks one after the other, as the channels of one stream of audio."""

from collections.abc import Sequence

import numpy as np

from app.errors import CLOSE_POLICY, LimitExceeded

SAMPLE_RATE = 8000
SAMPLES_PER_MS = SAMPLE_RATE // 1000
# The mu-law code of zero.
SILENCE = b"\xff"
# A chunk that is so little off follows the one before as it is: its time is rounded, and cutting it would click. Less
# than a chunk of 20 ms, so that one that is missing is noticed.
JITTER_SAMPLES = 15 * SAMPLES_PER_MS
# A track that has fallen so far behind another one is taken to be silent, so that the other is heard.
MAX_SKEW_SAMPLES = 200 * SAMPLES_PER_MS
# More than this is not missing but a mistake, and would only cost memory.
MAX_GAP_S = 60


class TrackSync:
    """Puts chunks of mu-law at 8 kHz in their places; missing ones are silence."""

    def __init__(self, names: Sequence[str]) -> None:
        self._held = {name: bytearray() for name in names}
        """What is not handed out yet; all of them begin at the same moment."""
        self._start = 0
        self.n_late_samples = 0
        """Left out, because their place had been handed out as silence."""

    def add(self, name: str, at_ms: int, data: bytes) -> bytes:
        """Put in a chunk that begins so long after the call; returns what is complete now, channels interleaved.

        Raises:
            LimitExceeded: the chunk leaves a gap that no network makes.
        """
        held = self._held[name]
        end = self._start + len(held)
        gap = at_ms * SAMPLES_PER_MS - end
        if gap > MAX_GAP_S * SAMPLE_RATE:
            got = f"one of {gap / SAMPLE_RATE:.1f} s before {at_ms} ms"
            raise LimitExceeded("too_fast", f"media: expected gaps of at most {MAX_GAP_S} s, got {got}", CLOSE_POLICY)
        if gap > JITTER_SAMPLES:
            held += SILENCE * gap
        elif gap < -JITTER_SAMPLES:
            n_late = min(-gap, len(data))
            self.n_late_samples += n_late
            data = data[n_late:]
        held += data
        lengths = [len(each) for each in self._held.values()]
        return self._take(max(min(lengths), max(lengths) - MAX_SKEW_SAMPLES))

    def finish(self) -> bytes:
        """What is left; tracks that end before another one end with silence."""
        return self._take(max(len(each) for each in self._held.values()))

    def _take(self, n_samples: int) -> bytes:
        channels = []
        for held in self._held.values():
            held += SILENCE * (n_samples - len(held))
            channels.append(np.frombuffer(bytes(held[:n_samples]), dtype=np.uint8))
            del held[:n_samples]
        self._start += n_samples
        return np.stack(channels, axis=1).tobytes()
