"""The AsyncAPI document of live sessions in the native protocol, whose meaning `docs/protocol.md` explains.

It is computed from the classes of `tutti.messages`: their types, limits and descriptions.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tutti import messages as v1
from tutti.fields import (
    INFINITE,
    Field,
    Length,
    alternatives,
    bare,
    is_message,
    item_of,
    length_of,
    message_fields,
    range_of,
    wire_type,
)
from tutti_server.app.dialects.native import wire
from tutti_server.app.server.message_docs import descriptions, summary
from tutti_server.app.server.openapi import object_of
from tutti_server.app.service.service import Service
from tutti_server.app.version import VERSION

Schema = dict[str, Any]

_TYPES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}
MORE: dict[Any, Schema] = {
    v1.Room: {"dependentRequired": {"token": ["name"]}},
    v1.TextRules: {"additionalProperties": False},
    "channel_names": {"uniqueItems": True},
}
"""What the server requires beside the types of fields: of a class, or of a field by its name."""


def schema_of(hint: Any) -> Schema:
    """The schema of the values of a type."""
    plain, length = bare(hint), length_of(hint)
    if len(types := alternatives(hint)) > 1:
        return {"anyOf": [schema_of(each) for each in types]}
    if is_message(plain):
        return _object(plain)
    if (item := item_of(hint)) is not None:
        return {"type": "array", "items": schema_of(item)} | _sizes(length, "Items")
    if get_origin(plain) is Mapping:
        names, values = map(schema_of, get_args(plain))
        phrases = {"propertyNames": names, "additionalProperties": values}
        return {"type": "object"} | phrases | _sizes(length, "Properties")
    return _scalar(plain, hint)


def _scalar(plain: Any, hint: Any) -> Schema:
    if get_origin(plain) is Literal:
        return {"enum": list(get_args(plain))}
    if plain == tuple[float, float]:
        return {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
    schema: Schema = {"type": _TYPES[plain]}
    if plain in (int, float):
        limits = {"minimum": range_of(hint).least, "maximum": range_of(hint).most}
        return schema | {name: each for name, each in limits.items() if abs(each) != INFINITE}
    length = length_of(hint)
    return schema | ({"pattern": f"^{length.pattern}$"} if length.pattern else _sizes(length, "Length"))


def _sizes(length: Length, of: str) -> Schema:
    limits = {f"min{of}": (length.least, 0), f"max{of}": (length.most, Length().most)}
    return {name: size for name, (size, usual) in limits.items() if size != usual}


@cache
def _object(kind: type, is_inside: bool = True) -> Schema:
    """The schema of a message. Inside of another one it has no type."""
    head: Schema = {} if is_inside else {"type": {"const": wire_type(kind)}}
    fields = {each.name: _field(kind, each) for each in message_fields(kind)}
    needed = {each.name for each in message_fields(kind) if each.is_required}
    optional = {name: schema for name, schema in fields.items() if name not in needed}
    return object_of(head | {name: fields[name] for name in needed}, optional) | MORE.get(kind, {})


def _field(kind: type, field: Field) -> Schema:
    schema = schema_of(field.hint) | MORE.get(field.name, {})
    # A union with null has it already.
    if field.takes_null and not field.is_required:
        schema = {"anyOf": [*schema.get("anyOf", [schema]), {"type": "null"}]}
    if isinstance(field.default, str | int) and not isinstance(field.default, bool):
        schema["default"] = field.default
    text = descriptions(kind).get(field.name)
    return schema | ({"description": text} if text else {})


def _messages(kinds: Iterable[type]) -> dict[str, Schema]:
    """The messages by their types, each with the first sentence about its class."""
    messages: dict[str, Schema] = {}
    for kind in kinds:
        text = summary(kind).partition("\n")[0]
        name = str(wire_type(kind))
        messages[name] = {"name": name, "summary": text, "contentType": "application/json"}
        messages[name]["payload"] = _object(kind, is_inside=False)
    return messages


_AUDIO_MESSAGE: Schema = {
    **{"name": "audio", "contentType": "application/octet-stream", "payload": {"type": "string", "format": "binary"}},
    "summary": "A binary message: samples in the encoding of `start`, cut anywhere.",
}
SENT = {"audio": _AUDIO_MESSAGE, **_messages(get_args(v1.Command))}
"""What a client sends, by the names of the messages. `start` comes first."""
RECEIVED = _messages(v1.EVENTS.values())
"""What a client receives, by the names of the messages. `started` comes first."""


def _operation(action: str, summary: str, messages: dict[str, Schema]) -> Schema:
    channel = "#/channels/stream"
    references = [{"$ref": f"{channel}/messages/{name}"} for name in messages]
    return {"action": action, "channel": {"$ref": channel}, "summary": summary, "messages": references}


DOCUMENT: Schema = {
    "asyncapi": "3.0.0",
    "info": {
        "title": "tutti",
        "version": VERSION,
        "description": "Live sessions in the native protocol. Sockets of other protocols, such as Deepgram's and "
        "OpenAI's, take and send what their makers describe.",
        "license": {"name": "Apache-2.0"},
    },
    "defaultContentType": "application/json",
    "channels": {
        "stream": {
            "address": "/v1/stream",
            "title": "A live session.",
            "description": f"The WebSocket subprotocol is {wire.SUBPROTOCOL}. A browser shows its key as a second one, "
            "`tutti.key.` and the key.",
            "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in (*SENT, *RECEIVED)},
        }
    },
    "operations": {
        "receiveFromClient": _operation("receive", "What the server takes: `start`, then audio and commands.", SENT),
        "sendToClient": _operation("send", "What the server sends: `started`, then events.", RECEIVED),
    },
    "components": {
        "messages": SENT | RECEIVED,
        "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
    },
}
"""The document, without the server."""


async def asyncapi(request: Request) -> Response:
    """The document. It needs no key. Its server is the address of the request."""
    service: Service = request.app.state.service
    url = request.base_url
    server: Schema = {"host": url.netloc, "pathname": url.path, "protocol": "wss" if url.is_secure else "ws"}
    if not service.access.is_open:
        server["security"] = [{"$ref": "#/components/securitySchemes/key"}]
    return JSONResponse(DOCUMENT | {"servers": {"this": server}})
