"""Deepgram's messages: what is true for all audio, options and client messages."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.app.dialects.made_events import segment, utterance
from tests.compat.exchange import SPEECH, Step, exchange, in_pieces
from tests.fakes import MODEL
from tutti_server.app.dialects.deepgram.file_wire import Recording
from tutti_server.app.dialects.deepgram.live_results import LiveResults
from tutti_server.app.dialects.deepgram.live_wire import Deepgram
from tutti_server.app.dialects.deepgram.metadata import Request
from tutti_server.app.dialects.deepgram.options import parse
from tutti_server.app.dialects.deepgram.words import plain
from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.core.effects import Close
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.messages.commands import MAX_PENDING_FLUSHES

REQUEST = Request("a-request", "fake", "1.2.3", datetime(2026, 1, 2, tzinfo=UTC))
RAW = [("encoding", "linear32"), ("sample_rate", "16000")]
CONTAINER = parse([], MODEL.languages, is_live=True)
LATE_SAMPLES = 4000


def deepgram(*query: tuple[str, str]) -> Deepgram:
    return Deepgram(parse([*RAW, *query], MODEL.languages, is_live=True), REQUEST)


def two(samples: Samples) -> Iterator[bytes]:
    """The same on both channels, on the second one somewhat later."""
    second = np.concatenate((np.zeros(LATE_SAMPLES, np.float32), samples))[: len(samples)]
    return in_pieces(np.stack((samples, second), axis=1).reshape(-1))


TEXTS = st.sampled_from(
    [
        {"type": "Finalize"},
        {"type": "Finalize", "channel": 0},
        {"type": "KeepAlive"},
        {"type": "Configure", "keyterms": ["tutti"]},
        {"type": "Configure", "features": {"punctuate": True}},
        {"type": "Else"},
    ]
)
QUERIES = st.lists(
    st.sampled_from(
        [
            ("interim_results", "true"),
            ("vad_events", "true"),
            ("utterance_end_ms", "1000"),
            ("endpointing", "300"),
            ("endpointing", "false"),
            ("punctuate", "true"),
            ("language", "multi"),
        ]
    ),
    unique_by=lambda pair: pair[0],
)


@given(QUERIES, st.lists(SPEECH | st.builds(lambda text: {"text": text}, TEXTS), max_size=8), st.booleans())
def test_what_holds_of_every_stream(query: list[tuple[str, str]], steps: list[Step], is_stereo: bool) -> None:
    """Final results leave no gaps, no word is lost, every Finalize is answered, and Metadata is last."""
    if is_stereo:
        query = [*query, ("channels", "2"), ("multichannel", "true")]
    steps = [*steps, {"text": {"type": "CloseStream"}}]
    told = exchange(steps, deepgram(*query), two if is_stereo else in_pieces)
    answers = [step["answer"] for step in told if "answer" in step]
    assert told[-1] == {"close": [1000, "done"]} and answers[-1]["type"] == "Metadata"
    n_channels = 1 + is_stereo
    for channel in range(n_channels):
        results = [each for each in answers if each["type"] == "Results" and each["channel_index"][0] == channel]
        finals = [each for each in results if each["is_final"]]
        until_s = 0.0
        for each in results:
            words = each["channel"]["alternatives"][0]["words"]
            assert each["start"] == pytest.approx(min([until_s, *(word["start"] for word in words)]), abs=0.002)
            end_s = each["start"] + each["duration"]
            assert all(word["end"] <= end_s + 0.002 for word in words)
            until_s = max(until_s, end_s) if each["is_final"] else until_s
        words = [word for each in finals for word in each["channel"]["alternatives"][0]["words"]]
        times = [word[key] for word in words for key in ("start", "end")]
        assert times == sorted(times)
        texts = " ".join(each["channel"]["alternatives"][0]["transcript"] for each in finals).split()
        assert texts == [word["word"] for word in words]
        for alternative in (each["channel"]["alternatives"][0] for each in results if not each["is_final"]):
            assert alternative["transcript"].split() == [word["word"] for word in alternative["words"]]
            times = [word[key] for word in alternative["words"] for key in ("start", "end")]
            assert times == sorted(times)
        assert all(each["is_final"] for each in results if each["speech_final"] or each["from_finalize"])
        asked = [step["text"] for step in steps if "text" in step and step["text"]["type"] == "Finalize"]
        expected = sum(each.get("channel") in (None, channel) for each in asked)
        assert sum(each["from_finalize"] for each in finals) == expected
    begun = [each for each in answers if each["type"] == "SpeechStarted"]
    ended = [each for each in answers if each["type"] == "Results" and each["speech_final"]]
    if ("vad_events", "true") in query and ("endpointing", "false") not in query:
        assert len(begun) == len(ended)
    said = [f"w{number}" for step in steps for number in step.get("speech", ())]
    if not any("text" in step and step["text"]["type"] == "Finalize" for step in steps):
        # A Finalize may cut a word in two.
        heard = [each for each in answers if each["type"] == "Results" and each["is_final"]]
        first = [each for each in heard if each["channel_index"][0] == 0]
        assert " ".join(each["channel"]["alternatives"][0]["transcript"] for each in first).split() == said


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_any_text_is_answered(text: str) -> None:
    for item in deepgram().read(text):
        assert isinstance(item, events.Reply)
        assert json.loads(item.text)["variant"] == "SchemaError"


def test_a_feature_may_be_a_text_and_a_wrong_value_is_named() -> None:
    dialect = deepgram()

    def configured(value: object) -> dict[str, Any]:
        (reply,) = dialect.read(json.dumps({"type": "Configure", "features": {"punctuate": value}}))
        assert isinstance(reply, events.Reply)
        answer: dict[str, Any] = json.loads(reply.text)
        return answer

    assert configured("true")["type"] == "ConfigureSuccess"
    (result, *_) = [*dialect.write(segment("One.", 0.0, 0.9, goes_on=True))]
    assert json.loads(result)["channel"]["alternatives"][0]["transcript"] == "One."
    assert "got 'always' for punctuate" in configured("always")["description"]


def test_as_many_finalizes_may_wait_as_flushes() -> None:
    """The dialect refuses one too many in Deepgram's words, before the session refuses it."""
    dialect = deepgram()
    for _ in range(MAX_PENDING_FLUSHES):
        (flush,) = dialect.read('{"type":"Finalize"}')
        assert isinstance(flush, commands.Flush)
    (refused,) = dialect.read('{"type":"Finalize"}')
    assert isinstance(refused, events.Reply)


