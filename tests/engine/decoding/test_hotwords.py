"""Hotwords get a bonus while they are written, and nothing else does."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.engines import collect, read_clip, start_engine
from tests.engine.test_parity import decode, decode_alone, tokens_of
from tutti_server.engine.api import MAX_HOTWORD_BYTES, MAX_HOTWORDS, DecodeOptions, DoneEvent, Window
from tutti_server.engine.decoding.hotwords import FIRST_BONUS, NEXT_BONUS, Hotwords
from tutti_server.engine.decoding.prompt import build_prompt
from tutti_server.engine.errors import InvalidWindow
from tutti_server.engine.runner import Runner

CPU = torch.device("cpu")
VOCABULARY = 12


def plain_bonuses(hotwords: list[list[int]], written: list[int]) -> list[float]:
    """The twin: goes through all tokens, hotword by hotword, place by place."""
    bonuses = [0.0] * VOCABULARY
    for hotword in hotwords:
        n_written = 0
        for token in written:
            if n_written < len(hotword) and token == hotword[n_written]:
                n_written += 1
            else:
                n_written = int(token == hotword[0])
        if n_written < len(hotword):
            token = hotword[n_written]
            bonuses[token] = max(bonuses[token], NEXT_BONUS if n_written else FIRST_BONUS)
    return bonuses


HOTWORDS = st.lists(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=4), max_size=5)
WRITTEN = st.lists(st.integers(0, VOCABULARY - 1), max_size=12)


@given(HOTWORDS, HOTWORDS, WRITTEN, WRITTEN)
def test_bonuses_are_those_of_the_plain_twin(
    first: list[list[int]], second: list[list[int]], prefix: list[int], written: list[int]
) -> None:
    """Slots with their own hotwords side by side, after a forced prefix."""
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


def test_a_slot_forgets_its_hotwords() -> None:
    """The next window in it has none."""
    hotwords, logits = Hotwords(2, CPU), torch.zeros(1, VOCABULARY)
    hotwords.begin(0, [[3, 4]], ())
    hotwords.end(0)
    hotwords.begin(1, [[5]], ())
    hotwords.apply(slice(0, 1), logits)
    assert not logits.any()


async def test_hotwords_do_not_touch_the_neighbours(short_runner: Runner) -> None:
    """In a batch, each window gives what it gives alone; clear speech stays what it is."""
    windows = [
        (read_clip("train"), DecodeOptions(language="en")),
        (read_clip("hello"), DecodeOptions(language="en", hotwords=("Kowalski", "morning meeting"))),
        (read_clip("hello"), DecodeOptions(language="en", hotwords=("Kowalski",), timestamps=False)),
    ]
    together = await decode(short_runner, *windows)
    alone = await decode_alone(short_runner, *windows)
    assert [tokens_of(done) for done in together] == [tokens_of(done) for done in alone]
    assert {done.text for done in together[1:]} == {" Hello everyone, and welcome to the morning meeting."}


async def test_the_bonus_reaches_what_is_sampled(short_runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a bound, the text would be the hotword; with it, the hotword does not displace clear speech."""
    window = (read_clip("train"), DecodeOptions(language="en", timestamps=False, max_tokens=8, hotwords=("Kowalski",)))
    (bounded,) = await decode(short_runner, window)
    assert bounded.text.startswith(" The next train")
    monkeypatch.setattr("tutti_server.engine.decoding.hotwords.FIRST_BONUS", 60.0)
    monkeypatch.setattr("tutti_server.engine.decoding.hotwords.NEXT_BONUS", 60.0)
    (unbounded,) = await decode(short_runner, window)
    assert unbounded.text.startswith(" Kowalski")


def test_hotwords_stand_before_the_previous_text(short_runner: Runner) -> None:
    """A list of them, and as much of the text as still fits."""
    checkpoint = short_runner.checkpoint
    options = DecodeOptions(language="en", hotwords=("Kowalski", " tutti "), previous_text="Thank you.")
    prompt = build_prompt(checkpoint, options, "en")
    assert prompt.tokens[0] == checkpoint.tokenizer.previous
    assert checkpoint.tokenizer.decode(prompt.tokens[: prompt.sot_index]) == " Kowalski, tutti Thank you."
    assert [checkpoint.tokenizer.decode(tokens) for tokens in prompt.hotwords] == [" Kowalski", " tutti"]
    long = DecodeOptions(language="en", hotwords=("Kowalski",) * MAX_HOTWORDS, previous_text="Thank you. " * 300)
    prompt = build_prompt(checkpoint, long, "en")
    assert prompt.sot_index == checkpoint.model.max_target_positions // 2
    assert checkpoint.tokenizer.decode(prompt.tokens[: prompt.sot_index]).endswith("Thank you.")


@pytest.mark.parametrize("hotwords", [("",), ("x" * (MAX_HOTWORD_BYTES + 1),), ("a",) * (MAX_HOTWORDS + 1)])
async def test_hotwords_out_of_bounds_are_refused(short_runner: Runner, hotwords: tuple[str, ...]) -> None:
    """Clearly, before they reach the queue; the engine goes on."""
    async with start_engine(short_runner) as engine:
        with pytest.raises(InvalidWindow, match="hotwords: expected"):
            await collect(
                engine, Window(samples=read_clip("hello"), session="", options=DecodeOptions(hotwords=hotwords))
            )
        longest = DecodeOptions(language="en", hotwords=("\u00fc" * (MAX_HOTWORD_BYTES // 2),))
        done = (await collect(engine, Window(samples=read_clip("hello"), session="", options=longest)))[-1]
    assert isinstance(done, DoneEvent) and done.text
