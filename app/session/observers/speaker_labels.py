"""Who speaks when on the one channel of a session, as far as the speaker network has answered; no I/O.

Text never waits for it: what is sent gets the speakers that are known by then, and `events.Speakers` gives the rest.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.messages import events
from tutti_server.app.session.observers.speaker_stretches import SpeakersFound, SpeechStretches, Stretch, VoiceMemory
from tutti_server.engine.api import SAMPLE_RATE

MAX_STRETCHES_PER_CALL = 8
"""The most stretches that the network is asked for at once, so that answers come bit by bit."""
MAX_WAITING = 128
"""The most stretches that wait for the network: about 95 s of speech. The oldest are dropped when there are more.

A client may send `Limits.max_ahead_s` at once, and these must not be dropped.
"""
MAX_LABELS = 1000
"""The most stretches whose speakers are remembered: 12 minutes of speech."""
LAST_WAIT_S = 10.0
"""How long a session that has ended otherwise waits for its last speakers, in seconds of wall-clock time."""
MAX_GAP_SAMPLES = 2 * SAMPLE_RATE
"""Text that is further than this from all speech with a speaker (2 s) gets none."""
LATE = events.Notice(
    "speakers_late", "the speaker network is too busy: some speech gets no speaker of its own; text is not affected"
)
FAILED = events.Notice("speakers_failed", "the speaker network has failed: some speech gets no speaker of its own")


@dataclass(slots=True)
class _Label:
    """A stretch that has a speaker. Positions are in samples since the session began."""

    start: int
    end: int
    speaker: int
    is_run: bool


_Painted = tuple[int, int, int]
"""The begin and the end of a speaker's stretch, in samples since the session began, and the speaker."""


@dataclass(slots=True)
class _Waiting:
    """What the network is still to be asked for."""

    stretches: deque[Stretch]
    submitted: tuple[Stretch, ...] = ()
    """What it has and has not answered."""
    is_late: bool = False
    """Whether the client knows that stretches are dropped."""


