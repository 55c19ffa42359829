"""The speakers of a live session: numbered as they come, revised by what comes later, in bounded memory."""

import base64
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.app.voices.test_file_speakers import noisy
from tutti_server.app.voices import live_clustering
from tutti_server.app.voices.live_clustering import MAX_ONLINE_GROUPS, LiveClusters
from tutti_server.app.voices.speaker_clustering import SpeakerThresholds

THRESHOLDS = SpeakerThresholds(joins=0.5, knows=0.6)
NETWORK = "0a1b2c"
MAX_REVISABLE = 60
"""How many stretches a session may revise here, so that it is long soon."""


def feed(
    speakers: LiveClusters, voices: Sequence[int], first: int = 0, are_short: bool = False, seed: int = 0
) -> dict[int, int]:
    """Give a session a stretch of each of these voices. Returns who spoke each, as it is known at the end."""
    known: dict[int, int] = {}
    for number, vector in enumerate(noisy(voices, seed)):
        known |= speakers.add([first + number], vector[None], [are_short])
    return known


def test_speakers_are_numbered_as_they_come() -> None:
    voices = [5] * 6 + [3] * 6 + [5] * 4 + [9] * 6
    known = feed(LiveClusters(THRESHOLDS, 4), voices)
    assert [known[each] for each in range(len(voices))] == [0] * 6 + [1] * 6 + [0] * 4 + [2] * 6


def test_a_new_speaker_is_told_by_the_second_stretch_which_revises_the_first() -> None:
    speakers = LiveClusters(THRESHOLDS, 4)
    feed(speakers, [1] * 5)
    first, second = noisy([7, 7], seed=1)
    assert speakers.add([5], first[None], [False]) == {5: 0}
    assert speakers.add([6], second[None], [False]) == {5: 1, 6: 1}


def test_a_short_stretch_shows_no_new_speaker() -> None:
    speakers = LiveClusters(THRESHOLDS, 4)
    feed(speakers, [1] * 5 + [2] * 5)
    assert set(feed(speakers, [2, 2], first=10, are_short=True).values()) == {1}
    assert set(feed(speakers, [7] * 5, first=12, are_short=True).values()) <= {0, 1}


def test_there_are_never_more_speakers_than_the_client_says() -> None:
    known = feed(LiveClusters(THRESHOLDS, 2), [voice for voice in range(6) for _ in range(5)])
    assert set(known.values()) == {0, 1}


def test_memory_is_bounded_and_labels_hold_in_long_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_clustering, "MAX_REVISABLE", MAX_REVISABLE)
    speakers = LiveClusters(THRESHOLDS, 4)
    voices = [3 * (number // 10 % 3) for number in range(MAX_REVISABLE + 200)]
    known = feed(speakers, voices)
    assert [known[each] for each in range(len(voices))] == [voice // 3 for voice in voices]
    assert len(speakers._groups) <= MAX_ONLINE_GROUPS
    assert sum(len(group.stretches) for group in speakers._groups) <= MAX_REVISABLE


def test_a_session_that_goes_on_knows_the_voices() -> None:
    speakers = LiveClusters(THRESHOLDS, 4)
    feed(speakers, [5] * 6 + [3] * 6)
    memory = speakers.voices()
    assert len(memory) < 2000
    goes_on = LiveClusters(THRESHOLDS, 4, memory)
    known = feed(goes_on, [3] * 4 + [5] * 4 + [9] * 4, seed=2)
    assert [known[each] for each in range(12)] == [1] * 4 + [0] * 4 + [2] * 4
    assert LiveClusters(THRESHOLDS, 4).voices() == ""


def voices_of(*parts: bytes) -> str:
    data = base64.urlsafe_b64encode(b"".join(parts)).decode().rstrip("=")
    return f"v2.{NETWORK}.{len(parts)}.{data}"


@pytest.mark.parametrize(
    "voices",
    [
        *(
            "x",
            "v2.a.2.!!",
            "v2.a.0.AAAA",
            "v2.a.3.AAAA",
            "v3.a.1.AAAAAAAA",
            "v2.a.x.AAAAAAAA",
            "v2.a.-1.AAAA",
            "v2.a.1.ä",
        ),
        *("v2.1.AAAAAAAA", "v2.a.1.AAAAAAAA.AAAA"),
        voices_of(bytes((200, 9, 200, 1))),
        voices_of(bytes((1, 9, 200, 1)), bytes((1, 9, 200, 2))),
        voices_of(*(bytes((number, 9, 200, 1)) for number in range(11))),
    ],
)
def test_damaged_voices_are_refused(voices: str) -> None:
    with pytest.raises(ValueError, match="damaged"):
        LiveClusters(THRESHOLDS, 4, voices, NETWORK)


@pytest.mark.parametrize("are_short", [False, True])
@pytest.mark.parametrize(
    "voices",
    [
        voices_of(bytes((2, 9, 200, 1, 2, 3, 4))),
        voices_of(bytes((2, 9, 200, *(127 * (axis == 3) for axis in range(16))))).replace(NETWORK, "other"),
        voices_of(bytes((2, 9, 200, *(127 * (axis == 3) for axis in range(16))))).replace(f"v2.{NETWORK}", "v1"),
    ],
    ids=["other dimensions", "another name", "of an earlier version, without a name"],
)
def test_voices_of_another_network_are_forgotten(voices: str, are_short: bool) -> None:
    """Even where they seem to be similar."""
    known = feed(LiveClusters(THRESHOLDS, 4, voices, NETWORK), [3] * 4, are_short=are_short)
    assert set(known.values()) == {0}


@given(st.binary(min_size=4, max_size=200), st.integers(1, 10))
def test_voices_of_any_bytes_are_refused_or_do_no_harm(data: bytes, n: int) -> None:
    voices = f"v2.{NETWORK}.{n}.{base64.urlsafe_b64encode(data).decode().rstrip('=')}"
    try:
        speakers = LiveClusters(THRESHOLDS, 4, voices, NETWORK)
    except ValueError:
        return
    known = feed(speakers, [3, 5] * 3) | feed(speakers, [3], first=6, are_short=True)
    assert set(known) == set(range(7)) and all(0 <= each < 10 for each in known.values())
    LiveClusters(THRESHOLDS, 4, speakers.voices(), NETWORK)
