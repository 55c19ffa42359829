"""The speech detector of a channel, renewed so often that its decisions depend on little audio.

A detector adapts to the voices and the noise for as long as it runs, so that a session which goes on after another one
would find the beginning of speech in another frame. Here it is renewed after every utterance and in long silence: from
then on it decides as a new detector that has processed only the last few seconds. A session that continues a lost one,
and gives its detector the audio from the same sample on, makes the same decisions.
"""

from collections import deque

from tutti_server.app.session.speech.endpointing import Endpointer, SpeechDetector
from tutti_server.engine.api import SAMPLE_RATE

RENEWAL_SAMPLES = 20 * SAMPLE_RATE
"""How often the detector is renewed in silence, in samples (20 s): at every multiple on the session's timeline.

It bounds the audio that a session which continues this one needs before its text. Multiples of the timeline, so that
both sessions renew at the same time.
"""
MAX_STARTS = 8
"""How many starts are remembered. Between the last utterance and the present there are fewer that still matter."""


class DetectorGenerations:
    """The generations of a channel's detector: each lasts from one renewal to the next.

    Positions are in samples since the session began.
    """

    def __init__(self, detector: Endpointer | SpeechDetector, first: int, origin: int, is_exact: bool = True) -> None:
        """Begin the first generation.

        Args:
            detector: decides; it has processed no audio.
            first: position of the first sample that it will process.
            origin: the place of position 0 on the session's timeline, in samples.
            is_exact: whether the session begins here, or the detector of the lost session that it continues began here.
        """
        self.is_exact = is_exact
        self._detector = detector
        self._first = first
        self._origin = origin
        self._starts: deque[tuple[int, int | None]] = deque([(first, first)], MAX_STARTS)
        """Positions in pairs: from the first on, decisions depend on audio from the second on; `None`: on more."""

    def renew(self, position: int) -> None:
        """Renew the detector after the frame that ends at `position`."""
        self._detector.renew()
        self._starts.append((position, max(position - self._detector.memory_samples, self._first)))

    def renew_in_silence(self, before: int, position: int) -> None:
        """Renew the detector if a multiple of `RENEWAL_SAMPLES` lies in the frame between two positions."""
        if (self._origin + before) // RENEWAL_SAMPLES != (self._origin + position) // RENEWAL_SAMPLES:
            self.renew(position)

    def cut(self, position: int) -> None:
        """An utterance was cut at `position` while the detector went on: what follows depends on all of it."""
        self._starts.append((position, None))

    def start_for(self, position: int) -> int | None:
        """Return where a detector must begin to decide as this one from `position` on, if it can in known silence."""
        for since, start in reversed(self._starts):
            if since <= position:
                return start
        return None
