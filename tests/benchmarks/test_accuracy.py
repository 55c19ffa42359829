"""Word errors by kind: what is counted, how it is added up, and the ways a clip is transcribed."""

import asyncio
import json
import os
import shutil
import wave
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from app.service.settings import Settings
from benchmarks import accuracy
from benchmarks.accuracy import ALL_HUMAN, ALL_SYNTHETIC, NO_SPEECH
from benchmarks.files.labelled_clips import Clip, load_clips, to_wav
from benchmarks.files.transcribers import (
    ClipResult,
    ClipTranscriber,
    Setup,
    TranscribeClips,
    transcribe_live,
    transcribe_over_rest,
    transcribe_with_peer,
)
from benchmarks.live.faulty_proxy import faulty_proxy
from benchmarks.recordings import REPOSITORY
from benchmarks.scoring import WordErrors, align, edit_distance
from tests.app.conftest import running
from tests.fakes import FakeTranscriber, said, silence, speech

QUIET = np.zeros(16000, np.int16)
LETTERS = st.text("ab c", max_size=12)


def clip(name: str, kind: str, *texts: str, language: str = "en") -> Clip:
    return Clip(name=name, kind=kind, channels=tuple(QUIET for _ in texts), texts=texts, language=language)


CLIPS = [
    clip("a", "synth-call", "red green blue white"),
    clip("b", "human-read", "over and out"),
    clip("c", "human-nonnative", "er left and right"),
    clip("d", "nonspeech", ""),
    clip("e", "synth-call", "the end of the line", ""),
    clip("f", "human-read", ""),
]


def fake(
    title: str, texts: dict[str, tuple[str, ...]], *, needs: str = "json", failures: Sequence[str] = ()
) -> ClipTranscriber:
    """Returns the reference of each clip or the text given for it, the last clip first."""

    async def transcribe(setup: Setup, clips: Sequence[Clip], on_result: Callable[[ClipResult], None]) -> None:
        for each in reversed(clips):
            failure = "lost" if each.name in failures else None
            on_result(ClipResult(each, texts.get(each.name, each.texts), failure=failure))

    return ClipTranscriber(title, transcribe, needs)


def run(
    transcribers: dict[str, ClipTranscriber], monkeypatch: pytest.MonkeyPatch, path: Path, *arguments: str
) -> tuple[Result, dict[str, Any]]:
    monkeypatch.setattr(accuracy, "TRANSCRIBERS", transcribers)
    monkeypatch.setattr(accuracy, "bundled_clips", lambda limit: CLIPS)
    engines = ",".join(transcribers)
    ran = CliRunner().invoke(accuracy.main, ["--engines", engines, "--json", str(path), "--markdown", *arguments])
    return ran, json.loads(path.read_text())


@given(LETTERS, LETTERS)
def test_an_edit_distance_is_the_cost_of_the_best_alignment(a: str, b: str) -> None:
    pairs = align(a, b)
    assert edit_distance(a, b) == sum(i is None or j is None or a[i] != b[j] for i, j in pairs)


def test_channels_are_scored_by_themselves() -> None:
    """A word that was results on the other channel is missing on one and too much on the other."""
    score = accuracy.score(ClipResult(clip("a", "call", "red green", "blue"), ("red", "green blue")))
    assert (score.files, score.audio_s, score.words) == (1, 1.0, WordErrors(0, 1, 1, 3))
    # "red green" is 9 characters, "blue" 4.
    assert (score.character_errors, score.characters) == (6 + 6, 13)


def test_words_where_nobody_speaks_are_made_up() -> None:
    """They are no part of the error rates."""
    score = accuracy.score(ClipResult(clip("a", "noise", ""), ("thank you",)))
    assert (score.made_up_files, score.made_up_words) == (1, 2)
    assert score.words.rate is None
    assert accuracy.score(ClipResult(clip("a", "noise", ""), (" ... ",))).made_up_files == 0


