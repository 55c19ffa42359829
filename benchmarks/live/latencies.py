"""Turns the log of a client into latencies, word errors and broken guarantees of the protocol. No I/O."""

import itertools
from dataclasses import dataclass, field

import tutti
from benchmarks.live.captions import Caption, WordLatencies, measure_words, spoken_words
from benchmarks.live.client import StreamLog
from benchmarks.recordings import ReferenceUtterance
from benchmarks.scoring import WordErrors, word_errors

TOLERANCE_S = 0.05
"""Times that differ by less, in seconds, count as equal."""
CUT_S = 0.5
"""An utterance that ends this many seconds before its speech was cut inside the speech, as a long one may be."""


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
    endpoint_s: list[float] = field(default_factory=list)
    """From the true end of speech to the moment at which the server ends the utterance."""
    after_endpoint_s: list[float] = field(default_factory=list)
    """From that moment to the `utterance` event."""
    n_wrong_splits: int = 0
    """How many utterances ended inside an utterance of the reference."""
    words: WordLatencies = field(default_factory=WordLatencies)
    errors: WordErrors = field(default_factory=WordErrors)
    uncovered_s: float = 0.0
    """Seconds of detected speech for which the server reported that it has no text."""

    def add(self, other: "Latencies") -> None:
        """Add the figures of another stream."""
        self.n_wrong_splits += other.n_wrong_splits
        for name in ("first_text_s", "interim_lag_s", "final_s", "final_true_s", "endpoint_s", "after_endpoint_s"):
            getattr(self, name).extend(getattr(other, name))
        self.words.add(other.words)
        self.errors += other.errors
        self.uncovered_s += other.uncovered_s


@dataclass(slots=True, kw_only=True)
class _ObservedUtterance:
    """One utterance as the client received it."""

    start_s: float
    texts: list[tuple[float, str, str]] = field(default_factory=list)
    """Arrival time, all text shown, and the part of it that may not change."""
    end: tutti.Utterance | None = None
    ended_at: float | None = None
    """When the server ended it, before its text was final."""
    n_ends: int = 0
    """How many `utterance` events it received; the protocol guarantees one."""
    is_lost: bool = False
    """Whether its connection was lost before it was final. It is then repeated on the next connection."""
    replaced_at: float | None = None
    """When the first text on the next connection replaced it."""


def measure(log: StreamLog) -> Latencies:
    """All figures of a session. A session that failed is measured up to its failure."""
    latencies = Latencies()
    observed = _observed_utterances(log)
    for _, utterance in sorted(observed.items()):
        if utterance.end is None:
            # The session failed, or the utterance is repeated on the next connection.
            continue
        ended_at = utterance.texts[-1][0]
        onset_s, offset_s = _true_times(log.recording.utterances, utterance.start_s, utterance.end.end_s)
        # Text on a lost connection counts too: it was shown, though it is repeated later.
        same = (each for each in observed.values() if abs(each.start_s - utterance.start_s) < CUT_S)
        first = min((arrived_at for each in same for arrived_at, shown, _ in each.texts if shown.strip()), default=None)
        if first is not None:
            latencies.first_text_s.append(first - log.started_at - onset_s)
        latencies.final_s.append(ended_at - log.started_at - utterance.end.end_s)
        latencies.final_true_s.append(ended_at - log.started_at - offset_s)
        if utterance.ended_at is not None:
            latencies.endpoint_s.append(utterance.ended_at - log.started_at - offset_s)
            latencies.after_endpoint_s.append(ended_at - utterance.ended_at)
        latencies.n_wrong_splits += _is_inside(log.recording.utterances, utterance.end.end_s)
        latencies.uncovered_s += sum(end - start for start, end in utterance.end.uncovered)
    for arrived_at, event in log.events:
        if isinstance(event, tutti.Interim):
            latencies.interim_lag_s.append(arrived_at - log.started_at - event.end_s)
    latencies.words = measure_words(captions(log), spoken_words(log.recording.utterances), log.started_at)
    text = " ".join(utterance.end.text for _, utterance in sorted(observed.items()) if utterance.end)
    latencies.errors = word_errors(log.recording.text, text)
    return latencies


