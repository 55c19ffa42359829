"""Flux's turns: what holds for every order of the session's events, and what each event becomes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.app.dialects.made_events import interim, segment, utterance
from tests.compat.asyncapi import flux_problems
from tests.compat.exchange import SPEECH, Step, exchange, in_pieces
from tests.compat.sentences import SENTENCES, spoken
from tutti_server.app.dialects.deepgram.flux_options import FluxOptions, FluxThresholds
from tutti_server.app.dialects.deepgram.flux_wire import Flux
from tutti_server.app.errors import SessionError
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.messages.commands import MAX_PENDING_FLUSHES

RAW = FluxOptions(audio=AudioFormat("pcm_f32le", 16_000), thresholds=FluxThresholds(0.7, 0.4))
ID = "8f0e3d0e-1b1a-4d0c-9c59-3f1f1c0f5a11"


def flux(options: FluxOptions = RAW) -> Flux:
    return Flux(options, ID)


@pytest.fixture
def dialect() -> Flux:
    return flux()


def written(dialect: Flux, *told: events.Event) -> list[dict[str, Any]]:
    messages = [json.loads(text) for event in told for text in dialect.write(event)]
    assert [problem for message in messages for problem in flux_problems(message)] == []
    return messages


def infos(dialect: Flux, *told: events.Event) -> list[tuple[str, int, str]]:
    """The event, the number of the turn and the transcript of each message."""
    return [(each["event"], each["turn_index"], each["transcript"]) for each in written(dialect, *told)]


def began(utterance: int = 0, at_s: float = 0.5) -> events.SpeechStarted:
    return events.SpeechStarted(utterance=utterance, channel=0, at_s=at_s, from_s=at_s - 0.3)


def eager(text: str, utterance: int = 0) -> events.EagerEnd:
    return events.EagerEnd(utterance=utterance, channel=0, at_s=1.2, text=text, confidence=0.5)


def resumed(utterance: int = 0) -> events.SpeechResumed:
    return events.SpeechResumed(utterance=utterance, channel=0, at_s=1.6)


def endpoint(
    utterance: int = 0, confidence: float | None = None, flush: events.FlushId | None = None
) -> events.Endpoint:
    return events.Endpoint(utterance=utterance, channel=0, end_s=2.0, confidence=confidence, flush=flush)


def spoken_segment(text: str, utterance: int = 0, goes_on: bool = False) -> events.Segment:
    words = tuple(events.Word(word, 0.5, 1.0, 0.9) for word in text.split())
    return segment(text, 0.5, 1.0, utterance=utterance, window_start_s=0.2, words=words, goes_on=goes_on)


def final(text: str, number: int = 0, is_complete: bool = True) -> Iterator[events.Event]:
    """The last events of an utterance."""
    if text:
        yield spoken_segment(text, number)
    yield utterance(text, 0.5, 1.2, 2.0, utterance=number, is_complete=is_complete)


def test_nothing_is_sent_between_an_eager_end_and_what_follows(dialect: Flux) -> None:
    """Agents take another message for a sign that the turn goes on."""
    written(dialect, began(), interim("Yes"), eager("Yes."))
    assert infos(dialect, interim("Yes", " but")) == []
    assert due(dialect, 9.0) == []
    assert infos(dialect, *final("Yes.")) == [("EndOfTurn", 0, "Yes.")]


@pytest.mark.parametrize("text", ["Yes", ""])
def test_an_end_with_another_text_than_the_eager_one_is_announced(dialect: Flux, text: str) -> None:
    """The session promises the same text. A client that ends the turn itself may get another one."""
    written(dialect, began(), interim("Yes"), eager("Yes."))
    assert infos(dialect, endpoint(flush=1), *final(text)) == [("TurnResumed", 0, text), ("EndOfTurn", 0, text)]


def test_a_turn_that_has_ended_keeps_its_confidence() -> None:
    """Text rules take an eager end back that hid a number too many, when the end of the turn is known already."""
    messages = written(
        flux(),
        began(),
        eager("In [NUMBER]"),
        endpoint(confidence=0.8),
        segment("In 2024.", 0.2, 2.0),
        resumed(),
        utterance("In 2024.", 0.2, 2.0),
    )
    assert [(each["event"], each["end_of_turn_confidence"]) for each in messages] == [
        ("StartOfTurn", 0.5),
        ("EagerEndOfTurn", 0.5),
        ("TurnResumed", 0.8),
        ("EndOfTurn", 0.8),
    ]


@pytest.mark.parametrize(
    ("interims", "text", "expected"),
    [
        pytest.param([], "", [], id="nothing"),
        pytest.param([], "Oh.", [("StartOfTurn", 0, "Oh."), ("EndOfTurn", 0, "Oh.")], id="no interims"),
        pytest.param(["Thanks"], "", [("StartOfTurn", 0, "Thanks"), ("EndOfTurn", 0, "")], id="no words in the end"),
    ],
)
def test_a_turn_is_announced_at_its_end_unless_it_has_no_words(
    interims: list[str], text: str, expected: list[tuple[str, int, str]]
) -> None:
    assert infos(flux(), began(), *map(interim, interims), endpoint(), *final(text)) == expected


def test_a_turn_is_announced_when_the_one_before_it_has_ended(dialect: Flux) -> None:
    written(dialect, began(0), interim("One"), endpoint(0), began(1), interim("Two", utterance=1))
    assert infos(dialect, eager("Two.", utterance=1), *final("One.")) == [
        ("EndOfTurn", 0, "One."),
        ("StartOfTurn", 1, "Two."),
        ("EagerEndOfTurn", 1, "Two."),
    ]


def test_a_long_turn_has_the_text_of_all_its_windows(dialect: Flux) -> None:
    written(dialect, began(), interim("One"), spoken_segment("One.", goes_on=True))
    assert infos(dialect, interim(" Two")) == [("Update", 0, "One. Two")]
    (told,) = written(dialect, eager("One. Two three."))
    assert [(word["word"], "start" in word) for word in told["words"]] == [
        ("One.", True),
        ("Two", False),
        ("three.", False),
    ]


@pytest.mark.parametrize(
    ("end", "trigger"),
    [
        (endpoint(confidence=0.7), "model"),
        (endpoint(confidence=0.6), "timeout"),
        (endpoint(), "timeout"),
        (endpoint(flush=1), "manual"),
        (endpoint(flush=1, confidence=0.9), "manual"),
    ],
)
def test_the_end_names_its_cause(dialect: Flux, end: events.Endpoint, trigger: str) -> None:
    written(dialect, began(), interim("Yes"))
    assert [each["trigger"] for each in written(dialect, end, *final("Yes."))] == [trigger]


def test_a_turn_that_an_error_cuts_off_has_no_end(dialect: Flux) -> None:
    written(dialect, began(), interim("Yes"))
    told = written(dialect, endpoint(), *final("Ye", is_complete=False), events.Failure("engine_failed", "why", True))
    assert told == [{"type": "Error", "sequence_id": 1, "code": "INTERNAL_SERVER_ERROR", "description": "why"}]


def due(dialect: Flux, until_s: float) -> list[str]:
    """The events of the messages that are due after this audio."""
    return [json.loads(text)["event"] for reply in dialect.audio_received(until_s) for text in reply.make()]


def test_a_turn_is_updated_every_quarter_of_a_second(dialect: Flux) -> None:
    """Also without news, but not outside of turns."""
    assert due(dialect, 0.5) == []
    written(dialect, began(), interim("Yes"))
    assert [due(dialect, at_s) for at_s in (0.6, 0.76, 0.9, 1.02)] == [[], ["Update"], [], ["Update"]]
    written(dialect, interim("Yes sir"))
    assert [due(dialect, at_s) for at_s in (1.2, 1.28)] == [[], ["Update"]]
    written(dialect, endpoint())
    assert due(dialect, 2.0) == []


def test_a_threshold_of_hundreds_of_digits_is_refused() -> None:
    """JSON has integers that no fraction can hold."""
    (answer,) = flux().read(json.dumps({"type": "Configure", "thresholds": {"eot_threshold": 10**400}}))
    assert isinstance(answer, events.LateReply)
    (failure,) = map(json.loads, answer.make())
    assert failure["type"] == "ConfigureFailure"


def test_a_key_that_configure_does_not_know_is_a_warning(dialect: Flux) -> None:
    message = {"type": "Configure", "redact": "numbers", "keyterms": ["tutti"]} | {f"~{n}": n for n in range(100)}
    replies = [item for item in dialect.read(json.dumps(message)) if isinstance(item, events.LateReply)]
    success, *warnings = (json.loads(text) for reply in replies for text in reply.make())
    assert (success["type"], success["keyterms"]) == ("ConfigureSuccess", ["tutti"])
    assert {(each["type"], each["code"]) for each in warnings} == {("Warning", "UNKNOWN_KEY")}
    assert warnings[0]["description"] == "Configure.redact: unknown key; ignored"
    assert len(warnings) == 20


def test_as_many_turns_may_be_ended_as_flushes_may_wait(dialect: Flux) -> None:
    for _ in range(MAX_PENDING_FLUSHES):
        (flush,) = dialect.read('{"type":"ForceEndTurn"}')
        assert isinstance(flush, commands.Flush)
    with pytest.raises(SessionError, match="at most 64 ForceEndTurn"):
        dialect.read('{"type":"ForceEndTurn"}')
    written(dialect, events.Flushed(1))
    (flush,) = dialect.read('{"type":"ForceEndTurn"}')
    assert isinstance(flush, commands.Flush)


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_any_other_text_ends_the_stream(text: str) -> None:
    with pytest.raises(SessionError) as caught:
        list(flux().read(text))
    assert (caught.value.code, caught.value.is_fatal) == ("UNPARSABLE_CLIENT_MESSAGE", True)


TEXTS = st.sampled_from(
    [
        {"type": "ForceEndTurn"},
        {"type": "Configure", "keyterms": ["tutti"]},
        {"type": "Configure", "thresholds": {"eot_threshold": 1.0, "eager_eot_threshold": None}},
        {"type": "Configure", "thresholds": {"eot_threshold": 0.9, "eager_eot_threshold": 0.3}},
        {"type": "Configure", "thresholds": {"eot_threshold": 0.1}},
    ]
)


@given(st.lists(SPEECH | st.builds(lambda text: {"text": text}, TEXTS), max_size=8))
def test_what_holds_of_every_stream(steps: list[Step]) -> None:
    """Messages are numbered, turns follow Deepgram's table of states, and no word is lost."""
    told = exchange([*steps, {"text": {"type": "CloseStream"}}], flux(), in_pieces, server=SENTENCES)
    assert told[-1] == {"close": [1000, "done"]}
    answers = [step["answer"] for step in told if "answer" in step]
    assert [problem for answer in answers for problem in flux_problems(answer)] == []
    assert [answer["sequence_id"] for answer in answers] == list(range(len(answers)))
    turns = [answer for answer in answers if answer["type"] == "TurnInfo"]
    check_states(turns)
    if not any("text" in step and step["text"]["type"] == "ForceEndTurn" for step in steps):
        # ForceEndTurn may cut a word in two.
        said = [spoken(number) for step in steps for number in step.get("speech", ())]
        transcripts = " ".join(turn["transcript"] for turn in turns if turn["event"] == "EndOfTurn")
        assert transcripts.replace(".", "").split() == said


