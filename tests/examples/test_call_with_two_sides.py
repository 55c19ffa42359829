"""examples/call_with_two_sides: a dialogue in order, and subtitles with names."""

import re
from pathlib import Path

import pytest

from tests.compat.conftest import Running
from tests.examples.conftest import run
from tests.recordings import TEXTS

PROGRAM = "call_with_two_sides/call.py"
DIALOGUE = [
    (0.0, f"Agent: {TEXTS['hello']}"),
    (2.5, f"Customer: {TEXTS['train']}"),
    (7.6, "Agent: Good afternoon, thank you for calling."),
]

pytestmark = pytest.mark.timeout(300)


def test_both_sides_are_a_dialogue_in_order_of_time(server: Running, recordings: Path, tmp_path: Path) -> None:
    """The customer begins before the agent has finished."""
    subtitles = tmp_path / "call.srt"
    done = run(PROGRAM, recordings / "call.wav", "--url", server.ws, "--speed", 20, "--srt", subtitles)
    assert (done.stderr, done.returncode) == ("", 0)
    printed = re.findall(r"^00:([\d.]+)  (.+)$", done.stdout, re.MULTILINE)
    cues = re.findall(r"^00:00:(\d\d,\d{3}) --> .*\n(.+)$", subtitles.read_text(), re.MULTILINE)
    for lines in (printed, cues):
        assert [text for _, text in lines] == [text for _, text in DIALOGUE]
        assert [float(at.replace(",", ".")) for at, _ in lines] == pytest.approx([at for at, _ in DIALOGUE], abs=0.3)


def test_what_cannot_be_a_call_is_explained(server: Running, recordings: Path, tmp_path: Path) -> None:
    """Nothing is written, too."""
    for arguments, problem in (
        (("speech.wav",), "--names: expected one for each of the 1 channels, got 'Agent Customer'"),
        (("call.wav", "--url", "ws://127.0.0.1:9"), "cannot open a session at ws://127.0.0.1:9/v1/stream"),
    ):
        name, *options = arguments
        done = run(PROGRAM, recordings / name, "--srt", tmp_path / "none.srt", *options)
        assert done.returncode == 1
        assert problem in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "none.srt").exists()