def problems(log: StreamLog) -> list[str]:
    """The failure of a session and the guarantees of docs/protocol.md that were broken; empty if there are none.

    A session continues over lost connections. The server neither repeats text that was final before the loss nor leaves
    out other text.
    """
    found = [log.failure] if log.failure else []
    events = [event for _, event in log.events]
    found += [f"error event {event.code}: {event.message}" for event in events if isinstance(event, tutti.ErrorEvent)]
    stopped = next((event for event in events if isinstance(event, tutti.Stopped)), None)
    sent_s = log.recording.audio_s - (log.resumed[-1][1] if log.resumed else 0.0)
    if stopped and abs(stopped.audio_s - sent_s) > TOLERANCE_S:
        found.append(f"{sent_s:.2f} s of audio were sent, the server counted {stopped.audio_s:.2f} s")
    observed = _observed_utterances(log)
    for (_, number), utterance in observed.items():
        if stopped and utterance.n_ends != 1 and not utterance.is_lost:
            found.append(f"utterance {number} ended {utterance.n_ends} times")
        for (_, _, before), (_, _, after) in itertools.pairwise(utterance.texts):
            if not after.startswith(before):
                found.append(f"utterance {number} took stable text back: {before!r} became {after!r}")
    ends = [utterance.end for _, utterance in sorted(observed.items()) if utterance.end]
    for a, b in itertools.pairwise(ends):
        if b.start_s < a.end_s - TOLERANCE_S:
            found.append(
                f"utterance {b.utterance} begins at {b.start_s:.2f} s, before the last one's end {a.end_s:.2f} s"
            )
    return found


def captions(log: StreamLog) -> list[Caption]:
    """The text of the session after every event that changed it: all utterances in their order.

    Text of an utterance whose connection was lost stays until the next connection brings text.
    """
    observed = list(_observed_utterances(log).values())
    changes = [
        (arrived_at, place, shown, stable)
        for place, utterance in enumerate(observed)
        for arrived_at, shown, stable in utterance.texts
    ]
    changes += [
        (each.replaced_at, place, "", "") for place, each in enumerate(observed) if each.replaced_at is not None
    ]
    texts = [("", "")] * len(observed)
    found = []
    for arrived_at, simultaneous in itertools.groupby(sorted(changes), key=lambda change: change[0]):
        for _, place, shown, stable in simultaneous:
            texts[place] = shown, stable
        found.append(Caption(arrived_at, " ".join(each for each, _ in texts), " ".join(each for _, each in texts)))
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


def _is_inside(utterances: tuple[ReferenceUtterance, ...], end_s: float) -> bool:
    """Whether speech goes on in the same utterance of the reference."""
    return any(each.start_s < end_s < each.end_s - CUT_S for each in utterances)


def _observed_utterances(log: StreamLog) -> dict[tuple[int, int], _ObservedUtterance]:
    """The utterances by connection and number, in the order in which they were spoken."""
    observed: dict[tuple[int, int], _ObservedUtterance] = {}
    final: dict[tuple[int, int], str] = {}
    starts = [0, *(n_events for n_events, _ in log.resumed), len(log.events)]
    for connection, (first, last) in enumerate(itertools.pairwise(starts)):
        for arrived_at, event in log.events[first:last]:
            if isinstance(event, tutti.Turn) and event.event == "end":
                observed[connection, event.utterance].ended_at = arrived_at
            if not isinstance(event, tutti.SpeechStarted | tutti.Interim | tutti.Segment | tutti.Utterance):
                continue
            key = connection, event.utterance
            start_s = event.at_s if isinstance(event, tutti.SpeechStarted) else event.start_s
            utterance = observed.setdefault(key, _ObservedUtterance(start_s=start_s))
            match event:
                case tutti.SpeechStarted():
                    continue
                case tutti.Interim():
                    stable = final.get(key, "") + event.stable
                    utterance.texts.append((arrived_at, stable + event.tail, stable))
                case tutti.Segment():
                    text = final[key] = final.get(key, "") + event.text
                    shown, stable = utterance.texts[-1][1:] if utterance.texts else ("", "")
                    # Text shown after the segment stays until the next interim, as clients show it.
                    shown = shown if shown.startswith(text) else text
                    utterance.texts.append((arrived_at, shown, stable if stable.startswith(text) else text))
                case tutti.Utterance():
                    utterance.end, utterance.n_ends = event, utterance.n_ends + 1
                    utterance.texts.append((arrived_at, event.text, event.text))
            for each in observed.values():
                if each.is_lost and each.replaced_at is None:
                    each.replaced_at = arrived_at
        if connection < len(log.resumed):
            for utterance in observed.values():
                utterance.is_lost |= utterance.end is None
    return observed
