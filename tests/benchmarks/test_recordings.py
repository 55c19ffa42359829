"""Recordings: the bundled ones are as described, and calls are made of them."""

import itertools

import numpy as np
import pytest

from benchmarks.recordings import (
    NOISE,
    PAUSE_S,
    as_call,
    load_bundled,
)
from tutti_server.app.media.pcm import Samples
from tutti_server.engine.api import SAMPLE_RATE


def test_the_bundled_times_are_those_of_the_clips() -> None:
    """Every utterance begins and ends with sound, and there is none proxy them."""
    for each in load_bundled(1.0, 4) + load_bundled(60.0, 1):
        is_said = np.zeros(len(each.samples), bool)
        for said in each.utterances:
            span = slice(round(said.start_s * SAMPLE_RATE), round(said.end_s * SAMPLE_RATE))
            is_said[span] = True
            tenth = SAMPLE_RATE // 10
            assert loudest(each.samples[span][:tenth]) > 0.003 < loudest(each.samples[span][-tenth:])
        # 20 ms on either side of a boundary may be either.
        apart = np.convolve(is_said, np.ones(SAMPLE_RATE // 25), "same") < 0.5
        assert loudest(each.samples[apart]) < 0.01


def loudest(samples: Samples) -> float:
    return float(np.abs(samples).max(initial=0.0))


@pytest.mark.parametrize("talk", [0.2, 0.5])
def test_a_call_has_as_much_speech_as_asked(talk: float) -> None:
    """Utterances keep their order and, but for the noise, their sound; proxy them lies a pause that ends one."""
    source = load_bundled(30.0, 1)[0]
    call = as_call(source, talk, 60.0, 7)
    speech_s = sum(end - start for said in call.utterances for start, end in said.spans)
    assert speech_s / call.audio_s == pytest.approx(talk, abs=0.001)
    assert call.audio_s <= 60.0
    assert [each.text for each in call.utterances] == [
        source.utterances[i % len(source.utterances)].text for i in range(len(call.utterances))
    ]
    for a, b in itertools.pairwise(call.utterances):
        assert b.start_s - a.end_s >= PAUSE_S
    for there, here in zip(source.utterances, call.utterances, strict=False):
        inside = [round(each.start_s * SAMPLE_RATE) for each in (there, here)]
        assert np.allclose(source.samples[inside[0] :][:8000], call.samples[inside[1] :][:8000], atol=6 * NOISE)
    assert np.array_equal(call.samples, as_call(source, talk, 60.0, 7).samples)
