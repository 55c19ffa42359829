"""Gives the memory that a load took back to the system, in every process that serves clients."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from tutti_server.app.service.admission import Admission

IDLE_S = 5.0
"""After this many seconds without a session and an upload, memory that is not in use is given back.

The engine gives back its own after two seconds without a window.
"""
RETURN_EVERY_S = 60.0
"""While there are sessions or uploads, it is given back this often, in seconds."""


async def return_memory(
    admission: Admission,
    give_back: Callable[[], object],
    idle_s: float = IDLE_S,
    every_s: float = RETURN_EVERY_S,
) -> None:
    """Give memory back in a thread after each load, and now and then during one, until cancelled."""
    while True:
        if admission.all_finished.is_set():
            await admission.has_begun.wait()
        admission.has_begun.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(every_s):
                await admission.all_finished.wait()
                await asyncio.sleep(idle_s)
        await asyncio.to_thread(give_back)
