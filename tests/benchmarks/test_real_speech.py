"""The command that compares systems on real speech, with the small model."""

import json
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import real_speech
from benchmarks.recordings import REPOSITORY
from tests.small_model import SMALL_MODEL


def test_the_small_model_transcribes_a_clip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole command: servers in processes of their own, with files, with times of words, and live."""
    for name in [name for name in os.environ if name.startswith("TUTTI_")]:
        monkeypatch.delenv(name)  # the server would take them for settings
    line = {"file": "hello.flac", "kind": "synth", "text": "Hello everyone, and welcome to the morning meeting."}
    shutil.copy(REPOSITORY / "tests/audio/hello.flac", tmp_path)
    (tmp_path / "manifest.jsonl").write_text(json.dumps(line))
    path = tmp_path / "a.json"
    names = ["tutti-float32", "tutti-float32-words", "tutti-live"]
    arguments = ["--model", SMALL_MODEL, "--manifest", str(tmp_path)]
    arguments += ["--systems", ",".join(names), "--pace", "4", "--json", str(path)]
    ran = CliRunner().invoke(real_speech.main, arguments)
    assert ran.exit_code == 0, ran.output
    found = json.loads(path.read_text())["systems"]
    assert {name: each["kinds"]["synth"]["wer"] for name, each in found.items()} == dict.fromkeys(names, 0.0)
    assert len(found["tutti-float32-words"]["clips"]["hello.flac"]["channels"][0]["words"]) == 8
