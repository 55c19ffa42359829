"""The options of `connect` and the `start` message that they make."""

import inspect

import pytest

import tutti
from tutti.messages import AudioFormat, Endpointing, Start
from tutti.options import start_message


def test_defaults() -> None:
    """Without options, the message has the audio format, what the client shows, and that it resumes by default."""
    audio = AudioFormat("pcm_s16le", 16000, 1)
    assert start_message({}) == Start(audio=audio, task="transcribe", interim=True, resumes=True)


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


@pytest.mark.parametrize("hotwords", ["tutti", ["tutti"], ("tutti",)])
def test_a_single_hotword_may_be_a_string(hotwords: str | list[str] | tuple[str, ...]) -> None:
    """It is one word, not a list of letters."""
    assert start_message({"hotwords": hotwords}).hotwords == ("tutti",)


def test_an_unknown_option_is_refused_at_the_call() -> None:
    """Before anything is opened, with the message that Python has for keyword arguments."""
    with pytest.raises(TypeError, match=r"connect\(\) got an unexpected keyword argument 'langauge'"):
        tutti.connect("ws://127.0.0.1:1", langauge="en")  # type: ignore[call-arg]  # what the test is about


def test_transcribe_file_has_every_option_but_the_format() -> None:
    """The format is that of the file."""
    names = tutti.ConnectOptions.__optional_keys__ - tutti.SessionOptions.__optional_keys__
    assert names == {"encoding", "sample_rate", "channels"}


def test_every_option_is_described() -> None:
    """The source has a description below each option, for readers and editors."""
    source = inspect.getsource(inspect.getmodule(start_message))  # type: ignore[arg-type]  # it has a module
    lines = [line.strip() for line in source.splitlines()]
    for name in tutti.ConnectOptions.__optional_keys__:
        (index,) = [index for index, line in enumerate(lines) if line.startswith(f"{name}: ")]
        assert lines[index + 1].startswith('"""'), name
