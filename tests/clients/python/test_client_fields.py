"""What annotations say of the fields of messages: whether they are there, and how they are read and written."""

from dataclasses import dataclass
from typing import Annotated

import pytest

from tutti.fields import ALWAYS, REQUIRED, Length, Null, Within, Wrong, read, writer, writer_from


@dataclass(frozen=True, slots=True, kw_only=True)
class Sound:
    name: Annotated[str, Length(1, 5)]
    place: str | None
    loudness: Annotated[float, Within(0, 10)] | Null = None
    echoes: tuple[float, ...] = ()
    times: Annotated[tuple[float, ...], ALWAYS] = ()
    parts: Annotated[tuple[str, ...], REQUIRED] = ()


@dataclass(frozen=True, slots=True)
class Noise:
    label: str
    place: str | None = None
    echoes: tuple[float, ...] = ()
    times: tuple[float, ...] = ()
    parts: tuple[str, ...] = ()


BELL = {"name": "bell", "place": None, "parts": ["rim"]}


def test_what_has_no_default_is_on_the_wire_and_the_rest_where_it_says_something() -> None:
    bell = Sound(name="bell", place=None, parts=("rim",))
    assert writer(Sound)(bell) == BELL | {"times": []}
    assert read(Sound, BELL) == read(Sound, BELL | {"loudness": None, "colour": "red"}) == bell
    loud = Sound(name="bell", place="tower", parts=("rim",), loudness=0.0, echoes=(0.5,))
    assert read(Sound, writer(Sound)(loud)) == loud


@pytest.mark.parametrize(
    ("change", "path", "expected"),
    [
        ({"name": "carillon"}, ".name", "text of 1 to 5 characters"),
        ({"place": 5}, ".place", "a string or null"),
        ({"loudness": 11}, ".loudness", "a number from 0 to 10 or null"),
        ({"loudness": 10**400}, ".loudness", "a number from 0 to 10 or null"),
        ({"loudness": True}, ".loudness", "a number from 0 to 10 or null"),
        ({"echoes": [1, float("nan")]}, ".echoes[1]", "a number"),
        ({"echoes": None}, ".echoes", "a list"),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(change: dict[str, object], path: str, expected: str) -> None:
    with pytest.raises(Wrong) as caught:
        read(Sound, BELL | change)
    assert (caught.value.path, caught.value.expected) == (path, expected)


def test_a_required_list_must_be_there_although_it_has_a_default() -> None:
    with pytest.raises(Wrong, match="parts"):
        read(Sound, {"name": "bell", "place": None})


def test_another_class_is_written_by_the_names_of_the_message() -> None:
    """A field that nothing is known for is a mistake that is found when the writer is made."""
    write = writer_from(Sound, Noise, name="label", loudness=None, place=str)
    assert write(Noise("bell", parts=("rim",))) == BELL | {"place": "None", "times": []}
    with pytest.raises(TypeError, match="attribute name, for the field name"):
        writer_from(Sound, Noise, loudness=None)
    with pytest.raises(TypeError, match="got colour"):
        writer_from(Sound, Noise, name="label", loudness=None, colour="place")