def test_languages_are_scored_by_their_own_rules() -> None:
    result = ClipResult(clip("a", "human", "Am one-Tag!", language="de"), ("am one tag",))
    assert accuracy.score(result).words == WordErrors(0, 0, 0, 3)


def test_kinds_are_added_up_by_who_speaks() -> None:
    """What is left out of the sums is still shown; files in which nobody speaks stand together."""
    members = {name: [each.name for each in clips] for name, clips in accuracy.groups(CLIPS)}
    assert members == {
        "synth-call": ["a", "e"],
        ALL_SYNTHETIC: ["a", "e"],
        "human-read": ["b"],
        "human-nonnative": ["c"],
        ALL_HUMAN: ["b"],
        NO_SPEECH: ["d", "f"],
    }


def test_engines_stand_side_by_side(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Errors by kind, words where nobody speaks, and how far live is from a file."""
    transcribers = {
        "rest": fake("tutti REST", {"a": ("red green blue",)}),
        "live": fake("tutti live", {"a": ("red",), "d": ("thank you",)}),
        "else": fake("else", {}, needs="no_such_module"),
    }
    ran, result = run(transcribers, monkeypatch, tmp_path / "a.json")
    assert ran.exit_code == 0, ran.output
    assert result["live_minus_rest_points"][ALL_SYNTHETIC] == pytest.approx(100 * 2 / 9)
    assert "| synth-call | 2 | 9 | 11.1/15.4 | 33.3/43.6 | not installed | +22.2 |" in ran.output
    assert "| human-read | 1 | 3 | 0.0/0.0 | 0.0/0.0 | not installed | +0.0 |" in ran.output
    assert f"| {NO_SPEECH}, 2 files, 0.0 min: words made up | 0 | 2 | not installed |" in ran.output
    assert f"| {ALL_SYNTHETIC}: missing of 9 words | 1 | 3 | not installed |" in ran.output
    assert f"{ALL_SYNTHETIC}: live differs from REST by +22.22 points, not within 0.3" in ran.output
    assert f"{ALL_HUMAN}: live differs from REST by +0.00 points, within 0.3" in ran.output
    assert "else was left out: no_such_module is not installed" in ran.output
    assert result["engines"]["live"]["texts"]["d"] == ["thank you"]
    assert (tmp_path / "a.md").read_text() in ran.output


def test_live_is_compared_with_the_same_decoding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Live is greedy, and so is the REST it is held against where both were asked."""
    transcribers = {
        "rest": fake("tutti REST", {}),
        "rest-greedy": fake("tutti REST, greedy", {"a": ("red",)}),
        "live": fake("tutti live", {"a": ("red",)}),
    }
    ran, result = run(transcribers, monkeypatch, tmp_path / "a.json")
    assert result["live_minus_rest_points"][ALL_SYNTHETIC] == 0.0
    assert f"{ALL_SYNTHETIC}: live differs from REST, greedy by +0.00 points, within 0.3" in ran.output


def test_a_clip_that_fails_fails_the_benchmark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran, result = run({"rest": fake("tutti REST", {"b": ("",)}, failures="b")}, monkeypatch, tmp_path / "a.json")
    assert ran.exit_code == 1
    assert result["engines"]["rest"]["failures"] == {"b": "lost"}
    assert "tutti REST: b: lost" in ran.output
    assert result["live_minus_rest_points"] == {}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(("--engines", "rest,whatever"), "whatever"), (("--kinds", "synth-call"), "makes no sense without --audio")],
)
def test_what_makes_no_sense_is_told(arguments: tuple[str, ...], expected: str) -> None:
    ran = CliRunner().invoke(accuracy.main, arguments)
    assert ran.exit_code == 2
    assert expected in ran.output


