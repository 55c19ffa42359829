"""Delays from the arrival of audio to the sending of its text."""

from prometheus_client import CollectorRegistry

from tests.app.dialects.made_events import utterance
from tutti_server.app.live.latency import ARRIVALS_KEPT_S, Arrivals, LatencyRecorder
from tutti_server.app.service.metrics import LatencyMetrics
from tutti_server.app.session.messages import events


def test_arrivals_are_found_by_the_end_of_their_audio() -> None:
    """Audio that has not arrived has no time."""
    arrivals = Arrivals()
    arrivals.add(1.0, now=10.0)
    arrivals.add(2.0, now=11.0)
    assert [arrivals.clock_at(audio_s) for audio_s in (0.0, 1.0, 1.5, 2.0, 2.1)] == [10.0, 10.0, 11.0, 11.0, None]


def test_old_arrivals_are_dropped() -> None:
    arrivals = Arrivals()
    for second in range(round(10 * ARRIVALS_KEPT_S)):
        arrivals.add(float(second), float(second))
    assert len(arrivals._ends_s) <= 2 * ARRIVALS_KEPT_S + 1
    assert arrivals.clock_at(second - ARRIVALS_KEPT_S) == second - ARRIVALS_KEPT_S


def test_delays_end_with_the_sending_of_text() -> None:
    """The first text of an utterance is measured once, and its final text once."""
    registry = CollectorRegistry()
    now = 0.0
    latency = LatencyRecorder(LatencyMetrics(registry), lambda: now)
    for second in range(1, 4):
        now = float(second)
        latency.audio_received(now)
    latency.event_sent(events.SpeechStarted(utterance=0, channel=0, at_s=0.5))
    now = 4.0
    for _ in range(2):
        interim = events.Interim(utterance=0, channel=0, start_s=0.5, end_s=2.0, stable="", tail="one")
        latency.event_sent(interim)
    now = 6.0
    latency.event_sent(utterance("one", 0.5, 3.0))
    measured = {
        name: [registry.get_sample_value(f"tutti_{name}_seconds_{suffix}") for suffix in ("count", "sum")]
        for name in ("first_text", "interim_lag", "final_latency")
    }
    assert measured == {"first_text": [1, 3.0], "interim_lag": [2, 4.0], "final_latency": [1, 3.0]}
