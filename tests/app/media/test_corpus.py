"""Every recording of the corpus keeps its times, and has the warnings that it should have."""

from itertools import groupby
from operator import attrgetter

import numpy as np
import pytest

from tests.made_files import heard
from tests.media_corpus import Recording, corpus
from tutti_server.app.media.pcm import Samples
from tutti_server.engine.api import SAMPLE_RATE

EXACT_S = 0.06
"""Codecs delay their audio, and containers round times."""
CLOCK_FAULTS = ("late", "gap", "damaged")


def pitch(samples: Samples) -> float:
    """The loudest frequency in Hz."""
    return float(np.argmax(np.abs(np.fft.rfft(samples * np.hanning(len(samples))))) * SAMPLE_RATE / len(samples))


def check_times(samples: Samples, recording: Recording) -> None:
    """Each tone is where it should be, and there is quiet around it."""
    for start_s, end_s, expected in recording.tones():
        inside = samples[round((start_s + EXACT_S) * SAMPLE_RATE) : round((end_s - EXACT_S) * SAMPLE_RATE)]
        assert len(inside) > 0.9 * (end_s - start_s - 2 * EXACT_S) * SAMPLE_RATE
        assert pitch(inside) == pytest.approx(expected, abs=3)
        before = samples[
            max(round((start_s - 0.3) * SAMPLE_RATE), 0) : max(round((start_s - EXACT_S) * SAMPLE_RATE), 0)
        ]
        if recording.fault != "joined":
            assert np.abs(before).max(initial=0.0) < 0.1


def is_of_the_day(number: int, recording: Recording) -> bool:
    """Whether one that has this number among those of its fault is decoded by day.

    These are all whose clock matters, one whole one of each kind, and every third one of the others.
    """
    if recording.fault == "whole":
        return recording.layout == "mono" and recording.rate == recording.kind.rates[0]
    return recording.fault in CLOCK_FAULTS or number % 3 == 0


@pytest.mark.parametrize(
    "recording",
    [
        pytest.param(each, id=each.name, marks=[] if is_of_the_day(at, each) else [pytest.mark.nightly])
        for _, recordings in groupby(sorted(corpus(), key=attrgetter("fault")), attrgetter("fault"))
        for at, each in enumerate(recordings)
    ],
)
def test_recordings_keep_their_times_and_are_warned_of(recording: Recording) -> None:
    samples, notices = heard(recording.made())
    check_times(samples, recording)
    codes = {notice.code for notice in notices}
    # The last packet of a file that is cut may be damaged, too.
    assert (codes - {"lost_audio"} if recording.fault == "cut" else codes) == recording.warnings
