"""What the decode steps of a window are measured to take."""

import pytest

from tutti_server.engine.scheduling.decode_time import DecodeTime


def test_a_window_is_charged_its_part_of_full_steps() -> None:
    """A step of two sequences is charged as half of one of four, which takes as long."""
    decode_time = DecodeTime(n_full_step=4, window_s=0.0)
    for n_done in range(0, 400, 2):
        for n_ended in (0, 0, 2):
            decode_time.record(0.01, n_running=2, n_done=n_done + n_ended)
    assert decode_time.window_s == pytest.approx(3 * 0.01 * 2 / 4 / 2, rel=0.01)


def test_what_is_supposed_counts_until_windows_are_measured() -> None:
    decode_time = DecodeTime(n_full_step=1, window_s=0.5)
    decode_time.record(0.1, n_running=1, n_done=0)
    assert decode_time.window_s == 0.5
    decode_time.record(0.1, n_running=1, n_done=1)
    assert 0.2 < decode_time.window_s < 0.5
