"""What the encoder is expected to take, and the decode-time debt of the running sequences."""

import numpy as np
import pytest

from tutti_server.engine.api import Window
from tutti_server.engine.scheduling.encoder_time import EncoderTime
from tutti_server.engine.scheduling.request import Request


class HalfWindows:
    """Every window is half the work of a full one; a call is at least as much as a full one."""

    min_encode_work = 1.0

    def encode_work(self, n_samples: int, is_interim: bool) -> float:
        return 0.5


def batch_of(n_windows: int) -> list[Request]:
    window = Window(samples=np.zeros(16_000, np.float32), session="")
    return [Request(window=window, max_tokens=9, put=lambda item: None) for _ in range(n_windows)]


def test_the_work_of_a_call_is_that_of_its_windows_and_never_less_than_the_minimum() -> None:
    encoder_time = EncoderTime(HalfWindows(), window_s=0.2, min_decode_share=0.0)
    assert [encoder_time.full_windows(batch_of(n)) for n in (1, 2, 3)] == [1.0, 1.0, 1.5]
    assert encoder_time.expected_s(batch_of(3)) == pytest.approx(0.3)


def test_the_time_of_calls_is_shared_out_by_their_work() -> None:
    """And averaged into what a full window takes."""
    encoder_time = EncoderTime(HalfWindows(), window_s=0.2, min_decode_share=0.0)
    assert encoder_time.record([batch_of(2), batch_of(6)], 1.0) == pytest.approx([0.25, 0.75])
    assert encoder_time.window_s == pytest.approx(0.7 * 0.2 + 0.3 * 0.25)


def test_running_sequences_have_a_debt_of_their_share_of_the_time() -> None:
    """A quarter of the time for decoding: a third of what the encoder took, less the steps since."""
    encoder_time = EncoderTime(HalfWindows(), window_s=0.2, min_decode_share=0.25)
    assert encoder_time.debt_fraction == 0.0
    encoder_time.record([batch_of(2)], 0.3)
    assert encoder_time.debt_fraction == 1.0
    encoder_time.record_step(0.04)
    assert encoder_time.debt_fraction == pytest.approx(0.6)
    encoder_time.record_step(0.07)
    assert encoder_time.debt_fraction == 0.0
    encoder_time.record([batch_of(2)], 0.3)
    encoder_time.reset_debt()
    assert encoder_time.debt_fraction == 0.0
