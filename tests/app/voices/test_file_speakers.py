"""Clusters of embeddings and the speakers of a recording, with a network of which the right answers are known."""

from collections.abc import AsyncIterator, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.messages.events import Word
from tutti_server.app.voices.file_speakers import HOP_S, Diarizer, Speakers, _filled
from tutti_server.app.voices.speaker_clustering import MAX_GROUPS, SpeakerThresholds, cluster
from tutti_server.app.voices.words_by_speaker import spoken_words

THRESHOLDS = SpeakerThresholds(joins=0.5, knows=0.6)
RATE = 16_000


def noisy(directions: Sequence[int], seed: int = 0, noise: float = 0.1) -> NDArray[np.float32]:
    """Unit vectors near an axis each: their cosines are near 1 for equal axes, and near 0 for others."""
    random = np.random.default_rng(seed)
    vectors = np.eye(16)[list(directions)] + random.normal(0, noise, (len(directions), 16))
    unit: NDArray[np.float32] = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return unit


def tone(pitch_hz: float, seconds: float) -> Samples:
    return (0.3 * np.sin(2 * np.pi * pitch_hz * np.arange(int(RATE * seconds)) / RATE)).astype(np.float32)


async def embed(stretches: Sequence[Samples]) -> NDArray[np.float32]:
    """A voice is a tone here: its embedding is its spectrum in 16 bands."""
    bands = [np.abs(np.fft.rfft(each))[: len(each) // 16].reshape(-1) for each in stretches]
    vectors = np.stack([np.array([part.sum() for part in np.array_split(band, 16)]) for band in bands])
    unit: NDArray[np.float32] = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return unit


async def pieces(*parts: Samples) -> AsyncIterator[Samples]:
    audio = np.concatenate(parts)
    for start in range(0, len(audio), 7777):
        yield audio[start : start + 7777]


async def speakers_of(*parts: Samples, speech: Sequence[tuple[float, float]], most: int = 5) -> Speakers:
    diarizer = Diarizer(embed)
    passed = [each async for each in diarizer.listen(pieces(*parts))]
    assert np.array_equal(np.concatenate(passed), np.concatenate(parts))
    await diarizer.finish()
    return diarizer.speakers(speech, THRESHOLDS, most)


@pytest.mark.parametrize("length", [30, 5 * MAX_GROUPS])
def test_voices_are_told_apart_and_numbered_as_they_come(length: int) -> None:
    truth = [(number // 10) % 3 for number in range(length)]
    assert cluster(noisy([5 - each for each in truth]), 0.5, 8).tolist() == truth


def test_no_more_speakers_than_the_client_allows() -> None:
    labels = cluster(noisy([0, 1, 2, 3] * 10), 0.5, 2)
    assert set(labels.tolist()) == {0, 1}


def test_a_stray_window_is_no_speaker() -> None:
    labels = cluster(noisy([0] * 40 + [1] * 40 + [2]), 0.5, 8)
    assert set(labels.tolist()) == {0, 1}


async def test_words_get_the_speaker_of_their_time() -> None:
    low, high = tone(200, 6), tone(800, 6)
    speakers = await speakers_of(low, high, low, speech=[(0, 18)])
    assert speakers.n == 2
    found = [speakers.speaking(at_s, at_s + 0.3) for at_s in (1.0, 4.0, 7.5, 10.0, 14.0, 17.5)]
    assert [each and each[0] for each in found] == [0, 0, 1, 1, 0, 0]


async def test_the_end_of_a_recording_has_a_window_of_its_own() -> None:
    """Wherever the grid of the windows ends."""
    speakers = await speakers_of(tone(200, 12), tone(800, 11.6), tone(200, 1.1), speech=[(0, 24.7)])
    assert [each and each[0] for each in (speakers.speaking(at_s, at_s + 0.3) for at_s in (22.9, 24.3))] == [1, 0]


async def test_sounds_that_are_not_speech_are_no_speaker() -> None:
    speakers = await speakers_of(tone(200, 4), tone(800, 8), tone(200, 4), speech=[(0, 4), (12, 16)])
    assert speakers.n == 1


async def test_a_recording_shorter_than_a_window_has_a_speaker() -> None:
    speakers = await speakers_of(tone(300, 0.8), speech=[(0.0, 0.8)])
    assert (speakers.n, speakers.speaking(0.1, 0.5)) == (1, (0, 1.0))


async def test_known_speakers_are_found_each_once() -> None:
    speakers = await speakers_of(tone(800, 5), tone(200, 5), speech=[(0, 10)])
    references = await embed([tone(200, 3), tone(400, 3)])
    assert speakers.known(references, 0.9) == {1: 0}


async def test_a_blip_inside_a_turn_belongs_to_the_turn() -> None:
    speakers = await speakers_of(tone(200, 6), tone(800, 6), speech=[(0, 12)])
    words = [Word("a", 1.0, 1.3, 1.0), Word("b", 8.0, 8.1, 1.0), Word("c", 2.0, 2.3, 1.0)]
    assert [each.speaker for each in spoken_words(words, speakers)] == [0, 0, 0]


def test_the_work_for_a_word_does_not_grow_with_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long recording has many windows and many words. Counted are the windows that are compared with words."""
    clip, n_compared = np.clip, [0]

    def counted(windows: NDArray[np.float64], low: float, high: None) -> NDArray[np.float64]:
        n_compared[0] += len(windows)
        return clip(windows, low, high)

    starts = np.arange(0, 3000, HOP_S)
    speech = [(at, at + 0.5) for at in np.arange(0, 3000, 1.5).tolist()]
    monkeypatch.setattr(np, "clip", counted)
    assert np.array_equal(_filled(starts, speech)[1:-1], np.full(len(starts) - 2, 0.5))
    assert n_compared[0] < 5 * len(speech)


def test_the_windows_around_a_time_decide_in_the_longest_recording_too() -> None:
    """The answers are those of a look at all windows."""
    random = np.random.default_rng(3)
    middles_s = np.sort(random.uniform(0, 50, 60))
    labels = random.integers(0, 3, 60)
    labels[:3] = 0, 1, 2
    vectors = noisy(labels.tolist())
    speakers = Speakers(vectors, middles_s, labels)
    scores = vectors @ speakers.centroids.T
    for start_s, length_s in zip(random.uniform(-5, 55, 50), random.uniform(0, 8, 50), strict=True):
        distance = np.abs(middles_s - start_s - length_s / 2)
        reach = max(HOP_S, length_s / 2, distance.min() + 1e-6)
        weights = np.clip(1 - distance / (reach * 1.001), 0, None) + 1e-9 * (distance <= reach)
        found = speakers.speaking(start_s, start_s + length_s)
        assert found and found[0] == int(np.argmax(weights @ scores))
