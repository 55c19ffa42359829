"""Turns the log of a client into latencies, word errors and broken guarantees of the protocol. No I/O."""

import itertools
from dataclasses import dataclass, field

import tutti
from benchmarks.live.captions import WordLatencies, measure_words, spoken_words
from benchmarks.live.client import StreamLog
from benchmarks.live.live_text import LiveText
from benchmarks.recordings import ReferenceUtterance
from benchmarks.scoring import WordErrors, word_errors

TOLERANCE_S = 0.05
"""Times that differ by less, in seconds, count as equal."""
CUT_S = 0.5
"""An utterance that ends this many seconds before its speech was cut inside the speech, as a long one may be."""


DELAYS = ("first_text_s", "interim_lag_s", "final_s", "final_true_s")


@dataclass(slots=True, kw_only=True)
class Latencies:
    """Seconds from speech to the arrival of its text, and word errors, for one stream or several."""

    first_text_s: list[float] = field(default_factory=list)
    """From the true beginning of the speech of an utterance to its first text."""
    interim_lag_s: list[float] = field(default_factory=list)
    """From the newest sample that an interim covers to its arrival."""
    final_s: list[float] = field(default_factory=list)
    """From `utterance.end_s`, where the server detected the end of speech, to the `utterance` event."""
    final_true_s: list[float] = field(default_factory=list)
    """From the true end of that speech to the `utterance` event."""
    words: WordLatencies = field(default_factory=WordLatencies)
    errors: WordErrors = field(default_factory=WordErrors)

    def add(self, other: "Latencies") -> None:
        for name in DELAYS:
            getattr(self, name).extend(getattr(other, name))
        self.words.add(other.words)
        self.errors += other.errors


def observed(log: StreamLog) -> LiveText:
    """What a reader of the session saw, on the clock of the log."""
    live = LiveText()
    for arrived_at, event in log.events:
        live.on_event(arrived_at, event)
    return live


def measure(log: StreamLog) -> Latencies:
    """All figures of a session. A session that failed is measured up to its failure."""
    latencies, live = Latencies(), observed(log)
    for _, utterance in sorted(live.utterances.items()):
        if utterance.final is None:
            # The session failed.
            continue
        ended_at = utterance.final[0]
        onset_s, offset_s = _true_times(log.recording.utterances, utterance.start_s, utterance.end_s)
        if utterance.first_text_s is not None:
            latencies.first_text_s.append(utterance.first_text_s - log.started_at - onset_s)
        latencies.final_s.append(ended_at - log.started_at - utterance.end_s)
        latencies.final_true_s.append(ended_at - log.started_at - offset_s)
    for arrived_at, event in log.events:
        if isinstance(event, tutti.Interim):
            latencies.interim_lag_s.append(arrived_at - log.started_at - event.end_s)
    latencies.words = measure_words(live.captions, spoken_words(log.recording.utterances), log.started_at)
    texts = (each.final[1] for _, each in sorted(live.utterances.items()) if each.final)
    latencies.errors = word_errors(log.recording.text, " ".join(texts))
    return latencies


def problems(log: StreamLog) -> list[str]:
    """The failure of a session and the guarantees of docs/protocol.md that were broken; empty if there are none."""
    found = [log.failure] if log.failure else []
    events, live = [event for _, event in log.events], observed(log)
    found += [f"error event {event.code}: {event.message}" for event in events if isinstance(event, tutti.ErrorEvent)]
    stopped = next((event for event in events if isinstance(event, tutti.Stopped)), None)
    sent_s = log.recording.audio_s
    if stopped and abs(stopped.audio_s - sent_s) > TOLERANCE_S:
        found.append(f"{sent_s:.2f} s of audio were sent, the server counted {stopped.audio_s:.2f} s")
    for number, utterance in live.utterances.items():
        if stopped and utterance.n_ends != 1:
            found.append(f"utterance {number} ended {utterance.n_ends} times")
    found += live.taken_back
    ended = [(number, each) for number, each in sorted(live.utterances.items()) if each.final]
    for (_, a), (number, b) in itertools.pairwise(ended):
        if b.start_s < a.end_s - TOLERANCE_S:
            found.append(f"utterance {number} begins at {b.start_s:.2f} s, before the last one's end {a.end_s:.2f} s")
    return found


def _true_times(utterances: tuple[ReferenceUtterance, ...], start_s: float, end_s: float) -> tuple[float, float]:
    """Where the speech that the server detected from `start_s` to `end_s` truly begins and ends.

    The server's times are kept where the reference has none, and where the server cut an utterance inside speech.
    """
    spans = [span for each in utterances for span in each.spans if span[0] < end_s and span[1] > start_s]
    if not spans:
        return start_s, end_s
    onset_s, offset_s = spans[0][0], spans[-1][1]
    return max(onset_s, start_s - CUT_S), offset_s if offset_s < end_s + CUT_S else end_s
