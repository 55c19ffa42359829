"""Silero's detector: its decisions do not depend on what was judged ahead, or beside which other channels."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.recordings import Recording, load_bundled
from tests.fakes import silence
from tutti_server.app.media.pcm import Samples
from tutti_server.app.voices.silero import (
    CHUNK_SAMPLES,
    HYSTERESIS,
    Judgement,
    SileroDetector,
    SileroModel,
    Stretch,
    is_installed,
)
from tutti_server.engine.api import SAMPLE_RATE

FRAME_SAMPLES = SAMPLE_RATE // 50
needs_silero = pytest.mark.skipif(not is_installed(), reason="needs the packages of the extra silero")


class LevelModel(SileroModel):
    """A network whose probability of speech is the level of the last sample; it remembers how often it was called."""

    def __init__(self) -> None:
        self.n_calls = 0

    def judge(self, stretches: Sequence[Stretch]) -> list[Judgement]:
        self.n_calls += 1
        return [Judgement(tuple(map(float, each.inputs[:, -1])), each.memory + 1) for each in stretches]


@pytest.fixture(scope="module")
def model() -> SileroModel:
    return SileroModel()


@pytest.fixture(scope="module")
def recording() -> Recording:
    return load_bundled(20.0, 1)[0]


def frames(samples: Samples) -> list[Samples]:
    n = len(samples) // FRAME_SAMPLES
    return np.split(samples[: n * FRAME_SAMPLES], n)


def decide(detector: SileroDetector, samples: Samples) -> list[bool]:
    return [detector.is_speech(frame) for frame in frames(samples)]


@needs_silero
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_what_was_judged_ahead_changes_no_decision(
    model: SileroModel, recording: Recording, data: st.DataObject
) -> None:
    """However the audio is cut, and also if the detector is renewed between two frames of a piece."""
    plain, hasty = SileroDetector(model), SileroDetector(model)
    rest = frames(recording.samples[: 3 * SAMPLE_RATE])
    while rest:
        n_frames = data.draw(st.integers(1, 40))
        piece, rest = rest[:n_frames], rest[n_frames:]
        if data.draw(st.booleans()) and (stretch := hasty.look_ahead(np.concatenate(piece))):
            hasty.accept(stretch, *model.judge([stretch]))
        renewed_at = data.draw(st.none() | st.integers(0, n_frames))
        for at, frame in enumerate(piece):
            if at == renewed_at:
                plain.renew()
                hasty.renew()
            assert hasty.is_speech(frame) == plain.is_speech(frame)


@needs_silero
def test_a_channel_is_judged_beside_others_as_alone(model: SileroModel, recording: Recording) -> None:
    """Of channels with different numbers of chunks, in any order."""
    rows = [recording.samples[at * SAMPLE_RATE :][: n * CHUNK_SAMPLES] for at, n in ((0, 3), (1, 40), (5, 1), (9, 40))]
    stretches = [stretch for row in rows if (stretch := SileroDetector(model).look_ahead(row))]
    together = model.judge(stretches)
    assert [len(each.probabilities) for each in together] == [3, 40, 1, 40]
    for stretch, judgement in zip(stretches, together, strict=True):
        (alone,) = model.judge([stretch])
        np.testing.assert_allclose(judgement.probabilities, alone.probabilities, atol=1e-5)
        np.testing.assert_allclose(judgement.memory, alone.memory, atol=1e-4)


def test_speech_goes_on_until_the_probability_is_clearly_below_the_threshold() -> None:
    detector = SileroDetector(LevelModel(), threshold=0.6)

    def chunk(level: float) -> bool:
        return detector.is_speech(np.full(CHUNK_SAMPLES, level, dtype=np.float32))

    assert [chunk(level) for level in (0.55, 0.65, 0.55, 0.6 - HYSTERESIS - 0.01, 0.55)] == [
        False,
        True,
        True,
        False,
        False,
    ]
    detector.set_threshold(0.5)
    assert chunk(0.55)
    detector.set_threshold(None)
    assert [chunk(level) for level in (0.4, 0.55)] == [False, False]


def test_a_frame_gets_the_decision_of_the_last_whole_chunk() -> None:
    """A chunk of 32 ms is complete with the second frame of 20 ms, the fourth, the fifth, the seventh, the eighth."""
    model = LevelModel()
    detector = SileroDetector(model)
    assert decide(detector, np.ones(8 * FRAME_SAMPLES, dtype=np.float32)) == [False, *[True] * 7]
    assert model.n_calls == 5


def test_chunks_are_judged_ahead_once() -> None:
    model = LevelModel()
    detector = SileroDetector(model)
    piece = np.ones(10 * FRAME_SAMPLES, dtype=np.float32)
    stretch = detector.look_ahead(piece)
    assert stretch and len(stretch.inputs) == 6
    detector.accept(stretch, *model.judge([stretch]))
    assert detector.look_ahead(piece) is None
    decide(detector, piece)
    assert model.n_calls == 1
    assert detector.look_ahead(silence(0.01)) is None


def test_a_judgement_that_comes_too_late_is_dropped() -> None:
    """The detector has judged by itself meanwhile, or was renewed."""
    model = LevelModel()
    for change in (lambda detector: decide(detector, silence(0.04)), SileroDetector.renew):
        detector = SileroDetector(model)
        stretch = detector.look_ahead(np.ones(SAMPLE_RATE, dtype=np.float32))
        assert stretch
        change(detector)
        detector.accept(stretch, *model.judge([stretch]))
        assert not any(decide(detector, silence(0.2)))
