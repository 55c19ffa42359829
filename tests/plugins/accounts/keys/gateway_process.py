"""A gateway in a process of its own, with a fake engine, which a test may kill: `... URL_OF_DATABASE`."""

import asyncio
import signal
import sys

from tests.app.conftest import running
from tests.fakes import FakeTranscriber
from tutti_server.app.media.decoders import Decoders
from tutti_server.app.server.plugins import make_settings
from tutti_server.plugins.accounts.keys import key_directory, usage_counter


async def main(url: str) -> None:
    """Serve until SIGTERM, and print the address."""
    usage_counter.SAVE_EVERY_S = key_directory.POLL_S = 0.02
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    settings = make_settings({"port": 0, "database_keys": True, "database_url": url})
    async with running(settings, FakeTranscriber(), decoders=Decoders()) as server:
        print(server.address, flush=True)
        await stopped.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
