"""`tutti adapt` up to the training: which audio it reads, holds back and refuses."""

import shutil
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

from tests.small_model import SMALL_MODEL
from tutti_server.app.cli.adapt import Recorded, hold_back, read_folder
from tutti_server.app.cli.commands import cli

AUDIO = Path(__file__).parents[2] / "audio"


def recorded(seconds: float, text: str | None = None) -> Recorded:
    return Recorded(np.zeros(int(16_000 * seconds), np.float32), text)


def seconds(recordings: list[Recorded]) -> float:
    return sum(len(each.samples) for each in recordings) / 16_000


def test_the_share_is_held_back_and_a_long_recording_is_parted() -> None:
    trained, held = hold_back([recorded(100)], 0.1, 0)
    assert (seconds(trained), seconds(held)) == (90, 10)
    trained, held = hold_back([recorded(7)] * 30, 0.1, 0)
    assert (seconds(trained), seconds(held)) == (189, 21)


def test_recordings_with_transcripts_are_held_back_first() -> None:
    _, held = hold_back([recorded(10), recorded(4, "one"), recorded(10), recorded(4, "two")], 0.25, 0)
    assert sorted(each.text or "" for each in held) == ["one", "two"]


def test_files_that_hold_no_audio_are_skipped_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(AUDIO / "hello.flac", tmp_path)
    (tmp_path / "notes.txt").write_text("not audio")
    (tmp_path / "broken.wav").write_text("not audio either")
    (recording,) = read_folder(str(tmp_path), {(tmp_path / "hello.flac").resolve(): "hello"})
    assert recording.text == "hello" and len(recording.samples) > 16_000
    assert "2 of 3 files are skipped" in capsys.readouterr().err


def test_what_cannot_be_read_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(AUDIO / "hello.flac", tmp_path)
    (tmp_path / "lost.mp3").symlink_to("nowhere")
    assert len(read_folder(str(tmp_path), {})) == 1
    assert f"{tmp_path / 'lost.mp3'}: No such file or directory" in capsys.readouterr().err


def test_a_folder_without_audio_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match="expected a folder with audio files, found none in it"):
        read_folder(str(tmp_path), {})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--steps", "3", "--minutes", "1"], "--steps: expected no --minutes with it"),
        (["--held-out", "nan"], "'--held-out': expected a finite number, got 'nan'"),
        (["--minutes", "inf"], "'--minutes': expected a finite number, got 'inf'"),
        (["--seed", "-1"], "'--seed': -1 is not in the range x>=0"),
        (["--transcripts", "MANIFEST"], "expected JSON lines with file and text"),
        (["--held-out-audio", "AUDIO"], "expected a folder apart from --audio"),
        (["--held-out-audio", "AROUND"], "expected a folder apart from --audio"),
        (["--audio", "nowhere"], "nowhere: expected a folder with recordings, found none of this name"),
        (["--held-out-audio", "nowhere"], "nowhere: expected a folder with recordings, found none of this name"),
        *(
            # The checks that follow are those of the engine, which needs torch.
            pytest.param(changes, message, marks=(pytest.mark.default, pytest.mark.torch))
            for changes, message in (
                (["--output", "FULL"], "expected no such folder, or an empty one; it exists"),
                (["--resume"], "expected the work of an interrupted run"),
                (["--languages", "en,xx"], "languages: expected some of"),
                ([], "expected a folder with audio files"),
            )
        ),
    ],
)
def test_what_cannot_be_used_is_named(changes: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text('{"text": "no file"}\n')
    (tmp_path / "audio").mkdir()
    full = str(tmp_path)
    paths = {"MANIFEST": str(tmp_path / "texts.jsonl"), "AUDIO": str(tmp_path / "audio"), "AROUND": full, "FULL": full}
    changes = [paths.get(each, each) for each in changes]
    # No weights are read before the audio.
    model = shutil.copytree(SMALL_MODEL, tmp_path / "model", ignore=shutil.ignore_patterns("*.bin"))
    (model / "model.safetensors").touch()
    arguments = ["--model", str(model), "--audio", str(tmp_path / "audio"), "--output", str(tmp_path / "new")]
    done = CliRunner().invoke(cli, ["adapt", *arguments, *changes])
    assert done.exit_code != 0 and message in " ".join(done.output.split())
    assert not (tmp_path / "new").exists()
