"""Writes what other languages and readers see of the messages of `tutti.v1`: `python -m tests.wire_messages`.

From the classes of `clients/python/tutti/messages.py` it makes the types and readers of the JavaScript client and the
tables of `docs/protocol.md`.
"""

import json
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from tutti import messages as v1
from tutti.fields import (
    Field,
    Length,
    Within,
    alternatives,
    bare,
    is_message,
    item_of,
    marks,
    message_fields,
    range_of,
    wire_type,
)
from tutti.fields import reader_of as checks
from tutti_server.app.dialects.native.wire import EAGER_CONFIDENCE
from tutti_server.app.server.message_docs import descriptions, summary
from tutti_server.app.session.messages import commands

REPOSITORY = Path(__file__).parents[1]
TYPESCRIPT = REPOSITORY / "clients" / "js" / "src" / "messages.ts"
PAGE = REPOSITORY / "docs" / "protocol.md"
COLUMNS = 120
MAX_SHOWN = 100_000
"""Limits above are of no interest for people."""

OTHERS = (v1.UnknownEvent, v1.Flush, v1.KeepAlive, v1.Stop, Length, Within)
"""Classes in the module that are no interfaces in JavaScript, or other ones."""
ALIASES: dict[Any, str] = {v1.Encoding: "Encoding", v1.FlushId: "FlushId"}
TYPES: dict[Any, str] = {
    **{str: "string", int: "number", float: "number", bool: "boolean", NoneType: "null"},
    **{tuple: "readonly [number, number]", Mapping: "Readonly<Record<string, string>>"},
}
READERS: dict[Any, str] = {
    str: "text",
    int: "count",
    float: "number",
    bool: "boolean",
    tuple: "stretch",
    v1.Word: "readWord",
}
HEAD = """\
/**
 * The messages of `tutti.v1`, with the names of the wire. All times are seconds on the timeline of the session: from
 * its first sample, or in a resumed session from the first sample of the lost one.
 * `python -m tests.wire_messages` writes this module from `clients/python/tutti/messages.py`.
 */

import { boolean, flushId, integer, list, number, object, oneOf } from "./fields.js";
import { optional, orNull, type Read, stretch, text } from "./fields.js";

const count = integer(0);
"""


# TypeScript.


def type_name(kind: type) -> str:
    """The name of a class in TypeScript."""
    name = kind.__name__.removeprefix("Server")
    if kind is v1.Start:
        return "StartOptions"
    return f"{name.removesuffix('Event')}Event" if wire_type(kind) else name


def type_of(hint: Any) -> str:
    """The type of a field."""
    plain, types, item = bare(hint), alternatives(hint), item_of(hint)
    if hint in ALIASES:
        return ALIASES[hint]
    if len(types) > 1:
        return " | ".join(map(type_of, types))
    if is_message(plain):
        # A message inside of another one has no type.
        return f'Omit<{type_name(plain)}, "type">' if wire_type(plain) else type_name(plain)
    if item is not None:
        inner = type_of(item)
        return f"readonly ({inner})[]" if " " in inner else f"readonly {inner}[]"
    return literal(plain, " | ") if get_origin(plain) is Literal else TYPES[get_origin(plain) or plain]


def literal(hint: Any, separator: str) -> str:
    """The values of a literal."""
    return separator.join(f'"{each}"' for each in get_args(hint))


def comment(text: str, indent: str = "") -> str:
    """A comment before what it is about."""
    text = text.replace("\n", " ")
    line = f"{indent}/** {text} */\n"
    if len(line) <= COLUMNS + 1:
        return line
    wrapped = textwrap.wrap(text, COLUMNS - len(indent) - 3)
    return "".join((f"{indent}/**\n", *(f"{indent} * {each}\n" for each in wrapped), f"{indent} */\n"))