def write_manifest(folder: Path, *lines: dict[str, Any]) -> None:
    """With files of a tenth of a second, 8 kHz; the left channel is louder."""
    for line in lines:
        with wave.open(str(folder / line["file"]), "wb") as file:
            file.setnchannels(line.get("channels", 1))
            file.setsampwidth(2)
            file.setframerate(8000)
            samples = np.tile(np.array([1000, 100][: line.get("channels", 1)], "<i2"), 800)
            file.writeframes(samples.tobytes())
    (folder / "manifest.jsonl").write_text("\n".join(map(json.dumps, lines)))


def test_a_manifest_is_read_by_kind_and_channel(tmp_path: Path) -> None:
    """A file keeps its channels where each has its text; what nobody has written down is left out."""
    write_manifest(
        tmp_path,
        {"file": "1.wav", "kind": "a", "text": "one", "lang": "de"},
        {"file": "2.wav", "kind": "a", "text": None},
        {"file": "3.wav", "kind": "a", "text": "three"},
        {"file": "4.wav", "kind": "b", "text": "four five", "channels": 2, "channel_text": ["four", "five"]},
        {"file": "5.wav", "kind": "b", "text": "six", "channels": 2},
    )
    clips = load_clips(tmp_path)
    assert [(each.name, each.texts, each.language) for each in clips] == [
        ("1.wav", ("one",), "de"),
        ("3.wav", ("three",), "en"),
        ("4.wav", ("four", "five"), "en"),
        ("5.wav", ("six",), "en"),
    ]
    assert all(each.audio_s == pytest.approx(0.1, abs=0.01) for each in clips)
    levels = [[int(np.median(channel)) for channel in each.channels] for each in clips]
    assert levels[0] == [1000]
    assert levels[2] == pytest.approx([1000, 100], abs=1)
    # FFmpeg keeps the power of the mix, as it does for the service.
    assert levels[3] == pytest.approx([1100 / 2**0.5], abs=1)
    assert [each.name for each in load_clips(tmp_path, limit=1)] == ["1.wav", "4.wav"]
    assert [each.name for each in load_clips(tmp_path, ["b"])] == ["4.wav", "5.wav"]
    with pytest.raises(click.ClickException, match="kinds in the manifest: a, b; got c"):
        load_clips(tmp_path, ["c"])


