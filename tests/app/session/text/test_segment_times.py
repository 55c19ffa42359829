"""Segments begin and end at their words, not with the music around them."""

from dataclasses import replace

import numpy as np
import pytest

from tests.bench import START, Bench, check_promises
from tests.fakes import MODEL, segment, silence, speech
from tutti_server.app.session.messages import events
from tutti_server.engine import api

TIMED = replace(START, interim=False, words=True)


def of_words(start_s: float, end_s: float, *words: tuple[str, float, float]) -> api.Segment:
    timed = tuple(api.Word(*word, 0.9) for word in words)
    return segment("".join(word.text for word in timed), start_s, end_s, words=timed, text_logprob=-0.1)


def sent(answer: api.Segment, task: api.Task = "transcribe") -> tuple[events.Segment, events.Utterance, float]:
    """The segment as it is sent, its utterance, and where its window begins."""
    bench = Bench(replace(TIMED, task=task), model=replace(MODEL, tasks=("transcribe", "translate")))
    bench.feed(np.concatenate((silence(0.5), speech(range(52)), silence(2.0))), answer=False)
    bench.answer_with(answer)
    bench.answer_all()
    check_promises(bench)
    (utterance,) = bench.of(events.Utterance)
    made = bench.of(events.Segment)[0]
    return made, utterance, made.window_start_s


@pytest.mark.parametrize(
    ("first_s", "last_s", "expected"),
    [
        pytest.param(8.64, 9.2, (8.64, 9.2), id="far"),
        pytest.param(0.3, 11.4, (0.0, 12.0), id="near"),
    ],
)
def test_a_segment_begins_and_ends_near_its_words(first_s: float, last_s: float, expected: tuple[float, float]) -> None:
    """Speech that the model takes for its time is not decoded again, but is reported as without text."""
    words = (" Congratulations,", first_s, first_s + 0.2), (" everybody.", 9.0, last_s)
    made, utterance, begin_s = sent(of_words(0.0, 12.0, *words))
    assert (made.start_s - begin_s, made.end_s - begin_s) == pytest.approx(expected, abs=0.02)
    assert made.words[0].start_s - begin_s == pytest.approx(first_s, abs=0.02)
    assert utterance.counts.recovered_s < 3, "only the speech after the segment is decoded again"
    before = [(start_s, end_s) for start_s, end_s in utterance.uncovered if start_s < made.start_s]
    assert sum(end_s - start_s for start_s, end_s in before) == pytest.approx(expected[0], abs=1.0)


def test_a_segment_follows_its_words_beyond_its_end() -> None:
    """After loud music the model's own times may lie before all words. What they cover is not decoded again."""
    made, utterance, begin_s = sent(of_words(0.8, 7.8, (" Congratulations,", 9.1, 9.6), (" everybody.", 9.6, 11.4)))
    assert (made.start_s - begin_s, made.end_s - begin_s) == pytest.approx((9.1, 11.4), abs=0.02)
    assert [word.start_s - begin_s for word in made.words] == pytest.approx([9.1, 9.6], abs=0.02)
    assert utterance.counts.recovered_s < 4, "only the speech after the segment is decoded again"


def test_translated_segments_keep_the_times_of_the_model() -> None:
    """Words of another language do not follow the speech."""
    made, _, begin_s = sent(
        of_words(0.0, 15.0, (" Congratulations,", 8.64, 8.9), (" everybody.", 9.0, 9.2)), "translate"
    )
    assert made.start_s == pytest.approx(begin_s, abs=0.02)
