"""The command that measures live text in audio time: rows and tables."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from benchmarks import stability
from benchmarks.files.labelled_clips import Clip
from benchmarks.live.live_text import ReaderFigures
from benchmarks.live.text_runs import Mode, ModeResult, run_clip
from tests.benchmarks.files.test_clip_scores import clip
from tests.fakes import FakeTranscriber, LevelDetector, said, silence, speech
from tutti_server.app.session.core.options import SessionConfig
from tutti_server.app.session.messages import commands

NUMBERS = [1, 2, 3, 4, 5, 6]
SPEECH = np.concatenate((silence(0.3), speech(NUMBERS), silence(1.0)))
MODES = stability.parse_modes("agreement,none", "1")
AGREEMENT, NONE, FILE = MODES
ENDPOINTING = commands.Endpointing()
PCM = np.rint(SPEECH * 32768).astype(np.int16)
SPOKEN = Clip(name="made up", kind="synth", channels=(PCM,), texts=(said(NUMBERS),))
CONFIG = SessionConfig(make_detector=LevelDetector)


async def test_a_clip_runs_live_and_as_a_file() -> None:
    """Every run gives the same. With interims words are stable before the final, without they come with it."""
    first, again = [await run_clip(FakeTranscriber(), SPOKEN, MODES, CONFIG, ENDPOINTING) for _ in range(2)]
    assert first == again
    assert [result.texts for result in first.values()] == [[said(NUMBERS)]] * 3
    live, final_only = first[AGREEMENT].figures, first[NONE].figures
    # An interim ends inside the second, the third and the sixth word, which the engine then reads as other words.
    assert (live.n_utterances, live.n_words, live.n_changed, live.n_flashed) == (1, 6, 3, 0)
    assert all(a <= b for a, b in zip(live.shown_s, live.stable_s, strict=True))
    assert all(a < b for a, b in zip(live.stable_s[:5], final_only.stable_s[:5], strict=True))
    assert live.first_right_s < final_only.first_right_s
    assert first[FILE].figures == ReaderFigures()


async def test_a_mode_has_its_beams_and_its_policy() -> None:
    """Interims are greedy; without stable words no window has a forced prefix."""
    engine = FakeTranscriber()
    await run_clip(engine, SPOKEN, [Mode("agreement", 5)], CONFIG, ENDPOINTING)
    assert any(window.options.prefix for window in engine.windows)
    beams = {window.is_interim: window.options.sampling.beam_size for window in engine.windows}
    assert beams == {True: 1, False: 5}
    engine = FakeTranscriber()
    await run_clip(engine, SPOKEN, [Mode("never", 2)], CONFIG, ENDPOINTING)
    assert any(window.is_interim for window in engine.windows)
    assert not any(window.options.prefix for window in engine.windows)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(stability.main, arguments)


def test_policies_stand_beside_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Errors, the difference from files with as many beams, what readers saw, invented words, and errors by kind."""
    clips = [clip("a", "human-read", "red green blue white"), clip("b", "nonspeech", "", seconds=3.0)]
    saw = ReaderFigures(
        n_utterances=2,
        n_words=4,
        n_changed=1,
        n_flashed=1,
        first_right_s=[0.5, 1.5],
        ended_s=[0.25, 0.75],
        shown_s=[0.25, float("inf")],
        stable_s=[0.75, 1.0],
    )
    results = {
        "a": {
            AGREEMENT: ModeResult(["red grey blue white"], saw),
            NONE: ModeResult(["red green blue white"]),
            FILE: ModeResult(["red green blue white"]),
        },
        "b": {
            AGREEMENT: ModeResult(["thank you"], replace(saw, n_changed=50)),
            NONE: ModeResult([""]),
            FILE: ModeResult([""]),
        },
    }
    monkeypatch.setattr(stability, "choose_clips", lambda manifest, kinds: clips)
    monkeypatch.setattr(stability, "run_in_processes", lambda setup, clips, n_processes: results)
    path = tmp_path / "a.json"
    ran = run("--beams", "1", "--json", str(path), "--markdown")
    assert ran.exit_code == 0, ran.output
    expected = (
        "| agreement, 1 beam | 4 | 25.0 | +25.0 (+25.0 to +25.0) | 25.0 | 50.0 | 1.00/0.50 | 0.25/0.75 "
        "| 0.25/0.25 | 0.75/1.00 | 2 |"
    )
    assert expected in ran.output
    assert "| files, 1 beam | 4 | 0.0 | – | – | – | – | – | – | – | 0 |" in ran.output
    assert "| human-read | 1 | 4 | 25.0 | 0.0 | 0.0 |" in ran.output
    result: dict[str, Any] = json.loads(path.read_text())
    found = result["systems"]["agreement, 1 beam"]
    assert found["reader"]["word_shown_s"]["never"] == 1
    assert found["texts"] == {"a": ["red grey blue white"], "b": ["thank you"]}
    assert result["systems"]["none, 1 beam"]["reader"]["changed_per_word"] is None
