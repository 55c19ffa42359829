"""What the benchmark of the silence after speech decodes and counts."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import final_tail
from benchmarks.files.labelled_clips import bundled_clips
from benchmarks.final_tail import FoundUtterance, Tail, find_utterances
from benchmarks.recordings import load_bundled
from tests.small_model import SMALL_MODEL


def test_the_tail_follows_the_last_voiced_or_loud_frame() -> None:
    found = FoundUtterance(start=0, loud_until=16_000, voiced_until=17_600, end=25_600)
    ends = [found.audio_end(tail) for tail in (Tail("all"), Tail("silence", 100), Tail("quiet", 80))]
    assert ends == [25_600, 19_200, 17_280]
    assert found.audio_end(Tail("silence", 900)) == found.end


def test_utterances_are_found_with_the_silence_after_them() -> None:
    (recording,) = load_bundled(12.0, 1)
    samples = np.concatenate((recording.samples, np.zeros(16_000, dtype=np.float32)))
    found = list(find_utterances(samples))
    assert found
    for each in found:
        assert each.start < each.loud_until <= each.voiced_until < each.end


def test_a_run_counts_the_words_of_every_tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two of the bundled clips: enough silence gives the words of all audio, and speech that is cut off others."""
    clips = bundled_clips()[:2]
    cut_off = Tail("quiet", -600)
    monkeypatch.setattr(final_tail, "bundled_clips", lambda: clips)
    monkeypatch.setattr(final_tail, "TAILS", (Tail("all"), Tail("silence", 100), cut_off))
    path = tmp_path / "out.json"
    ran = CliRunner().invoke(final_tail.main, ["--model", SMALL_MODEL, "--json", str(path)], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    rows = {row["tail"]: row for row in json.loads(path.read_text())["rows"]}
    assert rows["all"]["utterances_with_other_words"] == 0 and rows["all"]["wer"] < 0.1
    assert {row["utterances"] for row in rows.values()} == {rows["all"]["utterances"]}
    assert rows["100 ms of silence"]["wer"] == rows["all"]["wer"]
    assert rows[str(cut_off)]["utterances_with_other_words"] > 0 and rows[str(cut_off)]["wer"] > rows["all"]["wer"]
