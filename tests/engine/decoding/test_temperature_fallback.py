"""Which readings are tried and which one counts."""

import pytest

from engine.api import DecodeOptions, Sampling
from engine.decoding.temperature_fallback import DecodingAttempt, Outcome, TemperatureFallback

GOOD = Outcome(-0.3, 1.5, 0.01, False)
DOUBTFUL = Outcome(-1.4, 1.5, 0.01, False)
REPETITIVE = Outcome(-0.2, 3.0, 0.01, False)
LOOPING = Outcome(-0.2, 1.5, 0.01, True)
SILENT = Outcome(-1.4, 1.5, 0.9, False)
TEMPERATURES = (0.0, 0.2, 0.4)


def read(options: DecodeOptions, *outcomes: Outcome, may_drop: bool = True) -> tuple[int, list[DecodingAttempt]]:
    """Which of the outcomes counts, all of which must be asked for, and the attempts that led there."""
    fallback = TemperatureFallback[int](options)
    attempts = []
    for index, outcome in enumerate(outcomes):
        attempts.append(fallback.current)
        counting = fallback.judge(outcome, index, may_drop_previous_text=may_drop)
        if counting is not None:
            assert index + 1 == len(outcomes)
            return counting, attempts
    raise AssertionError("another reading is wanted")


def sampling(**changes: object) -> DecodeOptions:
    return DecodeOptions(sampling=Sampling(**{"temperatures": TEMPERATURES} | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("outcome", [GOOD, DOUBTFUL, REPETITIVE, LOOPING, SILENT])
def test_a_single_greedy_reading_counts_whatever_it_is(outcome: Outcome) -> None:
    """That is the default; nothing is held back for it."""
    assert not TemperatureFallback(DecodeOptions()).must_hold_events
    assert read(DecodeOptions(), outcome) == (0, [DecodingAttempt(0.0, 0)])


@pytest.mark.parametrize("bad", [DOUBTFUL, REPETITIVE, LOOPING])
def test_a_bad_reading_is_followed_by_one_at_the_next_temperature(bad: Outcome) -> None:
    """Up to the first good one."""
    assert TemperatureFallback(sampling()).must_hold_events
    counting, attempts = read(sampling(), bad, bad, GOOD)
    assert counting == 2
    assert [attempt.temperature for attempt in attempts] == [0.0, 0.2, 0.4]


@pytest.mark.parametrize("fine", [GOOD, SILENT])
def test_a_good_reading_ends_the_search(fine: Outcome) -> None:
    """Doubts where nobody speaks are good news: reading on would make words up."""
    assert read(sampling(), fine)[0] == 0


def test_without_a_good_reading_the_likeliest_counts_that_does_not_repeat_itself() -> None:
    """Not the last one, which is the wildest."""
    worse = Outcome(-2.0, 1.5, 0.01, False)
    assert read(sampling(), REPETITIVE, DOUBTFUL, worse)[0] == 1
    assert read(sampling(), REPETITIVE, DOUBTFUL, REPETITIVE)[0] == 1


def test_a_loop_that_was_cut_is_better_than_doubtful_readings() -> None:
    """Its first round stands; only a good reading is better."""
    assert read(sampling(), LOOPING, DOUBTFUL, DOUBTFUL)[0] == 0
    assert read(sampling(), LOOPING, DOUBTFUL, GOOD)[0] == 2


def test_best_of_takes_the_likeliest_reading_of_a_temperature() -> None:
    """Greedy readings are all alike, so there is only one."""
    better = Outcome(-0.1, 1.5, 0.01, False)
    counting, attempts = read(sampling(best_of=3), DOUBTFUL, GOOD, better, GOOD)
    assert counting == 2
    assert [attempt.temperature for attempt in attempts] == [0.0, 0.2, 0.2, 0.2]
    assert len({attempt.seed for attempt in attempts}) == 4


def test_seeds_tell_requests_apart() -> None:
    """The same seed gives the same attempts."""
    first, again, other = (read(sampling(seed=seed), DOUBTFUL, GOOD)[1] for seed in (1, 1, 2))
    assert first == again
    assert not {attempt.seed for attempt in first} & {attempt.seed for attempt in other}


def test_a_loop_is_read_once_more_without_the_previous_text() -> None:
    """At the same temperature, and only where nothing was handed out."""
    options = DecodeOptions(previous_text="la la la")
    counting, attempts = read(options, LOOPING, GOOD)
    assert counting == 1
    assert [attempt.has_previous_text for attempt in attempts] == [True, False]
    assert read(options, LOOPING, LOOPING)[0] == 1
    assert read(options, LOOPING, may_drop=False)[0] == 0
    assert read(DecodeOptions(hotwords=("la",)), LOOPING, GOOD)[0] == 1
