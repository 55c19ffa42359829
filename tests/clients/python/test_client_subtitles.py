"""Segments as subtitles."""

import tutti
from tests.clients.python.client_fakes import make_segment
from tutti_server.app.files.subtitles import Cue, srt, vtt

SEGMENTS = [
    make_segment(" Later ---> <b>&", start_s=3725.0, end_s=3725.0),
    make_segment(" Hello\nthere."),
    make_segment(" "),
]


def test_srt_is_numbered_and_in_order() -> None:
    assert tutti.to_srt(SEGMENTS) == (
        "1\n00:00:00,120 --> 00:00:01,500\nHello there.\n\n2\n01:02:05,000 --> 01:02:05,001\nLater -> <b>&\n\n"
    )


def test_vtt_is_escaped() -> None:
    assert tutti.to_vtt(SEGMENTS) == (
        "WEBVTT\n\n00:00:00.120 --> 00:00:01.500\nHello there.\n\n"
        "01:02:05.000 --> 01:02:05.001\nLater ---&gt; &lt;b&gt;&amp;\n\n"
    )


def test_speakers_are_named_as_in_the_server_s_subtitles() -> None:
    """Before the text, or as a voice; a name has no line break and no arrow."""
    segments = [
        make_segment(" Good morning.", start_s=0.0, end_s=1.0, speaker="A & B\n-->"),
        make_segment(" Hello.", start_s=1.0, end_s=2.0),
    ]
    cues = [Cue(0, 1000, "Good morning.", "A & B\n-->"), Cue(1000, 2000, "Hello.")]
    assert tutti.to_srt(segments) == srt(cues)
    assert "\nA & B ->: Good morning.\n" in srt(cues)
    assert tutti.to_vtt(segments) == vtt(cues)
    assert "\n<v A &amp; B --&gt;>Good morning.\n" in vtt(cues)
