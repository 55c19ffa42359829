"""Measures the delays that a client sees: from the arrival of audio to the sending of its text."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client import Histogram

from tutti_server.app.service.metrics import LatencyMetrics
from tutti_server.app.session.messages import events

ARRIVALS_KEPT_S = 120.0
"""How much audio's arrival times are kept, in seconds; text of older audio is not measured."""


@dataclass(slots=True)
class Arrivals:
    """The wall-clock time at which each part of the audio reached the server."""

    _ends_s: list[float] = field(default_factory=list)
    """Ends of the parts on the session's timeline, in seconds, ascending."""
    _clocks: list[float] = field(default_factory=list)
    """The clock time of each arrival, in seconds."""

    def add(self, audio_s: float, now: float) -> None:
        """Note that audio up to `audio_s` has arrived. Old entries are dropped, so memory stays bounded."""
        if self._ends_s and audio_s <= self._ends_s[-1]:
            return
        self._ends_s.append(audio_s)
        self._clocks.append(now)
        if self._ends_s[0] < audio_s - 2 * ARRIVALS_KEPT_S:
            n_old = bisect_left(self._ends_s, audio_s - ARRIVALS_KEPT_S)
            del self._ends_s[:n_old], self._clocks[:n_old]

    def clock_at(self, audio_s: float) -> float | None:
        """The clock time at which the sample at `audio_s` had arrived; `None` if it has not."""
        index = bisect_left(self._ends_s, audio_s)
        return self._clocks[index] if index < len(self._clocks) else None


class LatencyRecorder:
    """Compares the arrival of one session's audio with the sending of its events."""

    def __init__(self, metrics: LatencyMetrics, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._clock = clock
        self._arrivals = Arrivals()
        self._awaiting_text: dict[int, float] = {}
        """The clock time at which the first speech of each utterance arrived; only utterances without text."""
        self._ended: dict[int, float] = {}
        """The clock time at which each utterance ended that is not final yet."""

    def utterance_ended(self, utterance: int) -> None:
        """Note that an utterance has ended now, whose final text may still come."""
        self._ended[utterance] = self._clock()

    def audio_received(self, until_s: float) -> None:
        """Note that audio up to `until_s` on the session's timeline has arrived now."""
        self._arrivals.add(until_s, self._clock())

    def event_sent(self, event: events.Event) -> None:
        """Record the delays that end with the sending of this event."""
        match event:
            case events.SpeechStarted():
                arrived = self._arrivals.clock_at(event.at_s)
                if arrived is not None:
                    self._awaiting_text[event.utterance] = arrived
            case events.Interim():
                self._record_first_text(event.utterance)
                self._observe(self._metrics.interim_lag_s, self._arrivals.clock_at(event.end_s))
            case events.Segment():
                self._record_first_text(event.utterance)
            case events.Utterance():
                self._awaiting_text.pop(event.utterance, None)
                self._observe(self._metrics.final_after_endpoint_s, self._ended.pop(event.utterance, None))
                self._observe(self._metrics.final_latency_s, self._arrivals.clock_at(event.end_s))

    def _record_first_text(self, utterance: int) -> None:
        self._observe(self._metrics.first_text_s, self._awaiting_text.pop(utterance, None))

    def _observe(self, delay_s: Histogram, since: float | None) -> None:
        if since is not None:
            delay_s.observe(self._clock() - since)
