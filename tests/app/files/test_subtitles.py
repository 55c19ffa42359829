"""Subtitles: the syntax of both formats, and cues that are short enough to read."""

import re
from itertools import pairwise
from unicodedata import category, east_asian_width

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.app.dialects import made_events
from tutti_server.app.files import subtitles
from tutti_server.app.files.subtitles import (
    DEFAULT_LAYOUT,
    MAX_CUE_S,
    Cue,
    CueCutter,
    CueLayout,
    cues,
    readable,
    srt,
    srt_cue,
    vtt,
)
from tutti_server.app.session.messages import events


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
    return made_events.segment(text, start_s, end_s, language=language, words=timed)


@given(n_words=st.integers(1, 30), speaker=st.text("ab \u4e2d", max_size=20))
def test_a_line_of_subrip_is_no_wider_with_the_name_of_its_speaker(n_words: int, speaker: str) -> None:
    """The name stands before the text of the first line. In WebVTT it is a tag, which takes no column."""
    text = " ".join(["word"] * n_words)
    made = CueCutter(speaker, names_speaker=True).cut(segment(0.0, 5.0, text))
    assert " ".join(" ".join(cue.text.split()) for cue in made) == text
    for cue in made:
        lines = srt_cue(1, cue).splitlines()[2:-1]
        assert 1 <= len(lines) <= 2
        assert all(sum(2 if each == "\u4e2d" else 1 for each in line) <= 42 for line in lines)
    plain = CueCutter(speaker).cut(segment(0.0, 5.0, text))
    assert [cue.text for cue in plain] == [cue.text for cue in CueCutter("").cut(segment(0.0, 5.0, text))]


def test_srt_is_numbered_and_has_commas() -> None:
    made = [Cue(0, 1500, "Hello."), Cue(3_723_004, 3_724_000, "Tom & <Jerry> --> a ---> b")]
    assert srt(made) == (
        "1\n00:00:00,000 --> 00:00:01,500\nHello.\n\n2\n01:02:03,004 --> 01:02:04,000\nTom & <Jerry> -> a -> b\n\n"
    )


def test_vtt_has_dots_and_escapes() -> None:
    made = [Cue(0, 1500, "Hello."), Cue(360_000_000, 360_001_000, "Tom & <Jerry> --> there")]
    assert vtt(made) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHello.\n\n"
        "100:00:00.000 --> 100:00:01.000\nTom &amp; &lt;Jerry&gt; --&gt; there\n\n"
    )


def test_a_segment_that_can_be_read_is_one_cue() -> None:
    assert cues([segment(1.0, 4.0, " Hello\n\nthere,  you. ")]) == [Cue(1000, 4000, "Hello there, you.")]


def test_a_long_segment_is_cut_behind_punctuation_near_its_middle() -> None:
    """Words without times share the time of their segment."""
    text = "This first half of the sentence is said rather slowly, and the other half of it comes soon afterwards."
    first, second = cues([segment(0.0, 6.0, text)])
    assert first.text == "This first half of the sentence\nis said rather slowly,"
    assert second.text == "and the other half of it\ncomes soon afterwards."
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
    assert without_spaces("".join(cue.text for cue in made)) == text
    assert len(made) == 2 and made[0].text.endswith("。")


