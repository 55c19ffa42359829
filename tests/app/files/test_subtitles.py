"""Subtitles: the syntax of both formats, and cues that are short enough to read."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.files.subtitles import MAX_CUE_CHARS, MAX_CUE_S, Cue, cues, srt, vtt
from app.session import events
from engine import api

SOURCE = api.Segment(
    start_s=0.0, end_s=1.0, text="", tokens=(), avg_logprob=-0.1, compression_ratio=1.0, no_speech_prob=0.0
)


def without_spaces(text: str) -> str:
    return "".join(text.split())


def segment(
    start_s: float,
    end_s: float,
    text: str,
    words: tuple[tuple[str, float, float], ...] = (),
    language: str | None = "en",
) -> events.Segment:
    timed = tuple(events.Word(*word, 0.9) for word in words)
    return events.Segment(
        utterance=0,
        id=0,
        channel=0,
        start_s=start_s,
        end_s=end_s,
        text=text,
        language=language,
        source=SOURCE,
        window_start_s=0.0,
        words=timed,
    )


def test_srt_is_numbered_and_has_commas() -> None:
    made = [Cue(0, 1500, "Hello."), Cue(3_723_004, 3_724_000, "Tom & <Jerry> --> there")]
    assert srt(made) == (
        "1\n00:00:00,000 --> 00:00:01,500\nHello.\n\n2\n01:02:03,004 --> 01:02:04,000\nTom & <Jerry> -> there\n\n"
    )


def test_vtt_has_dots_and_escapes() -> None:
    made = [Cue(0, 1500, "Hello."), Cue(360_000_000, 360_001_000, "Tom & <Jerry> --> there")]
    assert vtt(made) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHello.\n\n"
        "100:00:00.000 --> 100:00:01.000\nTom &amp; &lt;Jerry&gt; --&gt; there\n\n"
    )


def test_a_segment_that_can_be_read_is_one_cue() -> None:
    """The text is on one line, because players wrap it."""
    assert cues([segment(1.0, 4.0, " Hello\n\nthere,  you. ")]) == [Cue(1000, 4000, "Hello there, you.")]


def test_what_has_no_text_is_no_cue() -> None:
    assert cues([segment(1.0, 4.0, " "), segment(4.0, 5.0, "", ((" ", 4.0, 5.0),))]) == []


def test_a_long_segment_is_cut_behind_punctuation_near_its_middle() -> None:
    """Words without times share the time of their segment."""
    text = "This first half of the sentence is said rather slowly, and the other half of it comes soon afterwards."
    first, second = cues([segment(0.0, 6.0, text)])
    assert first.text == "This first half of the sentence is said rather slowly,"
    assert second.text == "and the other half of it comes soon afterwards."
    assert first.end_ms == second.start_ms == pytest.approx(3200, abs=200)


def test_cut_cues_have_the_times_of_their_words() -> None:
    text = "one two three four, five six seven eight"
    words = tuple((word, at * 2.0, at * 2.0 + 0.5) for at, word in enumerate(text.split()))
    assert cues([segment(0.0, 16.0, text, words)]) == [
        Cue(0, 6500, "one two three four,"),
        Cue(8000, 10_500, "five six"),
        Cue(12_000, 16_000, "seven eight"),
    ]


def test_scripts_without_spaces_are_cut_between_characters() -> None:
    """East Asian characters are twice as wide."""
    text = "今日はとても良い天気ですね。" * 5
    made = cues([segment(0.0, 6.0, text, language="ja")])
    assert "".join(cue.text for cue in made) == text
    assert len(made) == 2 and made[0].text.endswith("。")


def test_segments_without_length_follow_one_another() -> None:
    """Some players ignore a cue without a duration."""
    made = cues([segment(1.0, 1.0, "a"), segment(1.0, 1.0, "b"), segment(1.0, 2.0, "c")])
    assert made == [Cue(1000, 1001, "a"), Cue(1001, 1002, "b"), Cue(1002, 2000, "c")]


words = st.text("ab .,日。<&->\n", max_size=12)


@st.composite
def transcripts(draw: st.DrawFn) -> list[events.Segment]:
    made = []
    at_s = 0.0
    for _ in range(draw(st.integers(0, 6))):
        at_s = round(at_s + draw(st.floats(0, 5)), 3)
        texts = draw(st.lists(words, max_size=20))
        timed, until_s = [], at_s
        for text in texts:
            start_s = round(until_s + draw(st.floats(0, 0.5)), 3)
            until_s = round(start_s + draw(st.floats(0, 1)), 3)
            timed.append((text, start_s, until_s))
        has_words = draw(st.booleans())
        language = draw(st.sampled_from(["en", "ja", None]))
        made.append(segment(at_s, until_s, " ".join(texts), tuple(timed) if has_words else (), language))
        at_s = until_s
    return made


@given(transcripts())
def test_cues_never_overlap_and_can_be_read(segments: list[events.Segment]) -> None:
    """No cue is empty, cues do not overlap, and only a single word may be too long to read."""
    made = cues(segments)
    for cue in made:
        assert cue.text.strip() and "\n" not in cue.text
        assert cue.start_ms < cue.end_ms
    for cue, following in pairwise(made):
        assert cue.end_ms <= following.start_ms
    texts = [word.text for each in segments for word in (each.words or (each,))]
    assert without_spaces("".join(cue.text for cue in made)) == without_spaces("".join(texts))
    for shown in (srt(made), vtt(made)):
        assert len(re.findall(r"(?m)^\d\d+:\d\d:\d\d[.,]\d{3} --> \d\d+:\d\d:\d\d[.,]\d{3}$", shown)) == len(made)


@pytest.mark.parametrize("seconds", [30.0, 5.0])
def test_half_a_minute_of_talk_is_cut_into_readable_cues(seconds: float) -> None:
    text = " ".join(["word"] * 60)
    made = cues([segment(0.0, seconds, text)])
    assert all(len(cue.text) <= MAX_CUE_CHARS for cue in made)
    assert all(cue.end_ms - cue.start_ms <= MAX_CUE_S * 1000 + 1 for cue in made)
    assert (made[0].start_ms, made[-1].end_ms) == (0, seconds * 1000)
