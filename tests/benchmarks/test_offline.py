"""The offline comparison: its arithmetic."""

import numpy as np

from benchmarks import offline
from benchmarks.own_process import Turn
from benchmarks.recordings import Recording
from tutti_server.engine.api import SAMPLE_RATE

RECORDINGS = [Recording("a", np.zeros(8 * SAMPLE_RATE, np.float32), "red green blue white")]


def turn(wall_s: float) -> Turn:
    return Turn(["red green white"], wall_s, 2 * wall_s)


def test_a_row_is_the_median_of_the_passes() -> None:
    row = offline.row("tutti", 1, [turn(1.0), turn(4.0), turn(2.0)], RECORDINGS)
    assert (row["audio_s_per_s"], row["cpu_s_per_audio_s"]) == (4.0, 0.5)
    assert (row["wer"], row["words_lost"], row["words"]) == (0.25, 1, 4)


def test_ratios_are_to_the_faster_batched_run_at_the_same_threads() -> None:
    rows = [
        offline.row("fw-batched-int8", 1, [turn(1.0)], RECORDINGS),
        offline.row("fw-batched-float32", 1, [turn(2.0)], RECORDINGS),
        offline.row("fw-batched-float32", 2, [], RECORDINGS),
        offline.row("tutti", 1, [turn(0.5)], RECORDINGS),
    ]
    assert offline.baseline_speed(rows, 2) is None
    table = offline.table({"rows": rows, "audio_s": 8.0, "repeats": 1, "model": "m"})
    assert [row[4] for row in table.rows] == ["1.00", "0.50", "–", "2.00"]
    assert table.rows[2][2] == "failed"
