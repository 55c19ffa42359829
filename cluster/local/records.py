"""Frozen dataclasses as tuples of their fields, and back.

Pickle writes the tuples of a `DoneEvent` five times as fast as its dataclasses with slots: for each of those it calls
functions in Python that look up the fields of the class.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any, NamedTuple


class Form(NamedTuple):
    """Another form of some values, which pickle writes faster, and the way back."""

    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]


def record(kind: type[Any], **forms: Form) -> Form:
    """The form of the objects of a dataclass with slots: the values of their fields.

    Args:
        kind: the dataclass. It has no `__post_init__`.
        forms: the forms of the values of some fields. The values of the others stay as they are.
    """
    names = tuple(field.name for field in fields(kind))
    values_of = _getter(names)
    # They also set the fields of frozen objects, at a third of the cost of `kind(**values)`.
    setters = [getattr(kind, name).__set__ for name in names]
    inner = [(names.index(name), *form) for name, form in forms.items()]

    def pack(value: Any) -> list[Any]:
        values = list(values_of(value))
        for index, pack_value, _ in inner:
            values[index] = pack_value(values[index])
        return values

    def unpack(values: list[Any]) -> Any:
        for index, _, unpack_value in inner:
            values[index] = unpack_value(values[index])
        unpacked: Any = object.__new__(kind)
        for set_field, value in zip(setters, values, strict=True):
            set_field(unpacked, value)
        return unpacked

    return Form(pack if inner else values_of, unpack)


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that returns these attributes of an object."""
    if len(names) > 1:
        return attrgetter(*names)
    # Here attrgetter gives no tuple.
    return lambda value: tuple(getattr(value, name) for name in names)


def each(form: Form) -> Form:
    """The form of a tuple of such values."""
    pack, unpack = form
    return Form(lambda values: tuple(map(pack, values)), lambda values: tuple(map(unpack, values)))


def optional(form: Form) -> Form:
    """The form of such a value or `None`."""
    pack, unpack = form
    return Form(
        lambda value: None if value is None else pack(value), lambda value: None if value is None else unpack(value)
    )


def one_of(forms: Mapping[type, Form]) -> Form:
    """The form of values of these types: a number that stands for the type, and the value in its form.

    A value of another type stays as it is.
    """
    packs = {kind: (number, form.pack) for number, (kind, form) in enumerate(forms.items())}
    unpacks = [form.unpack for form in forms.values()]

    def pack(value: Any) -> tuple[int | None, Any]:
        known = packs.get(type(value))
        if known is None:
            return None, value
        number, pack_value = known
        return number, pack_value(value)

    def unpack(packed: tuple[int | None, Any]) -> Any:
        number, value = packed
        return value if number is None else unpacks[number](value)

    return Form(pack, unpack)
