"""Clips with transcripts: how a manifest is read."""

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from benchmarks.files.labelled_clips import Clip, by_telephone, in_versions, load_clips
from tests.app.dialects.openai.test_files_endpoint import wav


def write_manifest(folder: Path, *lines: dict[str, Any]) -> None:
    """With files of a tenth of a second, 8 kHz; the left channel is louder."""
    for line in lines:
        n_channels = line.get("channels", 1)
        samples = np.tile(np.array([1000, 100][:n_channels]), 800)
        (folder / line["file"]).write_bytes(wav(samples / 32_768, 8000, n_channels))
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


def test_versions_of_a_clip_are_later_quieter_or_noisy() -> None:
    """They are the same each time, and say which clip they are of."""
    channel = np.full(1600, 10_000, np.int16)
    clip = Clip(name="1.wav", kind="a", channels=(channel, channel), texts=("one", "two"))
    plain, quieter, noisy, _ = versions = list(in_versions(clip, 4))
    assert plain is clip
    assert [each.original for each in versions] == ["", *["1.wav"] * 3]
    assert len({each.name for each in versions}) == 4
    assert [len(each.channels[1]) for each in versions] == [1600, 1600 + 1440, 1600 + 2880, 1600 + 4320]
    assert not quieter.channels[0][:1440].any()
    assert set(quieter.channels[0][1440:]) == {7000}
    assert noisy.channels[0][2880:].std() == pytest.approx(10_000 * 10 ** (-35 / 20), rel=0.1)
    assert (noisy.channels[0] == list(in_versions(clip, 3))[2].channels[0]).all()


def test_a_telephone_has_low_tones_alone_and_few_values() -> None:
    """Mu-law has a signal 38 dB above its own noise; nothing is left above 4 kHz."""
    seconds = np.arange(16_000) / 16_000
    low, high = (np.rint(10_000 * np.sin(2 * np.pi * hertz * seconds)).astype(np.int16) for hertz in (1000, 6000))
    clip = Clip(name="1.wav", kind="a", channels=(low, high), texts=("one", "two"))
    changed = by_telephone(clip)
    noise = (changed.channels[0] - low.astype(np.int32))[1000:-1000].std()
    assert 33 < 20 * np.log10(low.std() / noise) < 43
    assert changed.channels[1][1000:-1000].std() < 100
    assert (changed.name, changed.texts, len(changed.channels[0])) == (clip.name, clip.texts, 16_000)


@pytest.mark.parametrize(
    ("clip", "named"),
    [
        ({"kind": "human-read"}, "en"),
        ({"kind": "human-read", "is_detected": True}, None),
        ({"kind": "human-multilingual", "language": "fr"}, None),
    ],
)
def test_a_language_is_named_unless_it_is_to_be_detected(clip: dict[str, Any], named: str | None) -> None:
    assert Clip(name="1.wav", channels=(), texts=("one",), **clip).named_language == named
