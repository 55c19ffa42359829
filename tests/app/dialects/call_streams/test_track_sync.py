"""Chunks of a call's tracks come out in their places, whatever way they came in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutti_server.app.dialects.call_streams.track_sync import MAX_GAP_S, MAX_SKEW_MS, TrackSync
from tutti_server.app.dialects.call_streams.track_sync import SILENCE as SILENCES
from tutti_server.app.errors import LimitExceeded
from tutti_server.app.media.pcm import AudioFormat

CHUNK_MS = 20
CHUNK = 160
MULAW = AudioFormat("mulaw", 8000, 1)
SILENCE = SILENCES["mulaw"]
MAX_SKEW_SAMPLES = 8 * MAX_SKEW_MS


def chunk(number: int) -> bytes:
    return bytes([number % 200]) * CHUNK


def channels(audio: bytes, n: int = 2) -> list[bytes]:
    return [audio[at::n] for at in range(n)]


def test_two_tracks_become_two_channels() -> None:
    """As soon as both of them are there."""
    tracks = TrackSync(("inbound", "outbound"), MULAW)
    assert tracks.add("inbound", 0, chunk(1)) == b""
    assert channels(tracks.add("outbound", 0, chunk(2))) == [chunk(1), chunk(2)]
    assert tracks.finish() == b""


def test_one_track_is_handed_on_at_once() -> None:
    tracks = TrackSync(("inbound",), MULAW)
    assert tracks.add("inbound", 5, chunk(1)) == chunk(1)
    assert tracks.add("inbound", 25, chunk(2)) == chunk(2)


def test_missing_chunks_are_silence() -> None:
    tracks = TrackSync(("inbound",), MULAW)
    assert tracks.add("inbound", 0, chunk(1)) == chunk(1)
    assert tracks.add("inbound", 120, chunk(2)) == SILENCE * 5 * CHUNK + chunk(2)


def test_a_track_that_says_nothing_does_not_hold_up_the_other() -> None:
    """It counts as silent, and its later audio for that time is dropped; then both tracks continue together."""
    tracks = TrackSync(("inbound", "outbound"), MULAW)
    heard = b"".join(tracks.add("inbound", at * CHUNK_MS, chunk(at)) for at in range(50))
    n_heard = 50 * CHUNK - MAX_SKEW_SAMPLES
    assert channels(heard) == [b"".join(map(chunk, range(50)))[:n_heard], SILENCE * n_heard]
    assert tracks.add("outbound", 0, chunk(7)) == b""
    assert tracks.n_late_samples == CHUNK
    rest = tracks.add("outbound", 49 * CHUNK_MS, chunk(8)) + tracks.finish()
    assert channels(rest)[1] == SILENCE * (MAX_SKEW_SAMPLES - CHUNK) + chunk(8)


def test_a_gap_that_no_network_makes_ends_the_call() -> None:
    """Nothing is allocated for it."""
    tracks = TrackSync(("inbound",), MULAW)
    tracks.add("inbound", MAX_GAP_S * 1000, chunk(1))
    with pytest.raises(LimitExceeded, match="gaps of at most 60 s"):
        tracks.add("inbound", 10**15 - 1, chunk(2))


@st.composite
def interleaved(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Track and number of each chunk: in order on each track, neither track far ahead of the other."""
    order, sent = [], [0, 0]
    for _ in range(draw(st.integers(0, 60))):
        track = draw(st.integers(0, 1))
        if sent[track] - sent[1 - track] >= 8:
            track = 1 - track
        order.append((track, sent[track]))
        sent[track] += 1
    return order


@given(interleaved(), st.integers(0, 15))
def test_whatever_the_order_each_channel_is_its_track(order: list[tuple[int, int]], first_ms: int) -> None:
    """No sample is lost, moved or added, except for silence after the track that ends first."""
    tracks = TrackSync(("inbound", "outbound"), MULAW)
    audio = b""
    for track, number in order:
        audio += tracks.add(("inbound", "outbound")[track], first_ms + number * CHUNK_MS, chunk(number + 100 * track))
    audio += tracks.finish()
    assert tracks.n_late_samples == 0
    for track, channel in enumerate(channels(audio)):
        sent = b"".join(chunk(number + 100 * each) for each, number in order if each == track)
        assert channel[: len(sent)] == sent
        assert not channel[len(sent) :].strip(SILENCE)
