"""Recordings: the bundled ones are as described."""

import numpy as np

from benchmarks.recordings import load_bundled
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
