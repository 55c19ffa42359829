"""A test that waits for ever fails."""

import asyncio

import pytest

from tests.conftest import _limited


async def test_a_test_that_waits_for_ever_fails() -> None:
    """It does so although other tasks have something to do, which an error of a signal would end in its place."""

    async def wait() -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await _limited(wait, 0.0)()


async def test_every_asynchronous_test_has_a_limit(request: pytest.FixtureRequest) -> None:
    names, test = set(), request.node.obj
    while test is not None:
        names.add(test.__code__.co_name)
        test = getattr(test, "__wrapped__", None)
    assert "limited" in names