def limits(hint: Any) -> str:
    """The values of a number, as a sentence."""
    within = next((each for part in alternatives(hint) for each in marks(part) if isinstance(each, Within)), None)
    return f" {within.least} to {within.most}." if within and within.most <= MAX_SHOWN else ""


def interface(kind: type) -> str:
    """The interface of a message."""
    lines = [comment(summary(kind)), f"export interface {type_name(kind)} {{\n"]
    if wire_type(kind) and kind is not v1.Start:
        lines.append(f'  readonly type: "{wire_type(kind)}";\n')
    for field in message_fields(kind):
        if (text := descriptions(kind).get(field.name)) is not None:
            lines.append(comment(text + limits(field.hint), "  "))
        is_there = field.is_required or field.is_always_sent
        null = " | null" if field.takes_null and not field.is_required else ""
        lines.append(f"  readonly {field.name}{'' if is_there else '?'}: {type_of(field.hint)}{null};\n")
    return "".join((*lines, "}\n"))


def command(kind: type) -> str:
    """The type of a command in a line."""
    fields = () if kind is v1.Start else message_fields(kind)
    names = "".join(f"; readonly {each.name}: {type_of(each.hint)}" for each in fields)
    return f'{{ readonly type: "{wire_type(kind)}"{names} }}'


def reader_of(field: Field) -> str:
    """What checks a field of an event."""
    read = _reader(field.hint)
    if field.is_always_sent:
        return f"optional({read}, [])"
    return read if field.is_required else f"optional({read})"


def _reader(hint: Any) -> str:
    plain, item = bare(hint), item_of(hint)
    if hint == v1.FlushId:
        return "flushId"
    if NoneType in (types := alternatives(hint)):
        (other,) = (each for each in types if each is not NoneType)
        return f"orNull({_reader(other)})"
    if item is not None:
        return f"list({_reader(item)})"
    if get_origin(plain) is Literal:
        return f"oneOf({literal(plain, ', ')})"
    if is_message(plain) and plain is not v1.Word:
        return shape(plain)
    least = range_of(hint).least if plain is int else 0
    return f"integer({least})" if least else READERS[get_origin(plain) or plain]


def shape(kind: type, name: str = "") -> str:
    """What checks an event, or an object inside of one. `name` stands before it."""
    # Lines are not broken at spaces that do not break.
    fields = (f"{each.name}:\xa0{reader_of(each)}" for each in message_fields(kind))
    inner = f"{{ {', '.join(fields)} }}"
    line = f"{name}object<{type_of(kind)}>({inner})"
    if len(line) < COLUMNS or not name:
        return line
    indent = " " * (len(name) - len(name.lstrip()))
    lines = textwrap.wrap(f"{inner[2:-2]},", COLUMNS - len(indent) - 2, break_long_words=False, break_on_hyphens=False)
    return "\n".join((line.removesuffix(f"{inner})") + "{", *(f"{indent}  {each}" for each in lines), indent + "})"))


def typescript() -> str:
    """The module of the JavaScript client."""
    parts = [HEAD]
    for hint, name in ALIASES.items():
        values = "string | number" if hint == v1.FlushId else literal(hint, " | ")
        parts.append(comment(descriptions()[name]) + f"export type {name} = {values};\n")
    parts += (interface(kind) for kind in vars(v1).values() if is_message(kind) and kind not in OTHERS)
    parts.append(
        comment("A message of the client. Audio is sent as binary messages.")
        + f"export type Command = ({command(v1.Start)} & StartOptions)"
        + "".join(f"\n  | {command(each)}" for each in (v1.Flush, v1.KeepAlive, v1.Stop))
        + ";\n"
    )
    names = " | ".join(type_name(each) for each in v1.EVENTS.values())
    known = textwrap.fill(f"export type KnownEvent = {names};", COLUMNS, subsequent_indent="  ")
    parts.append(f"/** The messages of the server. */\n{known}\n")
    # Several events have words. Other objects are in one of them.
    parts.append(shape(v1.Word, "const readWord = ") + ";\n")
    shapes = "".join(shape(kind, f"  {name}: ") + ",\n" for name, kind in v1.EVENTS.items())
    parts.append(
        "/** Reads the fields of each event. */\n"
        'export const EVENTS: { readonly [Event in KnownEvent as Event["type"]]: Read<Omit<Event, "type">> } = {\n'
        f"{shapes}}};\n"
    )
    return "\n".join(parts).replace("\xa0", " ")


