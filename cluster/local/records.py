"""Frozen dataclasses as tuples of their fields, and back.

Pickle writes and reads a tuple of plain values about six times as fast as a dataclass with slots, for which it calls
Python functions that look up the fields of the class for every object.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, NamedTuple


class Form(NamedTuple):
    """Another form of some values, which pickle writes faster, and the way back."""

    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]


def record(kind: type, **forms: Form) -> Form:
    """The form of the objects of a dataclass: the sequence of their fields.

    Args:
        kind: the dataclass.
        forms: the forms of the values of some fields. The values of the others stay as they are.
    """
    names = tuple(field.name for field in fields(kind))
    values_of = attrgetter(*names) if len(names) > 1 else lambda value: [getattr(value, name) for name in names]
    inner = [(names.index(name), form) for name, form in forms.items()]
    by_name = any(field.kw_only for field in fields(kind))

    def pack(value: Any) -> Sequence[Any]:
        values = values_of(value)
        if inner:
            values = list(values)
            for index, form in inner:
                values[index] = form.pack(values[index])
        return values  # type: ignore[no-any-return]  # attrgetter with several names gives a tuple

    def unpack(values: Sequence[Any]) -> Any:
        if inner:
            values = list(values)
            for index, form in inner:
                values[index] = form.unpack(values[index])
        return kind(**dict(zip(names, values, strict=True))) if by_name else kind(*values)

    return Form(pack, unpack)


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
