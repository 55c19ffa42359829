"""Recordings: the bundled ones are as described, and cuts lie in pauses."""

import itertools

import numpy as np
import pytest

from benchmarks.live.load_clients import FLUSH_AFTER_S
from benchmarks.recordings import (
    NOISE,
    PAUSE_S,
    Recording,
    ReferenceUtterance,
    as_call,
    cut,
    first_seconds,
    load_bundled,
)
from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.speech.endpointing import FRAME_SAMPLES, ONSET_VOICED, ONSET_WINDOW, WebRtcDetector
from tutti_server.engine.api import SAMPLE_RATE


def recording(*spans: tuple[float, float], seconds: float) -> Recording:
    said = tuple(ReferenceUtterance(f"number {i}", (span,)) for i, span in enumerate(spans))
    return Recording("test", np.zeros(round(seconds * SAMPLE_RATE), np.float32), "", said)


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


def test_a_cut_lies_halfway_between_utterances() -> None:
    """Pieces take whole utterances while they fit; times in a piece count from its beginning."""
    pieces = cut(recording((1, 4), (6, 9), (11, 14), seconds=15), 12)
    assert [piece.audio_s for piece in pieces] == [10.0, 5.0]
    assert [[(s.start_s, s.end_s) for s in piece.utterances] for piece in pieces] == [[(1, 4), (6, 9)], [(1, 4)]]
    assert [piece.text for piece in pieces] == ["number 0 number 1", "number 2"]


def test_an_utterance_longer_than_a_piece_stays_whole() -> None:
    """Without the silence behind it."""
    pieces = cut(recording((1, 9), (11, 12), seconds=13), 5)
    assert [piece.audio_s for piece in pieces] == [9.0, 3.0]


def test_recordings_are_taken_up_to_a_length() -> None:
    """The last one is cut proxy utterances."""
    both = [recording((1, 4), (6, 9), seconds=10), recording((1, 4), (6, 9), seconds=10)]
    assert [each.audio_s for each in first_seconds(both, 15.5)] == [10.0, 5.0]
    assert [each.audio_s for each in first_seconds(both, 100)] == [10.0, 10.0]


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


def test_what_is_no_speech_in_a_call_is_not_taken_for_any() -> None:
    """Soon after each utterance the detector hears silence: a client that flushes there is not answered twice."""
    for seed, source in enumerate(load_bundled(60.0, 4)):
        call, detector = as_call(source, 0.5, 60.0, seed), WebRtcDetector()
        n_frames = len(call.samples) // FRAME_SAMPLES
        heard = [detector.is_speech(frame) for frame in np.split(call.samples[: n_frames * FRAME_SAMPLES], n_frames)]
        for said in call.utterances:
            behind = round((said.end_s + FLUSH_AFTER_S) * SAMPLE_RATE) // FRAME_SAMPLES
            assert sum(heard[behind : behind + ONSET_WINDOW]) < ONSET_VOICED
