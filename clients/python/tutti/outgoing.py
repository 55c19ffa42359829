"""What a session has to send: audio, flushes at their places in it, and the end; kept as long as it may be needed.

This module does no I/O.
"""

from __future__ import annotations

import math
import sys
from collections import deque

from tutti.messages import AudioFormat, Flush, Stop

LEAD_IN_S = 10.0
"""How much audio is kept before that which is not final, in seconds, if the server does not say how much its speech
detector needs. The detector adapts to it.

Measured over 25 minutes of speech, resumed at each of 173 utterances: 52 beginnings were noticed more than 0.3 s late
without any lead-in, 21 with 2 s, 12 with 10 s. A window has 0.3 s of audio before its speech.
"""
MAX_FLUSHES_WAITING = 64
"""The most flushes that a server lets wait for their answers (docs/protocol.md). Others are sent as answers come."""
ROUNDING_S = 1e-6
"""Times of the server are rounded. A time that is this little before a sample, in seconds, means the sample."""


class Outgoing:
    """Audio that is not final, and the place up to which the present connection was sent it.

    Places in the audio are counted in bytes since the session began.
    """

    def __init__(self, format: AudioFormat, began_s: float, capacity_s: float) -> None:
        """Begin without audio.

        Args:
            format: of the audio.
            began_s: the time of the first sample.
            capacity_s: how much audio is kept for another connection, in seconds; 0 keeps none that was sent.
        """
        self._format = format
        self.began_s = began_s
        """The time of the first sample."""
        # Infinity has no bytes.
        self._capacity = self.n_bytes(min(capacity_s, sys.maxsize))
        self._audio = bytearray()
        self._start = 0
        """The place of the first byte that is kept."""
        self._sent = 0
        """The place up to which the present connection was sent the audio."""
        self._final = 0
        """The place before which the audio is final."""
        self._needed = 0
        """The place from which on another connection needs the audio, for the server's speech detector."""
        self._flushes: deque[tuple[int, Flush]] = deque()
        """The flushes without an answer, at their places."""
        self._n_flushes_sent = 0
        """How many of them the present connection was sent."""
        self._stop: Stop | None = None
        """The end, until it is sent."""
        self._has_end = False
        """Whether the program has said that no more audio follows."""
        self._is_replaying = False
        """A connection is being opened: everything that is kept now was promised to it."""

    def n_bytes(self, duration_s: float) -> int:
        """The bytes of this much audio, in whole frames (one sample of every channel each)."""
        return round(duration_s * self._format.sample_rate) * self._frame_bytes

    def duration_s(self, audio: bytes) -> float:
        """The duration of audio in seconds."""
        return len(audio) / self._format.bytes_per_s

    @property
    def is_kept(self) -> bool:
        """Audio is kept for another connection."""
        return self._capacity > 0

    @property
    def is_answered(self) -> bool:
        """The present connection was sent everything, and waits for no answer."""
        return self._sent == self._end and not self._flushes and not self._has_end

    @property
    def is_full(self) -> bool:
        """More waits to be sent than may."""
        waiting = self._end - self._sent
        if self.is_kept:
            return waiting > self._capacity
        return waiting > 0 or self._n_flushes_sent < len(self._flushes) or self._stop is not None

    @property
    def _frame_bytes(self) -> int:
        return self._format.bytes_per_s // self._format.sample_rate

    @property
    def _end(self) -> int:
        return self._start + len(self._audio)

    def append(self, audio: bytes | memoryview) -> None:
        """Add audio, cut at any byte."""
        self._audio += audio

    def flush(self, flush: Flush) -> None:
        """Add a flush after the audio so far."""
        self._flushes.append((self._end, flush))

    def stop(self) -> None:
        """Add the end: nothing follows."""
        self._stop = Stop()
        self._has_end = True

    def pop(self, max_bytes: int) -> bytes | Flush | Stop | None:
        """The next thing that the present connection must be sent.

        None if it was sent everything, or if many flushes wait: then more follows after an answer.
        """
        until = self._end
        if self._n_flushes_sent < len(self._flushes):
            place, flush = self._flushes[self._n_flushes_sent]
            if place <= self._sent:
                if self._n_flushes_sent >= MAX_FLUSHES_WAITING:
                    return None
                self._n_flushes_sent += 1
                return flush
            until = place
        if self._sent < until:
            begin = self._sent - self._start
            piece = bytes(self._audio[begin : begin + min(max_bytes, until - self._sent)])
            self._sent += len(piece)
            if not self.is_kept:
                self._drop_before(self._sent)
            return piece
        stop, self._stop = self._stop, None
        return stop

    def answer(self, flush_id: str | int) -> None:
        """Forget a flush that the server has answered."""
        for index, (_, flush) in enumerate(self._flushes):
            if flush.id == flush_id:
                del self._flushes[index]
                self._n_flushes_sent -= index < self._n_flushes_sent
                return

    def forget_before(
        self, time_s: float, detector_from_s: tuple[float | None, ...] = (), needed_from_s: float | None = None
    ) -> None:
        """Audio before a time is final.

        Args:
            time_s: the time.
            detector_from_s: for each channel, from when on the server's speech detector needs the audio, if known.
            needed_from_s: from when on the audio is needed for translations; None for none.
        """
        self._final = max(self._final, self._place(time_s))
        needed = [self._place(each) for each in detector_from_s if each is not None]
        if not needed or len(needed) < len(detector_from_s):
            needed.append(self._final - self.n_bytes(LEAD_IN_S))
        if needed_from_s is not None:
            needed.append(self._place(needed_from_s))
        self._needed = min(self._final, *needed) if self.is_kept else self._final
        self._drop_before(min(self._needed, self._sent))

    def limit(self, is_connected: bool) -> None:
        """Drop the oldest audio beyond the capacity; with a connection, only what was sent."""
        too_old = self._end - self._capacity
        if self.is_kept:
            self._drop_before(min(too_old, self._sent) if is_connected or self._is_replaying else too_old)

    def rewind(self, has_lead_in: bool = True) -> tuple[float, float | None]:
        """Prepare to send another connection everything that is not final. Until `end_replay`, none of it is dropped.

        Args:
            has_lead_in: also send audio before that.

        Returns:
            the time of the first sample that will be sent; and the same time if audio before it is lost that was not
            final, else None.
        """
        self._drop_before(self._needed if has_lead_in else self._final)
        self._sent = self._start
        self._n_flushes_sent = 0
        self._stop = Stop() if self._has_end else None
        self._is_replaying = True
        from_s = self.began_s + self._start / self._format.bytes_per_s
        return from_s, from_s if self._start > self._final else None

    def end_replay(self) -> None:
        """The connection is open, or could not be opened."""
        self._is_replaying = False

    def _place(self, time_s: float) -> int:
        return math.floor((time_s - self.began_s + ROUNDING_S) * self._format.sample_rate) * self._frame_bytes

    def _drop_before(self, place: int) -> None:
        # Only whole frames are dropped, so that the first byte that is kept begins one.
        place = min(place // self._frame_bytes * self._frame_bytes, self._end)
        if place > self._start:
            del self._audio[: place - self._start]
            self._start = place
            self._sent = max(self._sent, place)
