"""The record of a call as JSON, SubRip and WebVTT."""

from tutti_server.app.files.call_record import Stretch, make_record
from tutti_server.app.files.call_rendering import as_cues, as_json
from tutti_server.app.files.subtitles import srt, vtt
from tutti_server.app.session.messages.events import Redaction, Word

RECORD = make_record(
    [
        Stretch(
            speaker="agent",
            start_s=1.0,
            end_s=4.0,
            text="Hello there.",
            words=(Word("Hello", 1.0, 2.0, 0.9), Word("there.", 2.0, 4.0, 0.8)),
            language="en",
        ),
        Stretch(speaker="caller", start_s=3.0, end_s=7.0, text="My name is <Ann>.", language="en"),
        Stretch(speaker="caller", start_s=7.5, end_s=8.0, text="Thanks.", language="en"),
    ],
    10.0,
)


def test_the_object_has_what_the_page_describes() -> None:
    assert as_json(RECORD) == {
        "type": "call_record",
        "version": 1,
        "duration_s": 10.0,
        "silence_s": 3.0,
        "silence_share": 0.3,
        "overlap_s": 1.0,
        "speakers": [
            {
                "name": "agent",
                "talk_s": 3.0,
                "talk_share": 0.3,
                "words": 2,
                "words_per_minute": 40.0,
                "turns": 1,
                "longest_turn_s": 3.0,
                "interruptions": 0,
            },
            {
                "name": "caller",
                "talk_s": 5.0,
                "talk_share": 0.5,
                "words": 5,
                "words_per_minute": 60.0,
                "turns": 1,
                "longest_turn_s": 5.0,
                "interruptions": 1,
            },
        ],
        "interruptions": [{"at_s": 3.0, "by": "caller", "of": "agent"}],
        "redactions": [],
        "turns": [
            {
                "speaker": "agent",
                "start_s": 1.0,
                "end_s": 4.0,
                "text": "Hello there.",
                "words": [
                    {"word": "Hello", "start_s": 1.0, "end_s": 2.0, "confidence": 0.9},
                    {"word": "there.", "start_s": 2.0, "end_s": 4.0, "confidence": 0.8},
                ],
            },
            {"speaker": "caller", "start_s": 3.0, "end_s": 8.0, "text": "My name is <Ann>. Thanks.", "words": []},
        ],
    }


def test_redactions_are_in_the_order_of_their_times() -> None:
    """Those of both sides, each with its speaker."""
    parts = [
        Stretch(
            speaker=speaker,
            start_s=start_s,
            end_s=9,
            text=f"[{kind.upper()}]",
            redactions=tuple(Redaction(kind, at_s, at_s + 1) for at_s in times_s),
        )
        for speaker, kind, start_s, times_s in (("agent", "ssn", 0, (2.0, 6.0)), ("caller", "card", 1, (3.0004,)))
    ]
    assert as_json(make_record(parts, 10))["redactions"] == [
        {"kind": "ssn", "speaker": "agent", "start_s": 2.0, "end_s": 3.0},
        {"kind": "card", "speaker": "caller", "start_s": 3.0, "end_s": 4.0},
        {"kind": "ssn", "speaker": "agent", "start_s": 6.0, "end_s": 7.0},
    ]


def test_subtitles_name_their_speakers() -> None:
    assert srt(as_cues(RECORD)).startswith(
        "1\n00:00:01,000 --> 00:00:04,000\nagent: Hello there.\n\n"
        "2\n00:00:03,000 --> 00:00:07,000\ncaller: My name is <Ann>.\n\n"
    )
    assert "<v caller>My name is &lt;Ann&gt;.\n" in vtt(as_cues(RECORD))


def test_text_without_spaces_is_joined_without_them() -> None:
    parts = [
        Stretch(speaker="A", start_s=at, end_s=at + 1, text=text, language="ja")
        for at, text in ((0, "はい"), (1, "ええ"))
    ]
    assert as_json(make_record(parts, 2))["turns"][0]["text"] == "はいええ"


def test_an_empty_recording_has_a_record() -> None:
    record = as_json(make_record([], 0.0))
    assert (record["speakers"], record["turns"], record["silence_share"]) == ([], [], 0.0)
