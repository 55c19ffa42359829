"""Messages are parsed and encoded as the golden messages show."""

import json
from dataclasses import replace
from typing import Any, get_args

import pytest

from tests.clients.python.client_fakes import read_golden
from tutti.errors import ProtocolError
from tutti.fields import message_fields, read
from tutti.messages import (
    EVENTS,
    Command,
    TextRules,
    UnknownEvent,
    Utterance,
    encode_command,
    event_to_wire,
    parse_event,
)

SERVER = [pytest.param(case["wire"], id=case["name"]) for case in read_golden("server.json")]
CLIENT = [pytest.param(case["wire"], id=case["name"]) for case in read_golden("client.json")]

TEXT_RULES = TextRules(
    numerals=True,
    redact=["card", "email"],
    redact_names=["Kowalski"],
    replace={"cuba nets": "Kubernetes"},
    profanity="mask",
)
"""Those of a golden message. No reader knows them: the server has one of its own for them."""


@pytest.mark.parametrize("wire", SERVER)
def test_golden_server_messages_round_trip(wire: dict[str, Any]) -> None:
    """Every event of the server can be parsed and encoded, and is the same afterwards."""
    event = parse_event(json.dumps(wire))
    assert not isinstance(event, UnknownEvent)
    assert event_to_wire(event) == wire
    assert parse_event(wire) == event


@pytest.mark.parametrize("wire", CLIENT)
def test_golden_client_messages_round_trip(wire: dict[str, Any]) -> None:
    """Every command has the fields of its golden message, and is encoded exactly as that is."""
    kinds: dict[str, type] = {kind.type: kind for kind in get_args(Command)}
    fields = {name: value for name, value in wire.items() if name != "text_rules"}
    command = read(kinds[wire["type"]], fields)
    if "text_rules" in wire:
        command = replace(command, text_rules=TEXT_RULES)
    assert json.loads(encode_command(command)) == wire


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
