"""Damaged recordings, for some seconds."""

from hypothesis import given, settings

from tests.fuzz.mutations import Edit
from tests.fuzz.recordings import DAMAGED, FORMATS, check_recording, recording


def test_true_recordings_are_of_the_format_that_their_name_says() -> None:
    """Each one decodes without damage."""
    marks = {"wav": b"RIFF", "flac": b"fLaC", "ogg": b"OggS", "webm": b"\x1aE\xdf\xa3", "aiff": b"FORM", "au": b".snd"}
    for name, mark in marks.items():
        assert recording(name).startswith(mark)
    for name in FORMATS:
        check_recording((name, [], None, 1_000))


# The same examples each time: FFmpeg is not ours, and a fault that chance finds in it must not stop other work.
@settings(derandomize=True)
@given(DAMAGED)
def test_a_damaged_recording_is_refused_or_decoded(example: tuple[str, list[Edit], int | None, int]) -> None:
    """No other error is raised, and every decoder ends."""
    check_recording(example)
