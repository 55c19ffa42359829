"""Segments as subtitles."""

import tutti
from tests.clients.python.client_fakes import make_segment

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
