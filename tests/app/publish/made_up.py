"""A made-up recording, a server that decodes it over several connections, and readers of the room."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tutti_server.app.publish.room import Room
from tutti_server.app.publish.room_entries import Entry, Spoken

Message = dict[str, Any]


@dataclass(frozen=True)
class Window:
    """A part of an utterance that becomes final at once: where it begins, and the texts of its segments."""

    start_s: float
    texts: tuple[str, ...]


Recording = list[list[list[Window]]]
"""For each channel its utterances, each with its windows."""


def make_recording(random: Random) -> Recording:
    return [list(_utterances(random, channel)) for channel in range(random.randint(1, 2))]


def _utterances(random: Random, channel: int) -> Iterator[list[Window]]:
    at_s = 1.0
    for number in range(random.randint(1, 4)):
        windows = []
        for window in range(random.randint(1, 3)):
            texts = tuple(f" {channel}.{number}.{window}.{index}" for index in range(random.randint(1, 3)))
            windows.append(Window(at_s, texts))
            at_s += len(texts) + 0.25
        yield windows
        at_s += 1


def spoken_text(recording: Recording) -> list[str]:
    """The whole text of each channel."""
    return ["".join(text for each in channel for window in each for text in window.texts) for channel in recording]


class Server:
    """Decodes the recording from a time on for each channel, as docs/protocol.md says."""

    def __init__(self, random: Random, recording: Recording, from_s: list[float]) -> None:
        self._random = random
        self._recording = recording
        self._resume_from_s = list(from_s)
        self._n_utterances = self._n_segments = 0

    def messages(self) -> list[Message]:
        """All events of one connection."""
        channels = [self._channel(channel, from_s) for channel, from_s in enumerate(self._resume_from_s)]
        made: list[Message] = []
        while channels:
            channel = self._random.choice(channels)
            message = next(channel, None)
            if message is None:
                channels.remove(channel)
            else:
                made.append(message)
        return made

    def _channel(self, channel: int, from_s: float) -> Iterator[Message]:
        for utterance in self._recording[channel]:
            windows = [window for window in utterance if window.start_s >= from_s]
            if windows:
                yield from self._utterance(channel, windows)

    def _utterance(self, channel: int, windows: list[Window]) -> Iterator[Message]:
        number, self._n_utterances = self._n_utterances, self._n_utterances + 1
        place = {"utterance": number, "channel": channel}
        text, end_s = "", 0.0
        for window in windows:
            self._resume_from_s[channel] = window.start_s
            whole = "".join(window.texts)
            for n_stable in sorted(self._random.choices(range(len(whole) + 1), k=self._random.randint(0, 2))):
                times = {"start_s": window.start_s, "end_s": window.start_s + n_stable / 10}
                yield {"type": "interim", **place, **times, "stable": whole[:n_stable], "tail": " perhaps"}
            for index, part in enumerate(window.texts):
                end_s = window.start_s + index + 1
                self._n_segments += 1
                yield {
                    "type": "segment",
                    **place,
                    "id": self._n_segments - 1,
                    "start_s": window.start_s + index,
                    "end_s": end_s,
                    "text": part,
                    "words": [],
                    "confidence": 0.9,
                    "language": "en",
                }
                text += part
        self._resume_from_s[channel] = end_s + 0.125
        times = {"start_s": windows[0].start_s, "end_s": end_s}
        points = {
            "final_until_s": min(self._resume_from_s),
            "resume_from_s": list(self._resume_from_s),
            "detector_from_s": [None] * len(self._resume_from_s),
        }
        yield {"type": "utterance", **place, **times, "text": text, "uncovered": [], **points}
        if self._random.random() < 0.5:
            yield {"type": "translation", **place, **times, "language": "de", "text": text.upper()}


def resumed_from_s(received: list[Message], before: list[float]) -> list[float]:
    """Where a client resumes that has received these messages."""
    points = [message["resume_from_s"] for message in received if message["type"] == "utterance"]
    return points[-1] if points else before


def entries(stream: str, messages: list[Message], number: int = 0) -> Iterator[Entry]:
    """Turn messages of a session into entries of a log, numbered from `number` on."""
    for message in messages:
        is_interim = message["type"] == "interim"
        yield Spoken(stream=stream, message=message, number=None if is_interim else number)
        number += not is_interim


@dataclass
class Reader:
    """A reader of a room who checks what comes."""

    segments: dict[int, list[Message]] = field(default_factory=dict)
    interims: dict[int, Message] = field(default_factory=dict)
    translations: dict[int, str] = field(default_factory=dict)
    ended: dict[int, str] = field(default_factory=dict)
    """The text of each utterance that has ended."""
    retracted: set[int] = field(default_factory=set)
    last_id: str = ""
    types: list[str] = field(default_factory=list)

    def catch_up(self, room: Room) -> None:
        """Receive what this reader does not have yet, as a reader does that reconnects with `Last-Event-ID`."""
        for event in parse_events(room.frames.after(room.frames.number_of(self.last_id)).decode()):
            self.last_id = event.get("id", self.last_id)
            self.receive(json.loads(event["data"]))

    def receive(self, message: Message) -> None:
        self.types.append(message["type"])
        number = message.get("utterance", -1)
        assert number not in self.retracted
        match message["type"]:
            case "interim":
                assert number not in self.ended
                self.interims[number] = message
            case "segment":
                assert number not in self.ended
                self.segments.setdefault(number, []).append(message)
                self.interims.pop(number, None)
            case "translation":
                self.translations[number] = self.translations.get(number, "") + message["text"]
            case "utterance":
                assert number not in self.ended
                self.interims.pop(number, None)
                self.ended[number] = message["text"]
                assert "".join(each["text"] for each in self.segments.get(number, [])) == message["text"]
                assert "resume_from_s" not in message
            case "retract":
                self.retracted.add(number)
                for kept in (self.segments, self.interims, self.translations, self.ended):
                    kept.pop(number, None)

    def text(self, channel: int) -> str:
        """All final text of a channel."""
        found = [each for parts in self.segments.values() for each in parts if each["channel"] == channel]
        return "".join(each["text"] for each in sorted(found, key=lambda each: each["start_s"]))


def parse_events(text: str) -> Iterator[dict[str, str]]:
    """Server-sent events as their fields."""
    for event in text.split("\n\n")[:-1]:
        yield dict(line.split(": ", 1) for line in event.split("\n"))
