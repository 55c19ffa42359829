"""Clips with transcripts: how a manifest is read."""

import json
import wave
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from benchmarks.files.labelled_clips import load_clips


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
    """A file keeps its channels where each has its text; a channel without a transcript is left out."""
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
    assert [each.name for each in load_clips(tmp_path, ["b"])] == ["4.wav", "5.wav"]
    with pytest.raises(click.ClickException, match="kinds in the manifest: a, b; got c"):
        load_clips(tmp_path, ["c"])
