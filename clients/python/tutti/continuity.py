"""Makes one stream of events out of the connections of a session: what was shown stays, what comes again is left out.

This module does no I/O. `tests/wire/resume.json` holds its golden cases; the JavaScript client must pass them too.

How it works. A connection that resumes a session transcribes again what was not final when the one before it was lost.
Its events have numbers of their own, and repeat text that the program using this package has received already.

1. **Numbers.** Every utterance that was open at the loss waits for its counterpart. When the new connection announces
   an utterance, those waiting ones of its channel are considered that began before it, or less than `SAME_START_S`
   after it. The one whose beginning is nearest keeps its number, and is not announced again; those before it end. If
   there is none, the utterance gets the next number. Segments are numbered in the order in which they are delivered.
2. **Text.** Of an open utterance, `shown` is what must stay: the texts of its segments, and the stable text after
   them. The text of the counterpart begins where the audio was resumed, mostly at the beginning of the utterance: after
   the segments that began before. As long as `shown` covers this text, segments are delivered with the words of
   `shown`, and interims not at all. Once the text goes beyond `shown`, the two are joined: from then on, the text of
   the utterance is `shown`, and after it what the counterpart has behind the place that corresponds to its end.
   `align` finds that place. Mostly the texts are equal; else it compares words by edit distance.
3. **Ends.** An utterance whose counterpart ended before its text had reached the end of `shown` gets the rest of
   `shown` as a last segment; the next utterance of the channel does not repeat it. An utterance without a counterpart
   ends with what was shown as soon as the new connection is past its beginning, or when its audio is lost.
4. **Turns.** An `eager_end` promises that its text is that of the utterance, unless `resumed` follows. So a loss of the
   connection after it is followed by `resumed`, and its text is what the utterance would be with that text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

from tutti import stable_words
from tutti.messages import Event, Interim, Segment, SpeechStarted, Stopped, Translation, Turn, Utterance, Word
from tutti.translations import PendingTranslations

SAME_START_S = 1.0
"""Two utterances of one channel whose beginnings differ by less than this, in seconds, may be the same one."""

# One character of a script without spaces (Thai, Lao, Burmese, Khmer, Chinese, Japanese), or a word of another script.
_WITHOUT_SPACES = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u31ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_CHARACTER = re.compile(f"\\s|[{_WITHOUT_SPACES}]")
_TOKEN = re.compile(f"[{_WITHOUT_SPACES}]|[^\\s{_WITHOUT_SPACES}]+")
_PUNCTUATION = re.compile(r"[^\w]+")
# A token with the punctuation before and after it.
_TIMED = re.compile(rf"[^\w\s]*(?:{_TOKEN.pattern})[^\w\s]*")


def align(shown: str, new: str) -> tuple[int, int]:
    """Find where two versions of a text, which begin at the same moment, are equally far.

    Returns:
        a place in `shown` and the corresponding place in `new`, in characters. One of them is the end of its text.
    """
    if new.startswith(shown):
        return len(shown), len(shown)
    if shown.startswith(new):
        return len(new), len(new)
    ours, theirs = list(_TOKEN.finditer(shown)), list(_TOKEN.finditer(new))
    n_ours, n_theirs = _equally_far(
        [_normalise(token[0]) for token in ours], [_normalise(token[0]) for token in theirs]
    )
    return (
        len(shown) if n_ours == len(ours) else ours[n_ours - 1].end() if n_ours else 0,
        len(new) if n_theirs == len(theirs) else theirs[n_theirs - 1].end() if n_theirs else 0,
    )


def _normalise(token: str) -> str:
    # Words that differ in case and punctuation only are the same. A token of nothing else stays.
    return _PUNCTUATION.sub("", token).casefold() or token


def _equally_far(ours: list[str], theirs: list[str]) -> tuple[int, int]:
    """The two lengths of beginnings that correspond best: with the fewest edits, and then the longest ones.

    All words of `ours` or all words of `theirs` are used.
    """
    n_same = 0
    while n_same < min(len(ours), len(theirs)) and ours[n_same] == theirs[n_same]:
        n_same += 1
    ours, theirs = ours[n_same:], theirs[n_same:]
    costs = list(range(len(theirs) + 1))
    # Each candidate is its cost, and the two lengths, negated: the least candidate is the best one.
    ends = [(costs[-1], 0, -len(theirs))]
    for n_ours, word in enumerate(ours, 1):
        diagonal, costs[0] = costs[0], n_ours
        for n_theirs, other in enumerate(theirs, 1):
            edited = min(costs[n_theirs] + 1, costs[n_theirs - 1] + 1, diagonal + (word != other))
            diagonal, costs[n_theirs] = costs[n_theirs], edited
        ends.append((costs[-1], -n_ours, -len(theirs)))
    ends += [(cost, -len(ours), -n_theirs) for n_theirs, cost in enumerate(costs)]
    _, n_ours, n_theirs = min(ends, key=lambda end: (end[0], end[1] + end[2]))
    return n_same - n_ours, n_same - n_theirs


@dataclass(frozen=True, slots=True)
class _ResumePoint:
    """Where another connection would go on with a channel."""

    time_s: float
    """The time from which on its text is not final yet."""
    detector_from_s: float | None = None
    """From when on a detector must process the audio to find the same speech after that time."""
    language: str | None = None
    """The language before that time, if the server detected it."""


class Continuity:
    """The events of a session over all of its connections."""

    def __init__(
        self,
        from_s: tuple[float, ...],
        translate: tuple[str, ...] = (),
        audio_from_s: float | None = None,
        channel_names: tuple[str, ...] = (),
    ) -> None:
        """Begin without text.

        Args:
            from_s: where the text begins: one time for each channel, or one for all.
            translate: the languages that it is translated to.
            audio_from_s: the time of the first sample, if that is earlier.
            channel_names: the name of each channel, if they have any.
        """
        self.translations = PendingTranslations(translate)
        """Which translations are still to come."""
        self._points = tuple(map(_ResumePoint, from_s))
        """For each channel, or for all, where another connection would go on."""
        self._is_resumed = False
        self._audio_from_s = self._began_s = min(from_s) if audio_from_s is None else audio_from_s
        self._open: list[_OpenUtterance] = []
        """The utterances that were announced and have not ended, in the order of their numbers."""
        self._counterparts: dict[int, _OpenUtterance] = {}
        """The open utterances by the numbers that they have in this connection."""
        self._unrepeated: dict[int, str] = {}
        """For each channel, text that was delivered although the connection has not sent it yet."""
        self._numbers, self._segment_ids = count(), count()
        self._n_words = 0
        """Words of all segments that were delivered."""
        self._speech_s = 0.0
        """The length of all utterances that have ended, in seconds."""
        self._channel_names = dict(enumerate(channel_names))
        self._eager_ends: dict[int, Turn] = {}
        """For each utterance, the eager end that was delivered and not taken back."""
        self.voices: str | None = None
        """What another connection needs to know the same speakers, if the session tells them apart."""

    @property
    def final_until_s(self) -> float:
        """Audio before this time is final on all channels."""
        return min(self.resume_from_s)

    @property
    def resume_from_s(self) -> tuple[float, ...]:
        """For each channel, the time from which on its text is not final yet, by the events that were delivered."""
        return tuple(point.time_s for point in self._points)

    @property
    def detector_from_s(self) -> tuple[float | None, ...]:
        """For each channel, from when on a detector must process the audio to find the same speech after that time."""
        return tuple(point.detector_from_s for point in self._points)

    @property
    def languages(self) -> tuple[str | None, ...]:
        """For each channel, the language of its last utterance, if the server detected it."""
        return tuple(point.language for point in self._points)

    def resume(self, audio_from_s: float, lost_until_s: float | None = None) -> list[Event]:
        """A new connection has begun; `receive` gets its events from now on.

        Args:
            audio_from_s: the time of the first sample that is sent.
            lost_until_s: if audio that was not final is lost, the time of its end.

        Returns:
            what takes back the eager ends, and the ends of the utterances whose audio is lost.
        """
        self._is_resumed = True
        self._audio_from_s = audio_from_s
        self._counterparts = {}
        self._unrepeated = {}
        self.translations.restart()
        taken_back = [event for utterance in self._open for event in self._take_back(utterance)]
        for utterance in self._open:
            utterance.wait_for_counterpart(self._resume_from(utterance.channel))
        if lost_until_s is None:
            return taken_back
        self._points = tuple(
            point if point.time_s >= lost_until_s else _ResumePoint(lost_until_s, language=point.language)
            for point in self._points
        )
        lost = [utterance for utterance in self._open if utterance.at_s < lost_until_s]
        ends = [event for utterance in lost for event in self._close(utterance, lost_until_s, is_lost=True)]
        return [*taken_back, *ends]

    def receive(self, event: Event) -> list[Event]:
        """The events to deliver for an event of the present connection."""
        delivered: list[Event] = [event]
        match event:
            case SpeechStarted():
                delivered = self._begin(event)
            case Interim():
                interim = self._find(event).add_interim(event)
                delivered = [] if interim is None else [interim]
            case Segment():
                delivered = self._deliver(self._find(event).add_segment(event))
            case Translation():
                translation = self.translations.receive(event)
                delivered = [] if translation is None else [translation]
            case Turn():
                delivered = [self._turn(event)]
            case Utterance():
                delivered = self._end(event)
            case Stopped():
                delivered = self._stop(event)
        return delivered

    def _begin(self, event: SpeechStarted) -> list[Event]:
        waiting = [each for each in self._open if each.is_waiting and each.channel == event.channel]
        earlier = [each for each in waiting if each.at_s <= event.at_s + SAME_START_S]
        if earlier:
            counterpart = min(earlier, key=lambda each: abs(each.at_s - event.at_s))
            self._counterparts[event.utterance] = counterpart
            self.translations.note_number(event.utterance, counterpart.number)
            counterpart.is_waiting = False
            skipped = earlier[: earlier.index(counterpart)]
            return [closing for each in skipped for closing in self._close(each, event.at_s)]
        utterance = self._announce(event.utterance, event.channel, event.at_s)
        return [replace(event, utterance=utterance.number)]

    def _announce(self, their_number: int, channel: int, at_s: float) -> _OpenUtterance:
        hidden = self._unrepeated.pop(channel, "")
        utterance = _OpenUtterance(next(self._numbers), channel, at_s, hidden, self._channel_names.get(channel))
        self._open.append(utterance)
        self._counterparts[their_number] = utterance
        self.translations.note_number(their_number, utterance.number)
        return utterance

    def _find(self, event: Interim | Segment | Turn | Utterance) -> _OpenUtterance:
        known = self._counterparts.get(event.utterance)
        at_s = event.at_s if isinstance(event, Turn) else event.start_s
        return known or self._announce(event.utterance, event.channel, at_s)

    def _deliver(self, segment: Segment | None) -> list[Event]:
        if segment is None:
            return []
        self._n_words += len(segment.text.split())
        self.translations.add(segment)
        return [replace(segment, id=next(self._segment_ids))]

    def _turn(self, event: Turn) -> Turn:
        utterance = self._find(event)
        text = None if event.text is None else utterance.text_with(event.text)
        turn = replace(event, utterance=utterance.number, text=text)
        match turn.event:
            case "eager_end":
                self._eager_ends[utterance.number] = turn
            case "resumed":
                self._eager_ends.pop(utterance.number, None)
        return turn

    def _take_back(self, utterance: _OpenUtterance, text: str | None = None) -> list[Event]:
        """What follows an eager end whose text is not that of the utterance, which is `text`, or is not known."""
        turn = self._eager_ends.pop(utterance.number, None)
        if turn is None or turn.text == text:
            return []
        at_s = max(turn.at_s, utterance.shown_until_s)
        return [replace(turn, event="resumed", at_s=at_s, confidence=None, text=None)]

    def _end(self, event: Utterance) -> list[Event]:
        utterance = self._find(event)
        del self._counterparts[event.utterance]
        points = self._resume_points(event)
        until_s = points[min(event.channel, len(points) - 1)].time_s
        passed = [
            each
            for each in self._open
            if each.is_waiting and each.channel == event.channel and each.at_s + SAME_START_S < until_s
        ]
        closed = [closing for each in passed for closing in self._close(each, until_s)]
        self._points = points
        self.voices = event.voices or self.voices
        self.translations.forget_before(event.translated_until_s)
        if rest := utterance.unrepeated:
            self._unrepeated[event.channel] = rest
        return [*closed, *self._finish(utterance, event)]

    def _resume_points(self, event: Utterance) -> tuple[_ResumePoint, ...]:
        """Where another connection would go on after this event."""
        times_s = event.resume_from_s or (event.final_until_s,)
        is_known = len(event.detector_from_s) == len(times_s)
        points = tuple(map(_ResumePoint, times_s, event.detector_from_s if is_known else (None,) * len(times_s)))
        if len(points) == len(self._points):
            points = tuple(
                replace(new if new.time_s >= old.time_s else old, language=old.language)
                for new, old in zip(points, self._points, strict=True)
            )
        channel = min(event.channel, len(points) - 1)
        spoken = replace(points[channel], language=event.language or points[channel].language)
        return (*points[:channel], spoken, *points[channel + 1 :])

    def _resume_from(self, channel: int) -> float:
        return self.resume_from_s[min(channel, len(self.resume_from_s) - 1)]

    def _close(self, utterance: _OpenUtterance, until_s: float, is_lost: bool = False) -> list[Event]:
        """End an utterance of which no more text comes. Without its audio, or without text, it is not covered."""
        end_s = max(utterance.end_s, utterance.shown_until_s)
        missing = ((end_s, until_s),) if until_s > end_s and (is_lost or not utterance.has_text) else ()
        event = Utterance(
            utterance=utterance.number,
            channel=utterance.channel,
            start_s=utterance.at_s,
            end_s=end_s,
            text="",
            uncovered=missing,
            final_until_s=self.final_until_s,
            resume_from_s=self.resume_from_s,
            detector_from_s=self.detector_from_s,
            speaker=utterance.speaker,
        )
        return self._finish(utterance, event)

    def _finish(self, utterance: _OpenUtterance, event: Utterance) -> list[Event]:
        self._open.remove(utterance)
        rest = self._deliver(utterance.pop_rest())
        # A connection that goes on with it in the middle says where it has gone on.
        start_s = min(event.start_s, utterance.at_s)
        self._speech_s += event.end_s - start_s
        ended = replace(
            event,
            utterance=utterance.number,
            start_s=start_s,
            end_s=max(event.end_s, utterance.end_s),
            text=event.text if utterance.is_whole else utterance.text,
            final_until_s=self.final_until_s,
            resume_from_s=self.resume_from_s,
            detector_from_s=self.detector_from_s,
        )
        if not self._is_resumed:
            self._eager_ends.pop(utterance.number, None)
            return [*rest, event]
        return [*rest, *self._take_back(utterance, ended.text), ended]

    def _stop(self, event: Stopped) -> list[Event]:
        if not self._is_resumed:
            return [event]
        end_s = self._audio_from_s + event.audio_s
        closed = [closing for each in list(self._open) for closing in self._close(each, end_s)]
        audio_s = round(end_s - self._began_s, 3)
        return [*closed, Stopped(audio_s=audio_s, speech_s=round(self._speech_s, 3), words=self._n_words)]


class _OpenUtterance:
    """An utterance that was announced and has not ended."""

    def __init__(self, number: int, channel: int, at_s: float, hidden: str, speaker: str | None) -> None:
        """Announce an utterance.

        Args:
            number: as delivered.
            channel: of the utterance.
            at_s: where it begins, in seconds.
            hidden: text that the connection may send in this utterance, but which was delivered before it.
            speaker: the name of its channel, if that has one.
        """
        self.number = number
        self.channel = channel
        self.at_s = at_s
        self.speaker = speaker
        self.is_waiting = False
        """The utterance waits for its counterpart in this connection."""
        self._n_hidden = len(hidden)
        self._final = hidden
        """The texts of the segments that were delivered."""
        self._shown = hidden
        """`_final`, and the stable text that was delivered after it."""
        self._interim: Interim | None = None
        """The newest interim that was delivered, without the words that became final since."""
        self._segments: list[tuple[Segment, str]] = []
        """The segments that were delivered, each with `_final` after it."""
        self._kept = ""
        """The part of `_final` that this connection does not repeat."""
        self._their_final = ""
        """The texts of the segments that this connection has sent."""
        self._joint: tuple[str, int] | None = None if hidden else ("", 0)
        """Our text, and the length of theirs, after which both go on alike; None if theirs is not so far yet."""

    @property
    def shown_until_s(self) -> float:
        """The end of the newest interim that was delivered."""
        return self._interim.end_s if self._interim else self.at_s

    @property
    def end_s(self) -> float:
        """The end of the segments that were delivered."""
        return max((segment.end_s for segment, _ in self._segments), default=self.at_s)

    @property
    def is_whole(self) -> bool:
        """The utterance began in this connection, so that its text is as the connection sends it."""
        return self._joint == ("", 0)

    @property
    def has_text(self) -> bool:
        """Some text of it was shown."""
        return len(self._shown) > self._n_hidden

    @property
    def text(self) -> str:
        """The text that was delivered in segments."""
        return self._final[self._n_hidden :].lstrip() if self._n_hidden else self._final

    @property
    def unrepeated(self) -> str:
        """What was shown and is not in the text of the connection."""
        if self._joint is not None:
            return ""
        repeatable = self._shown[len(self._kept) :]
        return repeatable[align(repeatable, self._their_final)[0] :]

    def wait_for_counterpart(self, from_s: float) -> None:
        """The connection is lost. Another one sends the text of the audio from `from_s` on."""
        self.is_waiting = True
        self._kept = max((final for segment, final in self._segments if segment.start_s < from_s), key=len, default="")
        self._their_final = ""
        self._joint = None

    def text_with(self, theirs: str) -> str:
        """The text of the utterance if the connection sent `theirs` as its text."""
        if self.is_whole:
            return theirs
        repeatable = self._shown[len(self._kept) :]
        ours, n_theirs = self._joint or (self._shown + self._separator(theirs), align(repeatable, theirs)[1])
        text = ours + theirs[n_theirs:] if len(theirs) > n_theirs else self._shown
        return text[self._n_hidden :].lstrip() if self._n_hidden else text

    def add_segment(self, event: Segment) -> Segment | None:
        """The segment to deliver, if there is one."""
        self._their_final += event.text
        n_before = len(self._final)
        self._final = self._ours(self._their_final)
        if not self._shown.startswith(self._final):
            self._shown = self._final
        text = self._final[n_before:]
        if not text and event.text:
            return None
        if self._interim:
            words = stable_words.without_text(self._interim.stable_words, text)
            self._interim = replace(self._interim, stable_words=words)
        if self._is_hidden_before(n_before):
            text = text.lstrip()
        start_s = event.start_s if text == event.text else min(max(event.start_s, self.end_s), event.end_s)
        return self._keep(
            replace(event, utterance=self.number, start_s=start_s, text=text, words=_words_of(text, event, start_s))
        )

    def add_interim(self, event: Interim) -> Interim | None:
        """The interim to deliver; None if it shows nothing that is not shown already."""
        stable = self._their_final + event.stable
        ours = self._ours(stable)
        if self._joint is not None:
            self._shown = ours if self.is_whole else max(ours, self._shown, key=len)
            return self._show(event, event.tail)
        theirs = stable + event.tail
        repeatable = self._shown[len(self._kept) :]
        n_ours, n_theirs = align(repeatable, theirs)
        if n_ours < len(repeatable) or n_theirs == len(theirs):
            return None
        return self._show(event, self._separator(theirs) + theirs[n_theirs:])

    def _show(self, event: Interim, tail: str) -> Interim:
        stable = self._shown[len(self._final) :]
        if self._is_hidden_before(len(self._final)):
            stable, tail = stable.lstrip(), tail if stable.strip() else tail.lstrip()
        words = event.stable_words
        if not self.is_whole:
            words = stable_words.grow(self._interim.stable_words if self._interim else (), stable, words)
        self._interim = replace(event, utterance=self.number, stable=stable, tail=tail, stable_words=words)
        return self._interim

    def _is_hidden_before(self, n_chars: int) -> bool:
        """The first text that is delivered follows hidden text. It begins the utterance, so it has no leading space."""
        return 0 < self._n_hidden == n_chars

    def pop_rest(self) -> Segment | None:
        """What was shown as stable and is in no segment, as a last segment."""
        text = self._shown[len(self._final) :]
        if not text or self.is_whole:
            return None
        if self._is_hidden_before(len(self._final)):
            text = text.lstrip()
        self._final = self._shown
        start_s = self.end_s
        last = self._segments[-1][0] if self._segments else None
        return self._keep(
            Segment(
                utterance=self.number,
                id=0,
                channel=self.channel,
                start_s=start_s,
                end_s=max(self.shown_until_s, start_s),
                text=text,
                words=(),
                confidence=last.confidence if last else 0.0,
                language=last.language if last else None,
                speaker=self.speaker,
            )
        )

    def _keep(self, segment: Segment) -> Segment:
        self._segments.append((segment, self._final))
        return segment

    def _ours(self, theirs: str) -> str:
        """Our text that corresponds to the beginning of their text. It begins with what is final."""
        n_kept = len(self._kept)
        if self._joint is None:
            n_ours, n_theirs = align(self._shown[n_kept:], theirs)
            if n_kept + n_ours < len(self._shown) or n_theirs == len(theirs):
                return self._shown[: max(n_kept + n_ours, len(self._final))]
            self._joint = (self._shown + self._separator(theirs), n_theirs)
        ours, n_theirs = self._joint
        if len(theirs) >= n_theirs:
            return ours + theirs[n_theirs:]
        return ours[: max(n_kept + align(ours[n_kept:], theirs)[0], len(self._final))]

    def _separator(self, theirs: str) -> str:
        """What their text lacks at its beginning where it goes on after text that it does not repeat."""
        goes_on = self._kept != "" and self._shown == self._kept
        return " " if goes_on and not _CHARACTER.match(theirs) else ""


def _words_of(text: str, event: Segment, start_s: float) -> tuple[Word, ...]:
    """The times of the words of `text`, which may be the end of the segment's text, or another version of it."""
    if text == event.text or not event.words:
        return event.words
    characters = "".join(text.split())
    ends = (event.words[at:] for at in range(len(event.words)))
    last = next((each for each in ends if "".join(word.word.strip() for word in each) == characters), None)
    if last is not None and event.text.endswith(text):
        return last
    return tuple(_estimated(text, start_s, event))


def _estimated(text: str, start_s: float, event: Segment) -> Iterator[Word]:
    """The words of `text`, each with a share of the time from `start_s` to the end of the segment by its length.

    In a script without spaces, each character is a word.
    """
    words = _TIMED.findall(text)
    n_chars = sum(map(len, words))
    for word in words:
        end_s = start_s + (event.end_s - start_s) * len(word) / n_chars
        n_chars -= len(word)
        yield Word(word, round(start_s, 3), round(end_s, 3), event.confidence)
        start_s = end_s
