"""Reads and writes the JSON of dataclasses whose annotations say which values each field takes.

The messages of `tutti.v1` are such dataclasses. Annotations are looked at once for each class, not for each message.
How a field is on the wire follows from its annotation and its default:

- A field without a default is always there. Its value is null where it is None.
- A field with a default may be missing. It is left out where its value is the default, if that is None, False or ().
- A field with `Null` in its type may also be null, which means the same as missing.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, is_dataclass
from dataclasses import fields as dataclass_fields
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeGuard, Union, get_args, get_origin

Null: TypeAlias = Annotated[None, "null"]
"""Annotates a field that a client may send as null instead of leaving it out."""
ALWAYS = "always"
"""Annotates a field with a default that is always sent, and that only old servers leave out."""
REQUIRED = "required"
"""Annotates a field that is always there although its class has a default for it."""
INFINITE = sys.float_info.max
"""The greatest number that is one in JSON."""


@dataclass(frozen=True, slots=True)
class Within:
    """The least and the greatest value of a number."""

    least: float = 0
    most: float = INFINITE


@dataclass(frozen=True, slots=True)
class Length:
    """How many characters a text has, or how many items a list."""

    least: int = 0
    most: int = sys.maxsize
    pattern: str = ""
    """A regular expression that the whole text matches."""
    called: str = ""
    """What such a text is called in errors."""

    def __str__(self) -> str:
        """The allowed lengths, such as "of 1 to 64"; empty if any length is right."""
        if self.most == sys.maxsize:
            return f"of at least {self.least}" if self.least else ""
        return f"of {self.least} to {self.most:,}" if self.least else f"of at most {self.most:,}"


class Wrong(Exception):
    """A field does not take a value."""

    def __init__(self, expected: str, value: object = MISSING, path: str = "") -> None:
        """`path` leads from the object that is read to the value, which is `MISSING` where there is none."""
        super().__init__(expected, value, path)
        self.expected = expected
        self.value = value
        self.path = path


class Reader(NamedTuple):
    """Reads a value that was parsed from JSON."""

    expected: str
    """The values that it takes, for errors."""
    read: Callable[[Any], Any]
    """Returns the value as the message has it. Raises `Wrong`."""

    def takes(self, value: Any) -> bool:
        """Whether it reads a value."""
        try:
            self.read(value)
        except Wrong:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message."""

    name: str
    hint: Any
    """The type of the field, without the None that stands for a missing field."""
    default: object
    """`MISSING` if the field must be there."""
    takes_null: bool
    is_always_sent: bool

    @property
    def is_required(self) -> bool:
        """Whether a message without the field is wrong."""
        return self.default is MISSING


def wire_type(kind: type) -> str | None:
    """The `type` of a message; None for a class of objects inside of messages."""
    return getattr(kind, "type", None)


@cache
def message_fields(kind: type) -> tuple[Field, ...]:
    """The fields of a message, in the order of the wire."""
    return tuple(_field(each.name, each.type, each.default) for each in dataclass_fields(kind))


def _field(name: str, hint: Any, default: object) -> Field:
    default = MISSING if REQUIRED in marks(hint) else default
    types = alternatives(hint)
    kept = tuple(each for each in types if default is MISSING or bare(each) is not NoneType)
    takes_null = Null in types or NoneType in kept
    return Field(name, Union[kept], default, takes_null, ALWAYS in marks(hint))  # noqa: UP007 - of a tuple


def alternatives(hint: Any) -> tuple[Any, ...]:
    """The types of a union; another type alone."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def is_message(hint: Any) -> TypeGuard[type]:
    """Whether a type is a class with fields."""
    return isinstance(hint, type) and is_dataclass(hint)


def bare(hint: Any) -> Any:
    """A type without what it is annotated with."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def marks(hint: Any) -> tuple[Any, ...]:
    """What a type is annotated with."""
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def length_of(hint: Any) -> Length:
    """The length of a text or a list."""
    return next((each for each in marks(hint) if isinstance(each, Length)), Length())