def test_a_final_waits_only_where_it_may_be_the_last() -> None:
    """Whether it ends the utterance is known at once, but for the segments of its last window."""
    dialect = deepgram()
    list(dialect.write(events.SpeechStarted(utterance=0, channel=0, at_s=0.0)))

    def told(event: events.Event) -> list[tuple[str, bool]]:
        results = [json.loads(text) for text in dialect.write(event)]
        return [(each["channel"]["alternatives"][0]["transcript"], each["speech_final"]) for each in results]

    assert told(segment("one", 0.0, 0.9, id=0, goes_on=True)) == [("one", False)]
    assert told(segment(" two", 1.0, 1.9, id=1, goes_on=False)) == []
    assert told(segment(" three", 2.0, 2.9, id=2, goes_on=False)) == [("two", False)]
    assert told(utterance("one two three", 0.0, 3.0)) == [("three", True)]


def test_audio_after_the_end_is_reported_once() -> None:
    dialect = deepgram()
    assert list(dialect.read(b"")) == [commands.Stop()]
    (told,) = dialect.read(b"\0\0\0\0")
    assert isinstance(told, events.Reply) and "after CloseStream" in told.text
    assert list(dialect.read(b"\0\0\0\0")) == []


def test_what_configure_does_not_know_is_a_warning() -> None:
    """Deepgram's own clients may send any field. A warning that would be repeated is sent once."""
    dialect = deepgram()
    for name in ("endpointing", "endpointing", *map(str, range(100))):
        *_, reply = dialect.read(json.dumps({"type": "Configure", name: 500}))
        assert isinstance(reply, events.Reply) and json.loads(reply.text)["type"] == "ConfigureSuccess"
    (metadata,) = map(json.loads, dialect.write(events.Stopped(0.0, 0.0, 0)))
    first, second, *rest = (each["message"] for each in metadata["warnings"])
    assert [first, second] == ["Configure.endpointing: unknown key; ignored", "Configure.0: unknown key; ignored"]
    assert len(rest) == 18


@pytest.mark.parametrize("content", [{"channel": 1}, {"channel": -1}, {"channel": "0"}, {"channel": True}])
def test_an_unknown_channel_is_explained(content: dict[str, Any]) -> None:
    (reply,) = deepgram().read(json.dumps({"type": "Finalize", **content}))
    assert isinstance(reply, events.Reply)
    assert "channel: expected an integer from 0 to 0" in json.loads(reply.text)["description"]


