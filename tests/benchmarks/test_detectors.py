"""The comparison of the speech detectors, over a small folder of recordings."""

import json
import wave
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from app.media.pcm import Samples
from app.speech.silero import is_installed
from benchmarks import detectors
from benchmarks.detection.labelled_audio import NOISES
from benchmarks.recordings import load_bundled
from engine.api import SAMPLE_RATE


def write(path: Path, *channels: Samples) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setparams((len(channels), 2, SAMPLE_RATE, 0, "NONE", ""))
        file.writeframes((np.stack(channels, axis=1) * 32767).astype("<i2").tobytes())


@pytest.mark.skipif(not is_installed(), reason="needs the packages of the extra silero")
def test_all_kinds_are_scored_with_all_detectors(tmp_path: Path) -> None:
    """Times come from the manifest, by channel or for all, or from the loudness of a clean clip."""
    recording = load_bundled(8.0, 1)[0]
    spoken = [[span for each in recording.utterances for span in each.spans], []]
    write(tmp_path / "clip.wav", recording.samples)
    write(tmp_path / "call.wav", recording.samples, np.zeros_like(recording.samples))
    (tmp_path / "call.json").write_text(json.dumps({"speech_by_channel": spoken}))
    noise = 0.05 * np.random.default_rng(0).standard_normal(SAMPLE_RATE).astype(np.float32)
    for file in NOISES.values():
        write(tmp_path / file, noise)
    lines = [
        {"file": "clip.wav", "kind": "human-read"},
        {"file": "call.wav", "kind": "synth-call-stereo", "channels": 2, "segments": "call.json"},
        {"file": NOISES["dishes"], "kind": "nonspeech"},
    ]
    (tmp_path / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    path = tmp_path / "result.json"
    arguments = ["--audio", str(tmp_path), "--webrtc", "0.5", "--silero", "0.5", "--sessions", "2", "--json", str(path)]
    done = CliRunner().invoke(detectors.main, arguments)
    assert done.exit_code == 0, done.output
    result = json.loads(path.read_text())
    assert {"human, clean", "human, telephone", "human, music, 0 dB", "call, synthetic", "no speech"} <= set(
        result["kinds"]
    )
    for kind in ("human, clean", "call, synthetic"):
        for found in result["kinds"][kind].values():
            assert found["missed"] < 0.1 and found["n_false"] == 0
    assert result["costs"][0]["n_sessions"] == 2
    assert "false speech" in path.with_suffix(".md").read_text()


@pytest.mark.parametrize("arguments", [["--webrtc", "2"], ["--silero", "high"], ["--sessions", "0"]])
def test_wrong_options_are_named(arguments: list[str]) -> None:
    done = CliRunner().invoke(detectors.main, arguments)
    assert done.exit_code != 0 and (arguments[0] in done.output or "extra silero" in done.output)
