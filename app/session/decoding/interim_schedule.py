"""When an open window is decoded for an interim: soon after speech begins, then at an interval, and at a pause.

It counts samples of the channel's timeline; it knows neither audio nor the engine.
"""

import math
from collections.abc import Callable

from tutti_server.engine.api import SAMPLE_RATE

FIRST_SAMPLES = 300 * SAMPLE_RATE // 1000
"""Speech before the first interim of an utterance, in samples (300 ms).

Users wait for the first words most, but a hypothesis of less speech is mostly wrong.
"""
POSSIBLE_PAUSE_SAMPLES = 60 * SAMPLE_RATE // 1000
"""Silence that may become a pause, in samples (60 ms). No interim is asked for until it is one, or speech goes on.

The interim at the pause would only repeat an interim before it.
"""
PAUSE_SAMPLES = 160 * SAMPLE_RATE // 1000
"""Silence that is a pause, in samples (160 ms).

The last words are complete then, and perhaps no more follow: they are shown before the endpoint is certain.
"""
REPLACE_SAMPLES = 400 * SAMPLE_RATE // 1000
"""Newer audio after which an interim that waits in the queue is replaced, in samples (400 ms).

The newer interim keeps the place in the queue, so that it is recent when its turn comes.
"""
MAX_BUSY_SHARE = 0.6
"""The largest share of the time that the engine may spend on the interims of one channel."""
MAX_INTERVAL_SAMPLES = SAMPLE_RATE
"""The longest interval after an answer, in samples (1 s), however slow the answer was: the next one may be fast."""


class InterimSchedule:
    """The schedule of one channel. The interval grows when answers are slow, measured in audio that arrives meanwhile.

    It also grows by what the service says, the same for all sessions. That time must have passed since the last interim
    before the first one of an utterance, too, and before that of a pause.

    Positions and lengths are in samples of the channel's timeline.
    """

    def __init__(self, interval_samples: int, extra_interval_s: Callable[[], float] = lambda: 0.0) -> None:
        """Make a schedule.

        Args:
            interval_samples: the least audio between two interims.
            extra_interval_s: returns by how many seconds the interval is longer at present, because of the engine's
                load.
        """
        self._interval = interval_samples
        self._extra_interval_s = extra_interval_s
        self._replace_after = min(REPLACE_SAMPLES, interval_samples)
        self._next = 0
        """The position at which the next interim is due, without the extra interval."""
        self._extra_from = -math.inf
        """The position at which the extra interval begins."""
        self._submitted_until = 0
        self._waiting_since: int | None = None
        self._delay = 0

    def begin_utterance(self, speech_start: int) -> None:
        """The first window of an utterance opens."""
        self._next = speech_start + FIRST_SAMPLES
        self.forget_submitted()

    def continue_utterance(self, position: int) -> None:
        """A later window of an utterance opens."""
        self._next = position + self._interval
        self.forget_submitted()

    def forget_submitted(self) -> None:
        """The interim that was asked for does not come."""
        self._submitted_until = 0
        self._waiting_since = None

    def is_due(self, position: int, speech_until: int, silence_samples: int) -> bool:
        """Whether to ask for an interim now, or to replace the one that waits in the queue.

        The caller does not ask while the engine decodes one. An interim is never due if no speech is new since the
        last. `silence_samples` is the silence that ends an utterance.
        """
        pause = position - speech_until
        is_waiting = self._waiting_since is not None
        if pause < POSSIBLE_PAUSE_SAMPLES:
            due = self._submitted_until + self._replace_after if is_waiting else self._next
            is_due = speech_until > self._submitted_until and position >= due
            return is_due and (is_waiting or self._is_extra_over(position))
        # An answer after the endpoint is of no use: the engine decodes the final text by then.
        has_pause = self._submitted_until >= speech_until + POSSIBLE_PAUSE_SAMPLES
        is_due = pause >= PAUSE_SAMPLES and not has_pause and pause + self._delay < silence_samples
        return is_due and (is_waiting or self._is_extra_over(position))

    def _is_extra_over(self, position: int) -> bool:
        extra_s = self._extra_interval_s()
        return extra_s <= 0 or position >= self._extra_from + extra_s * SAMPLE_RATE

    def note_submitted(self, position: int) -> None:
        """An interim of the audio up to `position` was asked for."""
        self._submitted_until = position
        if self._waiting_since is None:
            self._waiting_since = position
        self._next = position + self._stretched_interval()
        self._extra_from = self._next

    def note_answered(self, position: int) -> None:
        """The answer has come; the audio has reached `position` meanwhile."""
        if self._waiting_since is not None:
            delay = min(position - self._waiting_since, round(MAX_INTERVAL_SAMPLES * MAX_BUSY_SHARE))
            self._delay = (self._delay + delay) // 2
            self._next = max(self._next, self._submitted_until + self._stretched_interval())
            self._extra_from = self._next
        self._waiting_since = None

    def _stretched_interval(self) -> int:
        return max(self._interval, round(self._delay / MAX_BUSY_SHARE))
