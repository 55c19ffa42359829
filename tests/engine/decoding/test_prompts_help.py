"""The small model writes names as its prompt has them."""

import pytest

from tests.engine.engines import read_clip
from tests.engine.test_parity import decode
from tutti_server.engine.api import DecodeOptions
from tutti_server.engine.runner import Runner

NAMES = ("Vandermeer", "Bratislava")


async def following_text(runner: Runner, previous_text: str) -> str:
    options = DecodeOptions(language="en", previous_text=previous_text)
    (done,) = await decode(runner, (read_clip("names"), options))
    return done.text


async def test_names_of_the_prompt_are_written_as_there(short_runner: Runner) -> None:
    """Alone the model spells them as they sound; a list or a sentence helps; names that are not spoken stay out."""
    alone = await following_text(short_runner, "")
    assert not any(name in alone for name in NAMES)
    for helpful in (
        "Hallstrom, Bratislava, Thaddeus, Beatrix Vandermeer, Poughkeepsie",
        "Our Bratislava branch is closed. Please write to Beatrix Vandermeer instead.",
    ):
        text = await following_text(short_runner, helpful)
        assert all(name in text for name in NAMES), text
    other = await following_text(short_runner, "Hallstrom, Thaddeus, Poughkeepsie")
    assert not any(name in other for name in ("Hallstrom", "Thaddeus", "Poughkeepsie")), other


@pytest.mark.parametrize("seconds", [1.0, 8.0])
async def test_a_prompt_adds_no_text_to_silence(short_runner: Runner, seconds: float) -> None:
    """Silence gives no text after a list of names."""
    silence = read_clip("names")[: int(seconds * 16_000)] * 0
    options = DecodeOptions(language="en", previous_text="Hallstrom, Bratislava, Thaddeus, Beatrix Vandermeer")
    (done,) = await decode(short_runner, (silence, options))
    assert done.text.strip() == "" and done.no_speech_prob > 0.6