def test_the_silence_is_fixed_whatever_the_model() -> None:
    """A client that names no `endpointing` expects a silence that is always the same."""
    (start,) = Deepgram(CONTAINER, REQUEST).open()
    assert isinstance(start, commands.Start) and start.endpointing.mode == "vad"


def test_an_utterance_does_not_end_before_its_last_result() -> None:
    """A final result that waits for the answer to `Finalize` comes before the `UtteranceEnd` that is due already."""
    results = LiveResults(replace(CONTAINER, utterance_end_s=1.0), 1, {})
    list(results.speech_started(events.SpeechStarted(utterance=0, channel=0, at_s=0.0)))
    results.add_finalize(None)
    results.endpoint(events.Endpoint(utterance=0, channel=0, end_s=1.0, flush=0))
    list(results.segment(segment("Yes.", 0.0, 0.9, id=0, goes_on=False)))
    ended = utterance("Yes.", 0.0, 1.0)
    told = [*results.utterance(ended), *results.audio_received(9.0), *results.flushed(), *results.audio_received(9.0)]
    assert [each["type"] for each in told] == ["Results", "UtteranceEnd"]


def test_sentences_of_a_recording_end_at_the_marks_of_any_script() -> None:
    options = parse([("paragraphs", "true"), ("punctuate", "true")], MODEL.languages, is_live=False)
    recording = Recording(options, REQUEST, 1)
    sentences = ["کیا ہے؟", "ہاں۔", "नहीं।", "是。", "Yes."]
    words = tuple(events.Word(text, 0.0, 0.1, 0.9) for text in " ".join(sentences).split())
    recording.push(segment("Yes.", 0.0, 1.0, words=words))
    recording.push(utterance("Yes.", 0.0, 1.0))
    (paragraph,) = recording.response("")["results"]["channels"][0]["alternatives"][0]["paragraphs"]["paragraphs"]
    assert [each["text"] for each in paragraph["sentences"]] == sentences


def test_a_final_begins_no_later_than_its_words() -> None:
    """Padding may reach back before the answer to a `Finalize` that came just before the speech was noticed."""
    results = LiveResults(CONTAINER, 1, {})
    list(results.audio_received(1.08))
    results.add_finalize(None)
    (empty,) = results.flushed()
    assert (empty["start"], empty["duration"]) == (0.0, 1.08)
    list(results.speech_started(events.SpeechStarted(utterance=0, channel=0, at_s=1.0)))
    list(results.segment(segment("Yes.", 1.0, 1.84, words=(events.Word("Yes.", 1.0, 1.21, 0.9),), goes_on=False)))
    (final,) = results.utterance(utterance("Yes.", 1.0, 1.84))
    assert (final["start"], final["duration"]) == (1.0, 0.84)


@pytest.mark.parametrize(
    ("code", "reason", "told"),
    [
        (1000, "done", (1000, "done")),
        (1008, "idle", (1011, "NET-0001")),
        (1008, "bad_media", (1008, "DATA-0000")),
        (1011, "engine_stalled", (1011, "NET-0000")),
        (1012, "draining", (1012, "draining")),
        (1013, "overloaded", (1013, "overloaded")),
    ],
)
def test_closes_are_those_that_clients_know(code: int, reason: str, told: tuple[int, str]) -> None:
    assert deepgram().close(Close(code, reason)) == Close(*told)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, everyone.", "hello everyone"),
        ("Don't pay $3.50 — it's twenty-five!", "don't pay $3.50 it's twenty-five"),
        ("“Quoted” (yes)… and/or", "quoted yes and/or"),
        ("I—I said wait...what? The U.S.", "i i said wait what the u.s"),
        ("你好，世界。", "你好世界"),
        ("... !", ""),
        ("My card is [CARD_NUMBER], ****!", "my card is [CARD_NUMBER] ****"),
        ("我的卡号是[CARD_NUMBER]，谢谢。", "我的卡号是[CARD_NUMBER]谢谢"),
        ("****-Faced f**k *Sighs*", "**** faced f**k *sighs*"),
        ("%50 indirim, 20٪.", "%50 indirim 20٪"),
        ("छोटे-बड़े।", "छोटे-बड़े"),
    ],
)
def test_plain_text_has_no_punctuation(text: str, expected: str) -> None:
    assert plain(text) == expected
