"""A short campaign of kills."""

import asyncio
from pathlib import Path

from benchmarks.faults.job_kills import campaign, complain, storage, table
from tutti_server.plugins.accounts.database.address import database_address


async def test_jobs_survive_kills_and_are_done_once(tmp_path: Path) -> None:
    async with asyncio.timeout(110):
        url = database_address(f"sqlite:///{tmp_path}/tutti.db")
        with storage("folder", tmp_path) as stored:
            figures = await campaign(16, 3, 2, url, 1, tmp_path, stored)
    assert complain(figures) == []
    assert figures["kills"] == 3 and table(figures).rows[0] == ("jobs", "16")
