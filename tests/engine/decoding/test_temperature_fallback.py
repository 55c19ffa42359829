"""Which decoding attempts are made and whose output counts."""

import pytest

from tutti_server.engine.api import DecodeOptions, Sampling
from tutti_server.engine.decoding.temperature_fallback import DecodingAttempt, Outcome, TemperatureFallback

GOOD = Outcome(-0.3, 1.5, 0.01, False)
DOUBTFUL = Outcome(-1.4, 1.5, 0.01, False)
WORSE = Outcome(-2.0, 1.5, 0.01, False)
COMPRESSIBLE = Outcome(-0.2, 3.0, 0.01, False)
CUT_REPETITION = Outcome(-0.2, 1.5, 0.01, True)
SILENT = Outcome(-1.4, 1.5, 0.9, False)
TEMPERATURES = (0.0, 0.2, 0.4)


def run(
    options: DecodeOptions, *outcomes: Outcome, may_drop: bool = True, other: str | None = None
) -> tuple[int, list[DecodingAttempt]]:
    """Which of the outcomes counts, all of which must be asked for, and the attempts that led there."""
    fallback = TemperatureFallback[int](options)
    attempts = []
    for index, outcome in enumerate(outcomes):
        attempts.append(fallback.current)
        counting = fallback.judge(outcome, index, may_drop_previous_text=may_drop, other_language=other)
        if counting is not None:
            assert index + 1 == len(outcomes)
            return counting, attempts
    raise AssertionError("another attempt is wanted")


def sampling(**changes: object) -> DecodeOptions:
    return DecodeOptions(sampling=Sampling(**{"temperatures": TEMPERATURES} | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("outcome", [GOOD, DOUBTFUL, COMPRESSIBLE, CUT_REPETITION, SILENT])
def test_a_single_greedy_attempt_counts_whatever_it_gives(outcome: Outcome) -> None:
    """That is the default; nothing is held back for it."""
    assert not TemperatureFallback(DecodeOptions()).must_hold_events
    assert run(DecodeOptions(), outcome) == (0, [DecodingAttempt(0.0, 0)])


@pytest.mark.parametrize("bad", [DOUBTFUL, COMPRESSIBLE, CUT_REPETITION])
def test_a_bad_output_is_followed_by_an_attempt_at_the_next_temperature(bad: Outcome) -> None:
    """Up to the first good one."""
    assert TemperatureFallback(sampling()).must_hold_events
    counting, attempts = run(sampling(), bad, bad, GOOD)
    assert counting == 2
    assert [attempt.temperature for attempt in attempts] == [0.0, 0.2, 0.4]


@pytest.mark.parametrize(
    ("outcomes", "counting"),
    [
        pytest.param([GOOD], 0, id="a good one ends the search"),
        pytest.param([SILENT], 0, id="doubts without speech are good: another attempt would make words up"),
        pytest.param([COMPRESSIBLE, DOUBTFUL, WORSE], 1, id="else the likeliest without repetition"),
        pytest.param([COMPRESSIBLE, DOUBTFUL, COMPRESSIBLE], 1, id="not the last, whose temperature is the highest"),
        pytest.param([CUT_REPETITION, DOUBTFUL, DOUBTFUL], 0, id="the first round of a cut repetition stands"),
        pytest.param([CUT_REPETITION, DOUBTFUL, GOOD], 2, id="a good one is better than a cut repetition"),
    ],
)
def test_which_output_counts(outcomes: list[Outcome], counting: int) -> None:
    assert run(sampling(), *outcomes)[0] == counting


def test_best_of_takes_the_likeliest_output_of_a_temperature() -> None:
    """Greedy attempts all give the same, so there is only one."""
    better = Outcome(-0.1, 1.5, 0.01, False)
    counting, attempts = run(sampling(best_of=3), DOUBTFUL, GOOD, better, GOOD)
    assert counting == 2
    assert [attempt.temperature for attempt in attempts] == [0.0, 0.2, 0.2, 0.2]
    assert len({attempt.seed for attempt in attempts}) == 4


def test_a_repetition_is_decoded_once_more_without_the_previous_text() -> None:
    """At the same temperature, and only where no event was handed out."""
    options = DecodeOptions(previous_text="la la la")
    counting, attempts = run(options, CUT_REPETITION, GOOD)
    assert counting == 1
    assert [attempt.has_previous_text for attempt in attempts] == [True, False]
    assert run(options, CUT_REPETITION, CUT_REPETITION)[0] == 1
    assert run(options, CUT_REPETITION, may_drop=False)[0] == 0
    assert run(DecodeOptions(hotwords=("la",)), CUT_REPETITION, GOOD)[0] == 1


def test_a_doubtful_window_is_decoded_once_in_another_language() -> None:
    """The likelier text counts, and the temperature rises in its language."""
    likelier, hardly = Outcome(-1.1, 1.5, 0.01, False), Outcome(-1.3, 1.5, 0.01, False)
    worse = Outcome(-2.0, 1.5, 0.01, False)
    assert run(sampling(), GOOD, other="de")[0] == run(sampling(), SILENT, other="de")[0] == 0
    assert run(sampling(), DOUBTFUL, GOOD, other="de") == (1, [DecodingAttempt(0.0, 0), DecodingAttempt(0.0, 1)])
    for second, counts, language in ((likelier, 1, "de"), (hardly, 0, None), (COMPRESSIBLE, 0, None)):
        fallback = TemperatureFallback[int](sampling())
        outcomes = (DOUBTFUL, second, worse, worse)
        judged = [
            fallback.judge(each, number, may_drop_previous_text=True, other_language="de")
            for number, each in enumerate(outcomes)
        ]
        assert (judged, fallback.language) == ([None, None, None, counts], language)


def test_a_repetition_gives_way_to_another_language() -> None:
    assert run(sampling(), CUT_REPETITION, GOOD, other="de")[0] == 1