def test_the_work_for_a_text_without_spaces_grows_with_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server cuts the lines of a room for each player. Counted are the characters whose columns it looks up."""
    columns, n_characters = subtitles._columns, [0]

    def counted(text: str) -> int:
        n_characters[-1] += len(text)
        return columns(text)

    monkeypatch.setattr(subtitles, "_columns", counted)
    CueCutter().cut(segment(0.0, 28.0, "\u8a9e" * 100, language="ja"))
    n_characters.append(0)
    CueCutter().cut(segment(0.0, 28.0, "\u8a9e" * 800, language="ja"))
    assert n_characters[1] < 2 * 8 * n_characters[0]


def test_words_in_latin_letters_keep_their_spaces_beside_characters_without_any() -> None:
    """The text of Japanese speech that was translated has them too, with the times of words and without."""
    timed = (("Hello", 0.0, 0.4), ("there.", 0.5, 1.0))
    for words in ((), timed):
        assert cues([segment(0.0, 1.0, "Hello there.", words, "ja")])[0].text == "Hello there."
    assert cues([segment(0.0, 1.0, "GitHub Actions を使う。", language="ja")])[0].text == "GitHub Actionsを使う。"


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
        assert all(map(str.strip, cue.text.split("\n")))
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
    lines = [cue.text.split("\n") for cue in made]
    assert all(len(line) <= DEFAULT_LAYOUT.max_line_width for each in lines for line in each)
    assert all(len(each) <= DEFAULT_LAYOUT.max_line_count for each in lines)
    assert all(cue.end_ms - cue.start_ms <= MAX_CUE_S * 1000 + 1 for cue in made)
    assert made[0].start_ms == 0 and 0 <= made[-1].end_ms - seconds * 1000 <= 2000


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (CueLayout(max_line_width=20), [["My voice is", "my passport,"], ["verify me today."]]),
        (CueLayout(max_line_width=20, max_line_count=1), [["My voice is"], ["my passport,"], ["verify me today."]]),
        (CueLayout(max_words_per_line=2), [["My voice", "is"], ["my passport,"], ["verify me", "today."]]),
        (CueLayout(max_line_width=80, max_line_count=1), [["My voice is my passport, verify me today."]]),
    ],
)
def test_people_choose_the_size_of_cues(layout: CueLayout, expected: list[list[str]]) -> None:
    made = cues([segment(0.0, 5.0, "My voice is my passport, verify me today.")], layout)
    assert [cue.text.split("\n") for cue in made] == expected


def test_a_word_that_is_wider_than_a_line_has_a_line_of_its_own() -> None:
    """The words beside it stay in its cue."""
    made = cues([segment(0.0, 5.0, "Das Donaudampfschiff fährt auf der Donau.")], CueLayout(max_line_width=12))
    lines = [cue.text.split("\n") for cue in made]
    assert lines == [["Das", "Donaudampfschiff"], ["fährt auf", "der Donau."]]


def test_a_long_pause_parts_cues() -> None:
    """No words of one side are shown with those of the other."""
    words = (("one", 0.0, 0.3), ("two", 7.0, 7.3), ("three", 7.3, 7.6), ("four.", 7.6, 8.0))
    assert [cue.text for cue in cues([segment(0.0, 8.0, "one two three four.", words)])] == ["one", "two three four."]


def test_cues_stay_until_they_are_read() -> None:
    """But no longer than to the next one, and not long after their speech."""
    made = [Cue(0, 300, "Hello."), Cue(1000, 1200, "Yes."), Cue(1500, 2000, "a" * 42), Cue(9000, 9001, "b" * 84)]
    assert [cue.end_ms for cue in readable(made)] == [833, 1500, 3971, 11_001]


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("ar", "ذَهَبَ الطَّالِبُ إِلَى الْمَدْرَسَةِ فِي الصَّبَاحِ الْبَاكِرِ، ثُمَّ عَادَ إِلَى بَيْتِهِ مَسَاءً مَعَ أَصْدِقَائِهِ."),
        ("he", "הילדים הלכו לבית הספר בבוקר מוקדם מאוד, ואחר כך הם חזרו הביתה בערב עם כל החברים שלהם."),
        ("th", "วันนี้อากาศดีมากและเราจะไปเดินเล่นที่สวนสาธารณะใกล้บ้านกับเพื่อนเก่าของเราทุกคนตั้งแต่เช้าจนถึงเย็น"),
        (
            "zh",
            "今天只使用一号和三号站台（其他站台正在维修），请各位乘客注意安全，谢谢大家的配合，祝您旅途愉快！",
        ),
    ],
)
def test_lines_of_every_script_fit(language: str, text: str) -> None:
    """Signs on other characters take no width, and are not parted from them."""
    made = cues([segment(0.0, 6.9, text, language=language)])
    lines = [line for cue in made for line in cue.text.split("\n")]
    assert without_spaces("".join(lines)) == without_spaces(text)
    assert max(map(_width, lines)) <= DEFAULT_LAYOUT.max_line_width
    assert not any(category(line[0]) in ("Mn", "Mc", "Po", "Pe") or category(line[-1]) == "Ps" for line in lines)
    assert len(made) == 1 + (sum(map(_width, text)) > 2 * DEFAULT_LAYOUT.max_line_width)


def _width(text: str) -> int:
    return sum(1 + (east_asian_width(each) in "WF") for each in text if category(each) != "Mn")
