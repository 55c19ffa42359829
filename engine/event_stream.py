"""The events of one submission, on their way to the caller that iterates over them."""

import asyncio
from typing import Self

from tutti_server.engine.api import EngineEvent, is_terminal
from tutti_server.engine.errors import EngineError


class Inbox:
    """Iterates up to the terminal event, or raises the error that came instead. Cancelling `anext` loses nothing."""

    def __init__(self) -> None:
        # Unbounded, but it never holds more than the events of one window, which its token limit bounds.
        self._items: asyncio.Queue[EngineEvent | EngineError] = asyncio.Queue()
        self._end: BaseException | None = None

    def put(self, item: EngineEvent | EngineError) -> None:
        """Add an event, or the error that ends the iteration."""
        self._items.put_nowait(item)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EngineEvent:
        if self._end is not None:
            raise self._end
        item = await self._items.get()
        if isinstance(item, EngineError):
            self._end = item
            raise item
        if is_terminal(item):
            self._end = StopAsyncIteration()
        return item
