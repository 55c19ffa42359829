"""The formats of transcripts; `tests/app/cli/test_transcribe.py` shows whole ones."""

import pytest

from app.files.formats import Layout, as_json, clock
from app.files.transcript import Transcript
from tests.app.files.test_subtitles import segment


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
