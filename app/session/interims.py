"""When a window that still grows is read again: soon after speech begins, then steadily, and at a pause.

Counts samples of the channel's timeline; knows neither audio nor engine.
"""

from engine.api import SAMPLE_RATE

# The first words are waited for most; with less speech than this a reading is mostly wrong.
FIRST_SAMPLES = 300 * SAMPLE_RATE // 1000
# A silence of this length may become a pause, which is then waited for, as a reading before it would be repeated at it.
LULL_SAMPLES = 60 * SAMPLE_RATE // 1000
# After this much silence the last words are whole, and no more may come: they are shown before the endpoint is sure.
PAUSE_SAMPLES = 160 * SAMPLE_RATE // 1000
# A reading that waits in the queue makes way for one that has so much more audio, in the same place in line: when its
# turn comes it is new.
FRESH_SAMPLES = 400 * SAMPLE_RATE // 1000
# An engine that takes this share of the time to answer a channel's readings is not asked more often.
MAX_BUSY_SHARE = 0.6
# Nor is it asked less often than this once it answers: it may be quick again.
LONGEST_SAMPLES = SAMPLE_RATE


class InterimSchedule:
    """One channel's. Stretches the interval when answers take long, counted in audio that comes in meanwhile."""

    def __init__(self, interval_samples: int, silence_samples: int) -> None:
        """Args:
        silence_samples: what ends an utterance.
        """
        self._interval = interval_samples
        self._fresh = min(FRESH_SAMPLES, interval_samples)
        self._silence = silence_samples
        self._next = 0
        self._asked = 0
        self._asked_since: int | None = None
        self._took = 0

    def adjust(self, silence_samples: int) -> None:
        """Another silence ends an utterance from now on."""
        self._silence = silence_samples

    def begin(self, speech_start: int) -> None:
        """A window opens whose utterance has just begun."""
        self._next = speech_start + FIRST_SAMPLES
        self.leave()

    def go_on(self, position: int) -> None:
        """A window opens in the middle of an utterance."""
        self._next = position + self._interval
        self.leave()

    def leave(self) -> None:
        """What was asked for is not waited for any more."""
        self._asked = 0
        self._asked_since = None

    def is_due(self, position: int, speech_until: int) -> bool:
        """Whether to read the window now, be it in place of a reading that waits. Not while one is under way.

        Never when all that was spoken has been read.
        """
        pause = position - speech_until
        if pause < LULL_SAMPLES:
            is_unanswered = self._asked_since is not None
            due = self._asked + self._fresh if is_unanswered else self._next
            return speech_until > self._asked and position >= due
        # An answer that would come behind the endpoint is not worth its while: the final is on its way by then.
        is_read = self._asked >= speech_until + PAUSE_SAMPLES
        return pause >= PAUSE_SAMPLES and not is_read and pause + self._took < self._silence

    def asked(self, position: int) -> None:
        """The window is being read up to here."""
        self._asked = position
        if self._asked_since is None:
            self._asked_since = position
        self._next = position + self._stretched()

    def answered(self, position: int) -> None:
        """The answer has come, and by now there is audio up to `position`."""
        if self._asked_since is not None:
            took = min(position - self._asked_since, round(LONGEST_SAMPLES * MAX_BUSY_SHARE))
            self._took = (self._took + took) // 2
            self._next = max(self._next, self._asked + self._stretched())
        self._asked_since = None

    def _stretched(self) -> int:
        return max(self._interval, round(self._took / MAX_BUSY_SHARE))
