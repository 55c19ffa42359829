"""From what a client saw to latencies, word errors, and promises that were not kept. No I/O."""

import itertools
from dataclasses import dataclass, field

import tutti
from benchmarks.live.captions import Caption, WordDelays, measure_words, spoken_words
from benchmarks.live.client import StreamLog
from benchmarks.recordings import Said
from benchmarks.scoring import WordErrors, word_errors

TOLERANCE_S = 0.05
"""Times that differ by less are the same."""
CUT_S = 0.5
"""An utterance that ends this much before the speech does was cut in the middle of it, as a long one may be."""


@dataclass(slots=True)
class Delays:
    """Seconds from the moment a sample was spoken to the arrival of what was made of it. They add up over streams."""

    first_text_s: list[float] = field(default_factory=list)
    """From the true beginning of an utterance's speech to its first text."""
    interim_lag_s: list[float] = field(default_factory=list)
    """From the newest sample that an interim has read."""
    final_s: list[float] = field(default_factory=list)
    """From `utterance.end_s`, where the server heard speech end, to the `utterance` event."""
    final_true_s: list[float] = field(default_factory=list)
    """From the true end of that speech to the `utterance` event."""
    words: WordDelays = field(default_factory=WordDelays)
    errors: WordErrors = field(default_factory=WordErrors)
    uncovered_s: float = 0.0
    """Detected speech for which the server reported that it has no text."""

    def add(self, other: "Delays") -> None:
        for name in ("first_text_s", "interim_lag_s", "final_s", "final_true_s"):
            getattr(self, name).extend(getattr(other, name))
        self.words.add(other.words)
        self.errors += other.errors
        self.uncovered_s += other.uncovered_s


@dataclass(slots=True)
class _Turn:
    """One utterance as the client saw it grow."""

    at_s: float
    seen: list[tuple[float, str, str]] = field(default_factory=list)
    """Arrival, all text shown, and the part of it that may not change."""
    end: tutti.Utterance | None = None
    n_ends: int = 0
    is_lost: bool = False
    """Its connection was lost before it was final: it comes again on the next one."""
    gone_at: float | None = None
    """When the first text on the next connection took its place."""


def measure(log: StreamLog) -> Delays:
    """All figures of a session; of one that failed, those up to there."""
    delays = Delays()
    turns = _turns(log)
    for _, turn in sorted(turns.items()):
        if turn.end is None:
            # It failed, or came again on the next connection.
            continue
        ended_at = turn.seen[-1][0]
        onset_s, offset_s = _true_times(log.recording.said, turn.at_s, turn.end.end_s)
        # Also that of a lost connection: it was there, though it comes again.
        same = (each for each in turns.values() if abs(each.at_s - turn.at_s) < CUT_S)
        first = min((at for each in same for at, shown, _ in each.seen if shown.strip()), default=None)
        if first is not None:
            delays.first_text_s.append(first - log.begun - onset_s)
        delays.final_s.append(ended_at - log.begun - turn.end.end_s)
        delays.final_true_s.append(ended_at - log.begun - offset_s)
        delays.uncovered_s += sum(end - start for start, end in turn.end.uncovered)
    for at, event in log.events:
        if isinstance(event, tutti.Interim):
            delays.interim_lag_s.append(at - log.begun - event.end_s)
    delays.words = measure_words(captions(log), spoken_words(log.recording.said), log.begun)
    delays.errors = word_errors(log.recording.text, " ".join(t.end.text for _, t in sorted(turns.items()) if t.end))
    return delays