@pytest.mark.parametrize(
    ("text", "expected"), [("{", "manifest.jsonl:1: expected JSON"), ('{"file": "a"}', ":1: expected an object with")]
)
def test_a_manifest_that_cannot_be_read_is_told(text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.jsonl").write_text(text)
    with pytest.raises(click.ClickException, match=expected):
        load_clips(tmp_path)
    with pytest.raises(click.ClickException, match="expected a manifest at"):
        load_clips(tmp_path / "nowhere")


def made_up(name: str, *spoken: Sequence[int]) -> Clip:
    """A clip that the fake engine understands, a channel for each of the lists of words."""
    channels = [np.concatenate((silence(0.2), speech(words), silence(0.7))) for words in spoken]
    longest = max(map(len, channels))
    pcm = tuple(np.rint(np.pad(each, (0, longest - len(each))) * 32768).astype(np.int16) for each in channels)
    return Clip(name=name, kind="synth-made-up", channels=pcm, texts=tuple(said(words) for words in spoken))


@pytest.mark.parametrize("transcribe", [transcribe_over_rest, transcribe_live])
async def test_both_doors_of_the_service_hear_every_channel(transcribe: TranscribeClips, tmp_path: Path) -> None:
    """Each clip once, with its text on its own channel; live there are interims on the way."""
    clips = [made_up("a", [1, 2, 3]), made_up("b", [4, 5, 6], [7, 8]), made_up("c", [9, 10])]
    results: list[ClipResult] = []
    async with asyncio.timeout(30), running(Settings(port=0, max_ahead_s=600.0), FakeTranscriber()) as server:
        setup = Setup(url=server.http, folder="", ct2_folder="", scratch=tmp_path, n_sessions=2, speed=20.0)
        await transcribe(setup, clips, results.append)
    assert {each.clip.name: each.texts for each in results} == {each.name: each.texts for each in clips}
    assert len(results) == len(clips)
    assert [each.failure for each in results] == [None] * 3
    if transcribe is transcribe_live:
        assert sum(each.n_interims for each in results) > 0


@pytest.mark.parametrize("transcribe", [transcribe_over_rest, transcribe_live])
async def test_a_clip_that_the_service_refuses_has_failed(transcribe: TranscribeClips, tmp_path: Path) -> None:
    """The others are results."""
    clips = [made_up("a", [1, 2, 3]), replace(made_up("b", [4]), language="xx")]
    results: list[ClipResult] = []
    async with asyncio.timeout(30), running(Settings(port=0, max_ahead_s=600.0), FakeTranscriber()) as server:
        setup = Setup(url=server.http, folder="", ct2_folder="", scratch=tmp_path, n_sessions=1, speed=20.0)
        await transcribe(setup, clips, results.append)
    outcome = {each.clip.name: each.failure for each in results}
    assert outcome["a"] is None
    assert "language" in str(outcome["b"])


async def test_a_clip_whose_connection_is_lost_has_failed(tmp_path: Path) -> None:
    """It is said what was lost, though the clip is still being sent."""
    results: list[ClipResult] = []
    clip = made_up("a", [1, 2, 3] * 20)
    async with (
        asyncio.timeout(30),
        running(Settings(port=0), FakeTranscriber()) as server,
        faulty_proxy(server.http) as proxy,
    ):
        listening = asyncio.create_task(
            transcribe_live(
                Setup(url=proxy.url, folder="", ct2_folder="", scratch=tmp_path, speed=1.0), [clip], results.append
            )
        )
        await server.transcriber.opened.wait()
        proxy.drop_connections()
        await listening
    assert str(results[0].failure).startswith("ConnectionLost")


async def test_a_peer_whose_process_ends_has_failed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Here for want of a checkpoint: every clip is reported, and nothing is left behind."""
    results: list[ClipResult] = []
    setup = Setup(url="", folder=str(tmp_path / "nowhere"), ct2_folder="nowhere", scratch=tmp_path)
    clips = [made_up("a", [1]), made_up("b", [2], [3])]
    await transcribe_with_peer(setup, clips, results.append, peer="fw")
    assert {each.clip.name: each.texts for each in results} == {"a": ("",), "b": ("", "")}
    assert all("its process ended" in str(each.failure) for each in results)
    assert not (tmp_path / "fw.npz").exists()


def test_a_wav_holds_the_very_samples(tmp_path: Path) -> None:
    samples = np.array([0, 1, -1, 32767, -32768], np.int16)
    (tmp_path / "a.wav").write_bytes(to_wav(samples))
    with wave.open(str(tmp_path / "a.wav")) as file:
        assert (file.getnchannels(), file.getframerate()) == (1, 16000)
        assert np.array_equal(np.frombuffer(file.readframes(10), "<i2"), samples)


def test_the_embedded_model_hears_a_clip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole command: a server in a process of its own, asked for a file and streamed to."""
    for name in [name for name in os.environ if name.startswith("TUTTI_")]:
        monkeypatch.delenv(name)  # the server would take them for settings
    line = {"file": "hello.flac", "kind": "synth", "text": "Hello everyone, and welcome to the morning meeting."}
    shutil.copy(REPOSITORY / "tests/audio/hello.flac", tmp_path)
    (tmp_path / "manifest.jsonl").write_text(json.dumps(line))
    path = tmp_path / "a.json"
    arguments = ["--audio", str(tmp_path), "--kinds", "synth", "--engines", "rest,live", "--json", str(path)]
    ran = CliRunner().invoke(accuracy.main, arguments)
    assert ran.exit_code == 0, ran.output
    engines = json.loads(path.read_text())["engines"]
    assert {name: each["kinds"]["synth"]["wer"] for name, each in engines.items()} == {"rest": 0.0, "live": 0.0}
    assert engines["live"]["n_interims"] > 0
