"""The native protocol, against the golden messages that the clients are tested with too."""

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.app.dialects.made_events import SOURCE, interim, segment, utterance
from tutti_server.app.dialects.native import wire
from tutti_server.app.errors import SessionError
from tutti_server.app.live.dialect import Preparation
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.messages import commands, events
from tutti_server.app.text_rules.pipeline import TextRuleOptions

WIRE = Path(__file__).parents[3] / "wire"


def golden(name: str) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in json.loads((WIRE / f"{name}.json").read_text())]


OPEN = commands.Endpointing(mode=None)
"""The client leaves the mode to the service."""

CLIENT = {
    "start with defaults": commands.Start(endpointing=OPEN),
    "start with everything": commands.Start(
        audio=AudioFormat("mulaw", 8000, 2),
        language="en",
        interim=False,
        endpointing=commands.Endpointing(
            mode="vad", silence_ms=700, min_utterance_s=1.5, max_utterance_s=30.0, padding_ms=500, threshold=0.7
        ),
        prompt="A call about an invoice.",
        hotwords=("Kowalski", "tutti"),
        words=True,
        resume=commands.Resume((12.5,), "Thank you for calling."),
    ),
    "start that resumes two channels": commands.Start(
        audio=AudioFormat(channels=2), resume=commands.Resume((12.25, 11.0), "", 1.0, (6.24, None)), endpointing=OPEN
    ),
    "start with candidates for the language": commands.Start(languages=("en", "de"), endpointing=OPEN),
    "start that decides the language once": commands.Start(locks_language=True, endpointing=OPEN),
    "start that resumes in the languages of before": commands.Start(
        audio=AudioFormat(channels=2), resume=commands.Resume((12.25, 11.0), language=("de", None)), endpointing=OPEN
    ),
    "start with a model": commands.Start(model="large-v3", endpointing=OPEN),
    "start with beams": commands.Start(beam_size=5, endpointing=OPEN),
    "start with words in interims": commands.Start(words=True, interim_words=True, endpointing=OPEN),
    "start of a client that resumes": commands.Start(resumes=True, endpointing=OPEN),
    "start in a room with a name that cannot be guessed": commands.Start(
        room=commands.RoomRequest(title="Sunday service"), endpointing=OPEN
    ),
    "start that goes on in its room": commands.Start(
        room=commands.RoomRequest(name="choir-7", token="q1w2e3r4t5y6u7i8"), endpointing=OPEN
    ),
    "start of a client that wants turns": commands.Start(
        endpointing=commands.Endpointing(
            mode="adaptive",
            silence_ms=600,
            min_silence_ms=200,
            max_silence_ms=2000,
            end_confidence=0.7,
            eager_confidence=0.3,
        )
    ),
    "start with translations": commands.Start(translate=("en", "fr"), endpointing=OPEN),
    "start that resumes with text that is not translated": commands.Start(
        translate=("en", "fr"),
        resume=commands.Resume(
            (12.25,),
            "",
            9.5,
            untranslated=(
                commands.Untranslated(
                    utterance=7,
                    channel=0,
                    start_s=9.5,
                    end_s=11.75,
                    text="Guten Tag.",
                    language="de",
                    targets=("fr",),
                ),
            ),
        ),
        endpointing=OPEN,
    ),
    "start of push-to-talk": commands.Start(endpointing=commands.Endpointing(mode="manual")),
    "start that names its channels": commands.Start(
        audio=AudioFormat(channels=2), channel_names=("agent", "caller"), endpointing=OPEN
    ),
    "start that tells speakers apart": commands.Start(max_speakers=4, endpointing=OPEN),
    "start with text rules": commands.Start(
        text_rules=TextRuleOptions(
            numerals=True,
            redact=("card", "email"),
            redact_names=("Kowalski",),
            replace=(("cuba nets", "Kubernetes"),),
            profanity="mask",
        ),
        endpointing=OPEN,
    ),
    "start that resumes with the speakers of before": commands.Start(
        max_speakers=4, resume=commands.Resume((12.25,), voices="v1.1.AAnffwCBQA"), endpointing=OPEN
    ),
    "flush with a string id": commands.Flush("turn-7"),
    "flush with a number id": commands.Flush(0),
    "keepalive": commands.Keepalive(),
    "stop": commands.Stop(),
}


