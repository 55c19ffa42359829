"""Aligns the tracks of a call, whose chunks arrive one after another, as the channels of one audio stream."""

from collections.abc import Sequence

import numpy as np

from tutti_server.app.errors import CLOSE_POLICY, LimitExceeded
from tutti_server.app.media.pcm import AudioFormat, Encoding

SILENCE: dict[Encoding, bytes] = {"mulaw": b"\xff", "alaw": b"\xd5", "pcm_s16le": b"\0\0"}
"""The sample that is zero, or the nearest one to it, in each encoding that calls are streamed in."""
JITTER_MS = 15
"""A chunk that is off by at most this much follows the chunk before it without a gap or a cut.

Its timestamp is rounded, and cutting the audio there would click. The limit is below a chunk's 20 ms, so that a missing
chunk is noticed.
"""
MAX_SKEW_MS = 200
"""A track that is further than this behind another track counts as silent, so that the other track is not held up."""
MAX_GAP_S = 60
"""The longest gap between two chunks, in seconds. A longer one is a mistake of the sender, and would cost memory."""


class TrackSync:
    """Puts chunks of audio in their places on the call's timeline. Missing chunks become silence."""

    def __init__(self, names: Sequence[str], audio: AudioFormat) -> None:
        """Begin a call.

        Args:
            names: the tracks, in the order of the channels.
            audio: the format of each track, in an encoding of `SILENCE`; its number of channels means nothing.
        """
        self._silence = SILENCE[audio.encoding]
        self._samples_per_ms = audio.sample_rate // 1000
        self._pending = {name: bytearray() for name in names}
        """The audio of each track that was not returned yet. All of them begin at the same moment."""
        self._start = 0
        """The position at which the pending audio begins, in samples since the start of the call."""
        self.n_late_samples = 0
        """Samples that were dropped, because silence had already been returned in their place."""

    def add(self, name: str, start_ms: int, data: bytes) -> bytes:
        """Add a chunk, and return the audio that is complete now.

        Args:
            start_ms: where the chunk begins, in milliseconds since the start of the call.
            data: whole samples.

        Returns:
            Samples with interleaved channels.

        Raises:
            LimitExceeded: the gap before the chunk is longer than `MAX_GAP_S`.
        """
        width, jitter = len(self._silence), JITTER_MS * self._samples_per_ms
        pending = self._pending[name]
        end = self._start + len(pending) // width
        gap = start_ms * self._samples_per_ms - end
        gap_s = gap / self._samples_per_ms / 1000
        if gap_s > MAX_GAP_S:
            got = f"one of {gap_s:.1f} s before {start_ms} ms"
            raise LimitExceeded("too_fast", f"media: expected gaps of at most {MAX_GAP_S} s, got {got}", CLOSE_POLICY)
        if gap > jitter:
            pending += self._silence * gap
        elif gap < -jitter:
            n_late = min(-gap, len(data) // width)
            self.n_late_samples += n_late
            data = data[n_late * width :]
        pending += data
        lengths = [len(each) // width for each in self._pending.values()]
        return self._pop(max(min(lengths), max(lengths) - MAX_SKEW_MS * self._samples_per_ms))

    def finish(self) -> bytes:
        """Return all audio that is left. Silence follows a track that ends before another track."""
        return self._pop(max(len(each) for each in self._pending.values()) // len(self._silence))

    def _pop(self, n_samples: int) -> bytes:
        """Remove the first samples of every track and interleave them. A track that is too short gets silence."""
        width = len(self._silence)
        n_bytes = n_samples * width
        channels = []
        for pending in self._pending.values():
            pending.extend(self._silence * (n_samples - len(pending) // width))
            channels.append(np.frombuffer(bytes(pending[:n_bytes]), dtype=np.uint8).reshape(-1, width))
            del pending[:n_bytes]
        self._start += n_samples
        return np.stack(channels, axis=1).tobytes()
