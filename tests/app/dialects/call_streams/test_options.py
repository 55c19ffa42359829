"""The options of a call, which carriers pass on as texts."""

import pytest

from tests.call_start import call_start
from tutti_server.app.dialects.call_streams.wire import given, merged, own_parameters, side_of, start_command
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.plugins.carriers.byte_order import is_big_endian

AUDIO = AudioFormat("mulaw", 8_000)
NAMES = ("model", "language", "languages", "task", "interim", "silence_ms", "prompt", "hotwords", "words")


@pytest.mark.parametrize("empty", ["", "  "])
def test_an_empty_option_is_not_given(empty: str) -> None:
    """A template of a carrier gives one where it has no value."""
    assert start_command(dict.fromkeys(NAMES, empty), AUDIO) == call_start(audio=AUDIO)


@pytest.mark.parametrize("empty", ["", "  "])
def test_empty_options_of_single_carriers_are_not_given(empty: str) -> None:
    """The side, the byte order, and what FreeSWITCH and others name in addition."""
    assert side_of({"track": empty}) == "inbound"
    assert is_big_endian({"l16_byte_order": empty}, default="big")
    assert given({"mix": empty}, "mix", "mono") == "mono"


def test_an_empty_text_in_the_address_takes_no_value_away() -> None:
    """The message that describes the call may have it."""
    described = {"language": "de", "agent": "Ann"}
    assert merged(described, {"language": "", "agent": "Bob", "campaign": ""}) == {
        "language": "de",
        "agent": "Bob",
        "campaign": "",
    }


def test_booleans_and_numbers_have_their_usual_spellings() -> None:
    start = start_command({"interim": "No", "words": "1", "silence_ms": "8e2"}, AUDIO)
    assert (start.interim, start.words, start.endpointing.silence_ms) == (False, True, 800)


def test_a_call_chooses_its_model() -> None:
    assert start_command({"model": "turbo"}, AUDIO).model == "turbo"
    assert own_parameters({"model": "turbo", "agent": "Ann"}) == {"agent": "Ann"}


def test_the_service_chooses_when_utterances_end_unless_a_silence_is_given() -> None:
    assert start_command({}, AUDIO).endpointing.mode is None
    assert start_command({"silence_ms": "500"}, AUDIO).endpointing.mode == "vad"
