"""Subtitles of a room, parsed as strictly as players do."""

import re
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutti_server.app.dialects.rooms.hls_wire import TrackOptions, playlist, track_segment, whole_track
from tutti_server.app.publish.hls_lines import SEGMENT_S, Line, Lines

CLOCK = re.compile(r"(\d{2,}):([0-5]\d):([0-5]\d)\.(\d{3})")
Cue = tuple[int, int, str]


def line(start_s: float, end_s: float, text: str, language: str | None = "en", utterance: int = 0) -> Line:
    return Line(utterance=utterance, channel=0, start_s=start_s, end_s=end_s, text=text, language=language)


def parse_vtt(text: str) -> tuple[list[str], list[Cue]]:
    """The lines of the header, and the cues. Raises for what the syntax of WebVTT does not allow."""
    assert text.endswith("\n\n")
    header, *blocks = text.removesuffix("\n\n").split("\n\n")
    first, *fields = header.split("\n")
    assert first == "WEBVTT"
    cues = []
    for block in blocks:
        times, *texts = block.split("\n")
        start, end = times.split(" --> ")
        assert len(texts) == 1 and texts[0]
        assert "-->" not in texts[0] and "<" not in texts[0]
        cues.append((parse_clock(start), parse_clock(end), texts[0]))
        assert cues[-1][0] < cues[-1][1]
    return fields, cues


def parse_clock(text: str) -> int:
    found = CLOCK.fullmatch(text)
    assert found
    hours, minutes, seconds, ms = map(int, found.groups())
    return ((hours * 60 + minutes) * 60 + seconds) * 1000 + ms


def parse_playlist(text: str) -> tuple[dict[str, str], list[tuple[float, str]]]:
    """The tags of a media playlist, and its segments with their durations. Raises for what RFC 8216 does not allow."""
    lines = text.split("\n")
    assert lines[0] == "#EXTM3U" and lines[-1] == ""
    tags: dict[str, str] = {}
    segments: list[tuple[float, str]] = []
    duration_s: float | None = None
    for each in lines[1:-1]:
        if each.startswith("#EXTINF:"):
            assert "#EXT-X-ENDLIST" not in tags and duration_s is None
            duration_s = float(each.removeprefix("#EXTINF:").removesuffix(","))
        elif each.startswith("#"):
            name, _, value = each.partition(":")
            assert name not in tags
            assert name == "#EXT-X-ENDLIST" or not segments
            tags[name] = value
        else:
            assert duration_s is not None and each
            segments.append((duration_s, each))
            duration_s = None
    # A duration, rounded to the nearest integer, is at most the target duration.
    assert all(round(each) <= int(tags["#EXT-X-TARGETDURATION"]) for each, _ in segments)
    assert int(tags["#EXT-X-VERSION"]) >= 3
    return tags, segments


def test_a_track_has_every_line_in_the_order_of_its_time() -> None:
    lines = [line(3, 4, "Two & three"), line(1, 2, " <One> --> two"), line(3700.5, 3701, "Four")]
    fields, cues = parse_vtt(whole_track(lines))
    assert not fields
    assert cues == [
        (1000, 2000, "&lt;One&gt; --&gt; two"),
        (3000, 4000, "Two &amp; three"),
        (3_700_500, 3_701_000, "Four"),
    ]
    assert parse_vtt(whole_track([])) == ([], [])


def test_a_playlist_slides_and_ends() -> None:
    tags, segments = parse_playlist(playlist("choir-7", 3, 1000.5, True, TrackOptions()))
    assert segments == [(6.0, f"choir-7/{number}.vtt") for number in range(3)]
    assert "#EXT-X-ENDLIST" not in tags
    options = TrackOptions(language="de", mpegts=900_000)
    tags, segments = parse_playlist(playlist("choir-7", 30, 1000.5, False, options))
    assert [address for _, address in segments] == [
        f"choir-7/{number}.vtt?language=de&mpegts=900000" for number in range(20, 30)
    ]
    assert (tags["#EXT-X-MEDIA-SEQUENCE"], "#EXT-X-ENDLIST" in tags) == ("20", True)
    assert datetime.fromisoformat(tags["#EXT-X-PROGRAM-DATE-TIME"]).timestamp() == 1000.5 + 20 * SEGMENT_S


def test_a_segment_maps_its_times_to_those_of_the_video() -> None:
    fields, _ = parse_vtt(track_segment(0, [], TrackOptions(mpegts=900_000)))
    assert fields == ["X-TIMESTAMP-MAP=MPEGTS:900000,LOCAL:00:00:00.000"]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 15), st.integers(0, 3), st.booleans()), max_size=8))
def test_every_cue_is_in_each_segment_of_its_time_or_in_the_next_one(made: list[tuple[int, int, int, bool]]) -> None:
    """And a segment never changes, whatever comes later, or is taken back."""
    lines, seen = Lines(), dict[int, str]()
    for number, (start_s, length_s, n_segments, is_taken_back) in enumerate(made):
        lines.add(line(start_s, start_s + length_s, f"text {number}", utterance=number))
        lines.make_segments((lines.n_segments + n_segments) * SEGMENT_S)
        if is_taken_back and number:
            lines.take_back(number - 1)
        for segment in range(lines.n_segments):
            text = track_segment(segment, lines.of_segment(segment, None), TrackOptions())
            assert seen.setdefault(segment, text) == text
    lines.make_segments(100 * SEGMENT_S)
    kept = [each for each in lines.all if each.gone_from is None]
    for segment in range(100):
        _, cues = parse_vtt(track_segment(segment, lines.of_segment(segment, None), TrackOptions()))
        for start_ms, end_ms, text in parse_vtt(whole_track(kept))[1]:
            due = [each for each in kept if each.text in text and each.shown_from <= segment]
            if due and start_ms < (segment + 1) * SEGMENT_S * 1000 and end_ms > segment * SEGMENT_S * 1000:
                assert (start_ms, end_ms, text) in cues
    shown = {
        cue
        for each in range(100)
        for cue in parse_vtt(track_segment(each, lines.of_segment(each, None), TrackOptions()))[1]
    }
    assert shown >= set(parse_vtt(whole_track(kept))[1])


def test_a_segment_costs_the_lines_of_its_time_alone() -> None:
    """Players fetch one every few seconds: hours of text must not be cut into cues each time."""
    lines = Lines()
    for number in range(100):
        lines.add(line(4.0 * number, 4.0 * number + 3.5, f"text {number}"))
    lines.make_segments(400.0)
    assert {len(list(lines.of_segment(number, None))) for number in range(lines.n_segments)} <= {2, 3}


@pytest.mark.parametrize("language", ["de", "fr"])
def test_a_translation_has_a_track_of_its_own(language: str) -> None:
    lines = Lines()
    lines.add(line(1, 2, "One"))
    translation = line(1, 2, "Eins", "de")
    translation.is_translation = True
    lines.add(translation)
    assert [each.text for each in lines.current(language)] == (["Eins"] if language == "de" else [])
    assert [each.text for each in lines.current(None)] == ["One"]