# The page.

TABLES: dict[str, Callable[[], str]] = {
    "| field | default | values | means |\n|---|---|---|---|\n": lambda: "".join(options(v1.Start)),
    "| event | fields | means |\n|---|---|---|\n": lambda: "".join(map(event_row, v1.EVENTS.values())),
}
"""The heads of the tables in the page, and what makes their rows."""
DEFAULTS: dict[str, object] = {
    **{field.name: getattr(commands.Start(), field.name, None) for field in message_fields(v1.Start)},
    **{
        f"endpointing.{each.name}": getattr(commands.Endpointing(), each.name)
        for each in message_fields(v1.Endpointing)
    },
    **{"endpointing.mode": "by the model", "endpointing.eager_confidence": EAGER_CONFIDENCE},
    **{"speakers.max": v1.MAX_SPEAKERS, "turns": False},
}
"""What the server does without a field."""


def options(kind: type, prefix: str = "") -> Iterable[str]:
    """A row for each field of `start`, and of the objects in it."""
    for field in message_fields(kind):
        name = f"{prefix}{field.name}"
        default = DEFAULTS.get(name, field.default)
        nothing = default is MISSING or default in (None, (), "") or is_message(field.hint)
        shown = "" if nothing else default if default == "by the model" else f"`{json.dumps(default)}`"
        yield f"| `{name}` | {shown} | {values(field)} | {means(kind, field)} |\n"
        # Text rules have a page of their own.
        if is_message(field.hint) and field.hint is not v1.TextRules:
            yield from options(field.hint, f"{name}.")


def values(field: Field) -> str:
    """The values of a field, as errors say."""
    item = item_of(field.hint)
    text = "an object" if is_message(field.hint) else checks(field.hint).expected
    text += "" if item is None or is_message(item) else f", each {checks(item).expected}"
    return text + (" or null" if field.takes_null else "")


def means(kind: type, field: Field) -> str:
    """What a field means, in a line."""
    return descriptions(kind).get(field.name, "").replace("\n", " ")


def event_row(kind: type) -> str:
    """The row of an event."""
    fields = ", ".join(map(event_field, message_fields(kind)))
    return f"| `{wire_type(kind)}` | {fields} | {summary(kind).splitlines()[0]} |\n"


def event_field(field: Field) -> str:
    """The name of a field of an event, with what is in it. A star marks one that may be missing."""
    star = "" if field.is_required or field.is_always_sent else "*"
    inner = item_of(field.hint) or field.hint
    fields = f"{{{', '.join(map(event_field, message_fields(inner)))}}}" if is_message(inner) else ""
    spans = "[`start_s`, `end_s`]" if get_origin(inner) is tuple else ""
    content = f"[{fields or spans}]".replace("[]", "[…]") if item_of(field.hint) else fields
    return f"`{field.name}`{star} {content}".rstrip()


def page() -> str:
    """The page with its tables.

    Raises:
        ValueError: it lacks the head of one.
    """
    text = PAGE.read_text()
    for head, make_rows in TABLES.items():
        before, found, after = text.partition(head)
        if not found:
            raise ValueError(f"{PAGE}: expected a table that begins with {head!r}")
        rest = after.partition("\n\n")[2]
        text = f"{before}{head}{make_rows()}\n{rest}"
    return text


if __name__ == "__main__":
    TYPESCRIPT.write_text(typescript())
    PAGE.write_text(page())