class RecordingPublisher:
    """Publishes nowhere, and keeps what it gets."""

    room: dict[str, str] | None = None

    def __init__(self) -> None:
        self.opened: list[commands.Start] = []
        self.published: list[str] = []

    async def open(self, start: commands.Start) -> None:
        self.opened.append(start)

    def notices(self) -> list[events.Notice]:
        return []

    def begin(self) -> dict[str, str] | None:
        return self.room

    def publish(self, event: events.Event, message: str) -> None:
        self.published.append(message)


SERVER: dict[str, events.Event] = {
    "segment without words or language": segment(
        " How are you?", 2.0, 3.25, utterance=1, language=None, window_start_s=0.0
    ),
    "segment with words": segment(
        "Hello there.",
        0.12,
        1.5,
        id=3,
        window_start_s=0.0,
        source=replace(SOURCE, avg_logprob=-0.0513),
        words=(events.Word("Hello", 0.12, 0.6, 0.98), events.Word("there.", 0.6, 1.5, 0.91)),
    ),
    "started": events.Started(
        "s_01",
        "tutti-demo",
        events.Limits(),
        (events.Notice("unknown_key", "volume: unknown key; ignored"),),
    ),
    "speech started": events.SpeechStarted(utterance=0, channel=1, at_s=0.42),
    "interim": interim("Thank you for", " calling north", 0.12, 2.3),
    "interim with words": interim(
        "Thank you",
        " for calling",
        0.12,
        2.3,
        stable_words=(events.Word("Thank", 0.3, 0.52, 0.97), events.Word("you", 0.52, 0.7, 0.99)),
        tail_words=(events.Word("for", 0.7, 0.9, 0.98), events.Word("calling", 0.9, 1.2, 0.9)),
    ),
    "interim with nothing stable yet": interim("", "Thank", 0.12, 0.8),
    "utterance": utterance("Hello there. How are you?", 0.12, 3.25, 3.6, detector_from_s=(0.0,)),
    "utterance that heard speech and has no text": utterance(
        "",
        10.0,
        11.5,
        utterance=4,
        channel=1,
        uncovered=((10.0, 11.5),),
        final_until_s=11.0,
        resume_from_s=(12.25, 11.0),
        detector_from_s=(6.24, None),
    ),
    "a segment whose language was detected": segment(
        "Guten Tag.", 4.0, 5.25, utterance=2, id=1, language="de", language_probability=0.97
    ),
    "an utterance whose language was detected": utterance(
        "Guten Tag.", 4.0, 5.25, 5.5, utterance=2, language="de", language_probability=0.97, detector_from_s=(5.5,)
    ),
    "utterance of a session with translations": utterance(
        "Guten Tag.", 4.0, 5.25, 5.5, utterance=2, detector_from_s=(5.5,), translated_until_s=(4.0,)
    ),
    "translation": events.Translation(
        utterance=2,
        channel=0,
        language="fr",
        start_s=4.0,
        end_s=5.25,
        text="Bonjour.",
        translated_until_s=(5.5,),
    ),
    "translation of an utterance of the lost session": events.Translation(
        utterance=7,
        channel=0,
        language="fr",
        start_s=9.5,
        end_s=11.75,
        text=" Bonjour.",
        translated_until_s=(12.25,),
        is_earlier=True,
    ),
    "segment with speakers": segment(
        "Hello there.",
        0.12,
        1.5,
        id=3,
        window_start_s=0.0,
        words=(events.Word("Hello", 0.12, 0.6, 0.98, speaker=0), events.Word("there.", 0.6, 1.5, 0.91, speaker=1)),
        speaker=1,
    ),
    "segment with redactions": segment(
        " It is [CARD_NUMBER].",
        2.0,
        6.25,
        utterance=1,
        redactions=(events.Redaction("card", 2.5, 6.0),),
    ),
    "speakers": events.Speakers(0, (events.SpeakerSpan(0.0, 1.11, 0), events.SpeakerSpan(1.11, 2.22, 1))),
    "an utterance with what tells its speakers": utterance(
        "Hello.", 4.0, 5.25, 5.5, utterance=2, detector_from_s=(5.5,), voices="v1.1.AAnffwCBQA"
    ),
    "flushed with a string id": events.Flushed("turn-7"),
    "flushed with a number id": events.Flushed(0),
    "lag": events.Lag(4.2),
    "warning": events.Notice("unknown_key", "flush.now: unknown key; ignored"),
    "error that the session survives": events.Failure("bad_json", "expected a JSON object, got 'hello'", False),
    "fatal error": events.Failure("idle", "no message for 60 s", True),
    "fatal error of a silent client that resumes": events.Failure(
        "idle", "no message for 60 s; resume when there is something to send", True
    ),
    "stopped": events.Stopped(12.5, 8.2, 23),
}


