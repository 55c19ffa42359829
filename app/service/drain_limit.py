"""The end of a drain: what is not done by then is ended, and its client learns why."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from tutti_server.app.errors import CLOSE_OVERLOADED, LimitExceeded

PARTING_S = 0.3
"""How long a request may still take after the end of the drain, in seconds: to receive the rest of a refused body.

Half a second more is left for the process to end within a second.
"""

_Answer = TypeVar("_Answer")


def draining() -> LimitExceeded:
    """The refusal of a server that is stopping."""
    return LimitExceeded("draining", "the server is going down; try another", CLOSE_OVERLOADED)


class DrainLimit:
    """Limits how long a drain waits, and ends the requests that it has waited for."""

    def __init__(self) -> None:
        self._is_hurried = asyncio.Event()
        self._is_over = False
        self._open: set[asyncio.Timeout] = set()
        """The requests that end with the drain."""

    async def wait_for(self, finished: asyncio.Event, timeout_s: float) -> None:
        """Wait for the event, at most for this time or until `hurry`."""
        waits = [asyncio.ensure_future(event.wait()) for event in (finished, self._is_hurried)]
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def hurry(self) -> None:
        """Let `wait_for` wait no longer."""
        self._is_hurried.set()

    def end(self) -> None:
        """End the requests that are still open, and those that begin after this."""
        self._is_over = True
        for each in self._open:
            each.reschedule(asyncio.get_running_loop().time())

    async def unless_over(self, work: Awaitable[_Answer]) -> _Answer:
        """Await a part of a request. It is cancelled at the end of the drain, or soon if that is over.

        Raises:
            LimitExceeded: the drain is over.
        """
        try:
            async with asyncio.timeout(PARTING_S if self._is_over else None) as limit:
                self._open.add(limit)
                return await work
        except TimeoutError:
            if limit.expired():
                raise draining() from None
            raise
        finally:
            self._open.discard(limit)
