"""The formats of transcripts; `tests/app/cli/test_transcribe.py` shows whole ones."""

import pytest

from app.files.formats import clock


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.0, "00:00.00"), (59.994, "00:59.99"), (59.996, "01:00.00"), (3723.4, "1:02:03.40")]
)
def test_a_clock_never_shows_sixty_seconds(seconds: float, shown: str) -> None:
    assert clock(seconds) == shown
