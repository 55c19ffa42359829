"""One stream of events out of several connections: golden cases, and properties of any cuts of any streams."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clients.python.client_fakes import WIRE, make_interim, make_segment, make_utterance
from tutti import translations
from tutti.continuity import Continuity, align
from tutti.messages import (
    Event,
    Interim,
    Segment,
    SpeechStarted,
    Stopped,
    Turn,
    TurnKind,
    Utterance,
    event_to_wire,
    parse_event,
)
from tutti_server.app import languages

CASES: list[dict[str, Any]] = json.loads((WIRE / "resume.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_golden_cases(case: dict[str, Any]) -> None:
    """The program receives the events of `delivered`; without these, the events of the connection."""
    names = tuple(case.get("channel_names", ()))
    continuity = Continuity(tuple(case["from_s"]), tuple(case.get("translate", ())), channel_names=names)
    for number, connection in enumerate(case["connections"]):
        delivered: list[Event] = []
        if number:
            missing = continuity.translations.missing(continuity.resume_from_s)
            assert [json.loads(json.dumps(asdict(each))) for each in missing] == connection.get("untranslated", [])
            delivered += continuity.resume(connection["audio_from_s"], connection.get("lost_until_s"))
        for event in connection["events"]:
            delivered += continuity.receive(parse_event(event))
        assert [event_to_wire(event) for event in delivered] == connection.get("delivered", connection["events"])


def test_translations_are_joined_as_the_server_joins_them() -> None:
    """In both clients."""
    assert translations.WITHOUT_SPACES == languages.WITHOUT_SPACES
    script = (WIRE.parents[1] / "clients/js/src/translations.ts").read_text()
    (listed,) = re.findall(r"WITHOUT_SPACES: readonly string\[\] = (\[.+\]);", script)
    assert set(json.loads(listed)) == languages.WITHOUT_SPACES


@pytest.mark.parametrize(
    ("shown", "new", "expected"),
    [
        ("", "one two", ("", "")),
        ("one two", "", ("", "")),
        ("one", "one two", ("one", "one")),
        ("one", "ones", ("one", "one")),
        ("one two", "One, two. Three", ("one two", "One, two.")),
        ("one two three", "one too", ("one two", "one too")),
        ("one two three", "one three four", ("one two three", "one three")),
        ("one three", "one two three four", ("one three", "one two three")),
        ("no no no", "no no no no yes", ("no no no", "no no no")),
        ("– one", "– two three", ("– one", "– two")),
        ("你好世界", "你好是界吗", ("你好世界", "你好是界")),
        ("สวัสดี", "สวัสดีครับ", ("สวัสดี", "สวัสดี")),
    ],
)
def test_texts_are_aligned_by_words(shown: str, new: str, expected: tuple[str, str]) -> None:
    """The fewest edits decide; case and punctuation do not count."""
    n_shown, n_new = align(shown, new)
    assert (shown[:n_shown], new[:n_new]) == expected


WORDS = st.sampled_from("one two three four five six yes no, well. 好 的".split())
TEXTS = st.lists(WORDS, max_size=8).map(" ".join)


@given(TEXTS, TEXTS)
def test_one_of_the_texts_is_used_up(shown: str, new: str) -> None:
    n_shown, n_new = align(shown, new)
    assert n_shown == len(shown) or n_new == len(new)


def test_long_texts_that_are_equal_but_for_a_word_are_aligned() -> None:
    """As many words as ten minutes of speech have, in the time of a test."""
    words = [f"w{number % 97}" for number in range(1500)]
    changed = [*words[:700], "other", *words[701:]]
    assert align(" ".join(words), " ".join(changed) + " more") == (len(" ".join(words)), len(" ".join(changed)))


@dataclass(frozen=True)
class Spoken:
    """An utterance of the recording."""

    channel: int
    at_s: float
    words: tuple[str, ...]


def make_recording(random: Random) -> list[Spoken]:
    """Utterances on up to two channels, each 3 s after the one before it, so that no two are taken for the same."""
    n_channels = random.randint(1, 2)
    return [
        Spoken(
            random.randrange(n_channels),
            3.0 * number + 1,
            tuple(f"{number}w{index}" for index in range(random.randint(0, 6))),
        )
        for number in range(random.randint(1, 4))
    ]


@dataclass
class Server:
    """A server that follows docs/protocol.md: it decodes a recording, with or without mistakes."""

    random: Random
    recording: list[Spoken]
    is_exact: bool
    events: list[Event] = field(default_factory=list)

    def connect(self, from_s: tuple[float, ...]) -> list[Event]:
        """The events of one connection, up to `Stopped`."""
        self.events = []
        number = n_segments = 0
        resume = list(from_s)
        for spoken in self.recording:
            if spoken.at_s < from_s[min(spoken.channel, len(from_s) - 1)]:
                continue
            for at_s, words in self._hear(spoken):
                self.events.append(SpeechStarted(number, spoken.channel, at_s))
                n_segments = self._decode(spoken, number, at_s, words, n_segments)
                resume = [max(time_s, at_s + 1.2) for time_s in resume]
                span = {"start_s": at_s, "end_s": at_s + 0.1 * len(words)}
                final = {"final_until_s": min(resume), "resume_from_s": tuple(resume)}
                place = {"utterance": number, "channel": spoken.channel}
                self.events.append(make_utterance(_text(words, 0, len(words)), **place, **span, **final))
                number += 1
        self.events.append(Stopped(audio_s=20.0 - min(from_s), speech_s=1.0, words=1))
        return self.events

    def _hear(self, spoken: Spoken) -> list[tuple[float, tuple[str, ...]]]:
        """What the detector and the model make of an utterance: no utterance, one, or two."""
        if self.is_exact:
            return [(spoken.at_s, spoken.words)]
        words = tuple(self.random.choice((word, word, word, "other")) for word in spoken.words)
        words = tuple(word for word in words if self.random.randrange(10))
        match self.random.randrange(10):
            case 0:
                return []
            case 1:
                n_first = self.random.randint(0, len(words))
                return [(spoken.at_s, words[:n_first]), (spoken.at_s + 0.6, words[n_first:])]
            case _:
                return [(spoken.at_s + self.random.choice((-0.2, 0.0, 0.2)), words)]

    def _decode(self, spoken: Spoken, number: int, at_s: float, words: tuple[str, ...], n_segments: int) -> int:
        """Interims and segments in any legal order: what was stable becomes final."""
        place = {"utterance": number, "channel": spoken.channel}
        n_final = n_stable = 0
        while n_final < len(words):
            n_stable = self.random.randint(max(n_final, n_stable), len(words))
            tail = self.random.choice(("", " perhaps", *words))
            if self.random.random() < 0.5:
                span = {"start_s": at_s, "end_s": at_s + 0.1 * n_stable}
                self.events.append(make_interim(_text(words, n_final, n_stable), tail, **place, **span))
            if self.random.random() < 0.5:
                n_end = self.random.randint(n_final + 1, len(words))
                span = {"start_s": at_s + 0.1 * n_final, "end_s": at_s + 0.1 * n_end}
                self.events.append(make_segment(_text(words, n_final, n_end), id=n_segments, **place, **span))
                n_final, n_segments = n_end, n_segments + 1
        if words and self.random.random() < 0.5:
            self._turn("eager_end", spoken, number, at_s, _text(words, 0, self.random.randint(1, len(words))))
            self._turn("resumed", spoken, number, at_s)
        if words and self.random.random() < 0.5:
            self._turn("eager_end", spoken, number, at_s, _text(words, 0, len(words)))
        return n_segments

    def _turn(self, kind: TurnKind, spoken: Spoken, number: int, at_s: float, text: str | None = None) -> None:
        confidence = None if text is None else 0.5
        self.events.append(
            Turn(event=kind, utterance=number, channel=spoken.channel, at_s=at_s, confidence=confidence, text=text)
        )


def _text(words: tuple[str, ...], begin: int, end: int) -> str:
    text = " ".join(words[begin:end])
    return f" {text}" if begin and text else text


class Receiver:
    """A program that checks every event that it receives."""

    def __init__(self) -> None:
        self.shown: dict[int, str] = {}
        """The final and stable text of each open utterance."""
        self.final: dict[int, str] = {}
        self.ended: dict[int, str] = {}
        self.eager: dict[int, str | None] = {}
        """The text of each eager end that was not taken back."""
        self.n_segments = 0
        self.resume_from_s: tuple[float, ...] = ()
        self.stopped: Stopped | None = None

    def receive(self, event: Event) -> None:
        assert self.stopped is None
        match event:
            case SpeechStarted():
                # Numbers are given in order, and none twice.
                assert event.utterance == len(self.shown) + len(self.ended)
                self.shown[event.utterance] = self.final[event.utterance] = ""
            case Interim():
                self._show(event.utterance, self.final[event.utterance] + event.stable)
            case Segment():
                assert event.id == self.n_segments
                assert event.start_s <= event.end_s
                self.n_segments += 1
                self.final[event.utterance] += event.text
                final, shown = self.final[event.utterance], self.shown[event.utterance]
                # What was stable becomes final as it is.
                assert final.startswith(shown) or shown.startswith(final)
                self._show(event.utterance, max(final, shown, key=len))
            case Turn(event="resumed", utterance=number):
                self.eager.pop(number, None)
            case Turn(utterance=number, text=text):
                assert number in self.shown
                self.eager[number] = text
            case Utterance():
                assert self.eager.pop(event.utterance, event.text) == event.text
                assert self.shown.pop(event.utterance) == event.text == self.final.pop(event.utterance)
                assert event.utterance not in self.ended
                self.ended[event.utterance] = event.text
                assert all(new >= old for new, old in zip(event.resume_from_s, self.resume_from_s, strict=False))
                self.resume_from_s = event.resume_from_s
            case Stopped():
                assert not self.shown
                self.stopped = event
            case _:
                raise AssertionError(event)

    def _show(self, utterance: int, text: str) -> None:
        assert text.startswith(self.shown[utterance])
        self.shown[utterance] = text


def _run(random: Random, recording: list[Spoken], is_exact: bool) -> Receiver:
    """Receive a recording over up to five connections, each but the last lost at any event."""
    server, receiver = Server(random, recording, is_exact), Receiver()
    continuity = Continuity((0.0,) * (1 + max(spoken.channel for spoken in recording)))
    n_losses = random.randint(0, 4)
    for loss in range(n_losses + 1):
        if loss:
            is_lost = not is_exact and random.randrange(5) == 0
            lost_until_s = continuity.final_until_s + random.choice((1.0, 4.0)) if is_lost else None
            for event in continuity.resume(continuity.final_until_s, lost_until_s):
                receiver.receive(event)
        sent = server.connect(continuity.resume_from_s)
        for event in sent if loss == n_losses else sent[: random.randrange(len(sent))]:
            for delivered in continuity.receive(event):
                receiver.receive(delivered)
    assert receiver.stopped is not None
    return receiver


SEEDS = st.integers(0, 2**32)


@given(SEEDS)
def test_what_was_shown_stays_whatever_the_connections_send(seed: int) -> None:
    """Every utterance that was announced ends once, with a number of its own and with all that was shown."""
    random = Random(seed)
    _run(random, make_recording(random), is_exact=False)


@given(SEEDS)
def test_equal_decodes_give_the_undisturbed_text(seed: int) -> None:
    """No word is lost and none is repeated, wherever the connections are lost."""
    random = Random(seed)
    recording = make_recording(random)
    receiver = _run(random, recording, is_exact=True)
    assert list(receiver.ended.values()) == [" ".join(spoken.words) for spoken in recording]