TURNS: dict[str, wire.TurnEvent] = {
    "turn that has probably ended": events.EagerEnd(
        utterance=0, channel=0, at_s=3.25, text="Hello there. How are you?", confidence=0.62
    ),
    "turn that goes on": events.SpeechResumed(utterance=0, channel=0, at_s=3.52),
    "turn that has ended": events.Endpoint(utterance=0, channel=1, end_s=4.1, confidence=0.91),
    "turn that was ended by a flush": events.Endpoint(utterance=1, channel=0, end_s=9.0, flush="turn-7"),
}


NAMED: dict[str, events.Event] = {
    "interim of a channel with a name": interim("Thank you for", " calling north", 0.12, 2.3, channel=1),
    "segment of a channel with a name": segment(" How are you?", 2.0, 3.25, utterance=1, channel=1, language=None),
    "utterance of a channel with a name": utterance(
        "Hello.", 4.0, 5.25, utterance=2, final_until_s=5.5, resume_from_s=(5.5, 4.0), detector_from_s=(5.5, None)
    ),
}
"""The events of a session whose channels have names."""


@pytest.mark.parametrize("case", golden("client"))
def test_client_messages_are_decoded(case: dict[str, Any]) -> None:
    command, notices = wire.decode(json.dumps(case["wire"]))
    assert command == CLIENT[case["name"]]
    assert notices == ()


@pytest.mark.parametrize("case", [c for c in golden("server") if c.values[0]["name"] in SERVER])
def test_server_messages_are_encoded(case: dict[str, Any]) -> None:
    assert json.loads(wire.encode(SERVER[case["name"]])) == case["wire"]


def test_every_event_has_its_message() -> None:
    assert set(wire._WRITERS) | set(get_args(wire.TurnEvent)) == set(get_args(events.Event))


def test_every_golden_message_has_its_event() -> None:
    names = {case.values[0]["name"] for case in golden("server")}
    assert names - SERVER.keys() - TURNS.keys() - NAMED.keys() == {"started in a room"}


@pytest.mark.parametrize("case", [c for c in golden("server") if c.values[0]["name"] in NAMED])
def test_text_of_a_channel_has_the_name_that_the_client_gave_it(case: dict[str, Any]) -> None:
    dialect = wire.Native(RecordingPublisher())
    start = {"type": "start", "audio": {"channels": 2}, "channel_names": ["agent", "caller"]}
    list(dialect.read(json.dumps(start)))
    assert [json.loads(text) for text in dialect.write(NAMED[case["name"]])] == [case["wire"]]


@pytest.mark.parametrize("case", [c for c in golden("server") if c.values[0]["name"] in TURNS])
def test_turns_are_sent_to_clients_that_ask(case: dict[str, Any]) -> None:
    """A client that does not ask gets nothing that it might not know."""
    for start, expected in (('{"type":"start","turns":true}', [case["wire"]]), ('{"type":"start"}', [])):
        dialect = wire.Native(RecordingPublisher())
        list(dialect.read(start))
        assert [json.loads(text) for text in dialect.write(TURNS[case["name"]])] == expected


async def test_a_room_is_open_before_its_session_starts() -> None:
    """A second start opens none, and changes nothing: the session refuses it."""
    publisher = RecordingPublisher()
    dialect = wire.Native(publisher)
    opening, start = dialect.read('{"type":"start","room":{"name":"choir-7"}}')
    assert isinstance(opening, Preparation)
    await opening.work()
    assert publisher.opened == [start]
    assert len(list(dialect.read('{"type":"start","room":{"name":"choir-7"}}'))) == 1


def test_the_client_learns_the_address_and_the_token_of_its_room() -> None:
    """The readers get what follows."""
    (case,) = (each.values[0] for each in golden("server") if each.values[0]["name"] == "started in a room")
    publisher = RecordingPublisher()
    publisher.room = case["wire"]["room"]
    dialect = wire.Native(publisher)
    (message,) = dialect.write(SERVER["started"])
    assert json.loads(message)["room"] == case["wire"]["room"]
    assert publisher.published == []
    assert list(dialect.write(SERVER["speech started"])) == publisher.published != []


@pytest.mark.parametrize("case", golden("bad_client"))
def test_bad_messages_are_explained(case: dict[str, Any]) -> None:
    with pytest.raises(SessionError) as caught:
        wire.decode(case["text"])
    assert (caught.value.code, caught.value.is_fatal) == (case["code"], case["fatal"])
    assert "expected" in caught.value.message and "got" in caught.value.message
    assert case.get("mentions", "") in caught.value.message