NEXT = {
    "EndOfTurn": {"StartOfTurn"},
    "StartOfTurn": {"Update", "EagerEndOfTurn", "EndOfTurn"},
    "Update": {"Update", "EagerEndOfTurn", "EndOfTurn"},
    "EagerEndOfTurn": {"TurnResumed", "EndOfTurn"},
    "TurnResumed": {"Update", "EagerEndOfTurn", "EndOfTurn"},
}
"""The events that may follow each event."""


def check_states(turns: list[dict[str, Any]]) -> None:
    """Check the messages of a stream against what Deepgram promises of them."""
    before: dict[str, Any] = {"event": "EndOfTurn", "turn_index": -1}
    for turn in turns:
        assert turn["event"] in NEXT[before["event"]]
        assert turn["turn_index"] == before["turn_index"] + (before["event"] == "EndOfTurn")
        assert turn["transcript"].split() == [word["word"] for word in turn["words"]]
        if turn["event"] in ("StartOfTurn", "EagerEndOfTurn"):
            assert turn["transcript"]
        if before["event"] == "EagerEndOfTurn" and turn["event"] == "EndOfTurn":
            assert turn["transcript"] == before["transcript"]
        if turn["event"] != "StartOfTurn":
            assert turn["audio_window_start"] == before["audio_window_start"]
            assert turn["audio_window_end"] >= before["audio_window_end"]
        before = turn
    assert before["event"] == "EndOfTurn"
