"""The options of `connect` and the `start` message that they make."""

import inspect
import re
from typing import Any

import pytest

import tutti
from tutti import options
from tutti.messages import AudioFormat, Endpointing
from tutti.options import start_message


def test_limits_of_time_have_the_defaults_that_their_descriptions_name() -> None:
    """Editors show them."""
    described = re.findall(r'    (\w+_s): float\n    """[^"]*Default: (\d+)\.\n?', inspect.getsource(options))
    assert len(described) == 6
    assert described == [(name, f"{getattr(options, name.upper()):g}") for name, _ in described]


def test_a_client_that_does_not_resume_does_not_say_that_it_does() -> None:
    """Then a server that goes down ends the open utterances itself."""
    assert start_message({"resume_buffer_s": 0}).resumes is None


def test_options_become_fields() -> None:
    """The options of endpointing become one object; the others have the names of the fields."""
    start = start_message(
        {"encoding": "mulaw", "sample_rate": 8000, "language": "de", "words": True, "prompt": "Hello.", "silence_ms": 0}
    )
    assert start.audio == AudioFormat("mulaw", 8000)
    assert (start.language, start.words, start.prompt) == ("de", True, "Hello.")
    assert start.endpointing == Endpointing(silence_ms=0)


def test_empty_options_are_not_sent() -> None:
    """A server that does not offer them would answer them with warnings."""
    start = start_message({"words": False, "prompt": "", "hotwords": (), "endpointing": None})
    assert start == start_message({})


@pytest.mark.parametrize("option", ["channel_names", "hotwords", "languages", "translate"])
@pytest.mark.parametrize("value", ["de", ["de"], ("de",)])
def test_a_single_text_may_be_a_string(option: str, value: str | list[str] | tuple[str, ...]) -> None:
    """It is one word or code, not a list of letters."""
    given: Any = {option: value}
    assert getattr(start_message(given), option) == ("de",)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"prompt": "caf\ud800"}, "prompt"),
        ({"hotwords": ["tutti", "\ud83d"]}, "hotwords"),
        ({"room": tutti.Room(title="\udc00")}, "room"),
    ],
)
def test_a_text_with_half_a_character_is_refused(given: Any, name: str) -> None:
    """JSON could escape it; UTF-8 cannot encode it."""
    with pytest.raises(tutti.BadOption, match=rf"{name}: expected text of whole characters.* got .*\\ud"):
        start_message(given)


def test_an_unknown_option_is_refused_at_the_call() -> None:
    """Before anything is opened, with the message that Python has for keyword arguments."""
    with pytest.raises(TypeError, match=r"connect\(\) got an unexpected keyword argument 'langauge'"):
        tutti.connect("ws://127.0.0.1:1", langauge="en")  # type: ignore[call-arg]  # what the test is about


@pytest.mark.parametrize("speed", [None, 1.0])
@pytest.mark.parametrize("option", ["langauge", "sample_rate"])
async def test_an_unknown_option_for_a_file_is_refused_by_name(option: str, speed: float | None) -> None:
    """The error names the function that was called. A file has the format of its audio, so that is no option."""
    options: Any = {option: 1}
    with pytest.raises(TypeError, match=rf"transcribe_file\(\) got an unexpected keyword argument '{option}'"):
        await anext(tutti.transcribe_file("http://127.0.0.1:1", "speech.wav", speed=speed, **options))
