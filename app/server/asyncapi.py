"""The AsyncAPI document of live sessions in the native protocol, whose meaning `docs/protocol.md` explains.

The types of fields come from the dataclasses of commands and events, and limits from the parser. A test compares the
document with the golden messages and with what the parser reads.
"""

from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tutti_server.app.dialects import limits
from tutti_server.app.dialects.native import speakers_wire, wire
from tutti_server.app.dialects.text_rules import MAX_PHRASE_CHARS, MAX_PHRASES
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.server.openapi import object_of
from tutti_server.app.service.service import Service
from tutti_server.app.session.messages import commands, events
from tutti_server.app.text_rules.redaction import KINDS
from tutti_server.app.version import VERSION
from tutti_server.engine.api import MAX_BEAM_SIZE, MAX_HOTWORDS

Schema = dict[str, Any]

_TYPES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def _type(hint: Any) -> Schema:
    """The schema of a plain type, of a union of them, or of a tuple of the same."""
    if get_origin(hint) is tuple:
        return _list(_type(get_args(hint)[0]))
    kinds = [_TYPES[each] for each in (get_args(hint) if isinstance(hint, UnionType) else (hint,))]
    return {"type": kinds[0] if len(kinds) == 1 else kinds}


def _of(kind: type, names: str) -> dict[str, Schema]:
    """The schemas of these fields of a dataclass."""
    hints = get_type_hints(kind)
    return {name: _type(hints[name]) for name in names.split()}


def _within(least: float, most: float, kind: str = "integer", **more: Any) -> Schema:
    return {"type": kind, "minimum": least, "maximum": most, **more}


def _text(most: int, least: int = 0) -> Schema:
    return {"type": "string", "minLength": least, "maxLength": most}