class SpeakerLabels:
    """Cuts speech into stretches, notes the answers of the network, and labels text with them."""

    def __init__(
        self, memory: VoiceMemory, from_s: float, *, resumes: bool, voices: str = "", is_awaited: bool = True
    ) -> None:
        """Make the labels of a session.

        Args:
            from_s: the time of its first sample, in seconds.
            resumes: whether its client may go on in another session, and needs to know how.
            voices: what the memory knows from an earlier session; a client that loses this one, too, needs it.
            is_awaited: whether the end of the session waits for the last answers.
        """
        self.voices = memory
        self._from_s = from_s
        self._resumes = resumes
        self._is_awaited = is_awaited
        self._stretches = SpeechStretches(round(from_s * SAMPLE_RATE))
        self._waiting = _Waiting(deque())
        self._labels: dict[int, _Label] = {}
        """The stretches with a speaker, by their ids; no more than `MAX_LABELS`."""
        self._last_voices = voices
        self._has_last_wait = False
        self._has_failed = False
        """Whether the last answer was none."""

    @property
    def is_waiting(self) -> bool:
        """Whether answers are still to come that the end of the session waits for."""
        return self._is_awaited and bool(self._waiting.submitted or self._waiting.stretches)

    def push(self, position: int, frame: Samples, is_voiced: bool) -> Iterable[events.Notice]:
        """Process a frame that begins at this position. Returns what the client must know."""
        return self._add(self._stretches.push(position, frame, is_voiced))

    def end_run(self) -> Iterable[events.Notice]:
        """Speech ends here: the client has flushed it, or there is no more audio."""
        return self._add(self._stretches.end_run())

    def _add(self, stretches: Iterable[Stretch]) -> Iterable[events.Notice]:
        waiting = self._waiting.stretches
        for stretch in stretches:
            waiting.append(stretch)
            if len(waiting) > MAX_WAITING:
                waiting.popleft()
                if not self._waiting.is_late:
                    self._waiting.is_late = True
                    yield LATE

    def submit(self) -> tuple[Stretch, ...]:
        """The stretches that the network is to be asked for now; none while it has not answered the last ones."""
        waiting = self._waiting
        if waiting.submitted:
            return ()
        n_submitted = min(len(waiting.stretches), MAX_STRETCHES_PER_CALL)
        waiting.submitted = tuple(waiting.stretches.popleft() for _ in range(n_submitted))
        return waiting.submitted

    def begin_last_wait(self) -> bool:
        """The session waits for nothing but speakers. Returns whether it does so for the first time."""
        is_first, self._has_last_wait = not self._has_last_wait, True
        return is_first

    def give_up(self) -> events.Notice | None:
        """Wait for no more answers. Returns what the client must know, if any is missing."""
        is_waiting, is_late = self.is_waiting, self._waiting.is_late
        self._waiting = _Waiting(deque())
        return LATE if is_waiting and not is_late else None

    def answered(self, found: SpeakersFound | None) -> events.Speakers | events.Notice | None:
        """Note the answer to `submit`, or that there is none. Returns the event for the client, if there is one."""
        submitted, self._waiting.submitted = self._waiting.submitted, ()
        if not self._waiting.stretches:
            self._waiting.is_late = False
        is_known, self._has_failed = self._has_failed, found is None
        if found is None:
            return None if is_known else FAILED
        self._last_voices = found.voices
        new = {each.id: each for each in submitted}
        changed: list[_Label] = []
        for id_, speaker in found.speakers.items():
            if id_ in new:
                self._labels[id_] = _Label(new[id_].start, new[id_].end, speaker, new[id_].is_run)
            elif id_ in self._labels:
                self._labels[id_].speaker = speaker
            else:
                continue
            changed.append(self._labels[id_])
        while len(self._labels) > MAX_LABELS:
            del self._labels[next(iter(self._labels))]
        return events.Speakers(0, self._spans_of(changed)) if changed else None

    def _spans_of(self, changed: Sequence[_Label]) -> tuple[events.SpeakerSpan, ...]:
        """The speakers of all speech that these stretches reach into."""
        areas: list[tuple[int, int]] = []
        for label in sorted(changed, key=lambda each: each.start):
            start, end = label.start, label.end
            if areas and start <= areas[-1][1]:
                start, end = areas[-1][0], max(end, areas.pop()[1])
            areas.append((start, end))
        painted = self._painted(areas[0][0], areas[-1][1])
        return tuple(_joined(self._span(*each) for each in _within(painted, areas)))

    def _painted(self, start: int, end: int) -> list[_Painted]:
        """The speakers between two positions, in order. Runs hide windows, and later stretches hide earlier ones."""
        near = [each for each in self._labels.values() if each.start < end and each.end > start]
        near.sort(key=lambda each: each.is_run)
        changes = [
            change
            for rank, each in enumerate(near)
            for change in ((max(each.start, start), rank, True), (min(each.end, end), rank, False))
        ]
        open_ranks: set[int] = set()
        painted: list[_Painted] = []
        position = start
        for at, rank, begins in sorted(changes):
            if open_ranks and position < at:
                painted.append((position, at, near[max(open_ranks)].speaker))
            position = at
            (open_ranks.add if begins else open_ranks.discard)(rank)
        return painted

    def _span(self, begin: int, end: int, speaker: int) -> events.SpeakerSpan:
        return events.SpeakerSpan(self._seconds(begin), self._seconds(end), speaker)

    def labelled(self, event: events.Event) -> events.Event:
        """The event with the speakers that are known."""
        match event:
            case events.Segment():
                spans = self._near(event.start_s, event.end_s)
                speaker = _speaker(spans, event.start_s, event.end_s)
                return replace(event, speaker=speaker, words=_labelled(event.words, spans))
            case events.Interim() if event.stable_words or event.tail_words:
                spans = self._near(event.start_s, event.end_s)
                words, tail = _labelled(event.stable_words, spans), _labelled(event.tail_words, spans)
                return replace(event, stable_words=words, tail_words=tail)
            case events.Utterance() if self._resumes:
                return replace(event, voices=self._last_voices or None)
        return event

    def _near(self, start_s: float, end_s: float) -> list[events.SpeakerSpan]:
        """The speakers near some text, in the order of time."""
        start, end = (round((each - self._from_s) * SAMPLE_RATE) for each in (start_s, end_s))
        painted = self._painted(start - MAX_GAP_SAMPLES, end + MAX_GAP_SAMPLES)
        return [self._span(*each) for each in painted]

    def _seconds(self, position: int) -> float:
        return round(self._from_s + position / SAMPLE_RATE, 3)


def _within(painted: Iterable[_Painted], areas: Sequence[tuple[int, int]]) -> Iterable[_Painted]:
    """The parts of what is painted that lie in these areas; both are in order."""
    first = 0
    for begin, end, speaker in painted:
        while areas[first][1] <= begin:
            first += 1
        for area_begin, area_end in islice(areas, first, None):
            if area_begin >= end:
                break
            yield max(begin, area_begin), min(end, area_end), speaker


def _labelled(words: tuple[events.Word, ...], spans: Sequence[events.SpeakerSpan]) -> tuple[events.Word, ...]:
    return tuple(replace(word, speaker=_speaker(spans, word.start_s, word.end_s)) for word in words)


def _speaker(spans: Sequence[events.SpeakerSpan], start_s: float, end_s: float) -> int | None:
    """Who speaks for most of a time, else who speaks nearest to it; `None` if there are no spans."""
    totals: dict[int, float] = {}
    for span in spans:
        common_s = min(span.until_s, end_s) - max(span.from_s, start_s)
        if common_s > 0:
            totals[span.speaker] = totals.get(span.speaker, 0.0) + common_s
    if totals:
        return max(totals, key=lambda each: totals[each])
    nearest = min(spans, key=lambda each: max(each.from_s - end_s, start_s - each.until_s), default=None)
    return nearest.speaker if nearest else None


def _joined(spans: Iterable[events.SpeakerSpan]) -> Iterable[events.SpeakerSpan]:
    """The spans, where those of one speaker that touch are one."""
    last: events.SpeakerSpan | None = None
    for span in spans:
        if last and last.speaker == span.speaker and last.until_s == span.from_s:
            last = replace(last, until_s=span.until_s)
            continue
        if last:
            yield last
        last = span
    if last:
        yield last
