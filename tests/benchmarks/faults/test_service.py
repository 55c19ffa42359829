"""The service that a campaign disturbs."""

import asyncio
import io
from pathlib import Path
from random import Random

from benchmarks.faults.faults import MAX_JUMP_S, move_clock
from benchmarks.faults.service import DisturbedService, MovedClock


def test_the_time_of_day_of_a_service_jumps(tmp_path: Path) -> None:
    """Its processes read the offset from a file. Their other clocks are those of the machine."""
    offset = tmp_path / "offset"
    clock = MovedClock(tmp_path / "libfaketimeMT.so.1", offset)
    assert offset.read_text() == "+0s\n"
    assert clock.environment["FAKETIME_TIMESTAMP_FILE"] == str(offset)
    assert clock.environment["FAKETIME_DONT_FAKE_MONOTONIC"] == "1"
    service = DisturbedService([], io.StringIO(), clock)
    jumps = set()
    for seed in range(10):
        asyncio.run(move_clock(service, Random(seed)))
        jumps.add(int(offset.read_text().removesuffix("s\n")))
    assert min(jumps) < 0 < max(jumps) and max(map(abs, jumps)) <= MAX_JUMP_S
