"""Hotwords get a bonus while they are written, and nothing else does."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.engines import read_clip
from tests.engine.reference import HotwordBonus
from tests.engine.test_parity import decode
from tutti_server.engine.api import DecodeOptions, Task
from tutti_server.engine.decoding.hotwords import Hotwords
from tutti_server.engine.decoding.prompt import build_prompt
from tutti_server.engine.runner import Runner

CPU = torch.device("cpu")
VOCABULARY = 12


def plain_bonuses(hotwords: list[list[int]], written: list[int]) -> list[float]:
    """The twin: goes through all tokens, hotword by hotword, place by place."""
    tokens = torch.tensor([written], dtype=torch.long)
    return HotwordBonus(hotwords, 0)(tokens, torch.zeros(1, VOCABULARY))[0].tolist()


HOTWORDS = st.lists(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=4), max_size=5)
WRITTEN = st.lists(st.integers(0, VOCABULARY - 1), max_size=12)


@given(HOTWORDS, HOTWORDS, WRITTEN, WRITTEN)
def test_bonuses_are_those_of_the_plain_twin(
    first: list[list[int]], second: list[list[int]], prefix: list[int], written: list[int]
) -> None:
    """Slots with their own hotwords side by side, after a forced prefix. The next window in a slot has none of them."""
    hotwords = Hotwords(4, CPU)
    hotwords.begin(1, first, prefix[-3:])
    hotwords.begin(2, second, ())
    rows = slice(0, 4)
    for token in written:
        hotwords.after(rows, torch.tensor([0, token, token, 5]))
    logits = torch.zeros(4, VOCABULARY)
    hotwords.apply(rows, logits)
    assert logits[1].tolist() == plain_bonuses(first, prefix[-3:] + written)
    assert logits[2].tolist() == plain_bonuses(second, written)
    assert not logits[0].any() and not logits[3].any()
    hotwords.end(1)
    hotwords.apply(rows, logits.zero_())
    assert not logits[1].any()


async def test_the_bonus_reaches_what_is_sampled(short_runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a bound, the text would be the hotword; with it, the hotword does not displace clear speech."""
    window = (read_clip("train"), DecodeOptions(language="en", timestamps=False, max_tokens=8, hotwords=("Kowalski",)))
    (bounded,) = await decode(short_runner, window)
    assert bounded.text.startswith(" The next train")
    monkeypatch.setattr("tutti_server.engine.decoding.hotwords.FIRST_BONUS", 60.0)
    monkeypatch.setattr("tutti_server.engine.decoding.hotwords.NEXT_BONUS", 60.0)
    (unbounded,) = await decode(short_runner, window)
    assert unbounded.text.startswith(" Kowalski")


def test_hotwords_are_no_part_of_the_prompt(short_runner: Runner) -> None:
    """In noise the model would write them down."""
    options = DecodeOptions(language="en", previous_text="Before.", hotwords=("Kowalski",))
    expecting = build_prompt(short_runner.checkpoint, options, "en")
    assert expecting.hotwords
    assert expecting.tokens == build_prompt(short_runner.checkpoint, replace(options, hotwords=()), "en").tokens


@pytest.mark.parametrize(
    ("language", "task", "written"),
    [("en", "transcribe", " 東京"), ("ja", "transcribe", "東京"), ("ja", "translate", " 東京")],
)
def test_hotwords_stand_after_a_space_where_the_text_has_spaces(
    short_runner: Runner, language: str, task: Task, written: str
) -> None:
    options = DecodeOptions(language=language, task=task, hotwords=(" 東京 ",))
    checkpoint = short_runner.checkpoint
    assert build_prompt(checkpoint, options, language).hotwords == (tuple(checkpoint.tokenizer.encode(written)),)
