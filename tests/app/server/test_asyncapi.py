"""The published AsyncAPI document, compared with the golden messages, the parser and the events of sessions."""

import json
from pathlib import Path
from typing import Any, get_args

import jsonschema_rs
import pytest

from tests.app.conftest import Serve
from tutti import messages as v1
from tutti.fields import message_fields
from tutti_server.app.dialects import text_rules
from tutti_server.app.media.pcm import BYTES_PER_SAMPLE
from tutti_server.app.server.asyncapi import DOCUMENT, RECEIVED, SENT
from tutti_server.app.session.messages import commands
from tutti_server.app.text_rules.redaction import KINDS
from tutti_server.engine import api

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


@pytest.mark.parametrize("message", golden("client.json"), ids=lambda message: str(message["type"]))
def test_golden_messages_of_clients_are_described(message: dict[str, Any]) -> None:
    assert is_described(message, SENT)


@pytest.mark.parametrize("message", golden("server.json"), ids=lambda message: str(message["type"]))
def test_golden_messages_of_servers_are_described(message: dict[str, Any]) -> None:
    assert is_described(message, RECEIVED)


def test_every_kind_of_message_is_described() -> None:
    assert {message["type"] for message in golden("server.json")} == set(RECEIVED)
    assert {message["type"] for message in golden("client.json")} == set(SENT) - {"audio"}
    assert all(message["summary"].endswith(".") for message in DOCUMENT["components"]["messages"].values())


def test_values_are_those_that_the_server_knows() -> None:
    """The classes of messages are in the package of the client, which knows no engine."""
    with pytest.raises(ValueError) as refused:
        text_rules.parse_text_rules({"": 1}, lambda *problem: ValueError(problem[1]))
    assert all(rule.name in str(refused.value) for rule in message_fields(v1.TextRules))
    assert get_args(v1.RedactedKind) == KINDS
    assert set(get_args(v1.Encoding)) == set(BYTES_PER_SAMPLE)
    assert set(get_args(v1.EndpointingMode)) == set(get_args(commands.EndpointingMode))
    assert set(get_args(v1.Task)) == set(get_args(api.Task))
    start = SENT["start"]["payload"]["properties"]
    assert start["hotwords"]["maxItems"] == api.MAX_HOTWORDS
    assert start["beam_size"]["anyOf"][0]["maximum"] == api.MAX_BEAM_SIZE
    assert f"{api.MAX_HOTWORD_BYTES} bytes" in start["hotwords"]["description"]


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
    server = await serve(api_keys="k")
    document = (await server.get("/asyncapi.json")).json()
    this = document.pop("servers")["this"]
    needed = [{"$ref": "#/components/securitySchemes/key"}]
    assert (this["host"], this["protocol"], this["security"]) == (server.address, "ws", needed)
    assert document == DOCUMENT
