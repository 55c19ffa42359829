"""The speakers of a live session: numbered as they come, revised by what comes later, in bounded memory."""

import base64
from collections.abc import Sequence

import pytest

from app.speakers.clustering import Thresholds
from app.speakers.online import MAX_ONLINE_GROUPS, MAX_REVISABLE, OnlineSpeakers
from tests.app.speakers.test_diarization import noisy

THRESHOLDS = Thresholds(joins=0.5, knows=0.6)


def feed(
    speakers: OnlineSpeakers, voices: Sequence[int], first: int = 0, are_short: bool = False, seed: int = 0
) -> dict[int, int]:
    """Give a session a stretch of each of these voices. Returns who spoke each, as it is known at the end."""
    known: dict[int, int] = {}
    for number, vector in enumerate(noisy(voices, seed)):
        known |= speakers.add([first + number], vector[None], [are_short])
    return known


def test_speakers_are_numbered_as_they_come() -> None:
    voices = [5] * 6 + [3] * 6 + [5] * 4 + [9] * 6
    known = feed(OnlineSpeakers(THRESHOLDS, 4), voices)
    assert [known[each] for each in range(len(voices))] == [0] * 6 + [1] * 6 + [0] * 4 + [2] * 6


def test_a_new_speaker_is_told_by_the_second_stretch_which_revises_the_first() -> None:
    speakers = OnlineSpeakers(THRESHOLDS, 4)
    feed(speakers, [1] * 5)
    first, second = noisy([7, 7], seed=1)
    assert speakers.add([5], first[None], [False]) == {5: 0}
    assert speakers.add([6], second[None], [False]) == {5: 1, 6: 1}


def test_a_short_stretch_shows_no_new_speaker() -> None:
    speakers = OnlineSpeakers(THRESHOLDS, 4)
    feed(speakers, [1] * 5 + [2] * 5)
    assert set(feed(speakers, [2, 2], first=10, are_short=True).values()) == {1}
    assert set(feed(speakers, [7] * 5, first=12, are_short=True).values()) <= {0, 1}


def test_there_are_never_more_speakers_than_the_client_says() -> None:
    known = feed(OnlineSpeakers(THRESHOLDS, 2), [voice for voice in range(6) for _ in range(5)])
    assert set(known.values()) == {0, 1}


def test_memory_is_bounded_and_labels_hold_in_long_sessions() -> None:
    speakers = OnlineSpeakers(THRESHOLDS, 4)
    voices = [3 * (number // 10 % 3) for number in range(MAX_REVISABLE + 200)]
    known = feed(speakers, voices)
    assert [known[each] for each in range(len(voices))] == [voice // 3 for voice in voices]
    assert len(speakers._groups) <= MAX_ONLINE_GROUPS
    assert sum(len(group.stretches) for group in speakers._groups) <= MAX_REVISABLE


def test_a_session_that_goes_on_knows_the_voices() -> None:
    speakers = OnlineSpeakers(THRESHOLDS, 4)
    feed(speakers, [5] * 6 + [3] * 6)
    memory = speakers.voices()
    assert len(memory) < 2000
    goes_on = OnlineSpeakers(THRESHOLDS, 4, memory)
    known = feed(goes_on, [3] * 4 + [5] * 4 + [9] * 4, seed=2)
    assert [known[each] for each in range(12)] == [1] * 4 + [0] * 4 + [2] * 4
    assert OnlineSpeakers(THRESHOLDS, 4).voices() == ""


@pytest.mark.parametrize("voices", ["x", "v1.2.!!", "v1.0.AAAA", "v1.3.AAAA", "v2.1.AAAAAAAA", "v1.x.AAAAAAAA"])
def test_damaged_voices_are_refused(voices: str) -> None:
    with pytest.raises(ValueError, match="damaged"):
        OnlineSpeakers(THRESHOLDS, 4, voices)


def test_voices_of_another_network_are_forgotten() -> None:
    data = base64.urlsafe_b64encode(bytes((0, 9, 200, 1, 2, 3, 4))).decode().rstrip("=")
    known = feed(OnlineSpeakers(THRESHOLDS, 4, f"v1.1.{data}"), [3] * 4)
    assert set(known.values()) == {0}
