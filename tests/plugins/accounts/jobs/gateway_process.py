"""A gateway that does jobs, in a process of its own, with an engine that takes its time, which may be killed.

python -m tests.plugins.accounts.jobs.gateway_process URL_OF_DATABASE FOLDER CALLBACK_HOST [SPOOL]
"""

import asyncio
import random
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.app.conftest import running
from tests.fakes import FakeTranscriber
from tutti_server.app.media.decoder_workers import Decoders
from tutti_server.app.server.plugins import make_settings
from tutti_server.engine import api
from tutti_server.plugins.accounts.jobs import callbacks, worker
from tutti_server.plugins.accounts.keys import key_directory, usage_counter

MAX_WINDOW_S = 1.5
LEASE_S = 2.0


@dataclass
class SlowTranscriber(FakeTranscriber):
    """Takes a random time for each window, so that a kill may come at any moment of it."""

    async def _events(self, window: api.Window) -> AsyncIterator[api.EngineEvent]:
        await asyncio.sleep(random.random() * MAX_WINDOW_S)
        async for event in super()._events(window):
            yield event


async def main(url: str, folder: str, callback_host: str, spool: str = "") -> None:
    """Serve until SIGTERM, and print the address."""
    key_directory.POLL_S = worker.POLL_S = callbacks.POLL_S = usage_counter.SAVE_EVERY_S = 0.1
    callbacks.LEASE_S = callbacks.FIRST_WAIT_S = LEASE_S
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    settings = make_settings(
        {
            "port": 0,
            "jobs": True,
            "job_lease_s": LEASE_S,
            "job_attempts": 20,
            "job_secret": "secret",
            "job_spool": spool,
            "callback_hosts": callback_host,
            "private_networks": "127.0.0.0/8",
            "database_keys": True,
            "database_url": url,
            "data_folder": folder,
        }
    )
    async with running(settings, SlowTranscriber(), decoders=Decoders()) as server:
        print(server.address, flush=True)
        await stopped.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
