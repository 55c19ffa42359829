"""examples/folder: a folder in a batch, which goes on where it stopped."""

import os
import shutil
from pathlib import Path

import pytest

from tests.app.cli.child import running
from tests.compat.conftest import Running
from tests.examples.conftest import EXAMPLES, run
from tests.recordings import TEXTS

PROGRAM = "folder/transcribe_folder.py"
HOLE_S = 1800
BROKEN = os.fsdecode(b"br\xf8ken.mp3")
"""The name of a file that is no recording, as a system of before Unicode has written it."""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def talks(recordings: Path, tmp_path: Path) -> Path:
    """Two recordings, and a file and a folder that look like one."""
    folder = tmp_path / "talks"
    shutil.copytree(recordings / "talks", folder)
    (folder / BROKEN).write_text("no audio")
    (folder / "slides.mov").mkdir()
    return folder


def test_what_is_done_is_not_done_again(server: Running, talks: Path) -> None:
    """A recording that failed is tried again, and so is one that has changed."""
    done = run(PROGRAM, talks, "--url", server.http, "--jobs", 2, PYTHONIOENCODING="utf-8:strict", TUTTI_API_KEY="")
    assert done.returncode == 1
    assert done.stdout.startswith("3 recordings, 0 of them done before\n")
    assert "br?ken.mp3: failed: " in done.stdout and "FFmpeg" in done.stdout
    assert done.stderr == "transcribe_folder.py: 1 failed; run it again to try these once more\n"
    for name, recording in (("hello", talks / "monday/hello.wav"), ("train", talks / "train.wav")):
        assert recording.with_name(f"{name}.wav.txt").read_text() == f"{TEXTS[name]}\n"
        assert f" --> 00:00:0{2 if name == 'hello' else 4}," in recording.with_name(f"{name}.wav.srt").read_text()

    (talks / BROKEN).unlink()
    subtitles = talks / "train.wav.srt"
    os.utime(subtitles, (0, 0))
    done = run(PROGRAM, talks, "--url", server.http)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout == "2 recordings, 1 of them done before\n[1/1] train.wav: 4.7 s, 15 words\n"
    assert subtitles.stat().st_mtime > 0 and not list(talks.rglob("*.part"))


def test_ctrl_c_ends_it_between_two_recordings_and_within_one(server: Running, talks: Path, recordings: Path) -> None:
    """The long one is being sent or transcribed when the short ones are done."""
    (talks / BROKEN).unlink()
    content, n_bytes = bytearray((recordings / "speech.wav").read_bytes()), HOLE_S * 32_000
    content[4:8], content[40:44] = (36 + n_bytes).to_bytes(4, "little"), n_bytes.to_bytes(4, "little")
    (talks / "a_long_one.wav").write_bytes(content)
    os.truncate(talks / "a_long_one.wav", 44 + n_bytes)
    with running(EXAMPLES / PROGRAM, talks, "--url", server.http, "--jobs", "2") as program:
        program.wait_for("train.wav: ")
        program.interrupt()
        assert program.end() == (130, "")
    server.wait_until_idle()
    assert sorted(path.name for path in talks.rglob("*.srt")) == ["hello.wav.srt", "train.wav.srt"]


@pytest.mark.nightly
def test_what_would_fail_for_every_recording_ends_the_batch(talks: Path) -> None:
    done = run(PROGRAM, talks, "--url", "http://127.0.0.1:9")
    assert done.returncode == 1
    assert done.stderr.startswith("transcribe_folder.py: cannot open a session at http://127.0.0.1:9/")
    assert len(done.stderr.splitlines()) == 1
    for arguments in ((talks / "none",), (talks, "--jobs", 0)):
        done = run(PROGRAM, *arguments)
        assert done.returncode == 2
        assert "error: " in done.stderr and "expected" in done.stderr
