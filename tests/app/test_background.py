"""Works in the background end with their context."""

import asyncio

import pytest

from tutti_server.app.background import in_background, repeat


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


async def test_the_log_tells_of_work_that_has_failed(caplog: pytest.LogCaptureFixture) -> None:
    """At once: what it did is not done any more. The others go on."""
    is_done = asyncio.Event()

    async def fail() -> None:
        raise LookupError("no such room")

    async def work() -> None:
        while "LookupError: no such room" not in caplog.text:  # noqa: ASYNC110
            await asyncio.sleep(0)
        is_done.set()

    async with in_background(fail(), work()):
        await is_done.wait()
    assert [each.message for each in caplog.records] == ["work in the background has failed"]


async def test_work_that_fails_is_done_again(caplog: pytest.LogCaptureFixture) -> None:
    times, is_done = 0, asyncio.Event()

    async def work() -> None:
        nonlocal times
        times += 1
        if times == 1:
            raise LookupError("once")
        is_done.set()

    async with in_background(repeat(work, 0.0, "it cannot be done")):
        await is_done.wait()
    assert [each.message for each in caplog.records] == ["it cannot be done; trying again in 0 s"]
