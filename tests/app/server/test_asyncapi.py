"""The published AsyncAPI document, compared with the golden messages, the parser and the events of sessions."""

import json
from pathlib import Path
from typing import Any, get_args

import httpx
import jsonschema_rs
import pytest

from tests.app.conftest import Serve
from tutti_server.app.dialects import text_rules
from tutti_server.app.dialects.native import wire
from tutti_server.app.server.asyncapi import COMMANDS, DOCUMENT, EVENTS, RECEIVED, SENT
from tutti_server.app.session.messages import commands

WIRE = Path(__file__).parents[2] / "wire"
Messages = list[dict[str, Any]]


def golden(name: str) -> Messages:
    """The messages of a file of golden messages."""
    cases: Messages = json.loads((WIRE / name).read_text())
    return [case["wire"] for case in cases]


def strict(schema: Any) -> Any:
    """The schema without room for fields that it does not describe."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {"additionalProperties": False} if "properties" in schema else {}
    return {name: strict(each) for name, each in schema.items()} | closed


def is_described(message: dict[str, Any], table: dict[str, Any]) -> bool:
    """Whether the payload of its type has every field of a message, with its type and limits."""
    return jsonschema_rs.Draft202012Validator(strict(table[message["type"]]["payload"])).is_valid(message)


def paths(schema: Any, prefix: str = "") -> set[str]:
    """The names of all fields of objects in a schema, with the names of the objects around them."""
    if isinstance(schema, list):
        return set().union(*(paths(each, prefix) for each in schema))
    if not isinstance(schema, dict):
        return set()
    own = {f"{prefix}{name}" for name in schema.get("properties", {})}
    inner = [paths(each, f"{prefix}{name}.") for name, each in schema.get("properties", {}).items()]
    around = [paths(schema.get(key), prefix) for key in ("anyOf", "items")]
    return own.union(*inner, *around)


@pytest.mark.parametrize("message", golden("client.json"), ids=lambda message: str(message["type"]))
def test_golden_messages_of_clients_are_described(message: dict[str, Any]) -> None:
    assert is_described(message, SENT)


@pytest.mark.parametrize("message", golden("server.json"), ids=lambda message: str(message["type"]))
def test_golden_messages_of_servers_are_described(message: dict[str, Any]) -> None:
    assert is_described(message, RECEIVED)


def test_every_kind_of_message_is_described() -> None:
    assert set(EVENTS) == {*get_args(wire.ControlMessage), *get_args(wire.TurnEvent)}
    assert set(COMMANDS) == {commands.Start, commands.Flush, commands.Keepalive, commands.Stop}
    assert {message["type"] for message in golden("server.json")} == set(RECEIVED)
    assert all(message["summary"].endswith(".") for message in DOCUMENT["components"]["messages"].values())


def test_every_field_that_the_parser_reads_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no other: the parser is asked which keys it looks for."""
    read: set[str] = set()

    class ReadFields(wire._Fields):
        def _note(self, key: str) -> None:
            # A field of an item of a list is named as a field of the list.
            read.add(self._name(key).replace("[0]", ""))

        def pop(self, key: str, *rest: Any) -> Any:
            self._note(key)
            return super().pop(key, *rest)

        def object(self, key: str) -> dict[str, Any]:
            self._note(key)
            return super().object(key)

        def objects(self, key: str, at_most: int) -> list[wire._Fields]:
            self._note(key)
            return super().objects(key, at_most)

    monkeypatch.setattr(wire, "_Fields", ReadFields)
    untranslated = {"utterance": 0, "channel": 0, "start_s": 0, "end_s": 1, "text": "", "targets": ["de"]}
    resume = {"from_s": 0, "untranslated": [untranslated]}
    for speakers in ({"speakers": {"max": 2}}, {"channel_names": ["agent"]}):
        wire.decode(json.dumps({"type": "start", "resume": resume, "room": {}, **speakers}))
    rules = paths(COMMANDS[commands.Start]["properties"]["text_rules"], "text_rules.")
    assert paths(COMMANDS[commands.Start]) == read | rules | {"type"}
    with pytest.raises(ValueError) as refused:
        text_rules.parse_text_rules({"": 1}, lambda *problem: ValueError(problem[1]))
    assert {rule for rule in rules if rule.removeprefix("text_rules.") in str(refused.value)} == rules


def test_most_wrong_values_of_start_are_outside_the_description() -> None:
    """What a schema cannot say is left to the server: what depends on another field, and what a word is."""
    cases: Messages = json.loads((WIRE / "bad_client.json").read_text())
    wrong = {case["name"]: json.loads(case["text"]) for case in cases if case["code"] == "bad_start"}
    accepted = {name for name, message in wrong.items() if is_described(message, SENT)}
    assert accepted == {
        *("names of channels and speakers", "fewer names than channels"),
        *("silences in the wrong order", "a replacement of nothing"),
    }


async def test_the_document_names_the_server_and_needs_no_key(serve: Serve) -> None:
    needed = [{"$ref": "#/components/securitySchemes/key"}]
    cases: list[tuple[dict[str, Any], Any]] = [({}, None), ({"api_keys": "k"}, needed)]
    for values, security in cases:
        server = await serve(**values)
        async with httpx.AsyncClient() as client:
            document = (await client.get(f"{server.http}/asyncapi.json")).json()
        this = document.pop("servers")["this"]
        assert (this["host"], this["protocol"], this.get("security")) == (server.address, "ws", security)
        assert document == DOCUMENT