def problems(log: StreamLog) -> list[str]:
    """What went wrong in a session: it failed, or a promise of docs/protocol.md was not kept. Empty if all is well.

    A session goes on over lost connections: what was final before is not said again, and nothing else is left out.
    """
    found = [log.failure] if log.failure else []
    events = [event for _, event in log.events]
    found += [f"error event {event.code}: {event.message}" for event in events if isinstance(event, tutti.ErrorEvent)]
    stopped = next((event for event in events if isinstance(event, tutti.Stopped)), None)
    sent_s = log.recording.audio_s - (log.resumed[-1][1] if log.resumed else 0.0)
    if stopped and abs(stopped.audio_s - sent_s) > TOLERANCE_S:
        found.append(f"{sent_s:.2f} s of audio were sent, the server counted {stopped.audio_s:.2f} s")
    turns = _turns(log)
    for (_, number), turn in turns.items():
        if stopped and turn.n_ends != 1 and not turn.is_lost:
            found.append(f"utterance {number} ended {turn.n_ends} times")
        for (_, _, before), (_, _, after) in itertools.pairwise(turn.seen):
            if not after.startswith(before):
                found.append(f"utterance {number} took stable text back: {before!r} became {after!r}")
    ends = [turn.end for _, turn in sorted(turns.items()) if turn.end]
    for a, b in itertools.pairwise(ends):
        if b.start_s < a.end_s - TOLERANCE_S:
            found.append(
                f"utterance {b.utterance} begins at {b.start_s:.2f} s, before the last one's end {a.end_s:.2f} s"
            )
    return found


def captions(log: StreamLog) -> list[Caption]:
    """The session's text after every event that changed it: all utterances, one behind the other.

    What was shown of an utterance whose connection was lost stays until text comes on the next one.
    """
    turns = list(_turns(log).values())
    moments = [(at, place, shown, stable) for place, turn in enumerate(turns) for at, shown, stable in turn.seen]
    moments += [(turn.gone_at, place, "", "") for place, turn in enumerate(turns) if turn.gone_at is not None]
    now = [("", "")] * len(turns)
    seen = []
    for at, changes in itertools.groupby(sorted(moments), key=lambda moment: moment[0]):
        for _, place, shown, stable in changes:
            now[place] = shown, stable
        seen.append(Caption(at, " ".join(each for each, _ in now), " ".join(each for _, each in now)))
    return seen


def _true_times(said: tuple[Said, ...], start_s: float, end_s: float) -> tuple[float, float]:
    """Where the speech that the server heard from `start_s` to `end_s` truly begins and ends.

    What the server says stands where nothing is known, and where it cut an utterance in the middle of speech.
    """
    spans = [span for each in said for span in each.spans if span[0] < end_s and span[1] > start_s]
    if not spans:
        return start_s, end_s
    onset_s, offset_s = spans[0][0], spans[-1][1]
    return max(onset_s, start_s - CUT_S), offset_s if offset_s < end_s + CUT_S else end_s


def _turns(log: StreamLog) -> dict[tuple[int, int], _Turn]:
    """By connection and number, in the order in which they are said."""
    turns: dict[tuple[int, int], _Turn] = {}
    final: dict[tuple[int, int], str] = {}
    starts = [0, *(n_events for n_events, _ in log.resumed), len(log.events)]
    for connection, (first, last) in enumerate(itertools.pairwise(starts)):
        for at, event in log.events[first:last]:
            if not isinstance(event, tutti.SpeechStarted | tutti.Interim | tutti.Segment | tutti.Utterance):
                continue
            key = connection, event.utterance
            at_s = event.at_s if isinstance(event, tutti.SpeechStarted) else event.start_s
            turn = turns.setdefault(key, _Turn(at_s))
            match event:
                case tutti.SpeechStarted():
                    continue
                case tutti.Interim():
                    stable = final.get(key, "") + event.stable
                    turn.seen.append((at, stable + event.tail, stable))
                case tutti.Segment():
                    text = final[key] = final.get(key, "") + event.text
                    shown, stable = turn.seen[-1][1:] if turn.seen else ("", "")
                    # What was shown beyond the segment stays until the next interim, as clients show it.
                    shown = shown if shown.startswith(text) else text
                    turn.seen.append((at, shown, stable if stable.startswith(text) else text))
                case tutti.Utterance():
                    turn.end, turn.n_ends = event, turn.n_ends + 1
                    turn.seen.append((at, event.text, event.text))
            for each in turns.values():
                if each.is_lost and each.gone_at is None:
                    each.gone_at = at
        if connection < len(log.resumed):
            for turn in turns.values():
                turn.is_lost |= turn.end is None
    return turns
