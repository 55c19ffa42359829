"""The command that compares systems on real speech: tables, the result file, and the small model."""

import json
import os
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from benchmarks import real_speech
from benchmarks.files.clip_scores import ALL_HUMAN
from benchmarks.files.labelled_clips import Clip
from benchmarks.files.systems import (
    ChannelResult,
    ClipResult,
    FilesOverRest,
    RunningSystem,
    Setup,
    System,
    TimedWord,
    Unavailable,
    parse_system,
)
from benchmarks.recordings import REPOSITORY
from benchmarks.server import RunningServer
from tests.benchmarks.files.test_clip_scores import clip
from tests.small_model import SMALL_MODEL

CLIPS = [
    clip("a", "human-read", "red green blue white"),
    clip("b", "human-read", "over and out", seconds=3.0),
    clip("c", "human-nonnative", "er left and right"),
    clip("d", "nonspeech", "", seconds=2.0),
    clip("e", "call", "the end of the line", ""),
    clip("f", "human-multilingual", "uno dos", language="es"),
]


class FakeSystem:
    """Writes the reference of each clip, or the text given for it."""

    pid = os.getpid()

    def __init__(self, name: str, texts: Mapping[str, str], order: list[tuple[str, str]]) -> None:
        self.versions = {name: "1.0"}
        self._name, self._texts, self._order = name, texts, order

    async def transcribe(self, clips: Sequence[Clip]) -> list[ClipResult]:
        self._order += [(self._name, each.name) for each in clips]
        return [self._result(each) for each in clips]

    def _result(self, clip: Clip) -> ClipResult:
        name = clip.original or clip.name
        texts = (self._texts[name],) if name in self._texts else clip.texts
        start_s = 1.0 if self._name == "ours" else 0.75
        channels = [ChannelResult(text, language="es", words=(TimedWord(text, start_s, 2.0),)) for text in texts]
        return ClipResult(clip, tuple(channels), failure="lost" if "lost" in texts else None)


def fake(
    name: str, texts: Mapping[str, str] | None, order: list[tuple[str, str]], *, has_words: bool = False
) -> System:
    """A system that writes these texts; without them it cannot run."""

    @asynccontextmanager
    async def open_fake(setup: Setup) -> AsyncIterator[RunningSystem]:
        if texts is None:
            raise Unavailable("its package is not installed")
        yield FakeSystem(name, texts, order)

    is_ours, is_live = name.startswith("ours"), name.endswith("live")
    return System(name, open_fake, is_ours=is_ours, is_live=is_live, has_words=has_words)


def run(
    chosen: Sequence[System], monkeypatch: pytest.MonkeyPatch, path: Path, *arguments: str
) -> tuple[Result, dict[str, Any]]:
    monkeypatch.setattr(real_speech, "parse_system", {each.title: each for each in chosen}.__getitem__)
    monkeypatch.setattr(real_speech, "choose_clips", lambda manifest, kinds: CLIPS)
    names = ",".join(each.title for each in chosen)
    ran = CliRunner().invoke(
        real_speech.main, ["--model", SMALL_MODEL, "--systems", names, "--json", str(path), "--markdown", *arguments]
    )
    return ran, json.loads(path.read_text())


def test_systems_stand_side_by_side(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Errors by kind and by what they are, differences, invented words, times of words, languages and versions."""
    wrong = {"a": "red grey blue white wall", "d": "thank you", "f": "uno"}
    ours, theirs = fake("ours", {"b": "over out"}, []), fake("theirs", wrong, [])
    ran, result = run([ours, theirs], monkeypatch, tmp_path / "a.json")
    assert ran.exit_code == 0, ran.output
    assert "| human-read | 2 | 7 | 14.3 | 28.6 |" in ran.output
    assert "| human-read | 2 | 7 | 0/1/0 | 1/0/1 |" in ran.output
    assert f"| {ALL_HUMAN} | 4 | 14 | 0/1/0 | 1/1/1 |" in ran.output
    assert "| theirs | 1 | 0.0 | 1 | 2 | 60.0 |" in ran.output
    assert "| d | theirs | thank you |" in ran.output
    assert "| ours | 1 | 1 | – |" in ran.output
    (difference,) = result["differences"]
    assert (difference["ours"], difference["theirs"], difference["group"]) == ("ours", "theirs", ALL_HUMAN)
    assert difference["points"] == pytest.approx(100 * (1 - 3) / 14)
    assert difference["low"] <= difference["points"] <= difference["high"]
    assert result["systems"]["theirs"]["clips"]["a"]["channels"][0]["text"] == wrong["a"]
    assert result["systems"]["theirs"]["clips"]["a"]["errors"] == {
        "substituted": 1,
        "missing": 0,
        "inserted": 1,
        "words": 4,
    }
    assert result["versions"]["theirs"] == "1.0"
    assert result["systems"]["ours"]["cpu_s"] >= 0.0
    assert (tmp_path / "a.md").read_text() in ran.output
    # Two versions of each clip are twice the words, and say no more about other clips.
    ran, result = run([ours, theirs], monkeypatch, tmp_path / "a.json", "--versions", "2")
    assert "| human-read | 4 | 14 | 14.3 | 28.6 |" in ran.output
    assert result["differences"] == [difference]
    # Where no language is named, it is detected of all clips with speech.
    for arguments, n_detected in ((), 1), (["--detect"], 5):
        _, result = run([ours], monkeypatch, tmp_path / "a.json", *arguments)
        assert result["systems"]["ours"]["languages"]["files"] == n_detected


async def test_hotwords_go_with_each_upload(tmp_path: Path) -> None:
    uploads: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        uploads.append(request.read())
        return httpx.Response(200, json={"text": "red"})

    server = RunningServer("http://tutti", os.getpid())
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://tutti") as client:
        for hotwords in ((), ("Siobhan", "Zürich")):
            setup = Setup(folder="", ct2_folder=str, scratch=tmp_path, hotwords=hotwords)
            await FilesOverRest(setup, server, client, has_words=False).transcribe(CLIPS[:1])
    without, with_hotwords = uploads
    assert b"hotwords" not in without and "Siobhan,Zürich".encode() in with_hotwords


def test_a_model_that_cannot_be_converted_leaves_peers_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The embedded model is in no layout that CTranslate2's converter reads."""

    def refuse(folder: str, target: Path) -> str:
        raise ValueError("Unrecognized model")

    monkeypatch.setattr(real_speech, "convert_for_ctranslate2", refuse)
    ran, result = run([parse_system("faster-whisper-int8-1")], monkeypatch, tmp_path / "a.json")
    assert ran.exit_code == 1 and "cannot be converted: Unrecognized model" in ran.output
    assert [each["state"] for each in result["systems"].values()] == ["unavailable"]


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