def _list(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def _described(description: str, schema: Schema) -> Schema:
    return schema | {"description": description}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


TIME = _within(0, wire.MAX_FROM_S, "number")
LANGUAGE: Schema = {"type": "string", "minLength": 1}
LANGUAGES = _list(LANGUAGE, maxItems=wire.MAX_LANGUAGES)
CONFIDENCE = _within(0, 1, "number")
SILENCE = _within(limits.MIN_SILENCE_MS, limits.MAX_SILENCE_MS)
PHRASE = _text(MAX_PHRASE_CHARS, 1)
FLUSH_ID: Schema = {"anyOf": [_text(wire.MAX_FLUSH_ID_CHARS), _within(-(2**63), 2**63 - 1)]}
SPEAKER: Schema = {"type": "string", "description": "A letter, or the name of the channel."}
WORD = object_of({"word": {"type": "string"}, **_of(events.Word, "start_s end_s confidence")}, {"speaker": SPEAKER})
PLACE = "utterance channel start_s end_s"
PROBABILITY = {"language_probability": {"type": "number"}}

AUDIO = object_of(
    {},
    {
        "encoding": {"enum": list(wire.ENCODINGS), "default": AudioFormat().encoding},
        "sample_rate": _within(8000, 48000, default=AudioFormat().sample_rate),
        "channels": _within(1, 8, default=AudioFormat().channels),
    },
)
ENDPOINTING = object_of(
    {},
    {
        "mode": {"enum": list(wire.MODES)},
        **dict.fromkeys(("silence_ms", "min_silence_ms", "max_silence_ms"), SILENCE),
        **dict.fromkeys(("end_confidence", "eager_confidence", "threshold"), CONFIDENCE),
        "min_utterance_s": _within(0, 10, "number"),
        "max_utterance_s": _within(10, 300, "number"),
        "padding_ms": _within(0, limits.MAX_PADDING_MS),
    },
)
UNTRANSLATED = object_of(
    {
        **dict.fromkeys(("utterance", "channel"), _within(0, wire.MAX_NUMBER)),
        **{"start_s": TIME, "end_s": TIME, "text": _text(limits.MAX_PROMPT_CHARS), "targets": LANGUAGES},
    },
    {"language": _or_null(LANGUAGE)},
)
RESUME = object_of(
    {"from_s": {"anyOf": [TIME, _list(TIME, minItems=1)]}},
    {
        "prompt": _text(limits.MAX_PROMPT_CHARS),
        "audio_from_s": TIME,
        "detector_from_s": _list(_or_null(TIME)),
        "language": {"anyOf": [_or_null(LANGUAGE), _list(_or_null(LANGUAGE), minItems=1)]},
        "untranslated": _list(UNTRANSLATED, maxItems=wire.MAX_UNTRANSLATED),
        "voices": _text(speakers_wire.MAX_VOICES_CHARS),
    },
)
ROOM = object_of(
    {},
    {
        "name": {"type": "string", "pattern": f"^{wire.ROOM_NAME.pattern}$"},
        "token": {"type": "string", "pattern": f"^{wire.ROOM_TOKEN.pattern}$"},
        "title": _text(wire.MAX_TITLE_CHARS),
    },
) | {"dependentRequired": {"token": ["name"]}}
TEXT_RULES = object_of(
    {},
    {
        "numerals": {"type": "boolean"},
        "redact": _list({"enum": list(KINDS)}),
        "redact_names": _list(PHRASE, maxItems=MAX_PHRASES),
        "replace": {
            **{"type": "object", "maxProperties": MAX_PHRASES, "propertyNames": PHRASE},
            "additionalProperties": _text(MAX_PHRASE_CHARS),
        },
        "profanity": {"enum": ["mask", None]},
    },
) | {"additionalProperties": False}
_SWITCHES = "interim words interim_words resumes"

COMMANDS: dict[type, Schema] = {
    commands.Start: object_of(
        {"type": {"const": "start"}},
        {
            "audio": AUDIO,
            "model": _described("A name of a model; null for the first one.", _or_null(_text(limits.MAX_NAME_CHARS))),
            "language": _described("A code, `lock` to detect it once, or null to detect it.", _or_null(LANGUAGE)),
            "languages": _described("The languages to detect one of; empty for all.", LANGUAGES),
            "translate": _described("The languages that final text is translated to.", LANGUAGES),
            "task": {"enum": list(wire.TASKS), "default": commands.Start().task},
            **_of(commands.Start, _SWITCHES),
            "turns": {"type": "boolean"},
            "endpointing": ENDPOINTING,
            "prompt": _text(limits.MAX_PROMPT_CHARS),
            "hotwords": _list({"type": "string", "pattern": r"\S"}, maxItems=MAX_HOTWORDS),
            "beam_size": _or_null(_within(1, MAX_BEAM_SIZE)),
            "resume": _or_null(RESUME),
            "room": _or_null(ROOM),
            "speakers": _or_null(object_of({}, {"max": _within(1, limits.MAX_SPEAKERS)})),
            "channel_names": _list(_text(speakers_wire.MAX_NAME_CHARS, 1), uniqueItems=True),
            "text_rules": TEXT_RULES,
        },
    ),
    commands.Flush: object_of({"type": {"const": "flush"}, "id": FLUSH_ID}),
    commands.Keepalive: object_of({"type": {"const": "keepalive"}}),
    commands.Stop: object_of({"type": {"const": "stop"}}),
}
"""The payload of each command that is a text message."""

NOTICE = object_of({"code": {"type": "string"}, "message": {"type": "string"}})
_TURN = object_of(
    {
        **{"type": {"const": "turn"}, "event": {"enum": ["eager_end", "resumed", "end"]}},
        **_of(events.EagerEnd, "utterance channel at_s"),
        **{"confidence": {"type": ["number", "null"]}, "text": {"type": ["string", "null"]}},
    }
)
_STARTED_ROOM = object_of({"name": {"type": "string"}, "path": {"type": "string"}, "token": {"type": "string"}})

EVENTS: dict[type, Schema] = {
    events.Started: object_of(
        {
            "type": {"const": "started"},
            **_of(events.Started, "session_id model"),
            "limits": object_of(_of(events.Limits, " ".join(each.name for each in fields(events.Limits)))),
            "warnings": _list(NOTICE),
        },
        {"room": _STARTED_ROOM},
    ),
    events.SpeechStarted: object_of(
        {"type": {"const": "speech_started"}, **_of(events.SpeechStarted, "utterance channel at_s")}
    ),
    events.Interim: object_of(
        {"type": {"const": "interim"}, **_of(events.Interim, f"{PLACE} stable tail")},
        {"stable_words": _list(WORD), "speaker": SPEAKER},
    ),
    events.Segment: object_of(
        {
            "type": {"const": "segment"},
            **_of(events.Segment, f"{PLACE} id text language"),
            **{"words": _list(WORD), "confidence": {"type": "number"}},
        },
        {"redactions": _list(object_of(_of(events.Redaction, "kind start_s end_s"))), "speaker": SPEAKER} | PROBABILITY,
    ),
    events.Utterance: object_of(
        {
            "type": {"const": "utterance"},
            **_of(events.Utterance, f"{PLACE} text final_until_s resume_from_s detector_from_s"),
            "uncovered": _list(_list({"type": "number"}, minItems=2, maxItems=2)),
        },
        {
            **{"language": {"type": "string"}, "speaker": SPEAKER, **PROBABILITY},
            **_of(events.Utterance, "translated_until_s voices"),
        },
    ),
    events.Translation: object_of(
        {
            "type": {"const": "translation"},
            **_of(events.Translation, f"{PLACE} language text translated_until_s"),
        },
        {"earlier": {"const": True}},
    ),
    events.Speakers: object_of(
        {
            **{"type": {"const": "speakers"}, **_of(events.Speakers, "channel")},
            "spans": _list(object_of({**_of(events.SpeakerSpan, "from_s until_s"), "speaker": SPEAKER})),
        }
    ),
    events.Endpoint: _TURN,
    events.EagerEnd: _TURN,
    events.SpeechResumed: _TURN,
    events.Flushed: object_of({"type": {"const": "flushed"}, "id": FLUSH_ID}),
    events.Lag: object_of({"type": {"const": "lag"}, **_of(events.Lag, "behind_s")}),
    events.Notice: object_of({"type": {"const": "warning"}, **NOTICE["properties"]}),
    events.Failure: object_of({"type": {"const": "error"}, **NOTICE["properties"], "fatal": {"type": "boolean"}}),
    events.Stopped: object_of({"type": {"const": "stopped"}, **_of(events.Stopped, "audio_s speech_s words")}),
}
"""The payload of each event; those about turns have one message together."""


def _messages(payloads: dict[type, Schema]) -> dict[str, Schema]:
    """The messages of a table by their types, with the first sentence of each dataclass."""
    messages: dict[str, Schema] = {}
    for kind, payload in payloads.items():
        name = payload["properties"]["type"]["const"]
        summary = "What is known about the end of a turn." if payload is _TURN else (kind.__doc__ or "").split("\n")[0]
        messages[name] = {"name": name, "summary": summary, "contentType": "application/json", "payload": payload}
    return messages


_AUDIO_MESSAGE: Schema = {
    **{"name": "audio", "contentType": "application/octet-stream", "payload": {"type": "string", "format": "binary"}},
    "summary": "A binary message: samples in the encoding of `start`, cut anywhere.",
}
SENT = {"audio": _AUDIO_MESSAGE, **_messages(COMMANDS)}
"""What a client sends, by the names of the messages. `start` comes first."""
RECEIVED = _messages(EVENTS)
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
