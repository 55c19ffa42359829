"""Works in the background end with their context."""

import asyncio

import pytest

from tutti_server.app.background import in_background


async def test_works_have_ended_after_the_context_also_after_an_error() -> None:
    done: list[str] = []
    began = asyncio.Event()

    async def work() -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            done.append("ended")

    with pytest.raises(LookupError):
        async with in_background(work(), work()):
            await began.wait()
            raise LookupError
    assert done == ["ended", "ended"]