def range_of(hint: Any) -> Within:
    """The values of a number. Integers begin at 0 where nothing else is said."""
    usual = Within() if bare(hint) is int else Within(-INFINITE)
    return next((each for each in marks(hint) if isinstance(each, Within)), usual)


def item_of(hint: Any) -> Any:
    """The type of the items of a list; None if the type is no list."""
    origin, arguments = get_origin(bare(hint)), get_args(bare(hint))
    return arguments[0] if origin is Sequence or (origin is tuple and Ellipsis in arguments) else None


# Reading.


def read(kind: type, value: Any) -> Any:
    """The message of this class in a JSON object. Unknown fields are left out.

    Raises:
        Wrong: a field is missing or wrong.
    """
    if not isinstance(value, Mapping):
        raise Wrong("an object", value)
    found = {}
    for name, reader, is_required in _readers(kind):
        if name in value:
            try:
                found[name] = reader.read(value[name])
            except Wrong as wrong:
                raise Wrong(wrong.expected, wrong.value, f".{name}{wrong.path}") from None
        elif is_required:
            raise Wrong(reader.expected, path=f".{name}")
    return kind(**found)


@cache
def _readers(kind: type) -> tuple[tuple[str, Reader, bool], ...]:
    readers = ((each, reader_of(each.hint | None if each.takes_null else each.hint)) for each in message_fields(kind))
    return tuple((field.name, reader, field.is_required) for field, reader in readers)


@cache
def reader_of(hint: Any) -> Reader:
    """Reads the values of a type."""
    plain, types = bare(hint), alternatives(hint)
    if len(types) > 1:
        return _any_of([reader_of(each) for each in types])
    if (item := item_of(hint)) is not None:
        return _list_of(reader_of(item).read, length_of(hint))
    if is_message(plain):
        return Reader("an object", lambda value: read(plain, value))
    if get_origin(plain) is Literal:
        return _one_of(get_args(plain))
    if plain in (int, float):
        return _number(plain, range_of(hint))
    checks: dict[Any, Reader] = {
        str: _text(length_of(hint)),
        bool: _checked("true or false", lambda value: isinstance(value, bool)),
        NoneType: _checked("null", lambda value: value is None),
        tuple[float, float]: Reader("[start_s, end_s]", _read_span),
    }
    return checks[plain]


def _checked(expected: str, is_right: Callable[[Any], bool]) -> Reader:
    def read_checked(value: Any) -> Any:
        if not is_right(value):
            raise Wrong(expected, value)
        return value

    return Reader(expected, read_checked)


def _one_of(values: tuple[str, ...]) -> Reader:
    expected = f"{', '.join(values[:-1])} or {values[-1]}" if len(values) > 1 else values[0]
    return _checked(expected, lambda value: isinstance(value, str) and value in values)


def _text(length: Length) -> Reader:
    matches = re.compile(length.pattern, re.ASCII).fullmatch if length.pattern else len
    expected = length.called or (f"text {length} characters" if str(length) else "a string")
    return _checked(
        expected,
        lambda value: (
            isinstance(value, str) and length.least <= len(value) <= length.most and matches(value) is not None
        ),
    )


def _number(kind: type, within: Within) -> Reader:
    least = "" if within.least == -INFINITE else f" from {within.least}"
    most = "" if within.most == INFINITE else f" to {within.most}"
    types = (int,) if kind is int else (int, float)
    is_right = _checked(
        f"{'an integer' if kind is int else 'a number'}{least}{most}",
        # Python's `bool` is an integer. NaN is within nothing.
        lambda value: isinstance(value, types) and not isinstance(value, bool) and within.least <= value <= within.most,
    )
    return Reader(is_right.expected, lambda value: kind(is_right.read(value)))


def _any_of(readers: Sequence[Reader]) -> Reader:
    expected = " or ".join(each.expected for each in readers)

    def read_any(value: Any) -> Any:
        for reader in readers:
            try:
                return reader.read(value)
            except Wrong as wrong:
                # What is wrong is inside of a list, and no other type is a list.
                if wrong.path:
                    raise
        raise Wrong(expected, value)

    return Reader(expected, read_any)


