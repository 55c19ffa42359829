"""Clips from a manifest, and sentences joined into windows."""

import json
import random
import wave
from pathlib import Path

import numpy as np
import pytest

from benchmarks.recordings import ReferenceUtterance
from engine.api import SAMPLE_RATE, WINDOW_SAMPLES
from training.evaluation.clips import Clip, in_silence, joined, load, pieces, read_channels, read_manifest, windows_of


def sentence(text: str, seconds: float) -> Clip:
    """A constant sound, its words evenly spaced."""
    n_words = len(text.split())
    return Clip(
        name=text,
        group="voice",
        samples=np.full(round(seconds * SAMPLE_RATE), 0.5, np.float32),
        text=text,
        utterances=(ReferenceUtterance(text, ((0.0, seconds),)),),
        word_starts_s=tuple(seconds * index / n_words for index in range(n_words)),
    )


def test_joined_sentences_know_when_they_are_said() -> None:
    """Sentences and words begin where their sound does."""
    clip = joined("window", [sentence("one two", 1.0), sentence("three", 0.5)], [0.25, 0.5])
    assert clip.text == "one two three"
    assert [(said.start_s, said.end_s) for said in clip.utterances] == [(0.25, 1.25), (1.75, 2.25)]
    assert clip.word_starts_s == (0.25, 0.75, 1.75)
    for start_s in (0.25, 1.75):
        at = round(start_s * SAMPLE_RATE)
        assert clip.samples[at - 1] == 0 and clip.samples[at] == 0.5
    assert clip.audio_s == 2.25


def test_silence_around_a_clip_moves_its_times() -> None:
    clip = in_silence(sentence("one two", 1.0), 0.5, 0.25)
    assert clip.audio_s == 1.75 and clip.utterances[0].start_s == 0.5 and clip.word_starts_s == (0.5, 1.0)


def test_times_of_one_unknown_sentence_are_times_of_none() -> None:
    """Words without times must not be measured against others' times."""
    clip = joined(
        "window",
        [sentence("one", 1.0), Clip(name="x", group="x", samples=np.zeros(10, np.float32), text="two")],
        [0, 0],
    )
    assert clip.utterances == () and clip.word_starts_s == () and clip.group == "mixed"


def test_windows_hold_every_sentence_once_and_no_more_than_a_window() -> None:
    """In their order, and the same with the same seed."""
    clips = [sentence(f"number {index}", 1.0 + index % 4) for index in range(40)]
    windows = windows_of(clips, random.Random(1), "window", (8.0, 30.0))
    assert all(len(window.samples) <= WINDOW_SAMPLES for window in windows)
    assert [said.text for window in windows for said in window.utterances] == [clip.text for clip in clips]
    assert len(windows) < 20
    again = windows_of(clips, random.Random(1), "window", (8.0, 30.0))
    assert [window.utterances for window in windows] == [window.utterances for window in again]


def test_pieces_follow_each_other() -> None:
    clip = Clip(name="noise", group="noise", samples=np.arange(60 * SAMPLE_RATE, dtype=np.float32), text="")
    cut = pieces(clip, random.Random(1), 5.0, 30.0)
    assert all(5.0 <= piece.audio_s <= 30.0 for piece in cut)
    whole = np.concatenate([piece.samples for piece in cut])
    assert len(cut) >= 2 and (whole == np.arange(len(whole))).all()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A manifest with one stereo file at 8 kHz: its left side silent."""
    samples = np.zeros((8000, 2), "<i2")
    samples[:, 1] = 8000
    with wave.open(str(tmp_path / "call.wav"), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(samples.tobytes())
    line = {"file": "call.wav", "kind": "call", "text": "Hello.", "seconds": 1.0}
    (tmp_path / "manifest.jsonl").write_text(json.dumps(line) + "\n")
    return tmp_path


def test_channels_are_kept_apart(folder: Path) -> None:
    channels = read_channels(folder / "call.wav")
    assert channels.shape == (2, SAMPLE_RATE)
    assert not channels[0].any() and channels[1, 4000:-4000].mean() == pytest.approx(8000 / 32768, rel=1e-3)


def test_a_listed_clip_is_mixed_down(folder: Path) -> None:
    (line,) = read_manifest(folder)
    clip = load(folder, line)
    assert (clip.name, clip.group, clip.text, clip.language) == ("call.wav", "call", "Hello.", "en")
    assert clip.samples.shape == (SAMPLE_RATE,)
    assert clip.samples[4000:-4000].mean() == pytest.approx(4000 / 32768, rel=1e-3)


def test_without_a_folder_nothing_is_listed(tmp_path: Path) -> None:
    assert read_manifest(tmp_path / "audio") == []
