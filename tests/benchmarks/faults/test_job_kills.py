"""A short campaign of kills, and what would be wrong with one."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from benchmarks.faults.job_kills import campaign, complain, storage, table
from tutti_server.plugins.accounts.database.address import database_address

GOOD = {
    "jobs": 2,
    "kills": 20,
    "several_attempts": 2,
    "listed": 2,
    "done": 2,
    "counted": 2,
    "reported": 2,
    "doubled": 0,
    "wrong_texts": 0,
    "unsigned": 0,
    "reports_that_differ": 0,
    "left_after_cleaning": 0,
    "counted_s": 3.0,
    "audio_s": 3.0,
}


async def test_jobs_survive_kills_and_are_done_once(tmp_path: Path) -> None:
    async with asyncio.timeout(110):
        url = database_address(f"sqlite:///{tmp_path}/tutti.db")
        with storage("folder", tmp_path) as stored:
            figures = await campaign(16, 3, 2, url, 1, tmp_path, stored)
    assert complain(figures) == []
    assert figures["kills"] == 3 and table(figures).rows[0] == ("jobs", "16")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"listed": 1}, "listed: expected 2, got 1"),
        ({"done": 1}, "done: expected 2, got 1"),
        ({"counted": 3}, "counted: expected 2, got 3"),
        ({"counted_s": 4.5}, "counted_s: expected 3.0, got 4.5"),
        ({"reported": 1}, "reported: expected 2, got 1"),
        ({"left_after_cleaning": 1}, "left_after_cleaning: expected 0, got 1"),
        ({"several_attempts": 1}, "several_attempts: expected at least 2, got 1"),
        ({"wrong_texts": 1}, "wrong_texts: expected 0, got 1"),
    ],
)
def test_a_loss_fails_the_run(changes: dict[str, Any], complaint: str) -> None:
    assert complain(GOOD) == []
    assert complain(GOOD | changes) == [complaint]