def _list_of(read_item: Callable[[Any], Any], length: Length) -> Reader:
    expected = f"a list {length}".rstrip()

    def read_list(value: Any) -> tuple[Any, ...]:
        if not (isinstance(value, list | tuple) and length.least <= len(value) <= length.most):
            raise Wrong(expected, value)
        items = []
        for index, each in enumerate(value):
            try:
                items.append(read_item(each))
            except Wrong as wrong:
                raise Wrong(wrong.expected, wrong.value, f"[{index}]{wrong.path}") from None
        return tuple(items)

    return Reader(expected, read_list)


def _read_span(value: Any) -> Any:
    if not (isinstance(value, list | tuple) and len(value) == 2):
        raise Wrong("[start_s, end_s]", value)
    return reader_of(tuple[float, ...]).read(value)


# Writing.

Convert: TypeAlias = Callable[[Any], object]
Write: TypeAlias = Callable[[Any], dict[str, object]]


@cache
def writer(kind: type) -> Write:
    """Writes a message of this class, or what has attributes of the same names, as a JSON object."""
    return writer_from(kind, kind)


def writer_from(kind: type, source: type, **ways: str | Convert | None) -> Write:
    """Writes objects of another class as messages of this one.

    Args:
        kind: the class of the message.
        source: the class of the objects, with slots. It has an attribute for each field of the message.
        ways: for a field, the name of the attribute if it has another one, or what makes JSON of its value, or None if
            it is always left out.

    Raises:
        TypeError: `source` has no such attribute, or the message no such field.
    """
    return _writer(kind, source, ways, {"type": wire_type(kind)} if wire_type(kind) else {})


def _writer(kind: type, source: type, ways: dict[str, Any], head: dict[str, object]) -> Write:
    required: list[tuple[str, str, Convert | None, object]] = []
    optional: list[tuple[str, str, Convert | None, object]] = []
    for field in message_fields(kind):
        if (way := ways.pop(field.name, field.name)) is None:
            continue
        attribute = way if isinstance(way, str) else field.name
        if not hasattr(source, attribute):
            raise TypeError(f"{source.__qualname__}: expected an attribute {attribute}, for the field {field.name}")
        may_be_missing = field.default in (None, False, ()) and not field.is_always_sent
        convert = _conversion(field.hint) if isinstance(way, str) else way
        (optional if may_be_missing else required).append((field.name, attribute, convert, field.default))
    if ways:
        raise TypeError(f"{kind.__qualname__}: expected names of its fields, got {', '.join(ways)}")
    names = [name for name, *_ in required]
    conversions = [(name, convert) for name, _, convert, _ in required if convert is not None]
    maybe = [(index, name, convert, nothing) for index, (name, _, convert, nothing) in enumerate(optional, len(names))]
    # Two attributes that every object has, as `attrgetter` returns no tuple for a single one.
    get = attrgetter(*(attribute for _, attribute, *_ in (*required, *optional)), "__class__", "__class__")

    def write(item: Any) -> dict[str, object]:
        message: dict[str, Any] = head.copy()
        values = get(item)
        message.update(zip(names, values, strict=False))
        for name, convert in conversions:
            message[name] = convert(message[name])
        for index, name, convert_value, nothing in maybe:
            value = values[index]
            if value != nothing:
                message[name] = value if convert_value is None else convert_value(value)
        return message

    return write


def _conversion(hint: Any) -> Convert | None:
    """What makes JSON of the values of a type; None if they are JSON already."""
    plain = bare(hint)
    if is_message(plain):
        # A message inside of another one has no type.
        return _writer(plain, plain, {}, {})
    if get_origin(plain) in (tuple, Sequence):
        convert = _conversion(get_args(plain)[0])
        return list if convert is None else each_by(convert)
    if any(get_origin(bare(each)) is tuple for each in alternatives(plain)):
        return lambda value: list(value) if isinstance(value, tuple) else value
    return None


def each_by(convert: Convert) -> Convert:
    """Makes a list of JSON of the items of a list, each by `convert`."""
    return lambda items: list(map(convert, items))
