"""The formats of transcripts; `tests/app/cli/test_transcribe.py` shows whole ones."""

from dataclasses import replace

import pytest

from tests.app.files.test_subtitles import segment
from tutti_server.app.files.formats import Layout, TranscriptWriter, as_json, clock
from tutti_server.app.files.subtitles import CueLayout
from tutti_server.app.files.transcript import Transcript


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.0, "00:00.00"), (59.994, "00:59.99"), (59.996, "01:00.00"), (3723.4, "1:02:03.40")]
)
def test_a_clock_never_shows_sixty_seconds(seconds: float, shown: str) -> None:
    assert clock(seconds) == shown


def test_json_has_the_language_of_each_segment() -> None:
    transcript = Transcript()
    for language in ("en", "de"):
        transcript.add(segment(0.0, 1.0, "Hm.", language=language))
    shown = as_json(transcript, "talk.wav", Layout(format="json"))
    assert shown["language"] == "en"
    segments = shown["segments"]
    assert isinstance(segments, list)
    assert [each["language"] for each in segments] == ["en", "de"]


def test_subtitles_of_several_channels_stay_in_the_order_of_their_times() -> None:
    """The last cue of a channel waits for its next one, and no later cue of another channel overtakes it."""
    written: list[str] = []
    layout = Layout(format="srt", has_channels=True, cues=CueLayout(max_line_width=10))
    writer = TranscriptWriter(written.append, layout, "call.wav")
    for start_s, text, channel in ((0.0, "Hello there.", 0), (0.5, "Hm.", 1), (0.8, "Yes.", 1), (9.0, "Bye.", 0)):
        writer.add(replace(segment(start_s, start_s + 0.2, text), channel=channel))
        writer.advance(start_s)
    writer.finish()
    starts = [cue.split("\n")[1][:12] for cue in "".join(written).strip().split("\n\n")]
    assert starts == ["00:00:00,000", "00:00:00,500", "00:00:00,800", "00:00:09,000"]
    assert "channel 0: Hello\nthere.\n" in "".join(written)
    assert "00:00:00,500 --> 00:00:00,800" in "".join(written), "to the next one of its channel"


@pytest.mark.parametrize("has_channels", [False, True])
def test_a_cue_is_written_once_it_can_be_read_though_its_channel_is_silent(has_channels: bool) -> None:
    """A side that only greets holds nothing of the other side back."""
    written: list[str] = []
    writer = TranscriptWriter(written.append, Layout(format="srt", has_channels=has_channels), "call.wav")
    writer.add(segment(0.0, 0.4, "Hello."))
    writer.advance(0.4)
    assert written == []
    writer.add(replace(segment(20.0, 21.0, "Good morning."), channel=int(has_channels)))
    writer.advance(21.0)
    assert "".join(written).startswith("1\n00:00:00,000 --> 00:00:00,833\n")
    writer.advance(60.0)
    assert "Good morning." in "".join(written)


def test_a_format_that_nobody_writes_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"format: expected one of txt, .*, got 'docx'"):
        TranscriptWriter(print, Layout(format="docx"), "call.wav")