@pytest.mark.parametrize(
    ("message", "key"),
    [
        ({"type": "start", "vad": True}, "vad"),
        ({"type": "start", "audio": {"rate": 1}}, "audio.rate"),
        ({"type": "start", "resume": {"from_s": 1, "to_s": 2}}, "resume.to_s"),
        ({"type": "flush", "id": 1, "now": True}, "flush.now"),
        ({"type": "keepalive", "x": 1}, "keepalive.x"),
    ],
)
def test_unknown_keys_are_ignored_with_a_warning(message: dict[str, Any], key: str) -> None:
    command, notices = wire.decode(json.dumps(message))
    if isinstance(command, commands.Start):
        notices = command.notices
    assert [(n.code, n.message) for n in notices] == [("unknown_key", f"{key}: unknown key; ignored")]


MANUAL_SILENCE = {"mode": "manual", "silence_ms": 700, "min_utterance_s": 1, "max_utterance_s": 20}


def test_warnings_about_messages_before_the_start_come_with_started() -> None:
    """It is the first event."""
    dialect = wire.Native(RecordingPublisher())
    assert dialect.read('{"type": "keepalive", "volume": 1}') == (commands.Keepalive(),)
    (start,) = dialect.read('{"type": "start", "pitch": 1}')
    assert isinstance(start, commands.Start)
    assert [each.message.split(":")[0] for each in start.notices] == ["keepalive.volume", "pitch"]


@pytest.mark.parametrize(
    ("start", "names"),
    [
        ({"endpointing": MANUAL_SILENCE}, ["silence_ms", "min_utterance_s"]),
        ({"endpointing": {"min_silence_ms": 200, "end_confidence": 0.6}}, ["min_silence_ms", "end_confidence"]),
        ({"endpointing": {"eager_confidence": 0.6}}, ["eager_confidence"]),
        ({"endpointing": {"mode": "manual", "padding_ms": 100, "threshold": 0.6}}, ["padding_ms"]),
        ({"turns": True, "endpointing": {"mode": "manual", "eager_confidence": 0.6}}, ["eager_confidence"]),
        ({"turns": True, "endpointing": {"mode": "adaptive", "min_silence_ms": 200, "eager_confidence": 0.6}}, []),
    ],
)
def test_options_cause_notices_where_they_have_no_effect(start: dict[str, Any], names: list[str]) -> None:
    command, _ = wire.decode(json.dumps({"type": "start", **start}))
    assert isinstance(command, commands.Start)
    assert [notice.code for notice in command.notices] == ["no_effect"] * len(names)
    assert [notice.message.split(":")[0] for notice in command.notices] == [f"endpointing.{name}" for name in names]


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_any_text_is_a_command_or_an_error(text: str) -> None:
    """Whatever a client sends, only a `SessionError` is raised."""
    with contextlib.suppress(SessionError):
        wire.decode(text)


@pytest.mark.parametrize(
    ("endpointing", "mode"),
    [
        ({}, None),
        ({"max_utterance_s": 20}, None),
        ({"silence_ms": 700}, "vad"),
        ({"end_confidence": 0.6}, "vad"),
        ({"mode": "adaptive", "silence_ms": 700}, "adaptive"),
    ],
)
def test_without_a_mode_and_a_silence_the_service_chooses_the_mode(
    endpointing: dict[str, Any], mode: str | None
) -> None:
    command, _ = wire.decode(json.dumps({"type": "start", "endpointing": endpointing}))
    assert isinstance(command, commands.Start) and command.endpointing.mode == mode


def test_values_may_be_texts() -> None:
    """An empty one is not given, where it can be no value."""
    rules = {"numerals": "true", "redact": "", "redact_names": "", "replace": "", "profanity": ""}
    fields = {"words": "true", "interim": "off", "beam_size": "3", "language": "", "prompt": "", "text_rules": rules}
    start, notices = wire.decode(json.dumps({"type": "start", **fields}))
    assert isinstance(start, commands.Start)
    assert (start.words, start.interim, start.beam_size, start.language) == (True, False, 3, None)
    assert start.text_rules == TextRuleOptions(numerals=True)
    assert notices == ()


@pytest.mark.parametrize("name", ["audio", "endpointing", "resume", "room", "speakers", "text_rules"])
def test_an_empty_text_is_no_object(name: str) -> None:
    assert wire.decode(json.dumps({"type": "start", name: ""})) == wire.decode('{"type": "start"}')
