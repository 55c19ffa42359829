"""Messages are parsed and encoded as the golden messages show."""

import json
from typing import Any

import pytest

from tests.clients.python.client_fakes import read_golden
from tutti.errors import ProtocolError
from tutti.fields import message_fields
from tutti.messages import (
    EVENTS,
    AudioFormat,
    Command,
    Endpointing,
    Flush,
    KeepAlive,
    Resume,
    Room,
    SpeakerLimit,
    Start,
    Stop,
    TextRules,
    UnknownEvent,
    Untranslated,
    Utterance,
    encode_command,
    event_to_wire,
    parse_event,
)

SERVER = [pytest.param(case["wire"], id=case["name"]) for case in read_golden("server.json")]
CLIENT = {case["name"]: case["wire"] for case in read_golden("client.json")}

COMMANDS: dict[str, Command] = {
    "start with defaults": Start(),
    "start with candidates for the language": Start(languages=("en", "de")),
    "start that decides the language once": Start(language="lock"),
    "start that resumes in the languages of before": Start(
        audio=AudioFormat(channels=2), resume=Resume((12.25, 11.0), language=("de", None))
    ),
    "start with a model": Start(model="large-v3"),
    "start with beams": Start(beam_size=5),
    "start with words in interims": Start(words=True, interim_words=True),
    "start of a client that resumes": Start(resumes=True),
    "start in a room with a name that cannot be guessed": Start(room=Room(title="Sunday service")),
    "start that goes on in its room": Start(room=Room(name="choir-7", token="q1w2e3r4t5y6u7i8")),
    "start that resumes two channels": Start(
        audio=AudioFormat(channels=2), resume=Resume((12.25, 11.0), "", 1.0, (6.24, None))
    ),
    "start with everything": Start(
        audio=AudioFormat("mulaw", 8000, 2),
        language="en",
        task="transcribe",
        interim=False,
        words=True,
        endpointing=Endpointing(
            mode="vad", silence_ms=700, min_utterance_s=1.5, max_utterance_s=30, padding_ms=500, threshold=0.7
        ),
        prompt="A call about an invoice.",
        hotwords=("Kowalski", "tutti"),
        resume=Resume(12.5, "Thank you for calling."),
    ),
    "start of a client that wants turns": Start(
        turns=True,
        endpointing=Endpointing(
            mode="adaptive",
            silence_ms=600,
            min_silence_ms=200,
            max_silence_ms=2000,
            end_confidence=0.7,
            eager_confidence=0.3,
        ),
    ),
    "start with translations": Start(translate=("en", "fr")),
    "start that resumes with text that is not translated": Start(
        translate=("en", "fr"),
        resume=Resume(
            12.25,
            audio_from_s=9.5,
            untranslated=(
                Untranslated(
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
    ),
    "start that names its channels": Start(audio=AudioFormat(channels=2), channel_names=("agent", "caller")),
    "start that tells speakers apart": Start(speakers=SpeakerLimit(max=4)),
    "start that resumes with the speakers of before": Start(
        speakers=SpeakerLimit(max=4), resume=Resume(12.25, voices="v1.1.AAnffwCBQA")
    ),
    "start with text rules": Start(
        text_rules=TextRules(
            numerals=True,
            redact=["card", "email"],
            redact_names=["Kowalski"],
            replace={"cuba nets": "Kubernetes"},
            profanity="mask",
        )
    ),
    "start of push-to-talk": Start(endpointing=Endpointing(mode="manual")),
    "flush with a string id": Flush("turn-7"),
    "flush with a number id": Flush(0),
    "keepalive": KeepAlive(),
    "stop": Stop(),
}


@pytest.mark.parametrize("wire", SERVER)
def test_golden_server_messages_round_trip(wire: dict[str, Any]) -> None:
    """Every event of the server can be parsed and encoded, and is the same afterwards."""
    event = parse_event(json.dumps(wire))
    assert not isinstance(event, UnknownEvent)
    assert event_to_wire(event) == wire
    assert parse_event(wire) == event


@pytest.mark.parametrize("name", CLIENT)
def test_client_messages_are_the_golden_ones(name: str) -> None:
    """Every command of the client is encoded exactly as the golden message."""
    assert json.loads(encode_command(COMMANDS[name])) == CLIENT[name]


def test_an_utterance_of_a_server_of_before_is_parsed() -> None:
    (wire,) = (case["wire"] for case in read_golden("server.json") if case["name"] == "utterance")
    event = parse_event({name: value for name, value in wire.items() if name != "detector_from_s"})
    assert isinstance(event, Utterance) and event.detector_from_s == ()


@pytest.mark.parametrize("wire", SERVER)
def test_every_missing_field_is_named(wire: dict[str, Any]) -> None:
    """An event without one of its fields is refused with the field's name, unless it may be left out."""
    left_out = {each.name for each in message_fields(EVENTS[wire["type"]]) if not each.is_required}
    for field in wire.keys() - {"type", *left_out}:
        with pytest.raises(ProtocolError) as caught:
            parse_event({name: value for name, value in wire.items() if name != field})
        assert caught.value.field == f"{wire['type']}.{field}"
        assert caught.value.got == "nothing"


@pytest.mark.parametrize("wire", SERVER)
def test_every_wrong_field_is_named(wire: dict[str, Any]) -> None:
    """A field of the wrong type is refused with its name, the expected type and the value."""
    for field, value in wire.items():
        wrong = "yes" if isinstance(value, bool) else True
        with pytest.raises(ProtocolError) as caught:
            parse_event(wire | {field: wrong})
        assert caught.value.field.endswith(f".{field}")
        assert caught.value.got == json.dumps(wrong)
        assert caught.value.expected in str(caught.value)


@pytest.mark.parametrize(
    ("name", "change", "field"),
    [
        ("segment with words", {"words": [{"word": "a", "start_s": "0"}]}, "segment.words[0].start_s"),
        ("segment with words", {"words": ["a"]}, "segment.words[0]"),
        ("segment with words", {"id": -1}, "segment.id"),
        ("segment with words", {"id": 1.5}, "segment.id"),
        ("segment with words", {"start_s": float("inf")}, "segment.start_s"),
        ("utterance", {"uncovered": [[0, 1], [2]]}, "utterance.uncovered[1]"),
        # Audio could not be split into messages of zero bytes.
        ("started", {"limits": {"max_message_bytes": 0}}, "started.limits.max_message_bytes"),
    ],
)
def test_a_wrong_value_inside_is_named_with_its_path(name: str, change: dict[str, Any], field: str) -> None:
    wire = next(case["wire"] for case in read_golden("server.json") if case["name"] == name)
    with pytest.raises(ProtocolError) as caught:
        parse_event(wire | change)
    assert caught.value.field == field


@pytest.mark.parametrize("text", ["hello", "[1]", '{"type": "lag", "behind_s": NaN}', '{"behind_s": 1}', '{"type": 3}'])
def test_text_that_is_not_an_event_is_refused(text: str) -> None:
    """Text that is not a JSON object with a type is a ProtocolError."""
    with pytest.raises(ProtocolError):
        parse_event(text)


def test_newer_events_and_fields_are_not_errors() -> None:
    """An event of an unknown type is kept whole; an unknown field is left out."""
    newer = {"type": "speaker", "name": "A"}
    assert parse_event(newer) == UnknownEvent("speaker", newer)
    assert event_to_wire(parse_event(newer)) == newer
    lag = {"type": "lag", "behind_s": 1}
    assert event_to_wire(parse_event(lag | {"reason": "busy"})) == lag
