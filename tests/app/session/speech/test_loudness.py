"""Which frames are quiet beside the speech and the noise around them."""

import numpy as np
import pytest

from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.speech.endpointing import FRAME_SAMPLES
from tutti_server.app.session.speech.loudness import BLOCK_FRAMES, MEMORY_BLOCKS, Loudness, energies

RANDOM = np.random.default_rng(1)


def frames(level: float, n: int) -> Samples:
    return (level * RANDOM.standard_normal((n, FRAME_SAMPLES))).astype(np.float32)


def heard(*parts: tuple[float, int]) -> list[bool]:
    """Whether each frame of noise of these levels and numbers of frames is quiet."""
    loudness = Loudness()
    return [loudness.is_quiet(energy) for level, n in parts for energy in energies(frames(level, n))]


@pytest.mark.parametrize("noise", [0.0, 0.0003, 0.005])
def test_noise_after_speech_is_quiet(noise: float) -> None:
    found = heard((noise, 20), (0.1, 30), (noise, 10))
    assert not any(found[20:50]) and all(found[50:])


def test_a_session_that_begins_with_speech_has_no_quiet_in_it() -> None:
    assert not any(heard((0.1, 30)))


def test_speech_that_is_hardly_louder_than_the_noise_is_not_quiet() -> None:
    """There the detector decides alone."""
    assert not any(heard((0.05, 20), (0.1, 30), (0.05, 10))[20:])


def test_a_voice_that_becomes_softer_is_not_quiet_for_long() -> None:
    """What was loud is forgotten."""
    n = BLOCK_FRAMES * (MEMORY_BLOCKS + 1)
    assert not any(heard((0.0001, 20), (0.5, 30), (0.004, n))[-BLOCK_FRAMES // 2 :])


def test_a_frame_has_the_same_energy_whatever_is_beside_it() -> None:
    several = frames(0.1, 50)
    assert energies(several) == [each for frame in several for each in energies(frame[None])]
