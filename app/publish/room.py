"""A room: what its readers receive, made of the entries of its log. It does no I/O and has no clock.

Every gateway with readers folds the same log into the same room. How a session goes on after a lost connection:

1. An utterance of the room has a number that no other one has. The numbers of a session are its own.
2. A session that resumes decodes again what its client has not received as final. The room knows for each utterance up
   to where its text makes the audio final, so it finds the utterances that will come again, whether they are open or
   have ended on the way to a client that was lost.
3. They stay until the new session has text for their channel, and are taken back in the same moment: `retract`. So
   nothing is doubled, and nothing is missing for longer than the new text takes. If no text comes, they stay.
4. Of a long utterance only the end may come again. Its segments before that are sent anew, as an utterance of their
   own.
5. An open utterance that will not come again, as its audio is lost or its speaker does not come back, ends with its
   stable text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tutti_server.app.publish.hls_lines import MAX_WAIT_S, SEGMENT_S, SETTLE_S, Line, Lines
from tutti_server.app.publish.room_entries import Begun, Ended, Entry, Left, Passed, Spoken
from tutti_server.app.publish.room_frames import Frames

ROUNDING_S = 1e-6
"""Times that differ by less than this are the same, in seconds."""
TEXT = ("interim", "segment", "utterance")
"""The events that show text for the first time. Translations follow them."""
PRIVATE = (
    "final_until_s",
    "resume_from_s",
    "detector_from_s",
    "stable_words",
    "translated_until_s",
    "earlier",
    "voices",
)
"""Fields for the client of the session alone."""
END = -1
"""Stands for an utterance of which the event `ended` is, so that it can be removed."""
MISSED = {"type": "warning", "code": "events_missed", "message": "text was lost on its way here"}


@dataclass(slots=True, kw_only=True)
class _Utterance:
    number: int
    channel: int
    start_s: float
    """The begin on the timeline of its session, as `final_to_s` is."""
    timeline: int
    text: str = ""
    end_s: float = 0.0
    stable: str = ""
    """The stable text after it, while the utterance is open."""
    stable_from_s: float = 0.0
    """The beginning of the audio of the stable text."""
    stable_end_s: float = 0.0
    final_to_s: float | None = None
    """The client that knows of its end resumes at this time or later; `None` while it is open."""


@dataclass(slots=True, kw_only=True)
class _Stream:
    """The session that speaks in the room, or has spoken last."""

    id: str = ""
    next_number: int = 0
    timeline: int = 0
    """Counts the sessions that resume no other one: their times begin anew."""
    offset_s: float = 0.0
    """What is added to its times to have those of the room."""
    numbers: dict[int, int] = field(default_factory=dict)
    """The numbers of its utterances in the room, by its own."""
    left_at: float | None = None
    """When it left; `None` while it speaks. In seconds since 1970."""


class Room:
    """The text of one room, and its state."""

    def __init__(self, id_: str, name: str, max_chars: int) -> None:
        """Begin an empty room.

        Args:
            id_: is another one for a later room of the same name.
            name: as readers know it.
            max_chars: of final text that is kept.
        """
        self.name = name
        self.title = ""
        self.is_live = False
        """A session speaks in the room, or may come back."""
        self.n_returns = 0
        """How often a speaker has returned after the room had ended, as far as this gateway has seen it.

        Readers from before are introduced to the room again.
        """
        self.frames = Frames(room=id_, max_chars=max_chars)
        self.lines = Lines()
        self.began_at = 0.0
        """The time zero of the room, in seconds since 1970."""
        self._elapsed_s = 0.0
        self._stream = _Stream()
        self._utterances: dict[int, _Utterance] = {}
        self._returning: dict[int, list[tuple[int, float]]] = {}
        """The utterances that the session will decode again, and the time from which on it does, for each channel."""
        self._n_utterances = 0
        self._n_segments = 0

    @property
    def stream(self) -> str:
        """The session that speaks in the room, or has spoken last; empty if there was none."""
        return self._stream.id

    @property
    def left_at(self) -> float | None:
        """When that session left, in seconds since 1970; `None` while it speaks."""
        return self._stream.left_at

    def introduction(self) -> dict[str, Any]:
        """What every reader receives first."""
        return {"type": "room", "name": self.name, "title": self.title, "live": self.is_live}

    def fold(self, entry: Entry) -> None:
        """Follow one entry of the log. Entries of a session that another one has replaced change nothing."""
        match entry:
            case Begun():
                self._begin(entry)
            case _ if entry.stream != self._stream.id:
                pass
            case Spoken():
                self._speak(entry)
            case Passed(at=at):
                self._go_live()
                self._pass(at)
            case Left(at=at):
                self._stream.left_at = at
            case Ended(at=at):
                self._end(at)

    def _begin(self, entry: Begun) -> None:
        before, resumed_from_s = self._stream, entry.resumed_from_s
        is_new = not before.id
        if is_new:
            self.began_at = entry.at - min(resumed_from_s or (0.0,))
        self._stream = _Stream(
            id=entry.stream, timeline=before.timeline + (resumed_from_s is None), offset_s=before.offset_s
        )
        if resumed_from_s is None:
            self._close(list(self._utterances.values()))
            self._returning.clear()
            if not is_new:
                self._stream.offset_s = round(max(entry.at - self.began_at, self.lines.end_s), 3)
        else:
            self._expect(resumed_from_s, before.timeline)
        self.title, self.is_live = entry.title or self.title, self.is_live or is_new
        self._go_live()

    def _go_live(self) -> None:
        """Note that the session speaks. Another gateway may have ended its room while it could not reach the store."""
        if not self.is_live:
            self.is_live, self._stream.left_at = True, None
            # A new reader would stop there and miss the text that follows.
            self.frames.remove(END)
            self.n_returns += 1

    def _expect(self, resumed_from_s: Sequence[float], timeline: int) -> None:
        """Note which utterances come again, and from when on."""
        self._returning.clear()
        for utterance in self._utterances.values():
            from_s = resumed_from_s[min(utterance.channel, len(resumed_from_s) - 1)]
            is_known = utterance.final_to_s is not None and utterance.final_to_s <= from_s + ROUNDING_S
            if utterance.timeline == timeline and not is_known:
                self._returning.setdefault(utterance.channel, []).append((utterance.number, from_s))

    def _speak(self, entry: Spoken) -> None:
        if entry.number is not None:
            if entry.number < self._stream.next_number:
                # The store has it twice: its first answer came too late for the speaker.
                return
            if entry.number > self._stream.next_number:
                self.frames.add(MISSED)
            self._stream.next_number = entry.number + 1
        self._go_live()
        message = {name: value for name, value in entry.message.items() if name not in PRIVATE}
        if message["type"] in TEXT:
            for number, from_s in self._returning.pop(message["channel"], ()):
                self._retract(number, from_s)
        utterance = self._earlier(message) if entry.message.get("earlier") else self._utterance(message)
        if utterance is not None and not self._has_translation(utterance, message):
            self._show(utterance, message, entry.message)
        self._forget()

    def _utterance(self, message: Mapping[str, Any]) -> _Utterance | None:
        """The utterance of a message; `None` for a translation of text that is not kept."""
        number = self._stream.numbers.get(message["utterance"])
        if number not in self._utterances and message["type"] in TEXT:
            utterance = self._new_utterance(message["channel"], message["start_s"])
            self._stream.numbers[message["utterance"]] = number = utterance.number
        return None if number is None else self._utterances.get(number)

    def _earlier(self, message: Mapping[str, Any]) -> _Utterance | None:
        """The utterance of a translation of text that an earlier session has sent: its number is that of the client."""
        start_s = message["start_s"] + self._stream.offset_s
        number = self.lines.utterance_at(message["channel"], start_s)
        return None if number is None else self._utterances.get(number)

    def _has_translation(self, utterance: _Utterance, message: Mapping[str, Any]) -> bool:
        """Whether readers have this translation already, although the client has not received it."""
        start_s = message["start_s"] + self._stream.offset_s
        return message["type"] == "translation" and self.lines.has_translation(
            utterance.number, message["language"], start_s
        )

    def _new_utterance(self, channel: int, start_s: float) -> _Utterance:
        utterance = _Utterance(
            number=self._n_utterances, channel=channel, start_s=start_s, end_s=start_s, timeline=self._stream.timeline
        )
        self._n_utterances += 1
        self._utterances[utterance.number] = utterance
        return utterance

    def _show(self, utterance: _Utterance, message: dict[str, Any], original: Mapping[str, Any]) -> None:
        """Show a message, whose times and numbers become those of the room."""
        message = _moved(message, self._stream.offset_s) | {"utterance": utterance.number}
        match message["type"]:
            case "interim":
                utterance.stable = message["stable"]
                utterance.stable_from_s, utterance.stable_end_s = original["start_s"], original["end_s"]
                self.frames.show(message, utterance.number)
            case "segment":
                utterance.text += message["text"]
                utterance.end_s, utterance.stable = original["end_s"], ""
                message |= {"id": self._n_segments, "words": []}
                self._n_segments += 1
                self._add(message, utterance)
            case "translation":
                self._add(message, utterance)
            case "utterance":
                channel = min(utterance.channel, len(original["resume_from_s"]) - 1)
                utterance.final_to_s = original["resume_from_s"][channel]
                utterance.stable = ""
                self.frames.hide(utterance.number)
                self.frames.add(message, utterance.number)

    def _add(self, message: dict[str, Any], utterance: _Utterance) -> None:
        line = Line(
            utterance=utterance.number,
            channel=utterance.channel,
            start_s=message["start_s"],
            end_s=message["end_s"],
            text=message["text"],
            language=message["language"],
            is_translation=message["type"] == "translation",
        )
        self.lines.add(line)
        self.frames.add(message, utterance.number, len(line.text))

    def _retract(self, number: int, from_s: float) -> None:
        """Take back the text of an utterance that comes again: all of it, or that from a time on."""
        utterance = self._utterances.get(number)
        if utterance is None:
            return
        offset_s = self._stream.offset_s
        texts = [each for each in self.frames.messages(number) if each["type"] != "utterance"]
        # A segment belongs to where it begins. A translation must not reach into what comes again.
        kept = [
            each
            for each in texts
            if each["start_s"] < from_s + offset_s - ROUNDING_S
            and (each["type"] == "segment" or each["end_s"] < from_s + offset_s + ROUNDING_S)
        ]
        if utterance.stable_from_s >= from_s - ROUNDING_S:
            utterance.stable = ""
        theirs = [each for each, own_number in self._stream.numbers.items() if own_number == number]
        if kept == texts and (kept or utterance.stable) and not theirs:
            self._close([utterance])
            return
        del self._utterances[number]
        self.lines.take_back(number)
        self.frames.remove(number)
        self.frames.add({"type": "retract", "utterance": number})
        if kept:
            beginning = self._new_utterance(utterance.channel, utterance.start_s)
            for message in kept:
                own = _moved(message, -offset_s)
                self._show(beginning, own, own)
            self._stream.numbers.update(dict.fromkeys(theirs, beginning.number))
            if not theirs:
                self._close([beginning])

    def _close(self, utterances: Sequence[_Utterance]) -> None:
        """End the open ones of these utterances with their stable text."""
        for utterance in utterances:
            if utterance.final_to_s is not None:
                continue
            # The name of the channel, which all events of an utterance have.
            named = {name: value for name, value in self.frames.interim(utterance.number).items() if name == "speaker"}
            if utterance.stable:
                end_s = max(utterance.stable_end_s, utterance.end_s)
                self._show(utterance, _rest(utterance, end_s) | named, {"end_s": end_s})
            self._show(utterance, _whole(utterance) | named, {"resume_from_s": [utterance.end_s]})

    def _pass(self, at: float) -> None:
        self._elapsed_s = max(self._elapsed_s, at - self.began_at)
        open_from_s = [
            each.start_s + self._stream.offset_s for each in self._utterances.values() if each.final_to_s is None
        ]
        settled_s = min(self._elapsed_s - SETTLE_S, *open_from_s, self._elapsed_s)
        self.lines.make_segments(max(settled_s, self._elapsed_s - MAX_WAIT_S))

    def _end(self, at: float) -> None:
        if not self.is_live:
            return
        for each in self._utterances.values():
            if each.final_to_s is None:
                # If the session goes on nevertheless, its final text comes in place of the stable one.
                self._returning.setdefault(each.channel, []).append((each.number, each.end_s))
        self._close(list(self._utterances.values()))
        self.is_live = False
        self._stream.left_at = at
        self._elapsed_s = max(self._elapsed_s, at - self.began_at, self.lines.end_s)
        # The last one is as long as the others, and may reach beyond the end.
        self.lines.make_segments(self._elapsed_s + SEGMENT_S, are_last=True)
        self.frames.add({"type": "ended"}, END)

    def _forget(self) -> None:
        """Keep no more text than may be kept: the oldest goes first."""
        dropped = self.frames.drop_excess()
        for number in dropped:
            self.lines.drop(number)
            self._utterances.pop(number, None)
        if dropped:
            kept = {theirs: number for theirs, number in self._stream.numbers.items() if number in self._utterances}
            self._stream.numbers = kept

    def snapshot(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "name": self.name,
            "title": self.title,
            "is_live": self.is_live,
            "began_at": self.began_at,
            "elapsed_s": self._elapsed_s,
            "frames": self.frames.snapshot(),
            "lines": self.lines.snapshot(),
            "stream": {**asdict(self._stream), "numbers": list(self._stream.numbers.items())},
            "utterances": [asdict(each) for each in self._utterances.values()],
            "returning": list(self._returning.items()),
            "counts": [self._n_utterances, self._n_segments],
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Become what the snapshot was made of."""
        self.name, self.title, self.is_live = snapshot["name"], snapshot["title"], snapshot["is_live"]
        self.began_at, self._elapsed_s = snapshot["began_at"], snapshot["elapsed_s"]
        self.frames.restore(snapshot["frames"])
        self.lines.restore(snapshot["lines"])
        self._stream = _Stream(**{**snapshot["stream"], "numbers": dict(snapshot["stream"]["numbers"])})
        self._utterances = {each["number"]: _Utterance(**each) for each in snapshot["utterances"]}
        self._returning = {
            channel: [(number, from_s) for number, from_s in each] for channel, each in snapshot["returning"]
        }
        self._n_utterances, self._n_segments = snapshot["counts"]


def _moved(message: Mapping[str, Any], offset_s: float) -> dict[str, Any]:
    moved = {**message, **{name: round(message[name] + offset_s, 3) for name in ("start_s", "end_s")}}
    if "uncovered" in message:
        moved["uncovered"] = [[round(time_s + offset_s, 3) for time_s in span] for span in message["uncovered"]]
    if "redactions" in message:
        moved["redactions"] = [_moved(each, offset_s) for each in message["redactions"]]
    return moved


def _rest(utterance: _Utterance, end_s: float) -> dict[str, Any]:
    """The stable text of an utterance that has no end, as its last segment."""
    return {
        "type": "segment",
        "channel": utterance.channel,
        "start_s": utterance.end_s,
        "end_s": end_s,
        "text": utterance.stable,
        "confidence": 0.0,
        "language": None,
    }


def _whole(utterance: _Utterance) -> dict[str, Any]:
    return {
        "type": "utterance",
        "channel": utterance.channel,
        "start_s": utterance.start_s,
        "end_s": utterance.end_s,
        "text": utterance.text,
        "uncovered": [],
    }
