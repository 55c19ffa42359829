"""jambonz's custom speech recognition: a start, audio, a stop; and text as the answer."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from tests.app.dialects import made_events
from tests.app.dialects.call_streams.sinks import FakeSink, check_bad_beginning, read
from tests.app.dialects.made_events import SOURCE, interim
from tests.call_start import call_start
from tests.compat.conformance import approximated, supported
from tutti_server.app.dialects.call_streams.wire import START_TIMEOUT_S
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.core.effects import Close
from tutti_server.app.session.messages import commands, events
from tutti_server.plugins.carriers.jambonz import Jambonz

START = {"type": "start", "language": "en-US", "format": "raw", "encoding": "LINEAR16", "sampleRateHz": 8000}


def started(**fields: object) -> Jambonz:
    dialect = Jambonz(FakeSink())
    assert dialect.idle_timeout_s == START_TIMEOUT_S
    read(dialect, START | fields)
    assert dialect.idle_timeout_s is None
    return dialect


def answers(dialect: Jambonz, *all_events: events.Event) -> list[dict[str, Any]]:
    return [json.loads(text) for event in all_events for text in dialect.write(event)]


def segment(number: int, text: str, confidence: float) -> events.Segment:
    return made_events.segment(text, 0.0, 1.0, id=number, source=replace(SOURCE, avg_logprob=math.log(confidence)))


def utterance(text: str) -> events.Utterance:
    return made_events.utterance(text, 0.0, 1.0)


@supported("jambonz", "start: language, interimResults, sampleRateHz, options.hints")
def test_the_start_has_the_options_of_the_recogniser() -> None:
    hints = ["Ahoy", {"phrase": "Brno", "boost": 5}]
    assert read(Jambonz(FakeSink()), {**START, "interimResults": True, "options": {"hints": hints}}) == (
        call_start(audio=AudioFormat("pcm_s16le", 8000, 1), language="en-US", interim=True, hotwords=("Ahoy", "Brno")),
    )
    # Where the hints are objects, jambonz' feature server writes the list as text.
    (command,) = read(Jambonz(FakeSink()), {**START, "options": {"hints": json.dumps(hints[1:])}})
    assert command.hotwords == ("Brno",)
    assert read(Jambonz(FakeSink()), {"type": "start", "sampleRateHz": 16_000}) == (
        call_start(audio=AudioFormat("pcm_s16le", 16_000, 1), language=None, interim=False),
    )


@approximated("jambonz", "other options", how="ignored | a notice")
def test_other_options_are_ignored_with_a_notice() -> None:
    _, *notices = read(Jambonz(FakeSink()), {**START, "options": {"profanityFilter": True}})
    assert notices == [events.Notice("ignored", "options.profanityFilter is ignored")]


def test_hints_beyond_the_limit_end_no_call() -> None:
    hints = ["x" * 48, " ", *(f"word{at}" for at in range(65))]
    command, notice = read(Jambonz(FakeSink()), {**START, "options": {"hints": hints}})
    assert (command.hotwords, notice.message[-17:]) == (tuple(hints[2:66]), "64 of 67 are used")


@supported("jambonz", "transcription, with confidence")
def test_text_is_answered_on_the_socket() -> None:
    """An interim has all text of the utterance up to now, and its final text comes once."""
    dialect = started(interimResults=True)
    assert answers(dialect, interim("Hello", " wor"), segment(0, "Hello world.", 0.8), interim("", " How")) == [
        transcription("Hello wor", 0.0, is_final=False),
        transcription("Hello world. How", 0.0, is_final=False),
    ]
    final = answers(dialect, segment(1, " How are you?", 0.6), utterance("Hello world. How are you?"))
    assert final == [transcription("Hello world. How are you?", 0.7, is_final=True)]
    assert answers(dialect, utterance("")) == []


def transcription(text: str, confidence: float, *, is_final: bool) -> dict[str, Any]:
    alternatives = [{"confidence": confidence, "transcript": text}]
    named = {"channel": 1, "language": "en-US"}
    return {"type": "transcription", "is_final": is_final, "alternatives": alternatives, **named}


@supported("jambonz", "stop: the rest of the text, then the server closes")
def test_the_stop_ends_the_session_once() -> None:
    dialect = started()
    assert read(dialect, b"\0" * 320) == (commands.Audio(b"\0" * 320),)
    assert read(dialect, {"type": "stop"}) == (commands.Stop(),)
    assert read(dialect, b"\0" * 320) == ()
    assert tuple(dialect.leave()) == ()
    assert dialect.close(Close(1000, "")) == Close(1000, "")


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (b"\0\0", "audio: expected start first"),
        ({"type": "stop"}, "stop: expected start first"),
        ({"type": "other"}, "a type of start or stop"),
        ({**START, "encoding": "MULAW"}, "encoding: expected format raw and encoding LINEAR16"),
        ({**START, "sampleRateHz": 11_025}, "sampleRateHz: expected 8000 or 16000"),
        ({**START, "language": 7}, "language: expected a tag"),
        ({**START, "interimResults": "yes"}, "interimResults: expected true or false"),
        ({**START, "options": [1]}, "options: expected an object"),
        ({**START, "options": {"hints": "Ahoy"}}, "options.hints: expected a list of texts"),
        ({**START, "options": {"hints": '["\\ud800"]'}}, "options.hints: expected a list of texts"),
        ({**START, "options": {"hints": "[" * 100_000}}, "options.hints: expected a list of texts"),
        ({**START, "options": {"hints": [{"boost": 5}]}}, "options.hints: expected a list of texts"),
    ],
)
def test_a_bad_beginning_is_fatal_and_says_what_is_expected(first: object, expected: str) -> None:
    check_bad_beginning(Jambonz(FakeSink()), first, expected)
